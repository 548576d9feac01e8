"""What a producer says when a call, or a write of it, cannot be done."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.call import Call, PlannedWrite
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, RequestTimeout
from penstock.model.checks import JOBS_A_CALL
from penstock.shards.callers import Caller
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.database import Database
from penstock.storage.connection.error_meaning import first_line, with_remedy

__all__ = [
    "WritesFailed",
    "answer_lost",
    "check_size",
    "key_elsewhere",
    "locked_out",
    "map_not_open",
    "merge_errors",
    "moving_queue",
    "no_partition_there",
    "not_taken",
]


def check_size(count: int) -> None:
    """Refuse a call of too many jobs."""
    if count > JOBS_A_CALL:
        raise InvalidInput("jobs", f"{count} jobs in one call are too many; give at most {JOBS_A_CALL} at a time")


# While a call is planned


def moving_queue(entry: QueueEntry, shard: int) -> PartitionUnavailable:
    """A queue has no partition on the shard of its idempotency keys."""
    return PartitionUnavailable(
        f"queue {entry.name!r} has no partition on shard {shard}, which remembers its idempotency keys; it is "
        "being moved: call again in a moment",
        shard=shard,
    )


def no_partition_there(entry: QueueEntry, shards: Sequence[int], caller: Caller) -> InvalidInput:
    """A queue, which has partitions on these shards, has none where the caller's connection leads."""
    return InvalidInput(
        "connection",
        f"it leads to shard {caller.shard} ({caller.address}), and queue {entry.name!r} has no partition there: "
        f"use a connection to shard {', '.join(map(str, shards))}, or enqueue without connection=",
    )


def key_elsewhere(
    entry: QueueEntry, number: int | None, shard: int, idempotency_key: str | None, caller: Caller
) -> InvalidInput:
    """A job's key or idempotency key lives on another shard than the one the caller's connection leads to."""
    if idempotency_key is not None and (number is None or not entry.is_owned):
        return InvalidInput(
            "idempotency_key",
            f"{idempotency_key!r:.60} is remembered on shard {shard}, and the connection leads to shard {caller.shard} "
            f"({caller.address}): use a connection to shard {shard}, or enqueue without connection=",
        )
    name = "" if number is None else f" {entry.partition_names[number]!r}"
    return InvalidInput(
        "key",
        f"its partition{name} lives on shard {shard}, and the connection leads to "
        f"shard {caller.shard} ({caller.address}): use one to shard {shard}, or enqueue without connection=",
    )


# While a write is carried out


def locked_out(call: Call, write: PlannedWrite, database: Database, error: BaseException) -> RequestTimeout:
    """Somebody else's transaction holds what the write needs."""
    return RequestTimeout(
        f"{_count(write)} could not be written within {call.deadline.seconds:g} s: at "
        f"{database.breaker.label} {first_line(error)}, such as one that enqueues "
        "with the same idempotency key and has not ended; none of them was written, call again when it has",
        outcome="not written",
    )


def answer_lost(call: Call, write: PlannedWrite, database: Database, error: BaseException) -> RequestTimeout:
    """Nobody could say in time whether the write was committed."""
    return RequestTimeout(
        f"the answer to an enqueue of {_count(write)} was lost, and {database.breaker.label} did not come "
        f"back within {call.deadline.seconds:g} s to say whether they were written "
        f"({first_line(error.__cause__ or error)}); "
        "repeat the call only with idempotency keys, or look with app.jobs first",
        outcome="unknown",
    )


def map_not_open(call: Call, write: PlannedWrite, queues: Sequence[QueueEntry]) -> PartitionUnavailable:
    """The key maps of these queues were not opened in time."""
    names = ", ".join(repr(entry.name) for entry in queues)
    return PartitionUnavailable(
        f"{_count(write)} could not be written within {call.deadline.seconds:g} s: queue {names} gets another "
        "map of its keys, and not all its shards have it; see app.shards or `penstock shards`, and call again",
        shard=write.shard,
        partition=write.partitions[0],
    )


def not_taken(databases: Databases, call: Call, write: PlannedWrite, error: BaseException) -> PenstockError:
    """No database took the write in time."""
    database = databases.of(write.shard)
    if write.is_bound:
        unavailable = database.unavailable(error)
        names = write.partitions
        return PartitionUnavailable(
            f"{_count(write)} for partition{'s' * (len(names) > 1)} {', '.join(map(repr, names))} could not be "
            f"written within {call.deadline.seconds:g} s: {unavailable}",
            shard=write.shard,
            partition=names[0],
        )
    if databases.has_others(write.shard):
        entries = write.entries.values()
        shards = sorted({each for entry in entries for each in entry.partition_shards[: entry.partition_count]})
        where = f"no shard of their queue ({', '.join(map(str, shards))}) takes them"
    else:
        where = f"{database.breaker.label} {database.describe_failure(error)}"
    return RequestTimeout(
        f"{_count(write)} could not be written within {call.deadline.seconds:g} s: {where} "
        f"({with_remedy(error)}); none of them was written, so the call may be repeated",
        outcome="not written",
    )


class WritesFailed(Exception):
    """Some writes of a call could not be carried out."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        super().__init__("writes of a call failed")
        self.errors: list[BaseException] = [
            each for error in errors for each in (error.errors if isinstance(error, WritesFailed) else [error])
        ]


def merge_errors(call: Call, errors: Sequence[BaseException]) -> BaseException:
    """One error for all writes that failed, with what was written all the same."""
    written = call.written
    count = sum(each is not None for each in written)
    note = f"{count} of the call's {len(written)} jobs were written all the same: the error's `written` has their ids"
    for error in errors:
        if not isinstance(error, (PartitionUnavailable, RequestTimeout)):
            error.add_note(note)
            if isinstance(error, PenstockError):
                error.written = written
            return error
    merged: PartitionUnavailable | RequestTimeout
    message = "; ".join(dict.fromkeys(str(error) for error in errors)) + (f"; {note}" if count else "")
    unavailable = next((error for error in errors if isinstance(error, PartitionUnavailable)), None)
    if any(isinstance(error, RequestTimeout) and error.outcome == "unknown" for error in errors):
        merged = RequestTimeout(message, outcome="unknown")
    elif unavailable is not None or count:
        shard, partition = (None, None) if unavailable is None else (unavailable.shard, unavailable.partition)
        merged = PartitionUnavailable(message, shard=shard, partition=partition)
        merged.outcome = "unknown" if count else "not written"
    else:
        merged = RequestTimeout(message, outcome="not written")
    merged.written = written
    return merged


def _count(write: PlannedWrite) -> str:
    return "1 job" if write.job_count == 1 else f"{write.job_count} jobs"
