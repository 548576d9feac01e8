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
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from penstock.policy.permits import PermitUse, share_permits
from penstock.policy.tokens import TokenUse, share_tokens
from penstock.shards.databases import ANOTHER_LEADS, Databases
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.connection.refusals import LockNotAvailable
from penstock.storage.work import permits as storage
from penstock.storage.work.permits import LedgerEntry, PermitReport

__all__ = ["allot"]

ANSWER_SECONDS = 1.0
# Those that give up permits answer to that, those that get them to the next, and the ledger hears it.
ROUNDS = 3


def allot(databases: Databases, queue: int, limit: int | None) -> int:
    """Make a round for a queue, with the limit that each of its partitions has; how many partitions were told."""
    try:
        return _allot(databases, queue, limit)
    except DatabaseError as error:
        if error.sqlstate != ANOTHER_LEADS:
            raise
        databases.find_lead()
        return 0


def _allot(databases: Databases, queue: int, limit: int | None) -> int:
    reports = _ask_all(databases, queue)
    told = 0
    for _ in range(ROUNDS):
        ledger = _note_and_share(databases, queue, limit, reports)
        answers = _tell_all(databases, ledger, reports)
        if not answers:
            break
        told += len(answers)
        reports |= answers
    return told


def _ask_all(databases: Databases, queue: int) -> dict[int, tuple[int, PermitReport]]:
    """What every partition reports whose shard answers, with the shard."""
    given = databases.each(lambda connection: storage.report_permits(connection, queue), timeout=ANSWER_SECONDS).given
    return {each.partition_id: (shard, each) for shard, reports in given.items() for each in reports}


def _note_and_share(
    databases: Databases, queue: int, limit: int | None, reports: dict[int, tuple[int, PermitReport]]
) -> list[LedgerEntry]:
    """The ledger, after what was reported is entered and what follows from it is promised."""
    given = [report for _, report in reports.values()]

    def act(connection: Connection) -> list[LedgerEntry]:
        ledger = storage.note_permits(connection, queue, given)
        by_partition = {each.partition_id: each for each in given}
        if storage.allot_permits(connection, queue, ledger, _share(ledger, by_partition, limit)):
            ledger = storage.note_permits(connection, queue, [])
        if storage.grant_tokens(connection, queue, ledger, _share_tokens(ledger, by_partition)):
            ledger = storage.note_permits(connection, queue, [])
        return ledger

    return databases.lead.ask(act, timeout=ANSWER_SECONDS)


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


def _tell_all(
    databases: Databases, ledger: Sequence[LedgerEntry], reports: dict[int, tuple[int, PermitReport]]
) -> dict[int, tuple[int, PermitReport]]:
    """Tell those that have not heard the newest number; what each says to it."""
    untold: dict[int, list[LedgerEntry]] = {}
    for each in ledger:
        if each.partition_id in reports and reports[each.partition_id][1].number < each.number:
            untold.setdefault(reports[each.partition_id][0], []).append(each)
    answers: dict[int, tuple[int, PermitReport]] = {}

    def tell(database: Database) -> None:
        for entry in untold.get(database.shard, ()):
            told = database.ask(lambda connection: _tell(connection, entry), timeout=ANSWER_SECONDS)  # noqa: B023
            if told is None:
                continue
            before = reports[entry.partition_id][1]
            answers[entry.partition_id] = (
                database.shard,
                told._replace(waiting=before.waiting, waited_seconds=before.waited_seconds),
            )

    if untold:
        databases.each_database(tell)
    return answers


def _tell(connection: Connection, entry: LedgerEntry) -> PermitReport | None:
    try:
        return storage.tell_permits(connection, entry)
    except LockNotAvailable:
        return None  # Somebody stands still in its gate: it is told the next time.
