"""Health: whether a process is live, so that it need not be started again, and ready, so that it is to be given work.

A server is live while it answers, and ready while a database that fits it answers. A worker is live while its threads
turn, however long a database is away, for another start would not bring that back; and ready while it can claim from
one of its databases. Whoever asks may be anybody: no answer names a host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.metrics.cached import Cached
from penstock.shards.databases import Databases
from penstock.storage import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.schema import read_state, refuse
from penstock.worker import WorkerSnapshot

__all__ = ["Health", "ServerHealth", "server_live", "server_ready", "workers_live", "workers_ready"]

# A probe waits for a second, if nothing else was said.
PATIENCE_SECONDS = 0.8


class Health(NamedTuple):
    """An answer to a probe, with a sentence."""

    is_ok: bool
    text: str

    @property
    def status(self) -> int:
        """The status of HTTP that says it."""
        return 200 if self.is_ok else 503


def server_live() -> Health:
    """A server that answers is live."""
    return Health(True, "live")


def server_ready(databases: Databases) -> Health:
    """Whether at least one database answers, and its schema is one that this program can work with."""
    fitting: list[int] = []

    def look(database: Database) -> None:
        try:
            databases.ask(database, _refuse_other_schema, timeout=PATIENCE_SECONDS, writes=False)
        except (PenstockError, DatabaseError):
            return
        fitting.append(database.shard)

    databases.each_database(look)
    return Health(True, "ready") if fitting else Health(False, "no database that fits this program answers")


class ServerHealth:
    """The same for probes: asked of the databases once a second at most, however many ask."""

    def __init__(self, databases: Databases) -> None:
        self._ready = Cached(lambda: server_ready(databases))

    def live(self) -> Health:
        """Whether the server is live."""
        return server_live()

    def ready(self) -> Health:
        """Whether the server is ready."""
        return self._ready.get()


def workers_live(workers: Sequence[WorkerSnapshot]) -> Health:
    """Whether the threads of the workers of this process turn; before one begins, and after it has ended, they need
    not.
    """
    stuck = [
        f"the conductor of shard {database.number} has not turned for {database.stuck_seconds:.0f} s, longer than the "
        "worker's lease, though its database answers"
        for worker in workers
        for database in worker.databases
        if database.stuck_seconds
    ]
    return Health(not stuck, "; ".join(stuck) or "live")


def workers_ready(workers: Sequence[WorkerSnapshot]) -> Health:
    """Whether a worker of this process can claim from one of its databases."""
    databases = [database for worker in workers for database in worker.databases]
    if any(database.unready is None for database in databases):
        return Health(True, "ready")
    reasons = [f"shard {database.number}: {database.unready}" for database in databases]
    return Health(False, "; ".join(reasons) or "no worker has begun")


def _refuse_other_schema(connection: Connection) -> None:
    refuse(read_state(connection))
