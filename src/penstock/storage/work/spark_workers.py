"""What executor workers and streams of Spark ask beyond what every worker does.

An executor worker is a task of Spark that is a worker for a while: its name begins with its run, which is one call of
`process`. It lives no longer than the driver that started it, which has a row of its own among the workers.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.work.workers import Renewal

__all__ = [
    "charge_nothing",
    "is_gated",
    "name_if_alive",
    "read_tasks",
    "remove_run",
    "renew",
    "run_is_busy",
    "tasks_at_the_head",
    "waiting_in_queue",
]


def renew(connection: Connection, worker: int, driver: int) -> tuple[Renewal | None, bool]:
    """Say that an executor worker lives (None: it was declared dead), and hear whether its driver lives."""
    row = connection.execute(query("renew_slot_if_alive"), {"worker": worker, "driver": driver}).fetchone()
    return (None, False) if row is None else (Renewal(*row[:3]), bool(row[3]))


def run_is_busy(connection: Connection, run: str, worker: int, partitions: Iterable[int]) -> bool:
    """Whether another worker of the run holds jobs of these partitions, or one that is gone and not rescued yet."""
    row = connection.execute(
        query("run_is_busy"), {"run": run, "worker": worker, "partitions": array_text(partitions)}
    ).fetchone()
    return bool(row and row[0])


def remove_run(connection: Connection, run: str) -> None:
    """Let every worker of a run leave, those too that cannot do it any more."""
    connection.execute(query("remove_run"), {"run": run})


def read_tasks(connection: Connection, queue: int) -> dict[str, int]:
    """The tasks that were announced for a queue, and how many attempts their jobs have."""
    return dict(connection.execute(query("read_tasks"), {"queue": queue}).fetchall())


def tasks_at_the_head(connection: Connection, queue: int) -> set[str]:
    """The tasks of the jobs that wait first, whether they were announced or not."""
    return {row[0] for row in connection.execute(query("tasks_at_the_head"), {"queue": queue}).fetchall()}


def waiting_in_queue(connection: Connection, queue: int) -> int:
    """How many jobs of a queue are ready."""
    row = connection.execute(query("waiting_in_queue"), {"queue": queue}).fetchone()
    return int(row[0]) if row else 0


def name_if_alive(connection: Connection, worker: int) -> tuple[str | None, str | None]:
    """Take up a worker that still lives, and renew it; its name and which server heard it, or None where it is dead."""
    row = connection.execute(query("name_if_alive"), {"worker": worker}).fetchone()
    return (None, None) if row is None else (str(row[0]), str(row[1]))


def charge_nothing(connection: Connection, worker: int) -> None:
    """Let nothing that a worker holds be charged an attempt or a rescue if it dies."""
    connection.execute(query("charge_nothing"), {"worker": worker})


def is_gated(connection: Connection, queue: int) -> bool:
    """Whether a queue has a limit or a rate, of each partition or in all."""
    row = connection.execute(query("is_gated"), {"queue": queue}).fetchone()
    return bool(row and row[0])
