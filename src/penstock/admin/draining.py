"""Taking everything off a shard, and telling how far that is.

It begins with the call, and goes on by upkeep or by further calls: it may be killed at any point.
"""

from __future__ import annotations

from penstock.admin.naming_shards import find_shard
from penstock.model.drain import Drain, DrainRest
from penstock.shards.databases import Databases
from penstock.shards.draining import advance_draining, begin_draining, count_rest
from penstock.shards.map_changes import tell_rest
from penstock.shards.membership import read_membership, read_shards
from penstock.storage.catalogue import resize
from penstock.upkeep import SharedUpkeep

__all__ = ["drain_progress", "drain_shard"]

_REASONS = {
    "partitions": "they are taken over by other shards as soon as all of these answer",
    "ready": "workers run them here; what none can run is carried to other shards",
    "set aside": "they stay until a person retries or cancels them",
    "running": "they end here",
    "scheduled": "they are carried to other shards",
    "blocked": "they are carried to other shards",
    "failed": "they are carried to other shards",
    "on their way": "they are carried as soon as their shard takes them",
    "staged": "nobody can publish them here any more, and they are dropped; or they are held by a load",
    "halted keys": "they are carried to other shards with their jobs; where the dead letter is gone, release the key",
    "idempotency keys": "they are carried to other shards",
    "crons": "they move to other shards",
    "loads": "they are published, or given up, as soon as all their shards answer",
    "producers": "transactions that began by an earlier map of keys are still open",
    "coming": "other shards carry them here, and then they go on",
    "waited for": "children on other shards have not heard yet how they ended",
}


def drain_shard(databases: Databases, shard: int | str) -> Drain:
    """Take everything off a shard, as far as that can be done now, and tell how far it is."""
    entry = find_shard(databases, shard)
    if entry.state not in ("draining", "drained"):
        # Nothing is begun where one of those that have to take part does not answer.
        databases.each(read_membership, writes=False).all()
        begin_draining(databases, entry.number)
    refused = None
    if entry.state != "drained":
        advance_draining(databases)
        databases.each(resize.close)
        tell_rest(databases)
        databases.change(resize.drain)
        upkeep = SharedUpkeep(databases)
        upkeep.sweep()
        advance_draining(databases)
        refused = upkeep.errors.get("carry")
    return _progress(databases, entry.number, refused)


def drain_progress(databases: Databases, shard: int | str) -> Drain:
    """How far the draining of a shard is; nothing is done for it. Of one that is not drained nothing is to go."""
    entry = find_shard(databases, shard)
    if entry.state != "draining":
        return Drain(shard=str(entry.number), state=entry.state, rest=[])
    return _progress(databases, entry.number, None)


def _progress(databases: Databases, number: int, refused: str | None) -> Drain:
    state = next(entry.state for entry in databases.read(read_shards) if entry.number == number)
    rest = [] if state == "drained" else count_rest(databases, number)
    return Drain(
        shard=str(number),
        state=state,
        rest=[
            DrainRest(queue=each.queue, kind=each.kind, count=each.remaining, reason=_reason(each.kind, refused))
            for each in rest
        ],
    )


def _reason(kind: str, refused: str | None) -> str:
    if kind == "on their way" and refused is not None:
        return f"{_REASONS[kind]}; the last time it did not: {refused}"
    return _REASONS[kind]
