"""Where a slot's next batch comes from: any ready jobs of a plain queue, or what the owner of its partitions chose.

Of a batch only the first jobs count as started at once, the rest as claimed ahead, until they have run for a second:
after a crash before that they run again a few at a time, so that one row that kills its executor is found and does not
use up the attempts of thousands of others. Of a plain queue that is one, and they run again one by one; a limit counts
what has started, so there it is all of them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol

from penstock.owner import Owner
from penstock.storage import workers
from penstock.storage.claim import Lease, Stored, read_jobs
from penstock.storage.database import Connection
from penstock.storage.exchange import FROM_THE_START, ClaimWish, Turn
from penstock.storage.owner import Choice, has_work_of_others, read_partitions

__all__ = ["OwnedTaking", "PlainTaking", "Taking", "Wish"]

STARTED_AT_ONCE = 16  # of an owner's, which chooses for as many slots
# Positions are remembered so that dead rows at the head are not walked again; what lies before them is found by this.
SWEEP_SECONDS = 1.0

Wish = tuple[ClaimWish | None, list[Choice]]


class Taking(Protocol):
    """How a slot finds jobs. Used by its one thread."""

    def look(self, connection: Connection, worker: int, wanted: int, now: float) -> None:
        """See what there is, before those that ended are told."""

    def wish(self, wanted: int, now: float, *, is_gated: bool) -> Wish:
        """What to ask for, or what was chosen already."""

    def took(self, turn: Turn, choices: Sequence[Choice], now: float) -> list[Lease]:
        """Learn what came of it; the leases."""

    def read(self, connection: Connection, leases: Sequence[Lease]) -> Stored:
        """The jobs of leases, by id."""

    def order(self, jobs: list[int]) -> list[int]:
        """Jobs of one turn in the order in which they start."""

    def ended(self, partition: int, job: int, end: str, now: float) -> None:
        """Learn how a job ended."""

    def gave_up(self, connection: Connection, worker: int) -> None:
        """Let others have what they should, after a turn."""

    def has_work(self, connection: Connection, worker: int, now: float) -> bool:
        """Whether anything could start now."""

    def forget(self) -> None:
        """Know nothing for sure any more."""

    def leave(self, connection: Connection, worker: int) -> None:
        """Take nothing any more."""


class PlainTaking:
    """Claims from a plain queue, at whose head any worker may take what comes; so many count as started at once."""

    def __init__(self, queue_id: int, at_once: int = 1) -> None:
        self._queue_id = queue_id
        self._at_once = at_once
        self._positions: dict[int, list[int]] = {}
        self._swept_at = -SWEEP_SECONDS

    def look(self, connection: Connection, worker: int, wanted: int, now: float) -> None:
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self._positions = {each: list(FROM_THE_START) for each, _ in read_partitions(connection, [self._queue_id])}

    def wish(self, wanted: int, now: float, *, is_gated: bool) -> Wish:
        partitions = list(self._positions)
        # Start each time with another partition, so that none waits behind a full one.
        self._positions[partitions[0]] = self._positions.pop(partitions[0])
        at_once = wanted if is_gated else min(wanted, self._at_once)
        positions = [position for partition in self._positions for position in self._positions[partition]]
        return ClaimWish(list(self._positions), positions, at_once, wanted - at_once), []

    def took(self, turn: Turn, choices: Sequence[Choice], now: float) -> list[Lease]:
        for lease in turn.leases:
            positions = self._positions.get(lease.partition_id)
            if positions is not None:
                positions[lease.priority] = max(positions[lease.priority], lease.pos)
        return turn.leases

    def read(self, connection: Connection, leases: Sequence[Lease]) -> Stored:
        rows = read_jobs(connection, [lease for lease in leases if lease.only_job is None])
        rows.update({lease.only_job[0]: lease.only_job for lease in leases if lease.only_job is not None})
        return rows

    def order(self, jobs: list[int]) -> list[int]:
        return jobs

    def ended(self, partition: int, job: int, end: str, now: float) -> None:
        pass

    def gave_up(self, connection: Connection, worker: int) -> None:
        pass

    def has_work(self, connection: Connection, worker: int, now: float) -> bool:
        self.forget()
        return workers.has_work(connection, worker)

    def forget(self) -> None:
        self._swept_at = -SWEEP_SECONDS

    def leave(self, connection: Connection, worker: int) -> None:
        pass


class OwnedTaking:
    """Owns a share of a queue's partitions and takes what their rules let start."""

    def __init__(self, queue_id: int, tasks: Container[str]) -> None:
        self._owner = Owner({queue_id: tasks})
        self._places: dict[int, int] = {}

    def look(self, connection: Connection, worker: int, wanted: int, now: float) -> None:
        self._owner.share(connection, worker, now)
        self._owner.look(connection, wanted, now)

    def wish(self, wanted: int, now: float, *, is_gated: bool) -> Wish:
        at_once = min(wanted, STARTED_AT_ONCE)
        choices = self._owner.choose(at_once, wanted - at_once, 0, now)
        self._places = {job: place for place, job in enumerate(job for choice in choices for job in choice.jobs)}
        return None, choices

    def took(self, turn: Turn, choices: Sequence[Choice], now: float) -> list[Lease]:
        self._owner.leased(choices, turn, now)
        return turn.chosen + turn.leases

    def read(self, connection: Connection, leases: Sequence[Lease]) -> Stored:
        known = self._owner.stored(leases)
        unread = [lease for lease in leases if any(lease.range * 1024 + p not in known for p in lease.positions)]
        rows = read_jobs(connection, unread, with_task=True)
        rows.update(known)
        return rows

    def order(self, jobs: list[int]) -> list[int]:
        return sorted(jobs, key=lambda job: self._places.get(job, -1))

    def ended(self, partition: int, job: int, end: str, now: float) -> None:
        self._owner.ended(partition, job, end, now)

    def gave_up(self, connection: Connection, worker: int) -> None:
        if surplus := self._owner.surplus:
            self._owner.give_up(connection, worker, surplus)

    def has_work(self, connection: Connection, worker: int, now: float) -> bool:
        self._owner.look_again()
        self._owner.share(connection, worker, now)
        self._owner.look(connection, 1, now)
        if not self._owner.is_idle(now):
            return True
        self._owner.note_quiet(connection, worker, now)
        return has_work_of_others(connection, worker) or workers.has_work(connection, worker)

    def forget(self) -> None:
        self._owner.forget()

    def leave(self, connection: Connection, worker: int) -> None:
        self._owner.leave(connection, worker)
