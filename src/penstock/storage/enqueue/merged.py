"""Writing the jobs of several calls together: one range for each destination, in one statement and one transaction.

The calls have nothing to do with each other. A range whose map is not its queue's any more, or is just being changed,
is not written, and all others are. Once the answer to such a statement is lost, the first job of each range tells that
it was written: these bear tokens that follow each other. Behind a pooler the first token is the receipt's row, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.storage.connection.arrays import array_text, quoted_array_text
from penstock.storage.connection.bare_statements import execute_bare
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.flow import Flow
from penstock.storage.connection.queries import query
from penstock.storage.connection.sessions import confirm_replicated
from penstock.storage.enqueue.job_group import RANGE, Destination, JobGroup
from penstock.storage.enqueue.receipts import Receipt, find_or_end

__all__ = ["MergedRange", "first_token", "look_for_ranges", "merge_groups", "write_merged"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[int | None]).decode


@dataclass(slots=True)
class MergedRange:
    """The groups of one destination, in the order of their calls: they become one range."""

    destination: Destination
    groups: list[JobGroup] = field(default_factory=list)
    size: int = 0
    # Of its position 0; None where it was not written.
    first_id: int | None = None


def merge_groups(groups: Sequence[JobGroup]) -> list[MergedRange]:
    """The ranges that groups of different calls become; together they have no more jobs than a range."""
    ranges: dict[Destination, MergedRange] = {}
    for group in groups:
        merged = ranges.get(group.destination)
        if merged is None:
            merged = ranges[group.destination] = MergedRange(group.destination)
        merged.groups.append(group)
        merged.size += len(group.args)
    # Maps are locked in the order in which everybody locks them.
    return sorted(ranges.values(), key=lambda each: each.destination.queue_id)


def first_token(database: Database) -> int:
    """A random token, and room for as many after it as there may be ranges."""
    return database.clock.random_token() & -RANGE


def write_merged(connection: Flow, ranges: Sequence[MergedRange], receipt: Receipt) -> None:
    """Write the ranges, and note the first id of each that was written."""
    values = _parameters(ranges, receipt)
    # Behind a pooler no session keeps a statement.
    if receipt.kept_seconds is None:
        answer = execute_bare(connection, "enqueue_merged", values)
    else:
        ((answer,),) = connection.execute(query("enqueue_merged"), values).fetchall()
    assert answer is not None  # noqa: S101
    for merged, number in zip(ranges, _decode(answer), strict=True):
        merged.first_id = None if number is None else number * RANGE


def look_for_ranges(database: Database, receipt: Receipt, ranges: Sequence[MergedRange]) -> None:
    """After a lost answer: note the first id of each range that was written; none of the others will be.

    Waits for the database, and for the old session to be gone.
    """
    sought = {"first": receipt.token, "last": receipt.token + len(ranges) - 1}

    def look(connection: Connection) -> dict[int, int]:
        first_id = find_or_end(connection, database, receipt)
        if receipt.kept_seconds is not None and first_id is None:
            return {}
        after = receipt.after if first_id is None else first_id - 1
        rows = connection.execute(query("find_tokens"), {**sought, "after": after}).fetchall()
        if rows:
            confirm_replicated(connection)
        return dict(rows)

    found = database.run(look, writes=False)
    for number, merged in enumerate(ranges):
        merged.first_id = found.get(receipt.token + number)


def _parameters(ranges: Sequence[MergedRange], receipt: Receipt) -> dict[str, Any]:
    destinations = [merged.destination for merged in ranges]
    groups = [group for merged in ranges for group in merged.groups]
    is_noted = receipt.kept_seconds is not None
    return {
        "queues": array_text(to.queue_id for to in destinations),
        "epochs": _numbers([to.epoch for to in destinations]),
        "partitions": array_text(to.partition_id for to in destinations),
        "priorities": array_text(to.priority for to in destinations),
        "tasks": quoted_array_text(to.task for to in destinations),
        "run_ats": _texts([None if to.run_at is None else to.run_at.isoformat() for to in destinations]),
        "delays": _numbers([to.delay for to in destinations]),
        "sizes": array_text(merged.size for merged in ranges),
        "job_ranges": _job_ranges(ranges),
        "job_tasks": _texts(_column(groups, [group.tasks for group in groups])),
        "keys": _texts(
            [None if key is None else f"\\x{key.hex()}" for key in _column(groups, [group.keys for group in groups])]
        ),
        "args": (b"[" + b",".join([each for group in groups for each in group.args]) + b"]").decode(),
        "attributes": _attributes(ranges, receipt.token),
        "token": receipt.token if is_noted else None,
        "kept_seconds": receipt.kept_seconds,
    }


def _numbers(values: Sequence[float | None]) -> str | None:
    """An array of numbers, some of which may be missing; None where all are."""
    if all(value is None for value in values):
        return None
    return array_text("null" if value is None else value for value in values)


def _texts(values: Sequence[str | None]) -> str | None:
    """The same of texts."""
    return None if all(value is None for value in values) else quoted_array_text(values)


def _job_ranges(ranges: Sequence[MergedRange]) -> str | None:
    """Which range each job is of, counted from 1."""
    if len(ranges) == 1:
        return None
    return array_text(number for number, merged in enumerate(ranges, 1) for _ in range(merged.size))


def _column(groups: Sequence[JobGroup], columns: Sequence[Sequence[Any] | None]) -> list[Any]:
    """A column of all groups' jobs; empty where none of them has any of it."""
    if not any(column is not None for column in columns):
        return []
    return [
        each
        for group, column in zip(groups, columns, strict=True)
        for each in (column if column is not None else [None] * len(group.args))
    ]


def _attributes(ranges: Sequence[MergedRange], token: int) -> str:
    """What else is kept of each job; the first one of each range has its token there."""
    parts: list[bytes] = []
    for number, merged in enumerate(ranges):
        first = len(parts)
        for group in merged.groups:
            if group.attributes is None:
                parts += [b"null"] * len(group.args)
            else:
                parts += map(_encode, group.attributes)
        given = merged.groups[0].attributes
        parts[first] = _encode({**((given and given[0]) or {}), "token": token + number})
    return (b"[" + b",".join(parts) + b"]").decode()
