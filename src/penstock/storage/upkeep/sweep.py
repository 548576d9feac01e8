"""Upkeep's acts on the database, each bounded and safe in any number of workers at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from psycopg import errors

from penstock.storage.connection.arrays import array_text, nested_array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = [
    "MOST_CHILDREN",
    "MUCH_TALLY_BYTES",
    "Rescued",
    "children_of",
    "clean",
    "expire",
    "fold",
    "fold_causes",
    "fold_causes_if_long",
    "fold_if_long",
    "forget_receipts",
    "note_minute",
    "note_times",
    "note_trouble",
    "park",
    "park_some",
    "promote",
    "rescue",
    "unblock",
    "unblock_all",
    "unblock_next",
    "unblock_untold",
]

BATCH = 10_000
# Children that are looked at in one transaction.
CHILDREN = 1_000
# So many are looked at by whoever has something else to do; the rest is upkeep's.
MOST_CHILDREN = 10_000
# About 10,000 unfolded rows: reading more takes longer than folding them.
MUCH_TALLY_BYTES = 1_000_000


class Rescued(NamedTuple):
    """What one rescue found: workers declared dead, their jobs, and how many of those went to the dead letters."""

    workers: int
    jobs: int
    dead: int


def rescue(connection: Connection) -> Rescued:
    """Return what dead workers held, until nothing is left."""
    total = Rescued(0, 0, 0)
    while True:
        row = connection.execute(query("rescue")).fetchone()
        assert row is not None  # noqa: S101
        workers, jobs, dead = (count or 0 for count in row)
        total = Rescued(total.workers + workers, total.jobs + jobs, total.dead + dead)
        if not jobs:
            return total


def promote(connection: Connection) -> int:
    """Make ready whatever is due."""
    total, limit = 0, BATCH
    while True:
        try:
            row = connection.execute(query("promote"), {"limit": limit}).fetchone()
        except errors.QueryCanceled:
            # The role's statement_timeout is too short for so many.
            if limit == 1:
                raise
            limit //= 2
            continue
        count = row[0] if row else 0
        total += count
        if not count:
            return total


def unblock_next(connection: Connection, children: Sequence[int]) -> tuple[int, list[int]]:
    """Let go those of these children whose parents have ended, or have them wait again for a parent that was retried.

    How many changed, and the children of those that this cancels or restores, which are to be looked at next: a chain
    is as many steps as it is long.
    """
    row = connection.execute(
        query("unblock"), {"children": list(children), "after": 0, "limit": len(children)}
    ).fetchone()
    assert row is not None  # noqa: S101
    return row[1] or 0, children_of(connection, row[3]) if row[3] else []


def unblock(connection: Connection, children: Sequence[int], *, most: int | None = None) -> int:
    """Do so with these children, and the children of those this cancels or restores, to the last, or until `most` were
    looked at and the rest is upkeep's; how many changed.
    """
    changed = looked_at = 0
    waiting = deque(children)
    while waiting and (most is None or looked_at < most):
        some = [waiting.popleft() for _ in range(min(len(waiting), CHILDREN))]
        count, next_ones = unblock_next(connection, some)
        waiting.extend(next_ones)
        changed += count
        looked_at += len(some)
    return changed


def unblock_all(connection: Connection) -> int:
    """Look at every blocked job, for parents that ended while nobody could tell their children; how many changed."""
    changed, next_ones = unblock_untold(connection)
    return changed + unblock(connection, next_ones)


def unblock_untold(connection: Connection) -> tuple[int, list[int]]:
    """The same for one generation: how many, and the children of those that this cancels or restores, to be looked at
    next.
    """
    changed, after = 0, 0
    left: list[int] = []
    while True:
        row = connection.execute(query("unblock"), {"children": None, "after": after, "limit": CHILDREN}).fetchone()
        assert row is not None  # noqa: S101
        looked_at, count, last_id, told = row
        changed += count or 0
        if told:
            left += children_of(connection, told)
        if not looked_at:
            return changed, left
        after = last_id


def children_of(connection: Connection, parents: Sequence[int]) -> list[int]:
    """The jobs that wait for any of these."""
    rows = connection.execute(query("children_of_jobs"), {"parents": list(parents)}).fetchall()
    return [row[1] for row in rows]


def expire(connection: Connection) -> int:
    """End what has waited longer than its queue allows."""
    return _count(connection, "expire")


def park(connection: Connection) -> int:
    """Take out of the order what no live worker knows, and bring back what one does."""
    count, last = park_some(connection, 0)
    while last is not None:
        more, last = park_some(connection, last)
        count += more
    return count


def park_some(connection: Connection, after: int) -> tuple[int, int | None]:
    """The same, looking at some of the partitions only, those behind one; how many, and the last of the partitions, or
    None where there are no more.
    """
    row = connection.execute(query("park"), {"after": after}).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def fold(connection: Connection) -> int:
    """Add the tally into the totals."""
    return _count(connection, "fold")


def fold_if_long(connection: Connection) -> None:
    """For those who read the tally: fold it, where no worker lives to do so and it has grown long."""
    size = connection.execute(query("tally_bytes")).fetchone()
    if size is not None and size[0] > MUCH_TALLY_BYTES:
        with suppress(errors.ReadOnlySqlTransaction):
            fold(connection)


def fold_causes(connection: Connection) -> int:
    """Add what was said of causes to them, and forget what is older than a day."""
    return _count(connection, "fold_causes")


def fold_causes_if_long(connection: Connection) -> None:
    """For those who read causes, as `fold_if_long`."""
    size = connection.execute(query("cause_tally_bytes")).fetchone()
    if size is not None and size[0] > MUCH_TALLY_BYTES:
        with suppress(errors.ReadOnlySqlTransaction):
            fold_causes(connection)


def clean(connection: Connection) -> int:
    """Forget the progress of jobs that have ended, and all but the last of what rates have spent."""
    return _count(connection, "clean_progress") + _count(connection, "clean_spent")


def forget_receipts(connection: Connection) -> int:
    """Forget what became of calls that nobody can ask about any more."""
    return _count(connection, "forget_receipts")


def note_minute(connection: Connection) -> float:
    """Keep the figures of this minute, if nobody has; the seconds until the next one."""
    row = connection.execute(query("note_minute")).fetchone()
    return float(row[0]) if row else 0.0


def note_times(connection: Connection, counted: Sequence[tuple[int, Sequence[int], Sequence[int]]]) -> None:
    """Keep, of each of these queues, how many jobs waited and ran for how long, as that of the minute that begins."""
    connection.execute(
        query("note_times"),
        {
            "queues": array_text(queue for queue, _, _ in counted),
            "waits": nested_array_text([waits for _, waits, _ in counted]),
            "runs": nested_array_text([runs for _, _, runs in counted]),
        },
    )


def note_trouble(connection: Connection, duty: str, error: str | None, seconds: float) -> None:
    """Write down that a duty has failed for so many seconds, or with None that it is done again."""
    connection.execute(query("note_trouble"), {"duty": duty, "error": error, "seconds": seconds})


def _count(connection: Connection, name: str) -> int:
    row = connection.execute(query(name)).fetchone()
    return int(row[0] or 0) if row else 0
