"""Judgements: from when on something is wrong. What the doctor, the list of what needs attention and pages say of a
figure is decided here, once.
"""

from __future__ import annotations

__all__ = ["LONG_WAIT_SECONDS", "NEARLY_FULL", "grows"]

# A ready job that has waited for so long waits too long.
LONG_WAIT_SECONDS = 900.0
# This part of its max_length is as good as all of it.
NEARLY_FULL = 0.9
# So many jobs are a backlog that may be worth a word; so much more comes than goes where one grows.
_FEW_JOBS = 100
_CLEARLY_MORE = 1.25


def grows(waiting: int, in_per_minute: float, out_per_minute: float) -> bool:
    """Whether a backlog grows by a clear margin, and is more than is worked off within a minute."""
    return (
        waiting >= _FEW_JOBS
        and waiting > out_per_minute
        and in_per_minute >= 1
        and in_per_minute >= _CLEARLY_MORE * out_per_minute
    )
