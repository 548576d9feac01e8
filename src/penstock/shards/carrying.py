"""Carrying jobs to the shard their key lives on by now; see `schema/functions/shards/64_carry.sql`.

    carry         what was sent is made ready on its shard, once, in its order, and departs from here
    clean         what was remembered of that is forgotten when nobody can ask for it any more

Both are upkeep's, on all shards, by anybody and any number at once. One that is down is passed over: what is
for it, or lies there, waits. What was sent to a shard to which nobody writes any more goes another way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.map_changes import tell_rest_of
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError, is_drained
from penstock.storage.connection.queries import query

__all__ = ["carry", "clean"]

log = logging.getLogger("penstock")

# So many jobs are carried at once; their arguments pass through memory.
BATCH = 100
ANSWER_SECONDS = 5.0


def carry(databases: Databases, refusals: list[Exception] | None = None) -> int:
    """Carry what was sent from any shard to any other; how many jobs. Why a shard did not take something is added to
    `refusals`: it is tried again.
    """
    said = [] if refusals is None else refusals
    return sum(databases.each_database(lambda database: _carry_from(databases, database, said)))


def clean(databases: Databases) -> int:
    """Forget arrivals whose sender has let them go, and forwards of jobs that are nowhere any more."""
    for database in databases:
        if not database.breaker.is_down:
            database.ask(lambda connection: connection.execute(query("ask_elsewhere")), timeout=ANSWER_SECONDS)
            _forget(databases, database, ("old_arrivals", "still_in_outbox", "forget_arrivals", None))
            _forget(databases, database, ("old_forwards", "jobs_that_exist", "forget_forwards", "renew_forwards"))
    return 0


def _carry_from(databases: Databases, database: Database, refusals: list[Exception]) -> int:
    count = 0
    for number in database.ask(_read_targets, timeout=ANSWER_SECONDS):
        if number in databases and not databases.of(number).breaker.is_down:
            # Whatever becomes of it there, what is for others is carried.
            try:
                count += _carry_to(databases, database, databases.of(number))
            except PartitionUnavailable:
                continue
            except Exception as error:
                refusals.append(error)
    return count


def _read_targets(connection: Connection) -> list[int]:
    with connection.transaction():
        _query_value(connection, "begin_carrying")
        return [row[0] for row in connection.execute(query("outbox_shards")).fetchall()]


def _carry_to(databases: Databases, database: Database, target: Database) -> int:
    count, carried = 0, BATCH
    while carried == BATCH:
        try:
            carried = _carry_some(databases, database, target)
            count += carried
        except DatabaseError as error:
            if not is_drained(error):
                raise
            carried = _redirect_some(database, target)
    return count


def _redirect_some(database: Database, target: Database) -> int:
    """Let the next jobs for a shard that takes nothing any more go another way; how many do, or are there already.

    None do while something is left there that came before them.
    """

    def act(connection: Connection) -> int:
        with connection.transaction():
            if not _query_value(connection, "begin_carrying"):
                return 0
            which = {"shard": target.shard, "limit": BATCH}
            ids = [row[0] for row in connection.execute(query("sent_next"), which).fetchall()]
            ask = {"from": database.shard, "ids": array_text(ids)}
            arrived = target.ask(lambda there: _query_value(there, "arrived_for_good", **ask), timeout=ANSWER_SECONDS)
            if arrived is None:
                return 0
            connection.execute(query("depart"), {"ids": array_text(arrived)})
            others = array_text(set(ids) - set(arrived))
            return len(arrived) + int(_query_value(connection, "redirect", ids=others))

    return database.ask(act, timeout=ANSWER_SECONDS)


def _carry_some(databases: Databases, database: Database, target: Database) -> int:
    """Carry the next jobs to one shard: they are written there while their rows are locked here, then deleted here.

    A job that its key waits for is deleted here only after every shard was told that the key waits for it there.
    """

    def act(connection: Connection) -> int:
        # Read before the outbox is: the target refuses what arrives more than ten minutes after it.
        as_of = target.ask(lambda there: there.execute(query("read_clock")).fetchone(), timeout=ANSWER_SECONDS)
        with connection.transaction():
            if not _query_value(connection, "begin_carrying"):
                return 0
            which = {"shard": target.shard, "limit": BATCH}
            for (job,) in connection.execute(query("set_aside_unsent"), which).fetchall():
                log.error("job %d was set aside: it is in no table of jobs. Repair and retry it, or cancel it", job)
            found = _query_value(connection, "read_outbox", shard=target.shard, limit=BATCH)
            jobs = [] if found is None else json.loads(found)
            if not jobs:
                return 0
            arriving = {"from": database.shard, "as_of": as_of and as_of[0], "jobs": found.decode()}
            target.ask(lambda there: _take(there, arriving), timeout=ANSWER_SECONDS)
            if any(job["epoch"] is not None for job in jobs):
                tell_rest_of(databases, target)
            connection.execute(query("depart"), {"ids": array_text(job["outbox_id"] for job in jobs)})
            return len(jobs)

    return database.ask(act, timeout=ANSWER_SECONDS)


def _take(connection: Connection, arriving: dict[str, Any]) -> None:
    connection.execute(query("take_arrivals"), arriving)


def _forget(databases: Databases, database: Database, names: tuple[str, str, str, str | None]) -> None:
    """Ask the shards that old notes are about which of them are needed still, and forget the others."""
    read, ask, forget, renew = names

    def olds(connection: Connection) -> list[tuple[int, list[int]]]:
        return [(row[0], row[1]) for row in connection.execute(query(read), {"limit": 10 * BATCH}).fetchall()]

    for number, ids in database.ask(olds, timeout=ANSWER_SECONDS):
        if number not in databases or databases.of(number).breaker.is_down:
            continue
        needed = databases.of(number).ask(
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


def _query_value(connection: Connection, name: str, **parameters: Any) -> Any:
    row = connection.execute(query(name), parameters).fetchone()
    return row[0] if row else None
