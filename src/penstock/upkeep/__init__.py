"""Upkeep: what any worker does for all, every few seconds, safely in many at once.

upkeep          the duties of one database
cron            one of them: entries that are due become jobs
shared_upkeep   the duties about several databases at once
allotting       one of those, several times a second: the permits of a total_limit, the tokens of a total_rate
queue_times     how long jobs waited and ran, as a process counts it until it is written
troubles        duties that fail
"""

from penstock.upkeep.shared_upkeep import SharedUpkeep
from penstock.upkeep.upkeep import Upkeep

__all__ = ["SharedUpkeep", "Upkeep"]
