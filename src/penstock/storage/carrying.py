"""Carrying jobs to the shard their key lives on by now; see 0015_carrying.

    carry         what was sent is made ready on its shard, once, in its order, and departs from here
    clean         what was remembered of that is forgotten when nobody can ask for it any more
    locate        where a job is: on the shard that wrote it, or where it was carried to

The first two are upkeep's, on all shards, by anybody and any number at once. One that is down is passed over: what is
for it, or lies there, waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.errors import NotFound, PartitionUnavailable
from penstock.storage.arrays import array_text
from penstock.storage.database import Connection, Database, may_repeat
from penstock.storage.queries import query
from penstock.storage.shards import Shards

__all__ = ["carry", "clean", "find_forward", "locate"]

# So many jobs are carried at once; their arguments pass through memory.
BATCH = 100
ANSWER_SECONDS = 5.0


def carry(shards: Shards) -> int:
    """Carry what was sent from any shard to any other; how many jobs."""
    return 0 if len(shards) == 1 else sum(shards.each_database(lambda database: _carry_from(shards, database)))


def clean(shards: Shards) -> int:
    """Forget arrivals whose sender has let them go, and forwards of jobs that are nowhere any more."""
    for database in shards:
        if not database.breaker.is_down:
            database.ask(lambda connection: connection.execute(query("ask_elsewhere")), timeout=ANSWER_SECONDS)
            _forget(shards, database, ("old_arrivals", "still_in_outbox", "forget_arrivals", None))
            _forget(shards, database, ("old_forwards", "still_placed", "forget_forwards", "renew_forwards"))
    return 0


def find_forward(connection: Connection, job_id: int) -> int | None:
    """The shard to ask for a job that is or was here: this one's number, another's, or None where it is not known."""
    row = connection.execute(query("whereabouts"), {"id": job_id}).fetchone()
    return row[0] if row else None


def locate(shards: Shards, job_id: int) -> Database:
    """The shard on which a job is now; the one that wrote it where it is nowhere."""
    written = shards.of_job(job_id)
    if len(shards) == 1:
        return written
    database, seen = written, {written.shard}
    while True:
        number = database.ask(lambda connection: find_forward(connection, job_id))
        if number is None:
            return written
        if number == database.shard or number in seen:
            return database
        seen.add(number)
        if number not in shards:
            raise NotFound(f"job {job_id} was carried to shard {number}, which is not among the databases of this app")
        database = shards.of(number)


def _carry_from(shards: Shards, database: Database) -> int:
    def targets(connection: Connection) -> list[int]:
        return [row[0] for row in connection.execute(query("outbox_shards")).fetchall()]

    count = 0
    for number in database.ask(targets, timeout=ANSWER_SECONDS):
        if number in shards and not shards.of(number).breaker.is_down:
            while carried := _carry_some(database, shards.of(number)):
                count += carried
                if carried < BATCH:
                    break
    return count


def _carry_some(database: Database, target: Database) -> int:
    """Carry the next jobs to one shard: written there while they are held here, then let go."""

    def act(connection: Connection) -> int:
        # Before anything is read: whoever is late is known by it.
        as_of = target.ask(lambda there: there.execute(query("read_clock")).fetchone(), timeout=ANSWER_SECONDS)
        with connection.transaction():
            if not _one(connection, "begin_carrying"):
                return 0
            found = _one(connection, "read_outbox", shard=target.shard, limit=BATCH)
            jobs = [] if found is None else json.loads(found)
            if not jobs:
                return 0
            arriving = {"from": database.shard, "as_of": as_of and as_of[0], "jobs": found.decode()}
            target.ask(lambda there: _take(there, arriving), timeout=ANSWER_SECONDS)
            connection.execute(query("depart"), {"ids": array_text(job["outbox_id"] for job in jobs)})
            return len(jobs)

    try:
        return database.ask(act, timeout=ANSWER_SECONDS)
    except PartitionUnavailable:
        return 0
    except Exception as error:
        if may_repeat(error):
            return 0
        raise


def _take(connection: Connection, arriving: dict[str, Any]) -> None:
    connection.execute(query("take_arrivals"), arriving)


def _forget(shards: Shards, database: Database, names: tuple[str, str, str, str | None]) -> None:
    """Ask the shards that old notes are about which of them are needed still, and forget the others."""
    read, ask, forget, renew = names

    def olds(connection: Connection) -> list[tuple[int, list[int]]]:
        return [(row[0], row[1]) for row in connection.execute(query(read), {"limit": 10 * BATCH}).fetchall()]

    for number, ids in database.ask(olds, timeout=ANSWER_SECONDS):
        if number not in shards or shards.of(number).breaker.is_down:
            continue
        needed = shards.of(number).ask(
            lambda there: {row[0] for row in there.execute(query(ask), {"ids": array_text(ids)})},  # noqa: B023
            timeout=ANSWER_SECONDS,
        )

        def act(connection: Connection, *, kept: Sequence[int], gone: Sequence[int], shard: int) -> None:
            connection.execute(query(forget), {"ids": array_text(gone), "shard": shard})
            if renew is not None:
                connection.execute(query(renew), {"ids": array_text(kept)})

        kept = [id_ for id_ in ids if id_ in needed]
        gone = [id_ for id_ in ids if id_ not in needed]
        database.ask(lambda connection: act(connection, kept=kept, gone=gone, shard=number), timeout=ANSWER_SECONDS)  # noqa: B023


def _one(connection: Connection, name: str, **parameters: Any) -> Any:
    row = connection.execute(query(name), parameters).fetchone()
    return row[0] if row else None
