"""The permits of a queue with a `total_limit`, and the tokens of one with a `total_rate`, allotted to its partitions.

    report   each shard tells what its partitions have, run, and want
    note     the lead's ledger learns what is not held any more
    share    what each is to have is decided (`penstock.policy.permits`, `penstock.policy.tokens`)
    allot    the ledger promises it, as far as the limit goes
    grant    and so many tokens as have come into the queue's bucket, for a second
    tell     each partition takes what the ledger has for it

That is one round; where some have to give up permits first, a second follows at once. Rounds may be made by anybody,
any number of times, at once, and be killed anywhere: `schema/functions/34_permits.sql` says why no more is given out
than there is. A shard that does not answer keeps what permits it has; while the lead does not, all do. Tokens run out:
while the lead does not answer nothing starts.

Nobody waits for the slowest: a shard that has not answered in a moment is left out of the round, and what it says later
is heard in the one that follows. So a shard that hangs costs the others one moment, and one that is always slow gets
its permits and tokens late, and fewer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from datetime import datetime

from penstock.errors import PartitionUnavailable
from penstock.policy.permits import PermitUse, share_permits
from penstock.policy.tokens import TokenUse, share_tokens
from penstock.shards.databases import ANOTHER_LEADS, Databases
from penstock.shards.side_by_side import start_asking
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.connection.refusals import LockNotAvailable
from penstock.storage.work import permits as storage
from penstock.storage.work.permits import LedgerEntry, PermitReport

__all__ = ["Allotter", "allot"]

# So long a call waits for a connection.
ASK_SECONDS = 1.0
# So long a round waits for shards. Tokens last for a second from the report: of that the others lose no more.
ANSWER_SECONDS = 0.3
# Whoever changes a limit likes to see it in force, and is there once.
CALL_SECONDS = 1.0
# Those that give up permits answer to that, those that get them to the next, and the ledger hears it.
ROUNDS = 3

Reports = dict[int, tuple[int, PermitReport]]


def allot(databases: Databases, queue: int, limit: int | None) -> int:
    """Make one round for a queue, with the limit that each of its partitions has; how many partitions were told."""
    return Allotter(databases, CALL_SECONDS).allot(queue, limit)


class Allotter:
    """Makes rounds, and remembers which shards have not answered in the last. Used by one thread."""

    def __init__(self, databases: Databases, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._databases = databases
        self._answer_seconds = answer_seconds
        # What is asked just now, by queue and shard: no shard is asked twice at once, or its answers would cross.
        self._under_way: dict[int, dict[int, Future[list[PermitReport]]]] = {}

    def allot(self, queue: int, limit: int | None) -> int:
        """Make a round for a queue, with the limit that each of its partitions has; how many partitions were told."""
        try:
            return self._allot(queue, limit)
        except DatabaseError as error:
            if error.sqlstate != ANOTHER_LEADS:
                raise
            self._databases.find_lead()
            return 0

    @property
    def late(self) -> list[Future[list[PermitReport]]]:
        """What shards were asked that have been left out since."""
        return [answer for answers in self._under_way.values() for answer in answers.values()]

    def forget(self, queue: int) -> None:
        """Somebody else makes the rounds of a queue: what is still to be answered would be old by the next one here."""
        self._under_way.pop(queue, None)

    def forget_others(self, queues: Collection[int]) -> None:
        """Other queues have no totals any more: nobody waits for what was asked about them."""
        for queue in self._under_way.keys() - set(queues):
            self.forget(queue)

    def _allot(self, queue: int, limit: int | None) -> int:
        reports = self._hear(queue, self._ask_all(queue))
        told = 0
        for _ in range(ROUNDS):
            ledger = _note_and_share(self._databases, queue, limit, reports)
            asked = self._tell_all(queue, ledger, reports)
            answers = self._hear(queue, asked)
            told += len(answers)
            reports |= answers
            if not answers or self._under_way.get(queue):
                break
        return told

    def _ask_all(self, queue: int) -> set[int]:
        """Ask every shard that is not asked already what its partitions do; which are."""

        def report(database: Database) -> list[PermitReport]:
            return database.ask(lambda connection: storage.report_permits(connection, queue), timeout=ASK_SECONDS)

        return self._start(queue, dict.fromkeys(self._databases, report))

    def _tell_all(self, queue: int, ledger: Sequence[LedgerEntry], reports: Reports) -> set[int]:
        """Begin to tell those that have not heard the newest number, as far as their shards listen; which shards do."""
        untold: dict[int, list[LedgerEntry]] = {}
        for each in ledger:
            if each.partition_id in reports and reports[each.partition_id][1].number < each.number:
                untold.setdefault(reports[each.partition_id][0], []).append(each)

        def tell(database: Database) -> list[PermitReport]:
            answers = []
            for entry in untold[database.shard]:
                told = database.ask(lambda connection: _tell(connection, entry), timeout=ASK_SECONDS)  # noqa: B023
                if told is not None:
                    before = reports[entry.partition_id][1]
                    answers.append(
                        told._replace(
                            waiting=before.waiting, waited_seconds=before.waited_seconds, is_current=before.is_current
                        )
                    )
            return answers

        return self._start(queue, {self._databases.of(shard): tell for shard in untold})

    def _start(self, queue: int, acts: dict[Database, Callable[[Database], list[PermitReport]]]) -> set[int]:
        """Begin acts on the databases that are up and not asked already; the shards that were begun with."""
        under_way = self._under_way.setdefault(queue, {})
        idle = [each for each in acts if each.shard not in under_way and not each.breaker.is_down]
        for database in idle:
            under_way[database.shard] = start_asking(acts[database], database, self._databases.sole is not None)
        return {database.shard for database in idle}

    def _hear(self, queue: int, asked: set[int]) -> Reports:
        """What has come by now; those that were asked just now are given a moment."""
        under_way = self._under_way[queue]
        wait([under_way[shard] for shard in asked], self._answer_seconds)
        heard: Reports = {}
        for shard in [shard for shard, answer in under_way.items() if answer.done()]:
            try:
                heard |= {each.partition_id: (shard, each) for each in under_way.pop(shard).result()}
            except PartitionUnavailable:
                if self._databases.sole is not None:
                    raise
        return heard


def _note_and_share(databases: Databases, queue: int, limit: int | None, reports: Reports) -> list[LedgerEntry]:
    """The ledger, after what was reported is entered and what follows from it is promised."""
    given = [report for _, report in reports.values()]

    def act(connection: Connection) -> list[LedgerEntry]:
        ledger = storage.note_permits(connection, queue, given)
        by_partition = {each.partition_id: each for each in given}
        if storage.allot_permits(connection, queue, ledger, _share(ledger, by_partition, limit)):
            ledger = storage.read_ledger(connection, queue)
        if storage.grant_tokens(connection, queue, ledger, _share_tokens(ledger, by_partition)):
            ledger = storage.read_ledger(connection, queue)
        return ledger

    return databases.lead.ask(act, timeout=ASK_SECONDS)


def _share(ledger: Sequence[LedgerEntry], reports: dict[int, PermitReport], limit: int | None) -> dict[int, int]:
    """What each partition that has answered is to have; who has not keeps what it may have."""
    total = ledger[0].total_limit if ledger else None
    if total is None:
        return {}
    silent = sum(max(each.held or 0, each.permits) for each in ledger if each.partition_id not in reports)
    uses = [
        PermitUse(
            each.partition_id,
            each.permits,
            report.running,
            report.waiting,
            report.waited_seconds,
            each.changed_seconds,
            limit,
            report.is_current,
        )
        for each in ledger
        if (report := reports.get(each.partition_id)) is not None
    ]
    return share_permits(max(total - silent, 0), uses)


def _share_tokens(
    ledger: Sequence[LedgerEntry], reports: dict[int, PermitReport]
) -> dict[int, tuple[int, datetime | None]]:
    """How many tokens each partition that has answered gets, and when it did."""
    room = ledger[0].room if ledger else None
    if room is None:
        return {}
    uses = [
        TokenUse(
            each.partition_id,
            each.tokens,
            each.used,
            report.waiting,
            report.waited_seconds,
            each.granted_seconds,
            each.tokens_until is not None and report.as_of is not None and each.tokens_until <= report.as_of,
        )
        for each in ledger
        if (report := reports.get(each.partition_id)) is not None
    ]
    return {partition: (tokens, reports[partition].as_of) for partition, tokens in share_tokens(room, uses).items()}


def _tell(connection: Connection, entry: LedgerEntry) -> PermitReport | None:
    try:
        return storage.tell_permits(connection, entry)
    except LockNotAvailable:
        return None  # Somebody stands still in its gate: it is told the next time.
