"""What those who watch ask again and again: which jobs have ended, which became dead letters, which wait for one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.model.dead_letter import DeadLetter
from penstock.model.job_state import State
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["Child", "children_here", "dead_letters_after", "enqueued_below", "jobs_going_on", "states_of_jobs"]


class Child(NamedTuple):
    """A job that waits for another."""

    id: int
    queue: str
    tenant: str | None


def jobs_going_on(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Those of these jobs that have not ended, of those that are here."""
    rows = connection.execute(query("jobs_going_on"), {"ids": array_text(ids)}).fetchall()
    return {row[0] for row in rows}


def states_of_jobs(connection: Connection, ids: Sequence[int]) -> dict[int, State]:
    """The states of those of these jobs that are here and not forgotten."""
    rows = connection.execute(query("states_of_jobs"), {"ids": array_text(ids)}).fetchall()
    return {id_: State(state) for id_, state in rows}


def dead_letters_after(connection: Connection, at: datetime, job_id: int, limit: int) -> list[DeadLetter]:
    """Dead letters since then, the oldest first; of those of that very instant only the ones with higher ids."""
    rows = connection.execute(query("dead_letters_after"), {"at": at, "job_id": job_id, "limit": limit}).fetchall()
    return [
        DeadLetter(
            job_id=id_,
            queue=queue,
            partition=partition,
            task=task,
            attempt=attempt,
            failed_at=failed_at,
            worker=worker,
            error=error,
        )
        for id_, queue, partition, task, attempt, failed_at, worker, error in rows
    ]


def children_here(connection: Connection, parent: int, limit: int) -> list[Child]:
    """The jobs on this database that wait for a job on any, the newest first."""
    rows = connection.execute(query("children_here"), {"id": parent, "limit": limit}).fetchall()
    return [Child._make(row) for row in rows]


def enqueued_below(connection: Connection, id_: int) -> datetime | None:
    """When the newest job below an id was enqueued; None where there is none."""
    row = connection.execute(query("enqueued_below"), {"id": id_}).fetchone()
    return None if row is None else row[0]
