"""The looks of the last minute, and the rates between them.

A total only grows: what came in between two looks is the difference of the totals. Where much comes and goes the last
seconds tell a rate, and where little does the whole minute, so that one job in twenty seconds is not told as none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.model.attention import Attention
from penstock.model.overview import Overview, QueueOverview

__all__ = ["UNKNOWN", "Flow", "Look", "Looks"]

LONGEST_SECONDS = 60.0
SHORT_SECONDS = 8.0
# So many jobs make the last seconds tell enough.
ENOUGH = 20


class Look(NamedTuple):
    """What was seen, and when: by the clock on the wall, and by one that never jumps."""

    overview: Overview
    at: datetime
    seconds: float
    attention: Sequence[Attention] = ()


class Flow(NamedTuple):
    """How many came and left a second."""

    incoming: float | None = None
    outgoing: float | None = None


UNKNOWN = Flow()


class Looks:
    """Those of the last minute, the newest last."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    @property
    def last(self) -> Look | None:
        """The newest, if there is one."""
        return self._looks[-1] if self._looks else None

    def __len__(self) -> int:
        return len(self._looks)

    def add(self, look: Look) -> None:
        """One more. A total over other shards than before says nothing about what came in between."""
        if self.last is not None and self.last.overview.unavailable != look.overview.unavailable:
            self._looks.clear()
        self._looks.append(look)
        while look.seconds - self._looks[0].seconds > LONGEST_SECONDS:
            self._looks.popleft()

    def flows(self) -> dict[str, Flow]:
        """What comes and goes, by queue."""
        if len(self._looks) < 2:
            return {}
        last = self._looks[-1]
        recent = next(look for look in self._looks if last.seconds - look.seconds <= SHORT_SECONDS)
        if recent is last:
            recent = self._looks[-2]
        before = {each.queue: each for each in self._looks[0].overview.queues}
        lately = {each.queue: each for each in recent.overview.queues}
        return {
            each.queue: _flow(
                each,
                (before.get(each.queue), last.seconds - self._looks[0].seconds),
                (lately.get(each.queue), last.seconds - recent.seconds),
            )
            for each in last.overview.queues
        }


def _flow(
    now: QueueOverview, minute: tuple[QueueOverview | None, float], moment: tuple[QueueOverview | None, float]
) -> Flow:
    then, seconds = minute
    if then is None or seconds <= 0 or now.total_enqueued < then.total_enqueued or now.ended < then.ended:
        # A queue that is new, or another one under the name of one that was deleted.
        return UNKNOWN
    start, length = then, seconds
    lately, short = moment
    if lately is not None and short > 0 and _moved(lately, now) >= ENOUGH:
        start, length = lately, short
    return Flow((now.total_enqueued - start.total_enqueued) / length, (now.ended - start.ended) / length)


def _moved(start: QueueOverview, now: QueueOverview) -> int:
    return now.total_enqueued - start.total_enqueued + now.ended - start.ended
