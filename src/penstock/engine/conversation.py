"""A conversation: the turns of one holder of leases with one database, and what to do when the answer to one is lost.

A turn settles what ended and takes what comes next, in one transaction. When its answer is lost the conversation is *in
doubt*: the turn may have been committed, or still may be. The next exchange then does three things, in this order. It
sees to it that the lost turn cannot be committed any more. It settles what ended again, which changes nothing where
that was done. It reads which leases the server says are this holder's: those that the holder does not know were taken
by the lost turn, and are its own.

The same is done when another server answers than before, a promoted standby or a restored backup. It may lack the last
settles: jobs that it takes for leased, and that were settled on the other, run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.engine.link import Link
from penstock.engine.source import NOTHING, Wish
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError, is_cancelled, is_lost, may_repeat, with_remedy
from penstock.storage.connection.flow import Session, session_of
from penstock.storage.connection.sessions import confirm_replicated, stop_turns
from penstock.storage.work import workers
from penstock.storage.work.exchange import Turn, exchange, held_leases, settled_by
from penstock.storage.work.leases import Lease, leases_not_from
from penstock.storage.work.settle import End, Succeeded

__all__ = ["Attempts", "Conversation", "Holder", "Settlement"]

T = TypeVar("T")
log = logging.getLogger("penstock")

# By lease and position: the job and the number of its attempt.
Attempts = Mapping[tuple[int, int], tuple[int, int]]


class Holder(NamedTuple):
    """Who holds leases: the number of a row of `worker`, and the name under which ends are written."""

    worker: int
    name: str


def _no_attempts() -> Attempts:
    return {}


@dataclass(frozen=True, slots=True)
class Settlement:
    """What ended since the last turn. `attempts` is asked for only after a lost answer.

    `freed` are partitions with a limit in which this ends jobs: others may wait to start theirs.
    """

    succeeded: Sequence[Succeeded] = ()
    ends: Sequence[End] = ()
    freed: Sequence[int] = ()
    attempts: Callable[[], Attempts] = _no_attempts


class Conversation:
    """Used by one thread. `on_doubt` is called when it is not known any more what the holder holds."""

    def __init__(self, link: Link, holder: Holder, on_doubt: Callable[[], None] = lambda: None) -> None:
        self.holder = holder
        self._link = link
        self._on_doubt = on_doubt
        # Over which connection of the link it was said who the holder is.
        self._introduced_in = 0
        # What its turns bear where a session does not tell whose they are.
        self._turn_number: int | None = None
        self._is_in_doubt = False
        # The session of the turn that is in doubt; None: there is no such turn, or it never had a session.
        self._session_in_doubt: Session | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the next exchange takes nothing, and finds out what is held; its ends must be the same as before, or
        those that the lost turn did not write are never written.
        """
        return self._is_in_doubt

    def doubt(self) -> None:
        """Let the next exchange find out what is held, as after a lost answer."""
        self._is_in_doubt = True
        self._on_doubt()

    def ask(self, act: Callable[[Connection], T]) -> T:
        """Do what may be repeated until it is answered, or the link's user is not patient any more."""
        return self._link.ask(lambda connection: act(self._introduce(connection)))

    def exchange(self, settlement: Settlement, wish: Wish = NOTHING, known: Iterable[Lease] = ()) -> Turn:
        """Do a turn, once, however often its answer is lost. `known`: the leases that the holder knows it holds.

        Where the link's patience ends first, it stays in doubt. A turn that finds out what is held has the leases it
        found in `leases`, and none of what was wished for.
        """
        if not self._is_in_doubt:
            session: Session | None = None
            worker, name = self.holder

            def send(connection: Connection) -> Turn:
                nonlocal session
                self._introduce(connection)
                session = session_of(connection)
                ended, number = settlement, self._turn_number
                return exchange(
                    *(connection, worker, name, ended.succeeded, ended.ends, wish.claim, wish.choices, ended.freed),
                    number=number,
                )

            try:
                turn = self._link.try_once(send)
            except DatabaseError as error:
                self._link.refuse_mismatch(error)
                if not may_repeat(error):
                    raise
                self._link.note_failed(error, wish.size)
                if is_lost(error):
                    label = self._link.database.breaker.label
                    said = with_remedy(error)
                    log.warning("%s does not answer (%s); the worker goes on there when it does", label, said)
            else:
                if wish:
                    self._link.note_given()
                return turn
            self._session_in_doubt = session
            self.doubt()
        turn = self.ask(lambda connection: self._find_out(connection, settlement, known))
        if self._session_in_doubt is None and turn.leases:
            log.warning(
                "%s is another server or an older copy: how %d jobs ended is not written there, they run again",
                self._link.database.breaker.label,
                sum(len(lease.positions) for lease in turn.leases),
            )
        self._is_in_doubt, self._session_in_doubt = False, None
        return turn

    def find_not_held(self, not_held: Iterable[tuple[int, int]], attempts: Attempts) -> list[tuple[int, int]]:
        """Of jobs that were not leased to this holder at their end, by lease and position: those it has not settled
        before.
        """
        return self.ask(lambda connection: self._find_not_held(connection, not_held, attempts))

    def _introduce(self, connection: Connection) -> Connection:
        """Over a new connection: let whoever finds its worker dead know which session to end.

        A link that is shared has the session of who acts for the holders. Whoever acts for this one next, or finds it
        dead, does not end that session: it is the number of its turns that stops those that come late.
        """
        if self._introduced_in != self._link.opened:
            if self._has_numbered_turns:
                self._turn_number = self._stop_turns(connection, None)
            if not self._link.database.is_pooled:
                workers.note_session(connection, self._link.shared_by or self.holder.worker)
            self._introduced_in = self._link.opened
        return connection

    @property
    def _has_numbered_turns(self) -> bool:
        """Whether turns of this holder cannot be stopped by ending a session: it is hidden, or that of many holders."""
        return bool(self._link.database.is_pooled) or self._link.shared_by is not None

    def _stop_turns(self, connection: Connection, session: Session | None) -> int | None:
        database, worker = self._link.database, self.holder.worker
        return stop_turns(connection, database, worker, session, has_numbers=self._has_numbered_turns)

    def _find_out(self, connection: Connection, settlement: Settlement, known: Iterable[Lease]) -> Turn:
        """Find out what became of the turn in doubt: settle again, and read what is held."""
        # Before anything is read: while the lost turn could still commit, its claim could come after that.
        self._turn_number = self._stop_turns(connection, self._session_in_doubt)
        turn = self._settle(connection, settlement.succeeded, settlement.ends, settlement.freed)
        turn.not_held = self._find_not_held(connection, turn.not_held, settlement.attempts())
        held = sorted(held_leases(connection, self.holder.worker), key=lambda lease: lease.id)
        # A job that was split off into a lease of its own is known: it belongs to the lease it was taken under.
        turn.leases = leases_not_from(known, held)
        return turn

    def _settle(
        self, connection: Connection, succeeded: Sequence[Succeeded], ends: Sequence[End], freed: Sequence[int]
    ) -> Turn:
        """Settle again what may have been settled; what is cancelled as a whole, in halves."""
        try:
            return exchange(connection, *self.holder, succeeded, ends, None, freed=freed)
        except DatabaseError as error:
            if not is_cancelled(error) or len(succeeded) + len(ends) < 2:
                raise
            self._link.note_failed(error)
        # In order: a lease that has both kinds of ends is whole only after the first.
        half, half_of_ends = len(succeeded) // 2, len(ends) // 2
        halves: list[tuple[Sequence[Succeeded], Sequence[End]]]
        if succeeded and ends:
            halves = [(succeeded, []), ([], ends)]
        elif succeeded:
            halves = [(succeeded[:half], []), (succeeded[half:], [])]
        else:
            halves = [([], ends[:half_of_ends]), ([], ends[half_of_ends:])]
        turn = Turn()
        for each, others in halves:
            half_turn = self._settle(connection, each, others, freed)
            turn.not_held += half_turn.not_held
            turn.aside += half_turn.aside
            turn.children += half_turn.children
        return turn

    def _find_not_held(
        self, connection: Connection, not_held: Iterable[tuple[int, int]], attempts: Attempts
    ) -> list[tuple[int, int]]:
        # A job that was handed back unstarted has no attempt, and nobody misses it.
        missing = [each for each in not_held if each in attempts]
        if not missing:
            return []
        confirm_replicated(connection)
        settled = settled_by(connection, self.holder.name, [attempts[each] for each in missing])
        return [each for each in missing if attempts[each] not in settled]
