"""How many jobs ended at a worker in the last minute: what it tells with each renewal, beside that it lives.

It keeps the sums that it saw at each renewal of a minute, and never looks at a job.
"""

from __future__ import annotations

from penstock.storage.work.workers import Ended

__all__ = ["LastMinute"]

SECONDS = 60.0


class LastMinute:
    """Used by the heartbeat; nothing had ended when it was made, at that monotonic time."""

    def __init__(self, now: float) -> None:
        self._seen: list[tuple[float, Ended]] = [(now, Ended(0, 0))]

    def note(self, so_far: Ended, now: float) -> Ended:
        """What ended in the minute before now, of all that ended so far."""
        seen = [*self._seen, (now, so_far)]
        # The newest sum that is a minute old, or the oldest that there is.
        first = max((place for place, (at, _) in enumerate(seen) if at <= now - SECONDS), default=0)
        self._seen = seen[first:]
        before = self._seen[0][1]
        return Ended(so_far.jobs - before.jobs, so_far.failures - before.failures)
