"""Upkeep: what any worker does for all, every few seconds, safely in many at once.

upkeep    the duties of one shard      shared    those about several at once
"""

from penstock.upkeep.shared import SharedUpkeep
from penstock.upkeep.upkeep import Upkeep

__all__ = ["SharedUpkeep", "Upkeep"]
