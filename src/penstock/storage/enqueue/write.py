"""Writing jobs. A call becomes one range per (partition, priority, task, run time), in the call's order; where the
queue has an owner, whatever the tasks.

What was routed by a map of keys that is not the queue's any more (it was resized) is not written: the caller is told,
routes it anew, and its transaction lives on.

A few plain jobs are one statement. Larger calls draw their range numbers, COPY the jobs, and open the ranges, in one
transaction. Idempotency keys are inserted before the jobs; a job whose key was taken leaves a hole in its range.

When the answer to a COMMIT is lost the call must not be repeated blindly, nor moved to another shard: by its receipt it
is looked for (`penstock.storage.enqueue.receipts`).

What to send is decided by generators that yield statements and are given their rows: `drive` runs one on a
connection, `drive_async` on an asynchronous one, so that both do the same, also inside a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, LiteralString, TypeVar

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from penstock.errors import InvalidInput
from penstock.storage.connection.arrays import members_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.flow import Flow
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.enqueue.receipts import NOT_NOTED, Receipt

__all__ = [
    "FEW",
    "RANGE",
    "Child",
    "Span",
    "drive",
    "drive_async",
    "drive_transaction",
    "is_few",
    "newest_id",
    "newest_of",
    "note_newest",
    "read_place",
    "refused_parent",
    "set_ids",
    "write_few",
    "write_spans",
]

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
RANGE = 1024
# Below this, one statement with the rows in it beats COPY: see bench/copy_or_insert.py.
FEW = 100
_NULL = b"\\N"
# Of a queue with an owner or without, and whether the call's receipt is written with it.
_ENQUEUE_ONE = {
    (False, False): "enqueue_one",
    (False, True): "enqueue_one_noted",
    (True, False): "enqueue_one_if_mapped",
    (True, True): "enqueue_one_if_mapped_noted",
}
_ENQUEUE_FEW = {
    (False, False): "enqueue_few",
    (False, True): "enqueue_few",
    (True, False): "enqueue_few_if_mapped",
    (True, True): "enqueue_few_if_mapped_noted",
}
# The server has answered everything it was asked.
_AT_REST = frozenset({TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR})


@dataclass(slots=True)
class Child:
    """What a job waits for: ids, or places of earlier jobs of the same call (as negative numbers, -1 - place)."""

    parents: list[int]
    runs_on_failure: bool


@dataclass(slots=True)
class Span:
    """Jobs of one call that share a partition, a priority, a task and a run time: they become ranges.

    The lists are parallel, an element a job; a list that is None says that no job has any of it. `places` tells where
    each job stands in the call. On a queue with an owner `epoch` is the map they were routed by, `tasks` names each
    job's task, and `task` is empty. On other queues `held` is the map that must be the queue's while idempotency keys
    are written: it says on which shard they are remembered.
    """

    queue_id: int
    partition_id: int
    priority: int
    task: str
    run_at: datetime | None = None
    # Seconds from when the call is written, by the database's clock; instead of run_at.
    delay: float | None = None
    args: list[bytes] = field(default_factory=list)
    places: Sequence[int] = field(default_factory=list)
    keys: list[bytes | None] | None = None
    attributes: list[dict[str, Any] | None] | None = None
    idempotency_keys: list[str | None] | None = None
    children: dict[int, Child] | None = None
    epoch: int | None = None
    tasks: list[str] | None = None
    held: int | None = None
    # The jobs that hold some of the idempotency keys on another shard, by the key as it is stored.
    known: dict[str, int] | None = None

    def task_of(self, index: int) -> str:
        """The task of one of its jobs."""
        return self.tasks[index] if self.tasks else self.task

    @property
    def is_ready(self) -> bool:
        """Whether its jobs wait for no time and no others."""
        return self.run_at is None and not self.delay and not self.children

    def stored_idempotency_key(self, index: int) -> str | None:
        """What must be unique in the queue: with an owner, it is so for each ordering key."""
        key = self.idempotency_keys[index] if self.idempotency_keys else None
        if key is None or self.epoch is None:
            return key
        ordering = self.keys[index] if self.keys else None
        return f"{(ordering or b'').hex()}:{key}"


class Copy(bytes):
    """Lines for COPY, in place of parameters."""


class Last(dict[str, Any]):
    """The parameters of a call's last statement."""


Parameters = dict[str, Any] | Copy
Rows = list[tuple[Any, ...]]
Steps = Generator[tuple[str, Parameters], Rows, T]


def drive(connection: Connection, steps: Steps[T], schema: str = SCHEMA) -> T:
    """Send what the steps yield; what they return. `schema`: the one meant on a connection that is not ours."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        while True:
            name, parameters = steps.send(_sent(cursor, query(name, schema), parameters))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def drive_transaction(connection: Connection, steps: Steps[T], receipt: Receipt) -> T:
    """The same in a transaction of its own: BEGIN travels with the first statement, COMMIT with the last."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        with connection.pipeline():
            connection.execute("begin")
            cursor.execute(query(name), parameters)
        rows = cursor.fetchall()
        while True:
            name, parameters = steps.send(rows)
            if isinstance(parameters, Last):
                receipt.is_sent = True
                with connection.pipeline():
                    cursor.execute(query(name), parameters)
                    if receipt.kept_seconds is not None:
                        connection.execute(query("note_written"), receipt.note)
                    connection.execute("commit")
                rows = cursor.fetchall()
            else:
                rows = _sent(cursor, query(name), parameters)
    except StopIteration as end:
        connection.commit()
        return end.value  # type: ignore[no-any-return]
    except BaseException:
        if connection.info.transaction_status in _AT_REST:
            # What is raised is the first error, which says whether the server denied or the session ended.
            with suppress(psycopg.Error):
                connection.rollback()
        else:
            # Left in the middle of an answer it cannot be used again, however alive it looks.
            connection.close()
        raise


def _sent(cursor: psycopg.Cursor[tuple[Any, ...]], text: LiteralString, parameters: Parameters) -> Rows:
    if isinstance(parameters, Copy):
        with cursor.copy(text) as copy:
            copy.write(parameters)
        return []
    return cursor.execute(text, parameters).fetchall()


async def drive_async(connection: psycopg.AsyncConnection[Any], steps: Steps[T], schema: str = SCHEMA) -> T:
    """The same on an asynchronous connection."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        while True:
            rows: Rows = []
            if isinstance(parameters, Copy):
                async with cursor.copy(query(name, schema)) as copy:
                    await copy.write(parameters)
            else:
                rows = await (await cursor.execute(query(name, schema), parameters)).fetchall()
            name, parameters = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def newest_id(connection: Connection) -> int:
    """An id below all that are drawn from now on."""
    row = connection.execute(query("newest_range")).fetchone()
    return int(row[0]) * RANGE if row else 0


def newest_of(connection: Connection) -> int:
    """The same, of what this session has seen; the server is asked once."""
    assert isinstance(connection, Flow)  # noqa: S101
    if connection.newest_id is None:
        connection.newest_id = newest_id(connection)
    return connection.newest_id


def note_newest(connection: Connection, written_id: int) -> None:
    """This session has written a job of that id."""
    assert isinstance(connection, Flow)  # noqa: S101
    connection.newest_id = written_id


def is_few(spans: Sequence[Span]) -> bool:
    """Whether a call is small and plain enough for `write_few`."""
    span = spans[0]
    return len(spans) == 1 and len(span.args) < FEW and not span.idempotency_keys and not span.children


def write_few(span: Span, ids: list[int], receipt: Receipt | None = None) -> Steps[bool]:
    """Write fewer than FEW plain jobs of one span in a single statement, and set the call's ids; False: stale map."""
    first = (span.attributes and span.attributes[0]) or {}
    where: dict[str, Any] = {"queue": span.queue_id, "partition": span.partition_id, "priority": span.priority}
    if span.epoch is not None:
        where["epoch"] = span.epoch
    is_noted = receipt is not None and receipt.kept_seconds is not None
    if receipt is not None and not is_noted:
        first = {**first, "token": receipt.token}
    if len(span.args) == 1 and span.run_at is None and span.delay is None:
        rows = yield (
            _ENQUEUE_ONE[span.epoch is not None, is_noted],
            {
                **where,
                **(receipt.note if receipt is not None and is_noted else {}),
                "task": span.task_of(0),
                "key": span.keys[0] if span.keys else None,
                "args": span.args[0].decode(),
                "attributes": _encode(first).decode() if first else None,
            },
        )
    else:
        rows = yield (
            _ENQUEUE_FEW[span.epoch is not None, is_noted],
            {
                **where,
                **(NOT_NOTED if receipt is None else receipt.note),
                **({"task": span.task} if span.epoch is None else {"tasks": span.tasks}),
                "run_at": span.run_at,
                "delay": span.delay,
                "args": (b"[" + b",".join(span.args) + b"]").decode(),
                "keys": span.keys,
                "attributes": _encode([first or None, *(span.attributes or [])[1:]]).decode(),
            },
        )
    if rows[0][0] is None:
        return False
    set_ids(span.places, ids, rows[0][0])
    return True


def write_spans(spans: Sequence[Span], ids: list[int], receipt: Receipt | None = None) -> Steps[bool]:
    """Write a call of any shape and set its ids; False: a stale map. The caller has opened the transaction."""
    pieces = [
        Piece(span, low, min(low + RANGE, len(span.args))) for span in spans for low in range(0, len(span.args), RANGE)
    ]
    held = ((span.queue_id, span.held if span.epoch is None else span.epoch) for span in spans)
    maps = sorted({(queue, epoch) for queue, epoch in held if epoch is not None})
    if not maps:
        ((ranges, now),) = yield "draw_ranges", {"count": len(pieces)}
    else:
        ((ranges, now),) = yield (
            "draw_ranges_if_mapped",
            {
                "count": len(pieces),
                "queues": [queue for queue, _ in maps],
                "epochs": [epoch for _, epoch in maps],
            },
        )
        if ranges is None:
            return False
    for piece, number in zip(pieces, ranges, strict=True):
        piece.range = number
        set_ids(piece.span.places[piece.low : piece.high], ids, number * RANGE)
    if any(span.idempotency_keys for span in spans):
        yield from _insert_idempotency_keys(pieces, ids)
    if receipt is not None:
        first = next((piece for piece in pieces if piece.positions), None)
        receipt.first_id = 0 if first is None else first.range * RANGE + first.positions[0]
        receipt.enqueued_at = now
    if any(span.children for span in spans):
        yield from _check_parents(spans)
    if lines := _lines(pieces, ids, now):
        yield "copy_jobs", Copy(lines)
    yield from _open(pieces, ids, now)
    return True


@dataclass(slots=True)
class Piece:
    """Up to 1,024 jobs of a span: they become one range. `positions` are those that are written."""

    span: Span
    low: int
    high: int
    range: int = 0
    positions: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.positions = range(self.high - self.low)


def set_ids(places: Sequence[int], ids: list[int], first_id: int) -> None:
    """Give the jobs at these places of a call their ids, from the first on."""
    if isinstance(places, range):
        ids[places.start : places.stop] = range(first_id, first_id + len(places))
    else:
        for job_id, place in enumerate(places, first_id):
            ids[place] = job_id


def _insert_idempotency_keys(pieces: Sequence[Piece], ids: list[int]) -> Steps[None]:
    """Take out of each piece the jobs whose key another job has, and give them that job's id."""
    keyed: dict[tuple[int, str], list[int]] = {}
    holders: dict[tuple[int, str], int] = {}
    for piece in pieces:
        span = piece.span
        for index in range(piece.low, piece.high):
            key = span.stored_idempotency_key(index)
            if key is not None:
                keyed.setdefault((span.queue_id, key), []).append(span.places[index])
                if span.known and key in span.known:
                    holders[span.queue_id, key] = span.known[key]
    unknown = {name: ids[places[0]] for name, places in keyed.items() if name not in holders}
    # Until each key is its job's or another one has it: one may be forgotten between the conflict and the look.
    while unknown:
        rows = yield (
            "insert_idempotency_keys",
            {
                "queues": [queue for queue, _ in unknown],
                "keys": [key for _, key in unknown],
                "ids": list(unknown.values()),
            },
        )
        won = {row[0] for row in rows}
        losers = [name for name, job_id in unknown.items() if job_id not in won]
        if not losers:
            break
        rows = yield "read_idempotency_keys", {"queues": [q for q, _ in losers], "keys": [k for _, k in losers]}
        holders |= {(queue, key): job_id for queue, key, job_id in rows}
        unknown = {name: unknown[name] for name in losers if name not in holders}
    not_written = {place for (q, k), places in keyed.items() for place in (places if (q, k) in holders else places[1:])}
    for piece in pieces:
        places = piece.span.places[piece.low : piece.high]
        piece.positions = [position for position, place in enumerate(places) if place not in not_written]
    for name, places in keyed.items():
        for place in places:
            ids[place] = holders.get(name, ids[places[0]])


def _check_parents(spans: Sequence[Span]) -> Steps[None]:
    children = [child for span in spans for child in (span.children or {}).values()]
    parents = sorted({parent for child in children for parent in child.parents if parent > 0})
    if parents:
        rows = yield "unknown_parents", {"parents": parents}
        if rows:
            raise refused_parent(rows[0][0])


def refused_parent(parent: int) -> InvalidInput:
    """The error for a parent that is nowhere."""
    return InvalidInput("after", f"job {parent} is unknown, pruned or archived; wait only for jobs that are stored")


def read_place() -> Steps[tuple[int, str]]:
    """The number of the shard that a connection leads to, and its system."""
    ((has_schema,),) = yield "has_schema", {}
    if not has_schema:
        raise InvalidInput(
            "connection", "it leads to a database without Penstock's schema: connect to a shard of this app"
        )
    ((number, _, system, _),) = yield "read_identity", {}
    return number, str(system)


def _lines(pieces: Sequence[Piece], ids: list[int], now: datetime) -> bytes:
    """The jobs as COPY's text format wants them."""
    stamp = now.isoformat().encode()
    lines: list[bytes] = []
    for piece in pieces:
        span, first_id = piece.span, piece.range * RANGE
        head = b"\t%b\t%d\t%d\t" % (stamp, span.partition_id, span.priority)
        if span.keys is None and span.attributes is None and span.children is None and span.tasks is None:
            head += b"%b\t\\N\t" % _copied(span.task.encode())
            args = span.args
            lines += [
                b"%d%b%b\t\\N\n" % (first_id + p, head, a if b"\\" not in (a := args[piece.low + p]) else _copied(a))
                for p in piece.positions
            ]
            continue
        tasks = {task: _copied(task.encode()) for task in span.tasks or (span.task,)}
        for position in piece.positions:
            index = piece.low + position
            key = span.keys[index] if span.keys else None
            attributes = span.attributes[index] if span.attributes else None
            child = span.children.get(index) if span.children else None
            if child is not None:
                attributes = {**(attributes or {}), "parents": [str(p) for p in _parent_ids(child, ids)]}
            lines.append(
                b"%d%b%b\t%b\t%b\t%b\n"
                % (
                    first_id + position,
                    head,
                    tasks[span.task_of(index)],
                    _NULL if key is None else b"\\\\x" + key.hex().encode(),
                    _copied(span.args[index]),
                    _NULL if attributes is None else _copied(_encode(attributes)),
                )
            )
    return b"".join(lines)


def _copied(text: bytes) -> bytes:
    """Text as COPY wants it."""
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def _parent_ids(child: Child, ids: list[int]) -> list[int]:
    return [parent if parent > 0 else ids[-1 - parent] for parent in child.parents]


def _open(pieces: Sequence[Piece], ids: list[int], now: datetime) -> Steps[None]:
    """Make the ranges visible; children become blocked."""
    opened: list[tuple[Span, int, int, str | None]] = []
    children: list[tuple[Span, int, Child, str]] = []
    for piece in pieces:
        span = piece.span
        free = piece.positions
        if span.children:
            free = [position for position in piece.positions if piece.low + position not in span.children]
            children += [
                (span, piece.range * RANGE + position, span.children[index], span.task_of(index))
                for position in piece.positions
                if (index := piece.low + position) in span.children
            ]
        if free:
            size = free[-1] + 1
            opened.append((span, piece.range, size, None if len(free) == size else members_text(free)))
    if opened:
        opening = Last if not children else dict
        yield (
            "open_ranges",
            opening(
                queues=[span.queue_id for span, *_ in opened],
                partitions=[span.partition_id for span, *_ in opened],
                priorities=[span.priority for span, *_ in opened],
                tasks=[span.task for span, *_ in opened],
                run_ats=[_run_at(span, now) for span, *_ in opened],
                ranges=[number for _, number, _, _ in opened],
                sizes=[size for _, _, size, _ in opened],
                members=[members for *_, members in opened],
                epochs=[span.epoch for span, *_ in opened],
            ),
        )
    if children:
        yield (
            "block_jobs",
            Last(
                ids=[job_id for _, job_id, _, _ in children],
                partitions=[span.partition_id for span, *_ in children],
                priorities=[span.priority for span, *_ in children],
                tasks=[task for *_, task in children],
                run_ats=[_run_at(span, now) for span, *_ in children],
                runs_on_failure=[child.runs_on_failure for _, _, child, _ in children],
                parents=[_encode(_parent_ids(child, ids)).decode() for _, _, child, _ in children],
            ),
        )


def _run_at(span: Span, now: datetime) -> datetime | None:
    return span.run_at if span.delay is None else now + timedelta(seconds=span.delay)
