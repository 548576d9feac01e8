"""Idempotency keys of a call: they are inserted before its jobs, in the same transaction. So are the texts of jobs that
are unique while they wait: another job has one only as long as it waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.storage.enqueue.job_group import NewRange
from penstock.storage.enqueue.steps import Steps

__all__ = ["insert_idempotency_keys"]


def insert_idempotency_keys(ranges: Sequence[NewRange], ids: list[int]) -> Steps[None]:
    """Take out of each range the jobs whose key another job has, and give them that job's id."""
    # By queue and key as stored: the indexes of the jobs that bear it, and the earlier job that has it.
    bearers: dict[tuple[int, str], list[int]] = {}
    holders: dict[tuple[int, str], int] = {}
    unique: set[tuple[int, str]] = set()
    for new in ranges:
        group = new.group
        if group.idempotency_keys is None:
            continue
        queue, found_elsewhere = group.destination.queue_id, group.idempotency_keys.holders
        for row in range(new.low, new.high):
            key = group.stored_idempotency_key(row)
            if key is not None:
                bearers.setdefault((queue, key), []).append(group.indexes[row])
                if group.idempotency_keys.given[row] in group.idempotency_keys.unique:
                    unique.add((queue, key))
                if key in found_elsewhere:
                    holders[queue, key] = found_elsewhere[key]
    unknown = {name: ids[indexes[0]] for name, indexes in bearers.items() if name not in holders}
    if unique:
        taken = [name for name in unknown if name in unique]
        rows = yield "take_unique", _by_name({name: unknown.pop(name) for name in taken})
        holders |= {(queue, text): job_id for queue, text, job_id in rows if job_id is not None}
    # Until each key is its job's or another one has it: one may be forgotten between the conflict and the look.
    while unknown:
        rows = yield "insert_idempotency_keys", _by_name(unknown)
        won = {row[0] for row in rows}
        losers = [name for name, job_id in unknown.items() if job_id not in won]
        if not losers:
            break
        rows = yield "read_idempotency_keys", {"queues": [q for q, _ in losers], "keys": [k for _, k in losers]}
        holders |= {(queue, key): job_id for queue, key, job_id in rows}
        unknown = {name: unknown[name] for name in losers if name not in holders}
    not_written = {
        index for name, indexes in bearers.items() for index in (indexes if name in holders else indexes[1:])
    }
    for new in ranges:
        new.positions = [position for position, index in enumerate(new.indexes) if index not in not_written]
    for name, indexes in bearers.items():
        for index in indexes:
            ids[index] = holders.get(name, ids[indexes[0]])


def _by_name(ids: Mapping[tuple[int, str], int]) -> dict[str, list[Any]]:
    """Keys and the jobs that want them, as columns."""
    return {
        "queues": [queue for queue, _ in ids],
        "keys": [key for _, key in ids],
        "ids": list(ids.values()),
    }
