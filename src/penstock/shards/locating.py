"""Where a job is: on the shard that wrote it, which its id names, or where it was carried to from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.errors import NotFound, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query

__all__ = ["at_job", "find_shards_of", "locate"]

T = TypeVar("T")

ANSWER_SECONDS = 5.0


def at_job(
    databases: Databases, job_id: int, act: Callable[[Connection], T], *, waits: bool = False, writes: bool = False
) -> T:
    """Do something where a job is. `waits`: for its database, where that is down."""

    def do(database: Database, *, waits: bool) -> T:
        return databases.ask(database, act, waits=waits, writes=writes)

    number = databases.number_of(job_id)
    try:
        # A drained shard may be gone for ever: it is not waited for before that is known.
        return do(databases.of_job(job_id), waits=False)
    except (NotFound, PartitionUnavailable) as error:
        if isinstance(error, PartitionUnavailable) and number not in _learn_drained(databases):
            written = databases.of_job(job_id)
            if not waits or databases.sole is not None or not written.breaker.is_down:
                raise
            return do(written, waits=True)
        # It may have been carried to where its key lives by now.
        found = locate(databases, job_id)
        if found.shard == number:
            raise
        return do(found, waits=waits)


def find_forward(connection: Connection, job_id: int) -> int | None:
    """The shard to ask for a job that is or was here: this one's number, another's, or None where it is not known."""
    row = connection.execute(query("whereabouts"), {"id": job_id}).fetchone()
    return row[0] if row else None


def find_shards_of(databases: Databases, ids: Sequence[int]) -> dict[int, int]:
    """The shards on which these jobs are, of those that answer: for jobs that were written by one that is drained."""

    def act(connection: Connection) -> list[int]:
        return [row[0] for row in connection.execute(query("are_here"), {"ids": array_text(ids)}).fetchall()]

    found = databases.each(act, timeout=ANSWER_SECONDS)
    return {id_: number for number, here in found.given.items() for id_ in here}


def locate(databases: Databases, job_id: int) -> Database:
    """The shard on which a job is now; the one that wrote it where it is nowhere. NotFound where that is not there."""
    number = databases.number_of(job_id)
    is_drained = number not in databases or number in databases.drained
    # A drained shard may be gone, and with it the knowledge where it sent its jobs.
    if is_drained and (found := find_shards_of(databases, [job_id])):
        return databases.of(found[job_id])
    written = databases.of_job(job_id)
    if databases.sole is not None or is_drained:
        return written
    database, seen = written, {written.shard}
    while True:
        target = database.ask(lambda connection: find_forward(connection, job_id))
        if target is None:
            return written
        if target == database.shard or target in seen:
            return database
        seen.add(target)
        if target not in databases:
            raise NotFound(f"job {job_id} was carried to shard {target}, which is not among the databases of this app")
        database = databases.of(target)


def _learn_drained(databases: Databases) -> frozenset[int]:
    """The shards that hold nothing any more, if somebody can tell."""
    try:
        return databases.learn_drained()
    except PartitionUnavailable:
        return databases.drained
