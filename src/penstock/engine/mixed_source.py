"""The source of somebody who serves queues of both kinds: it claims from the plain ones and has its owner choose from
the others, in turn; while too little comes of that, both are asked each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from penstock.engine.owned_source import OwnedSource
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import Wish
from penstock.storage.connection.database import Connection
from penstock.storage.work.exchange import Turn
from penstock.storage.work.leases import Lease, LeasedJob, count_slots

__all__ = ["MixedSource"]


class MixedSource:
    """Both are of the same worker, which owns and holds."""

    def __init__(self, plain: PlainSource, owned: OwnedSource) -> None:
        self._plain = plain
        self._owned = owned
        self._is_owners_turn = False
        # How many slots the last wish was for, and whether fewer jobs came.
        self._slots = 0
        self._was_short = False

    def is_look_due(self, now: float) -> bool:
        return True

    def look(self, connection: Connection, wanted: int, now: float) -> None:
        self._plain.look(connection, wanted, now)
        self._owned.look(connection, wanted, now)

    def wish(self, slots: int, ahead: int, waiting: int, now: float) -> Wish:
        self._slots = slots
        self._is_owners_turn = not self._is_owners_turn
        # Where no slot is free, only runs that have begun get more.
        is_for_runs = slots + ahead == 0
        if self._is_owners_turn or self._was_short or is_for_runs:
            wish = self._owned.wish(slots, ahead, waiting, now)
            if wish or is_for_runs:
                return wish
        return self._plain.wish(slots, ahead, waiting, now)

    def expect(self, job_seconds: float | None) -> None:
        self._owned.expect(job_seconds)

    @property
    def has_runs(self) -> bool:
        return self._owned.has_runs

    def close_runs(self, keys: Iterable[tuple[int, bytes]]) -> None:
        self._owned.close_runs(keys)

    @property
    def has_startable(self) -> bool:
        return self._plain.has_startable or self._owned.has_startable

    def learn(self, wish: Wish, turn: Turn, now: float) -> list[Lease]:
        self._plain.learn(wish, turn, now)
        leases = self._owned.learn(wish, turn, now)
        self._was_short = count_slots(leases) < max(self._slots, 1)
        return leases

    def read_ahead(self, leases: Iterable[Lease]) -> dict[int, LeasedJob]:
        leases = list(leases)
        return self._plain.read_ahead(leases) | self._owned.read_ahead(leases)

    def has_unread(self, leases: Iterable[Lease]) -> bool:
        return self._owned.has_unread(leases)

    def read_on(self, connection: Connection, leases: Iterable[Lease]) -> None:
        self._owned.read_on(connection, leases)

    def queue_of(self, partition: int) -> int:
        try:
            return self._plain.queue_of(partition)
        except KeyError:
            return self._owned.queue_of(partition)

    def note_ends(self, ends: Iterable[tuple[int, int, str]], now: float) -> None:
        self._owned.note_ends(ends, now)

    def note_succeeded(self, partition: int, jobs: Sequence[int], now: float) -> None:
        self._owned.note_succeeded(partition, jobs, now)

    def withhold(self, paused: Set[int], blocked: Set[int]) -> None:
        self._plain.withhold(paused, blocked)
        self._owned.withhold(paused, blocked)

    def cap(self, left: Mapping[int, int]) -> None:
        self._plain.cap(left)
        self._owned.cap(left)

    @property
    def surplus(self) -> list[int]:
        return self._owned.surplus

    def give_up(self, connection: Connection, partitions: Sequence[int]) -> None:
        self._owned.give_up(connection, partitions)

    @property
    def must_leave(self) -> bool:
        return self._owned.must_leave

    def leave(self, connection: Connection) -> None:
        self._owned.leave(connection)

    def has_work(self, connection: Connection, now: float) -> bool:
        self._plain.look_again()
        return self._owned.has_work(connection, now)

    def note_idle(self, connection: Connection, now: float) -> None:
        self._plain.note_idle(connection, now)
        self._owned.note_idle(connection, now)

    def patience(self, now: float) -> float:
        return self._owned.patience(now)

    def look_again(self) -> None:
        self._plain.look_again()
        self._owned.look_again()

    def note_news(self) -> None:
        self._owned.note_news()

    def forget(self) -> None:
        self._plain.forget()
        self._owned.forget()
