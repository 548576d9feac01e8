"""Writing jobs. A call becomes one range per (partition, priority, task, run time), in the call's order; where the
queue has an owner, whatever the tasks.

What was routed by a map of keys that is not the queue's any more (it was resized) is not written: the caller is told,
routes it anew, and its transaction lives on.

A few plain jobs are one statement. Larger calls draw their range numbers, COPY the jobs, and open the ranges, in one
transaction. Idempotency keys are inserted before the jobs; a job whose key was taken leaves a hole in its range.

When the answer to a COMMIT is lost the call must not be repeated blindly, nor moved to another shard: by its receipt it
is looked for (`penstock.storage.enqueue.receipts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.errors import InvalidInput
from penstock.storage.connection.arrays import members_text
from penstock.storage.enqueue.copy_format import copy_lines
from penstock.storage.enqueue.idempotency import insert_idempotency_keys
from penstock.storage.enqueue.job_group import Destination, JobGroup, NewRange, Parents, split
from penstock.storage.enqueue.receipts import NOT_NOTED, Receipt
from penstock.storage.enqueue.steps import CopyData, LastParameters, Steps

__all__ = ["FEW", "is_few", "is_single", "set_ids", "single_statement", "unknown_parent", "write_few", "write_groups"]

_encode = msgspec.json.Encoder().encode
# Below this, one statement with the rows in it beats COPY: see bench/copy_or_insert.py.
FEW = 100


def is_few(groups: Sequence[JobGroup]) -> bool:
    """Whether a call is small and plain enough for `write_few`."""
    group = groups[0]
    return len(groups) == 1 and len(group.args) < FEW and group.idempotency_keys is None and not group.parents


def is_single(group: JobGroup) -> bool:
    """Whether a group is one job that may run now: the statement that `write_few` sends has only plain values."""
    to = group.destination
    return len(group.args) == 1 and to.run_at is None and to.delay is None


def single_statement(group: JobGroup, receipt: Receipt | None) -> tuple[str, dict[str, Any]]:
    """The query that writes such a job, and its values."""
    queue, partition, priority, task, _, _, epoch = group.destination
    attributes = _first_attributes(group, receipt)
    values: dict[str, Any] = {
        **(NOT_NOTED if receipt is None else receipt.note),
        "queue": queue,
        "partition": partition,
        "priority": priority,
        "task": group.tasks[0] if group.tasks else task,
        "key": group.keys[0] if group.keys else None,
        "args": group.args[0].decode(),
        "attributes": None if attributes is None else _encode(attributes).decode(),
    }
    if epoch is None:
        return "enqueue_one", values
    values["epoch"] = epoch
    return "enqueue_one_if_mapped", values


def write_few(group: JobGroup, ids: list[int], receipt: Receipt | None = None) -> Steps[bool]:
    """Write fewer than FEW plain jobs of one group in a single statement, and set the call's ids; False: stale map."""
    if is_single(group):
        rows = yield single_statement(group, receipt)
    else:
        queue, partition, priority, task, run_at, delay, epoch = group.destination
        rows = yield (
            "enqueue_few" if epoch is None else "enqueue_few_if_mapped",
            {
                **(NOT_NOTED if receipt is None else receipt.note),
                "queue": queue,
                "partition": partition,
                "priority": priority,
                **({"task": task} if epoch is None else {"tasks": group.tasks, "epoch": epoch}),
                "run_at": run_at,
                "delay": delay,
                "args": (b"[" + b",".join(group.args) + b"]").decode(),
                "keys": group.keys,
                "attributes": _encode([_first_attributes(group, receipt), *(group.attributes or [])[1:]]).decode(),
            },
        )
    if rows[0][0] is None:
        return False
    set_ids(group.indexes, ids, rows[0][0])
    return True


def _first_attributes(group: JobGroup, receipt: Receipt | None) -> dict[str, Any] | None:
    """The attributes of a group's first job: on a direct connection the call's token is among them."""
    given = group.attributes[0] if group.attributes else None
    if receipt is None or receipt.kept_seconds is not None:
        return given
    token = {"token": receipt.token}
    return {**given, **token} if given else token


def write_groups(groups: Sequence[JobGroup], ids: list[int], receipt: Receipt | None = None) -> Steps[bool]:
    """Write a call of any shape and set its ids; False: a stale map. The caller has opened the transaction."""
    ranges = split(groups)
    maps = _maps_to_lock(groups)
    if not maps:
        ((numbers, now),) = yield "draw_ranges", {"count": len(ranges)}
    else:
        ((numbers, now),) = yield (
            "draw_ranges_if_mapped",
            {
                "count": len(ranges),
                "queues": [queue for queue, _ in maps],
                "epochs": [epoch for _, epoch in maps],
            },
        )
        if numbers is None:
            return False
    for new, number in zip(ranges, numbers, strict=True):
        new.number = number
        set_ids(new.indexes, ids, new.first_id)
    if any(group.idempotency_keys is not None for group in groups):
        yield from insert_idempotency_keys(ranges, ids)
    if receipt is not None:
        first = next((new for new in ranges if new.positions), None)
        receipt.first_id = 0 if first is None else first.first_id + first.positions[0]
        receipt.enqueued_at = now
    if any(group.parents for group in groups):
        yield from _check_parents(groups)
    if lines := copy_lines(ranges, ids, now):
        yield "copy_jobs", CopyData(lines)
    yield from _open_ranges(ranges, ids, now)
    return True


def set_ids(indexes: Sequence[int], ids: list[int], first_id: int) -> None:
    """Give these jobs of a call their ids, from the first on."""
    if isinstance(indexes, range):
        ids[indexes.start : indexes.stop] = range(first_id, first_id + len(indexes))
    else:
        for job_id, index in enumerate(indexes, first_id):
            ids[index] = job_id


def _maps_to_lock(groups: Sequence[JobGroup]) -> list[tuple[int, int]]:
    """The queues, each with the epoch that its key map must have and keep until the call is written."""
    maps = set()
    for group in groups:
        queue, epoch = group.destination.queue_id, group.destination.epoch
        if epoch is not None:
            maps.add((queue, epoch))
        elif group.idempotency_keys is not None and group.idempotency_keys.epoch is not None:
            maps.add((queue, group.idempotency_keys.epoch))
    return sorted(maps)


def _check_parents(groups: Sequence[JobGroup]) -> Steps[None]:
    """Refuse parents that this database knows to be nowhere."""
    waits = (parents for group in groups for parents in (group.parents or {}).values())
    stored = sorted({parent for parents in waits for parent in parents.stored})
    if stored:
        rows = yield "unknown_parents", {"parents": stored}
        if rows:
            raise unknown_parent(rows[0][0])


def unknown_parent(parent: int) -> InvalidInput:
    """The error for a parent that is nowhere."""
    return InvalidInput("after", f"job {parent} is unknown, pruned or archived; wait only for jobs that are stored")


def _open_ranges(ranges: Sequence[NewRange], ids: list[int], now: datetime) -> Steps[None]:
    """Make the ranges visible; children become blocked."""
    opened: list[tuple[Destination, int, int, str | None]] = []
    children: list[tuple[Destination, int, Parents, str]] = []
    for new in ranges:
        group = new.group
        free = new.positions
        if group.parents:
            free = [position for position in new.positions if new.low + position not in group.parents]
            children += [
                (group.destination, new.first_id + position, group.parents[row], group.task_of(row))
                for position in new.positions
                if (row := new.low + position) in group.parents
            ]
        if free:
            size = free[-1] + 1
            opened.append((group.destination, new.number, size, None if len(free) == size else members_text(free)))
    if opened:
        parameters = LastParameters if not children else dict
        yield (
            "make_visible",
            parameters(
                queues=[to.queue_id for to, *_ in opened],
                partitions=[to.partition_id for to, *_ in opened],
                priorities=[to.priority for to, *_ in opened],
                tasks=[to.task for to, *_ in opened],
                run_ats=[to.due_at(now) for to, *_ in opened],
                ranges=[number for _, number, _, _ in opened],
                sizes=[size for _, _, size, _ in opened],
                members=[members for *_, members in opened],
                epochs=[to.epoch for to, *_ in opened],
            ),
        )
    if children:
        yield (
            "block_jobs",
            LastParameters(
                ids=[job_id for _, job_id, _, _ in children],
                partitions=[to.partition_id for to, *_ in children],
                priorities=[to.priority for to, *_ in children],
                tasks=[task for *_, task in children],
                run_ats=[to.due_at(now) for to, *_ in children],
                on_parent_failures=[parents.on_parent_failure for _, _, parents, _ in children],
                parents=[_encode(parents.ids(ids)).decode() for _, _, parents, _ in children],
            ),
        )
