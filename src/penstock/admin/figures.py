"""The figures of queues and workers, read at each call."""

from __future__ import annotations

from penstock.model.stats import Stats
from penstock.model.worker import WorkerInfo
from penstock.storage import Database
from penstock.storage import health as storage
from penstock.storage.catalogue import QueueEntry
from penstock.storage.stats import read_all_stats, read_stats
from penstock.storage.workers import read_workers

__all__ = ["all_stats", "answers", "stats", "workers"]


def stats(database: Database, queue: QueueEntry) -> Stats:
    """A queue's figures, and those of each of its partitions."""
    return database.run(lambda connection: read_stats(connection, queue))


def all_stats(database: Database) -> list[Stats]:
    """The figures of every queue the database knows."""
    return database.run(read_all_stats)


def workers(database: Database) -> list[WorkerInfo]:
    """Every worker not declared dead."""
    return database.run(read_workers)


def answers(database: Database) -> bool:
    """Whether the database can be reached."""
    return storage.answers(database)
