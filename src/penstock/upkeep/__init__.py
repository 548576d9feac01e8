"""Upkeep: what any worker does for all, every few seconds, safely in many at once.

upkeep    the duties of one shard      shared_upkeep    those about several at once
"""

from penstock.upkeep.shared_upkeep import SharedUpkeep
from penstock.upkeep.upkeep import Upkeep

__all__ = ["SharedUpkeep", "Upkeep"]
