"""Upkeep: what any worker does for all, every few seconds, safely in many at once.

upkeep          the duties of one database
cron            one of them: entries that are due become jobs
shared_upkeep   the duties about several databases at once
troubles        duties that fail
"""

from penstock.upkeep.shared_upkeep import SharedUpkeep
from penstock.upkeep.upkeep import Upkeep

__all__ = ["SharedUpkeep", "Upkeep"]
