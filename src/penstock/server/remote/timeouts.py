"""Timeouts of jobs that remote workers run: whoever acts for them looks, and takes away what has run for too long.

The time counts from when the job was given. A worker that ends its job itself at its timeout has a moment for telling.
What becomes of the job is what becomes of any whose attempt failed; its worker hears that it has lost it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from penstock.log_records import log_about
from penstock.server.remote.ends import TIMED_OUT, judge_failure
from penstock.server.remote.registered_worker import RegisteredWorker, read_registered
from penstock.storage import Connection, Database
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work.leases import read_jobs
from penstock.storage.work.remote_workers import OverdueLease, overdue, take_away
from penstock.storage.work.settle import End

__all__ = ["GRACE_SECONDS", "take_overdue_away"]

log = logging.getLogger("penstock")

# So long a worker has for telling of a job that it ended itself at its timeout.
GRACE_SECONDS = 1.0


def take_overdue_away(database: Database) -> set[int]:
    """Take away what has run for too long; the rows of the workers that held it."""
    return database.run(_take_overdue_away, timeout=5.0)


def _take_overdue_away(connection: Connection) -> set[int]:
    leases = overdue(connection, GRACE_SECONDS)
    mixed = [lease for lease in leases if not lease.task]
    stored = read_jobs(connection, mixed, with_task=True) if mixed else {}
    tasks = {job: row[4] for job, row in stored.items()}
    taken: set[int] = set()
    for lease in leases:
        registered = read_registered(lease.registration)
        if ends := _ends_of(lease, registered, tasks):
            encoded = msgspec.json.encode(ends).decode()
            if take_away(connection, lease.remote, lease.worker, lease.name, encoded):
                taken.add(lease.worker)
                _tell(lease, registered, tasks, ends)
    return taken


def _ends_of(lease: OverdueLease, registered: RegisteredWorker, tasks: dict[int, str]) -> list[End]:
    ends = []
    for position in lease.positions:
        task = lease.task or tasks.get(lease.range * RANGE + position, "")
        timeout = registered.task(lease.queue_id, task).timeout
        if timeout is None or lease.age < timeout + GRACE_SECONDS:
            continue
        kind, due_in = judge_failure(registered, lease.queue_id, task, lease.attempt)
        age = int(lease.age * 1e6)
        error = TIMED_OUT.format(timeout)
        ends.append(End(lease.id, lease.token, position, lease.range, kind, error, due_in, age, age))
    return ends


def _tell(lease: OverdueLease, registered: RegisteredWorker, tasks: dict[int, str], ends: Sequence[End]) -> None:
    queue = registered.by_queue.get(lease.queue_id)
    for end in ends:
        job = lease.range * RANGE + end.position
        task = lease.task or tasks.get(job, "")
        name = "" if queue is None else queue.name
        log_about(
            {"job_id": job, "queue": name, "task": task, "attempt": lease.attempt},
            logging.WARNING,
            "job %d (%s/%s) ran past its timeout on remote worker %s, and was taken away from it",
            *(job, name, task, lease.name),
        )
