"""What is asked of a database about permits and tokens: what its partitions do with theirs; of the lead, its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = [
    "LedgerEntry",
    "PermitReport",
    "allot_permits",
    "grant_tokens",
    "next_total_token",
    "note_permits",
    "queues_with_totals",
    "read_ledger",
    "report_permits",
    "take_duty",
    "tell_permits",
    "unknown_permits",
]


class PermitReport(NamedTuple):
    """What a partition has and does: it was told its permits under that number."""

    partition_id: int
    number: int
    permits: int
    running: int
    waiting: int = 0
    waited_seconds: float | None = None
    # How many jobs have started by a rate, and the time on its shard.
    starts: int = 0
    as_of: datetime | None = None
    # Whether jobs are written there: permits that nobody wants are of no use in other places.
    is_current: bool = True

    @property
    def occupied(self) -> int:
        """How many may run here at most until it is told to take more."""
        return max(self.permits, self.running)


class LedgerEntry(NamedTuple):
    """What a partition was promised, under which number, and what it may have at most; None: that is not known."""

    partition_id: int
    permits: int
    number: int
    held: int | None
    changed_seconds: float
    total_limit: int | None
    # Where the queue has a total_rate: how many may have started there in all, how many have, how many of those since
    # it was granted some; until when more may, by its shard's clock (None: not any more); how many the queue can grant.
    token_total: int = 0
    starts: int = 0
    used: int = 0
    tokens_until: datetime | None = None
    granted_seconds: float | None = None
    room: int | None = None

    @property
    def tokens(self) -> int:
        """How many more may start."""
        return max(self.token_total - self.starts, 0)


def queues_with_totals(connection: Connection) -> dict[int, int | None]:
    """The queues that have a total_limit or a total_rate, and how many may run in each of their partitions."""
    return dict(connection.execute(query("queues_with_totals")).fetchall())


def take_duty(connection: Connection, queue: int, holder: int, seconds: float) -> bool:
    """Take on to allot the permits and tokens of a queue for so long; False where somebody else does."""
    row = connection.execute(
        query("take_permit_duty"), {"queue": queue, "holder": holder, "seconds": seconds}
    ).fetchone()
    return bool(row and row[0])


def report_permits(connection: Connection, queue: int) -> list[PermitReport]:
    """What the partitions of a queue on this shard do with their permits and tokens."""
    return [PermitReport(*row) for row in connection.execute(query("report_permits"), {"queue": queue}).fetchall()]


def tell_permits(connection: Connection, entry: LedgerEntry) -> PermitReport:
    """Tell a partition what it was promised; what it has now."""
    row = connection.execute(
        query("tell_permits"),
        {
            "partition": entry.partition_id,
            "number": entry.number,
            "permits": entry.permits,
            "token_total": entry.token_total,
            "until": entry.tokens_until,
        },
    ).fetchone()
    assert row is not None  # noqa: S101
    number, permits, running, starts, as_of = row
    return PermitReport(entry.partition_id, number, permits, running, starts=starts, as_of=as_of)


def note_permits(connection: Connection, queue: int, reports: Sequence[PermitReport]) -> list[LedgerEntry]:
    """Enter in the ledger what was reported; all of it."""
    rows = connection.execute(
        query("note_permits"),
        {
            "queue": queue,
            "partitions": array_text(each.partition_id for each in reports),
            "numbers": array_text(each.number for each in reports),
            "occupied": array_text(each.occupied for each in reports),
            "starts": array_text(each.starts for each in reports),
        },
    ).fetchall()
    return [LedgerEntry(*row) for row in rows]


def read_ledger(connection: Connection, queue: int) -> list[LedgerEntry]:
    """All of the ledger, as it is."""
    return [LedgerEntry(*row) for row in connection.execute(query("read_ledger"), {"queue": queue}).fetchall()]


def allot_permits(connection: Connection, queue: int, ledger: Sequence[LedgerEntry], shares: Mapping[int, int]) -> int:
    """Promise other numbers of permits to those that have others, as far as the limit goes; how many were changed."""
    changed = [each for each in ledger if shares.get(each.partition_id, each.permits) != each.permits]
    if not changed:
        return 0
    row = connection.execute(
        query("allot_permits"),
        {
            "queue": queue,
            "partitions": array_text(each.partition_id for each in changed),
            "numbers": array_text(each.number for each in changed),
            "permits": array_text(shares[each.partition_id] for each in changed),
        },
    ).fetchone()
    return int(row[0]) if row else 0


def grant_tokens(
    connection: Connection, queue: int, ledger: Sequence[LedgerEntry], grants: Mapping[int, tuple[int, datetime | None]]
) -> int:
    """Grant tokens, by partition with the time it reported, as far as there are any; how many are to be told.

    None means that it gives back what it has.
    """
    if not grants:
        return 0
    numbers = {each.partition_id: each.number for each in ledger}
    row = connection.execute(
        query("grant_tokens"),
        {
            "queue": queue,
            "partitions": array_text(grants),
            "numbers": array_text(numbers[each] for each in grants),
            "tokens": array_text(tokens for tokens, _ in grants.values()),
            "as_of": [as_of for _, as_of in grants.values()],
        },
    ).fetchone()
    return int(row[0]) if row else 0


def next_total_token(connection: Connection, queue: int) -> float:
    """In how many seconds the bucket of a queue's total_rate has a token."""
    row = connection.execute(query("next_total_token"), {"queue": queue}).fetchone()
    return float(row[0] or 0.0) if row else 0.0


def unknown_permits(connection: Connection, queue: int) -> list[int]:
    """The shards that the lead has to hear from before anybody gets more permits."""
    return [row[0] for row in connection.execute(query("unknown_permits"), {"queue": queue}).fetchall()]
