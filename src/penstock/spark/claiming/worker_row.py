"""The row by which a process of Spark's is a worker of a database."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.clock import ticks
from penstock.storage import Connection, Database
from penstock.storage.work import workers
from penstock.version import __version__

__all__ = ["WorkerRow", "register_worker"]


class WorkerRow(NamedTuple):
    """A worker's number and name, when it was about to register, and which server answered."""

    id: int
    name: str
    registered_at: int
    server: str | None


def register_worker(
    database: Database,
    prefix: str,
    *,
    concurrency: int,
    lease_seconds: float,
    find_tasks: Callable[[Connection], Iterable[tuple[int, str]]] = lambda _: (),
    timeout: float | None = None,
) -> WorkerRow:
    """Register this process as a worker, under the prefix and where it runs, with the (queue, task) pairs it takes."""
    host, pid, registered_at = socket.gethostname(), os.getpid(), ticks()
    name = f"{prefix}{host}:{pid}"

    def register(connection: Connection) -> tuple[int, str | None]:
        worker = workers.register(
            connection,
            name=name,
            host=host,
            pid=pid,
            version=__version__,
            concurrency=concurrency,
            lease_seconds=lease_seconds,
            tasks=find_tasks(connection),
        )
        return worker, workers.begin(connection, worker)

    worker, server = database.run(register, timeout=timeout)
    return WorkerRow(worker, workers.full_name(name, worker), registered_at, server)
