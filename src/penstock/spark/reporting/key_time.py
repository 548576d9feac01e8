"""The time that a key needs alone, where its jobs run one after the other: jobs x (run + turn).

A *turn* lies between the end of a job and the start of the next of its key: the end is committed, the owner chooses,
the next is handed to a slot. No number of partitions or workers makes it shorter, since a key has one owner. With
`run=N` up to N jobs share a turn, no more of them than start within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.rules import NOT_WITH_RUN, QueueRules

__all__ = ["ENOUGH", "STATED_TURN_SECONDS", "KeyTime", "find_run"]

# A turn where none was seen: a commit and a round trip on a small machine.
STATED_TURN_SECONDS = 0.005
# From fewer jobs nothing is concluded about a key: the queue's own figures are taken.
ENOUGH = 20
# The run that is advised: of a turn a hundredth is left, and after a crash no more than a hundred jobs of a key repeat.
ADVISED_RUN = 100

# A run must make a key faster by a quarter, or it does not pay.
WORTH = 1.25

# A worker takes no more of a key than starts within it.
_WINDOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class KeyTime:
    """What a key needs for its jobs alone. `is_turn_measured`: its turns were seen; otherwise a stated one is taken."""

    jobs: int
    run_seconds: float
    turn_seconds: float
    is_turn_measured: bool
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", self.jobs * (self.run_seconds + self.turn_seconds))

    def seconds_in_runs(self, run: int) -> float:
        """What it would need if up to `run` jobs shared one of these turns."""
        together = run if self.run_seconds * run <= _WINDOW_SECONDS else max(1.0, _WINDOW_SECONDS / self.run_seconds)
        return self.jobs * (self.run_seconds + self.turn_seconds / together)


def find_run(rules: QueueRules, times: Sequence[KeyTime]) -> int | None:
    """The run to advise to a queue with such keys: where it could have one and has none, and would be done sooner.

    The key that needs the longest must have a run's worth of jobs: with fewer it is none to speak of.
    """
    slowest = max(times, key=lambda time: time.seconds, default=None)
    is_free = rules.per_key == 1 and not rules.has_runs and all(getattr(rules, name) is None for name in NOT_WITH_RUN)
    if not is_free or slowest is None or slowest.jobs < ADVISED_RUN:
        return None
    in_runs = max(time.seconds_in_runs(ADVISED_RUN) for time in times)
    return ADVISED_RUN if slowest.seconds >= WORTH * in_runs else None
