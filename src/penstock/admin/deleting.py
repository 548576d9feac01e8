"""Deleting a queue.

It is one change of the catalogue: from then on its name is free, and nobody starts its jobs. What it holds on each
shard is ended after that, by this call where the shard answers, and else by upkeep.
"""

from __future__ import annotations

import logging

from penstock.admin.answers import some_jobs
from penstock.admin.crons import read_crons
from penstock.admin.figures import stats
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.model.checks import checked_flag
from penstock.model.stats import Stats
from penstock.shards.databases import Databases
from penstock.shards.map_changes import advance_changes
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.repair.deleting import delete_queue as mark_deleted
from penstock.storage.repair.deleting import end_deleted, end_in_deleted

__all__ = ["delete_queue"]

log = logging.getLogger("penstock")


def delete_queue(databases: Databases, name: str, *, force: bool = False, preview: bool = False) -> int:
    """Delete a queue; how many of its jobs ended by that or were asked to stop, or would. NotFound.

    Without `force` it is refused where it has any, or a cron entry.
    """
    checked_flag("force", force)
    checked_flag("preview", preview)
    queue = databases.read(lambda connection: find_queue(connection, name))
    found = stats(databases, queue)
    if not force:
        _refuse_used(name, found, [each.name for each in read_crons(databases) if each.queue == name])
    if preview:
        return sum(_held(found).values())
    # Another change of its partitions is seen through first.
    advance_changes(databases)
    # By number: where the answer to the first try was lost, the second finds it deleted.
    databases.change(lambda connection: mark_deleted(connection, queue.id))
    return _end(databases, name, frozenset(queue.partition_ids))


def _end(databases: Databases, name: str, partitions: frozenset[int]) -> int:
    def act(connection: Connection) -> int:
        ended = end_in_deleted(connection, partitions)
        end_deleted(connection)
        return ended

    def run(database: Database) -> int:
        return databases.ask(database, act)

    answers = databases.each_database(run)
    for error in answers.missing.values():
        log.warning(
            "queue %r is deleted, and what it has on a shard that is away ends when that is back: %s", name, error
        )
    return sum(answers)


def _held(found: Stats) -> dict[str, int]:
    """What keeps a queue from being deleted, by state."""
    return {
        "ready": found.queue_length,
        "running": found.active_count,
        "scheduled": found.scheduled,
        "blocked": found.blocked,
        "failed": found.dead,
    }


def _refuse_used(name: str, found: Stats, crons: list[str]) -> None:
    by_force = "delete it with force=True (--force), which cancels what waits"
    if found.unavailable:
        away = found.unavailable[0]
        raise PartitionUnavailable(
            f"queue {name!r} is not deleted: shard {away} does not answer, and may have jobs of it; call again when it "
            f"does, or {by_force}",
            shard=int(away),
        )
    held = {state: count for state, count in _held(found).items() if count}
    has = [f"{some_jobs(sum(held.values()))} ({', '.join(f'{held[state]} {state}' for state in held)})"] if held else []
    has += [f"cron {cron!r}" for cron in crons[:10]]
    if has:
        raise InvalidInput(
            "queue",
            f"{name!r} still has {', '.join(has)}: let its jobs end or purge them, remove its crons, or {by_force}",
        )
