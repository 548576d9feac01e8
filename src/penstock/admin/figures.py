"""The figures of queues and shards, read at each call from all shards that answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from penstock.admin.answers import ask_everywhere, unavailable
from penstock.errors import PartitionUnavailable
from penstock.model.checks import checked_count
from penstock.model.history import History
from penstock.model.shard import Shard
from penstock.model.stats import Stats
from penstock.shards.databases import Databases
from penstock.shards.health import ShardFacts, shard_facts
from penstock.shards.membership import ShardEntry, read_shards
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry, find_queue, read_queues
from penstock.storage.inspect import health as storage
from penstock.storage.inspect.minutes import add_up, read_minutes
from penstock.storage.inspect.stats import StoredFigures, queue_stats, read_figures

__all__ = ["all_stats", "answers", "histories", "history", "queue_names", "shards", "silent_shard", "stats"]

# A day: so long the minutes are kept.
MOST_MINUTES = 1_440


def stats(databases: Databases, queue: QueueEntry) -> Stats:
    """A queue's figures, and those of each of its partitions."""
    return _stats(databases, [queue])[0]


def all_stats(databases: Databases, names: Collection[str] | None = None) -> list[Stats]:
    """The figures of every queue there is, or of those that are named."""
    queues = databases.read(read_queues)
    return _stats(databases, queues if names is None else [queue for queue in queues if queue.name in names])


def queue_names(databases: Databases) -> list[str]:
    """The names of all queues, in order."""
    return sorted(queue.name for queue in databases.read(read_queues))


def history(databases: Databases, queue: str, minutes: int) -> History:
    """A queue's figures minute by minute."""
    checked_count("minutes", minutes, most=MOST_MINUTES)
    entry = databases.read(lambda connection: find_queue(connection, queue))
    return _histories(databases, [entry], minutes)[0]


def histories(databases: Databases, minutes: int, names: Collection[str] | None) -> list[History]:
    """The same of every queue there is, or of those that are named."""
    checked_count("minutes", minutes, most=MOST_MINUTES)
    queues = databases.read(read_queues)
    return _histories(databases, [each for each in queues if names is None or each.name in names], minutes)


def _histories(databases: Databases, queues: Sequence[QueueEntry], minutes: int) -> list[History]:
    partitions = {queue.id: queue.partition_ids for queue in queues}
    answers = ask_everywhere(databases, lambda connection: read_minutes(connection, partitions, minutes))
    left_out = unavailable(answers)
    return [
        History(queue=queue.name, minutes=add_up([each[queue.id] for each in answers]), unavailable=left_out)
        for queue in queues
    ]


def shards(databases: Databases) -> list[Shard]:
    """Every shard: where it is, whether it answers, and how much is on it."""
    found: dict[int, tuple[ShardFacts, list[ShardEntry]]] = {}

    def look(database: Database) -> None:
        with suppress(PartitionUnavailable):
            found[database.shard] = database.ask(lambda c: (shard_facts(c), read_shards(c)), timeout=3.0, writes=False)

    databases.each_database(look)
    states = {entry.number: entry.state for _, entries in found.values() for entry in entries}
    return [
        _shard(database, states.get(database.shard, "active"), found[database.shard][0])
        if database.shard in found
        else silent_shard(database, states.get(database.shard, "active"))
        for database in databases
    ]


def silent_shard(database: Database, state: str = "active") -> Shard:
    """What there is to say of a shard that does not answer."""
    return _shard(database, state, None)


def answers(database: Database) -> bool:
    """Whether the database can be reached."""
    return storage.answers(database)


def _stats(databases: Databases, queues: Sequence[QueueEntry]) -> list[Stats]:
    partition_shards = [
        each for queue in queues for each in zip(queue.partition_ids, queue.partition_shards, strict=True)
    ]

    def read(database: Database) -> dict[int, StoredFigures]:
        partitions = [id_ for id_, shard in partition_shards if shard == database.shard]

        def act(connection: Connection) -> dict[int, StoredFigures]:
            return read_figures(connection, partitions)

        return databases.ask(database, act, writes=False)

    found = databases.each_database(read)
    figures = {id_: each for given in found for id_, each in given.items()}
    missing = {int(name) for name in unavailable(found)}
    return [
        queue_stats(queue, figures, [str(n) for n in sorted(missing.intersection(queue.partition_shards))])
        for queue in queues
    ]


def _shard(database: Database, state: str, facts: ShardFacts | None) -> Shard:
    return Shard(
        name=str(database.shard),
        url=database.url,
        address=database.address,
        health="down" if facts is None else "read-only" if facts.is_read_only else "up",
        state=state,
        partitions=0 if facts is None else facts.partitions,
        queued=0 if facts is None else facts.queued,
        running=0 if facts is None else facts.running,
        reason=database.breaker.reason if facts is None else "",
    )
