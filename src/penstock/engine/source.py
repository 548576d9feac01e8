"""A source: where the next jobs come from, whatever the rules of their queues.

Each turn goes the same way: `look` at what there is, `wish` for some of it, exchange, `learn` what came of it. All that
its user has to do, in which order and why, is in `penstock.engine`. A source asks the database only in `look` and in
what takes a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeAlias

from penstock.policy.batch_size import BatchSize
from penstock.storage.connection.database import Connection
from penstock.storage.work.exchange import ClaimWish, Turn
from penstock.storage.work.leases import Lease, LeasedJob
from penstock.storage.work.owner import ChosenJobs

__all__ = ["NOTHING", "NO_BATCH_SIZES", "NO_EXECUTORS", "BatchSizes", "Executors", "Source", "Wish"]

# By queue and task: how many jobs of it are started together.
BatchSizes: TypeAlias = Mapping[int, Mapping[str, BatchSize]]
NO_BATCH_SIZES: BatchSizes = MappingProxyType({})
# By queue and task, for whoever starts the jobs of a run one after the other: the number of what runs it, from 0 on. A
# run has jobs of one such number.
Executors: TypeAlias = Mapping[int, Mapping[str, int]]
NO_EXECUTORS: Executors = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wish:
    """What a turn is to take: whatever a claim finds, or the jobs that an owner chose."""

    claim: ClaimWish | None = None
    choices: Sequence[ChosenJobs] = ()

    def __bool__(self) -> bool:
        return self.claim is not None or bool(self.choices)

    @property
    def size(self) -> int:
        """How many jobs at most, but for those that a claim finds in batches."""
        if self.claim is not None:
            return self.claim.slots + self.claim.ahead
        return sum(len(choice.jobs) for choice in self.choices)

    def order(self) -> dict[int, int]:
        """The jobs that were chosen, each with its number in the order of starts."""
        return {job: number for number, job in enumerate(job for choice in self.choices for job in choice.jobs)}


NOTHING = Wish()


class Source(Protocol):
    """Used by one thread; `now` is its monotonic time."""

    def is_look_due(self, now: float) -> bool:
        """Whether a look would ask anything."""

    def look(self, connection: Connection, wanted: int, now: float) -> None:
        """See what there is, if so many jobs are wanted. Called before `note_ends`: what was noted as ended, and is
        still leased in what this sees, would count as running elsewhere.
        """

    def wish(self, slots: int, ahead: int, waiting: int, now: float) -> Wish:
        """What to take for so many free slots, and to follow that soon; so many wait already. A batch counts as one."""

    def expect(self, job_seconds: float | None) -> None:
        """How long jobs took of late: of a run no more is taken than starts within a second."""

    @property
    def has_runs(self) -> bool:
        """Whether jobs may follow at the tail of a run, though no slot is free."""

    def close_runs(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Let no more follow in the runs of these keys, by partition: they are over."""

    @property
    def has_startable(self) -> bool:
        """Whether a job could start that has no slot, as far as is known."""

    def learn(self, wish: Wish, turn: Turn, now: float) -> list[Lease]:
        """Learn what came of a wish; the new leases."""

    def read_ahead(self, leases: Iterable[Lease]) -> dict[int, LeasedJob]:
        """The jobs of new leases as far as they were read already, by id; they are not kept any longer."""

    def has_unread(self, leases: Iterable[Lease]) -> bool:
        """Whether jobs of these leases, which were not read ahead, are followed by others that were not either."""

    def read_on(self, connection: Connection, leases: Iterable[Lease]) -> None:
        """Read these ahead after all, and those that follow them with them."""

    def queue_of(self, partition: int) -> int:
        """The queue of a partition that a lease came from."""

    def note_ends(self, ends: Iterable[tuple[int, int, str]], now: float) -> None:
        """Learn of which partition which jobs ended, and how; "release" and "suspect": it goes back."""

    def note_succeeded(self, partition: int, jobs: Sequence[int], now: float) -> None:
        """The same of jobs of one partition that succeeded, as most do: many at once cost less."""

    def withhold(self, paused: Set[int], blocked: Set[int]) -> None:
        """Take nothing of these queues: they are paused, or what would run them cannot."""

    def cap(self, left: Mapping[int, int]) -> None:
        """Take no more than so many jobs of each of these queues with the next wish."""

    @property
    def surplus(self) -> list[int]:
        """Partitions that others should have, once nothing of them waits here."""

    def give_up(self, connection: Connection, partitions: Sequence[int]) -> None:
        """Let others have these."""

    @property
    def must_leave(self) -> bool:
        """Whether `leave` has to be called when nothing is taken any more."""

    def leave(self, connection: Connection) -> None:
        """Let others have everything, for good."""

    def has_work(self, connection: Connection, now: float) -> bool:
        """Whether anything could start now."""

    def note_idle(self, connection: Connection, now: float) -> None:
        """Before sleeping: note which partitions have nothing that could start, and look at everything once more."""

    def patience(self, now: float) -> float:
        """Seconds after which to look again, whatever happens."""

    def look_again(self) -> None:
        """Look at everything at the next turn."""

    def note_news(self) -> None:
        """Something may have come: do not wait until it is time to look."""

    def forget(self) -> None:
        """Forget everything that was read: nothing of it is certain any more."""
