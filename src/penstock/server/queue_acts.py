"""What is done to queues over HTTP: to pause, resize, limit and purge them, to release a key, to move a partition."""

from __future__ import annotations

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.model import Resize, Stats
from penstock.server.call import Call
from penstock.server.job_acts import Counted
from penstock.server.job_filters import JobsInQueue, body_filters
from penstock.server.operation import Operations
from penstock.server.queues import LimitsRequest
from penstock.server.values import Base64, given_fields, key_of

__all__ = ["queue_acts", "shard_number"]

queue_acts = Operations()


class Paused(Struct, frozen=True, kw_only=True):
    """A queue, and whether it gives out jobs."""

    queue: str
    paused: bool


class ResizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many partitions the queue is to have."""

    partitions: int


class MoveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of the shard on which the partition is to live."""

    shard: str


class ReleaseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The halted key."""

    key: str | int | Base64


class PurgeRequest(JobsInQueue, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs of the queue are meant: all that wait, where nothing is given. With the state `failed`: dead letters.

    The `reason` is kept as the error of those that are cancelled.
    """

    reason: str | None = None


@queue_acts.add("POST", "/queues/{queue}/pause", may="admin")
def pause_queue(call: Call, queue: str) -> Paused:
    """Give out none of a queue's jobs until it is resumed; what runs goes on."""
    call.app.pause(queue)
    return Paused(queue=queue, paused=True)


@queue_acts.add("POST", "/queues/{queue}/resume", may="admin")
def resume_queue(call: Call, queue: str) -> Paused:
    """Give them out again."""
    call.app.resume(queue)
    return Paused(queue=queue, paused=False)


@queue_acts.add("POST", "/queues/{queue}/limit", may="admin")
def limit_queue(call: Call, queue: str, body: LimitsRequest) -> Stats:
    """Change the limits that are given; every worker goes by them within a second."""
    call.app.limit(queue, **given_fields(body))
    return call.app.stats(queue)


@queue_acts.add("POST", "/queues/{queue}/resize", may="admin")
def resize_queue(call: Call, queue: str, body: ResizeRequest) -> Resize:
    """Give a queue another number of partitions while it is used; again to see how far it is."""
    return call.app.resize(queue, partitions=body.partitions)


@queue_acts.add("POST", "/queues/{queue}/partitions/{partition}/move", may="admin")
def move_partition(call: Call, queue: str, partition: str, body: MoveRequest) -> Resize:
    """Let a partition live on another shard while it is used; again to see how far it is."""
    return call.app.move_partition(queue, partition, shard_number(body.shard))


@queue_acts.add("POST", "/queues/{queue}/purge", may="admin")
def purge_queue(call: Call, queue: str, body: PurgeRequest) -> Counted:
    """End the waiting jobs of a queue as cancelled, or clear its dead letters, all or those of a cause."""
    done = call.app.purge(queue, preview=body.preview, reason=body.reason, **body_filters(body))
    return Counted(jobs=done, preview=body.preview)


@queue_acts.add("POST", "/queues/{queue}/release", may="admin", status=204)
def release_key(call: Call, queue: str, body: ReleaseRequest) -> None:
    """Let a halted key go on; its dead letter stays where it is."""
    key = key_of("key", body.key)
    assert key is not None  # noqa: S101
    call.app.release(queue, key)


def shard_number(given: str) -> int:
    """A shard is named by its number: its URL, which would do elsewhere, holds a password."""
    if not given.isascii() or not given.isdecimal() or len(given) > 9:
        raise InvalidInput("shard", "it is named by its number here, as GET shards tells it")
    return int(given)
