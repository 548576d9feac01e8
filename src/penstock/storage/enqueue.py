"""Writing jobs. A call becomes one range per (partition, priority, task, run time), in the call's order.

A few plain jobs are one statement. Larger calls draw their range numbers, COPY the jobs, and open the ranges, in one
transaction. Idempotency keys are inserted before the jobs; a job whose key was taken leaves a hole in its range.

When the answer to a COMMIT is lost the call must not be repeated blindly. Its jobs can be looked for: a large call
knows its first id and its transaction's time, a small one carries a random token. First the old server process must
be gone, or it could still commit after the look.

What to send is decided by generators that yield statements and are given their rows: `drive` runs one on a
connection, `drive_async` on an asynchronous one, so that both do the same, also inside a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.rows import tuple_row

from penstock.errors import InvalidJob
from penstock.storage.database import Connection, Database
from penstock.storage.queries import query

__all__ = [
    "FEW",
    "NewJob",
    "Receipt",
    "Span",
    "drive",
    "drive_async",
    "look_for",
    "newest_id",
    "write_few",
    "write_spans",
]

T = TypeVar("T")
RANGE = 1024
# Below this, one statement with the rows in it beats COPY: see bench/copy_or_insert.py.
FEW = 100
_NULL = b"\\N"


@dataclass(slots=True)
class NewJob:
    """One job to be written. `parents` are ids, or other NewJobs of the same call that come before it."""

    args: bytes
    key: bytes | None = None
    attributes: dict[str, Any] | None = None
    idempotency_key: str | None = None
    parents: Sequence[int | NewJob] | None = None
    runs_on_failure: bool = False
    id: int = 0


@dataclass(slots=True)
class Span:
    """Jobs of one call that share a partition, a priority, a task and a run time: they become ranges."""

    queue_id: int
    partition_id: int
    priority: int
    task: str
    run_at: datetime | None
    # Seconds from when the call is written, by the database's clock; instead of run_at.
    delay: float | None = None
    jobs: list[NewJob] = field(default_factory=list)


@dataclass(slots=True)
class Receipt:
    """What a call needs to find out, after a lost answer, whether it was written."""

    backend_pid: int = 0
    first_id: int = 0
    enqueued_at: datetime | None = None
    token: int = 0
    after: int = 0

    @property
    def can_be_found(self) -> bool:
        """Whether anything was sent that could have been committed."""
        return bool(self.token or self.first_id)


class Copy(bytes):
    """Lines for COPY, in place of parameters."""


Parameters = dict[str, Any] | Copy
Rows = list[tuple[Any, ...]]
Steps = Generator[tuple[str, Parameters], Rows, T]


def drive(connection: Connection, steps: Steps[T]) -> T:
    """Send what the steps yield; what they return."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        while True:
            rows: Rows = []
            if isinstance(parameters, Copy):
                with cursor.copy(query(name)) as copy:
                    copy.write(parameters)
            else:
                rows = cursor.execute(query(name), parameters).fetchall()
            name, parameters = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def drive_async(connection: psycopg.AsyncConnection[Any], steps: Steps[T]) -> T:
    """The same on an asynchronous connection."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        while True:
            rows: Rows = []
            if isinstance(parameters, Copy):
                async with cursor.copy(query(name)) as copy:
                    await copy.write(parameters)
            else:
                rows = await (await cursor.execute(query(name), parameters)).fetchall()
            name, parameters = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def newest_id(connection: Connection) -> int:
    """An id below all that are drawn from now on."""
    row = connection.execute(query("newest_range")).fetchone()
    return int(row[0]) * RANGE if row else 0


def write_few(span: Span, receipt: Receipt | None = None) -> Steps[None]:
    """Write fewer than FEW plain jobs of one span in a single statement, and set each job's id."""
    jobs = span.jobs
    attributes = [job.attributes for job in jobs]
    if receipt is not None and receipt.token:
        attributes[0] = {**(attributes[0] or {}), "token": receipt.token}
    rows = yield (
        "enqueue_few",
        {
            "queue": span.queue_id,
            "partition": span.partition_id,
            "priority": span.priority,
            "task": span.task,
            "run_at": span.run_at,
            "delay": span.delay,
            "args": (b"[" + b",".join([job.args for job in jobs]) + b"]").decode(),
            "keys": [job.key for job in jobs] if any(job.key is not None for job in jobs) else None,
            "attributes": [a and msgspec.json.encode(a).decode() for a in attributes] if any(attributes) else None,
        },
    )
    for job_id, job in enumerate(jobs, rows[0][0]):
        job.id = job_id


def is_few(spans: Sequence[Span]) -> bool:
    """Whether a call is small and plain enough for `write_few`."""
    return (
        len(spans) == 1
        and len(spans[0].jobs) < FEW
        and not any(job.idempotency_key is not None or job.parents for job in spans[0].jobs)
    )


def write_spans(spans: Sequence[Span], receipt: Receipt | None = None) -> Steps[None]:
    """Write a call of any shape and set each job's id. The caller has opened the transaction."""
    pieces = [(span, span.jobs[i : i + RANGE]) for span in spans for i in range(0, len(span.jobs), RANGE)]
    ((ranges, now),) = yield "draw_ranges", {"count": len(pieces)}
    for number, (_, jobs) in zip(ranges, pieces, strict=True):
        for position, job in enumerate(jobs):
            job.id = number * RANGE + position
    own = yield from _insert_idempotency_keys(spans)
    written = [
        (number, span, [job for job in jobs if own is None or job.id in own])
        for number, (span, jobs) in zip(ranges, pieces, strict=True)
    ]
    if receipt is not None:
        first = next((jobs[0].id for _, _, jobs in written if jobs), 0)
        receipt.first_id, receipt.enqueued_at = first, now
    if own is not None:
        yield from _give_winners_ids(spans, own)
    yield from _check_parents(spans)
    yield from _copy(written, now)
    yield from _open([(number, span, jobs) for number, span, jobs in written if jobs], now)


def look_for(database: Database, receipt: Receipt, spans: Sequence[Span], deadline: float) -> bool:
    """After a lost answer: whether the call was written. Waits for the database, and for the old process to be gone."""
    clock = database.clock

    def look(connection: Connection) -> bool:
        while not database.is_pooled and clock.monotonic() < deadline:
            row = connection.execute(query("backend_is_alive"), {"pid": receipt.backend_pid}).fetchone()
            if row is None or not row[0] or connection.info.backend_pid == receipt.backend_pid:
                break
            clock.sleep(0.02)
        if not receipt.token:
            found = {"id": receipt.first_id, "enqueued_at": receipt.enqueued_at}
            row = connection.execute(query("was_written"), found).fetchone()
            return bool(row and row[0])
        token = msgspec.json.encode({"token": receipt.token}).decode()
        row = connection.execute(query("find_token"), {"after": receipt.after, "token": token}).fetchone()
        if row is None:
            return False
        for job_id, job in enumerate(spans[0].jobs, row[0]):
            job.id = job_id
        return True

    return database.run(look, timeout=max(deadline - clock.monotonic(), 0.1))


def _insert_idempotency_keys(spans: Sequence[Span]) -> Steps[set[int] | None]:
    """The ids of the jobs to write: all without a key, and the winners; None where no job has one."""
    first: dict[tuple[int, str], int] = {}
    plain: list[int] = []
    for span in spans:
        for job in span.jobs:
            if job.idempotency_key is None:
                plain.append(job.id)
            else:
                first.setdefault((span.queue_id, job.idempotency_key), job.id)
    if not first:
        return None
    rows = yield (
        "insert_idempotency_keys",
        {"queues": [q for q, _ in first], "keys": [k for _, k in first], "ids": list(first.values())},
    )
    return {row[0] for row in rows}.union(plain)


def _give_winners_ids(spans: Sequence[Span], own: set[int]) -> Steps[None]:
    """A job whose key was taken answers with the id of the job that has it."""
    losers = [(span.queue_id, job) for span in spans for job in span.jobs if job.id not in own]
    if not losers:
        return
    rows = yield (
        "read_idempotency_keys",
        {"queues": [q for q, _ in losers], "keys": [job.idempotency_key for _, job in losers]},
    )
    holders = {(q, key): job_id for q, key, job_id in rows}
    for queue_id, job in losers:
        job.id = holders[queue_id, job.idempotency_key]


def _check_parents(spans: Sequence[Span]) -> Steps[None]:
    parents = sorted({p for span in spans for job in span.jobs for p in job.parents or () if isinstance(p, int)})
    if parents:
        rows = yield "unknown_parents", {"parents": parents}
        if rows:
            raise InvalidJob("after", f"job {rows[0][0]} is unknown or pruned; wait only for jobs that are stored")


def _copy(written: Iterable[tuple[int, Span, list[NewJob]]], now: datetime) -> Steps[None]:
    lines: list[bytes] = []
    stamp = now.isoformat().encode()
    for _, span, jobs in written:
        head = b"\t%b\t%d\t%d\t%b\t" % (stamp, span.partition_id, span.priority, _copied(span.task.encode()))
        plain_head, plain_tail = head + b"\\N\t", b"\t\\N\n"
        for job in jobs:
            args = job.args if b"\\" not in job.args else job.args.replace(b"\\", b"\\\\")
            if job.parents:
                job.attributes = {**(job.attributes or {}), "parents": [str(p) for p in _parent_ids(job)]}
            if job.key is None and job.attributes is None:
                lines.append(b"%d%b%b%b" % (job.id, plain_head, args, plain_tail))
            else:
                key = _NULL if job.key is None else b"\\\\x" + job.key.hex().encode()
                rest = _NULL if job.attributes is None else _copied(msgspec.json.encode(job.attributes))
                lines.append(b"%d%b%b\t%b\t%b\n" % (job.id, head, key, args, rest))
    if lines:
        yield "copy_jobs", Copy(b"".join(lines))


def _parent_ids(job: NewJob) -> list[int]:
    return [parent if isinstance(parent, int) else parent.id for parent in job.parents or ()]


def _copied(text: bytes) -> bytes:
    """Text as COPY wants it."""
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def _open(written: Sequence[tuple[int, Span, list[NewJob]]], now: datetime) -> Steps[None]:
    opened = []
    children = []
    for number, span, jobs in written:
        free = [job for job in jobs if not job.parents]
        children += [(span, job) for job in jobs if job.parents]
        if free:
            size = free[-1].id % RANGE + 1
            opened.append((span, number, size, None if len(free) == size else _members(free)))
    if opened:
        yield (
            "open_ranges",
            {
                "queues": [span.queue_id for span, *_ in opened],
                "partitions": [span.partition_id for span, *_ in opened],
                "priorities": [span.priority for span, *_ in opened],
                "tasks": [span.task for span, *_ in opened],
                "run_ats": [_run_at(span, now) for span, *_ in opened],
                "ranges": [number for _, number, _, _ in opened],
                "sizes": [size for _, _, size, _ in opened],
                "members": [members for *_, members in opened],
            },
        )
    if children:
        yield (
            "block_jobs",
            {
                "ids": [job.id for _, job in children],
                "partitions": [span.partition_id for span, _ in children],
                "priorities": [span.priority for span, _ in children],
                "tasks": [span.task for span, _ in children],
                "run_ats": [_run_at(span, now) for span, _ in children],
                "runs_on_failure": [job.runs_on_failure for _, job in children],
                "parents": [msgspec.json.encode(_parent_ids(job)).decode() for _, job in children],
            },
        )


def _run_at(span: Span, now: datetime) -> datetime | None:
    return span.run_at if span.delay is None else now + timedelta(seconds=span.delay)


def _members(jobs: Sequence[NewJob]) -> str:
    bits = ["0"] * RANGE
    for job in jobs:
        bits[job.id % RANGE] = "1"
    return "".join(bits)
