"""Draining a shard: everything leaves it, while it and all others run; see `schema/functions/shards/96_drain.sql`.

    begin_draining    no partition comes there any more
    advance_draining  others take over its partitions, what cannot end there is sent; drained when nothing is left
    count_rest        what is left there, by queue and kind

`advance_draining` is upkeep's, too: anybody may call it, any number of times, at once, and whatever was killed goes on
by it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import InvalidInput
from penstock.shards.databases import Databases
from penstock.shards.left_places import send_and_carry
from penstock.shards.map_changes import change
from penstock.shards.membership import read_shards
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import InvalidParameterValue

__all__ = ["Rest", "advance_draining", "begin_draining", "count_rest"]

ANSWER_SECONDS = 5.0


class Rest(NamedTuple):
    """How many of a kind are left of a queue; the queue is empty where it is about all."""

    queue: str
    kind: str
    remaining: int


def begin_draining(databases: Databases, number: int) -> bool:
    """Place nothing on a shard from now on; False where that was so. InvalidInput where there is no other."""

    def act(connection: Connection) -> bool:
        return bool(_query_value(connection, name="begin_draining", shard=number))

    try:
        return databases.change(act)
    except InvalidParameterValue as error:
        raise InvalidInput("shard", str(error.diag.message_primary).removeprefix("InvalidInput: shard: ")) from None


def advance_draining(databases: Databases) -> int:
    """Go on with every shard that is being drained; how much was done. Raises what went wrong with the first that could
    not go on, when the others have.
    """
    done, errors = 0, list[Exception]()
    for entry in databases.read(read_shards):
        if entry.state == "draining" and entry.number in databases:
            try:
                done += _advance_shard(databases, entry.number)
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return done


def count_rest(databases: Databases, number: int) -> list[Rest]:
    """What is left on a shard, and what on others keeps it from being let go."""
    database = databases.of(number)
    rests = [Rest(*row) for row in database.ask(lambda c: c.execute(query("rest_on_shard")).fetchall())]
    for queue in databases.read(lambda c: c.execute(query("queues_not_carried")).fetchall()):
        if not any(rest[:2] == (queue[0], "idempotency keys") for rest in rests):
            rests.append(Rest(queue[0], "idempotency keys", 0))
    coming, waited_for = _count_ties(databases, database)
    rests += [Rest("", kind, n) for kind, n in (("coming", coming), ("waited for", waited_for)) if n]
    return rests


def _advance_shard(databases: Databases, number: int) -> int:
    database, done = databases.of(number), 0
    for (queue,) in databases.lead.ask(lambda c: c.execute(query("queues_on_shard"), {"shard": number}).fetchall()):
        done += change(databases, queue, partial(_vacate, queue=queue, shard=number))
    return done + send_and_carry(databases, database) + _end_if_drained(databases, database)


def _vacate(connection: Connection, *, queue: str, shard: int) -> bool:
    row = connection.execute(query("vacate_queue"), {"name": queue, "shard": shard}).fetchone()
    return bool(row and row[0])


def _end_if_drained(databases: Databases, database: Database) -> bool:
    """Say that a shard is drained, if it is.

    Whoever is killed in between, or meets a shard that does not answer, leaves one to which nobody writes any more:
    what was sent to it meanwhile goes another way (`carry`), and the next caller finds nothing on its way.
    """
    is_vacant = partial(_query_value, name="is_vacant")
    if not database.ask(is_vacant, timeout=ANSWER_SECONDS) or not _are_keys_carried(databases):
        return False
    if any(_count_ties(databases, database)):
        return False
    if not database.ask(partial(_query_value, name="end_writes"), timeout=ANSWER_SECONDS):
        return False
    # Once more: until now somebody may have written to it.
    if not database.ask(is_vacant, timeout=ANSWER_SECONDS) or any(_count_ties(databases, database)):
        return False
    end = partial(_query_value, name="end_draining", shard=database.shard)
    if databases.lead is not database:
        is_ended = bool(databases.change(end))
        databases.learn_drained()
        return is_ended
    heir = next(each for each in databases if each is not database and each.shard not in databases.drained)

    def hand_over(connection: Connection) -> bool:
        with connection.transaction():
            decided = _query_value(connection, name="loads_decided")
            heir.ask(
                lambda there: there.execute(query("take_loads"), {"given": _to_json(decided)}), timeout=ANSWER_SECONDS
            )
            return bool(end(connection))

    is_ended = database.ask(hand_over)
    databases.find_lead()
    return is_ended


def _are_keys_carried(databases: Databases) -> bool:
    return not databases.lead.ask(lambda c: c.execute(query("queues_not_carried")).fetchall(), timeout=ANSWER_SECONDS)


def _count_ties(databases: Databases, database: Database) -> tuple[int, int]:
    """How many jobs are on their way to a shard, and how many there are waited for by children elsewhere."""
    coming, parents = 0, set[int]()
    for other in databases:
        if other is not database and other.shard not in databases.drained:
            coming += other.ask(
                partial(_query_value, name="sent_to_shard", shard=database.shard), timeout=ANSWER_SECONDS
            )
            rows = other.ask(
                lambda c: c.execute(query("parents_on_shard"), {"shard": database.shard}).fetchall(),
                timeout=ANSWER_SECONDS,
            )
            parents.update(row[0] for row in rows)
    ask = partial(_query_value, name="parents_not_forwarded", ids=array_text(sorted(parents)))
    return coming, database.ask(ask, timeout=ANSWER_SECONDS) if parents else 0


def _to_json(given: Any) -> str:
    return given if isinstance(given, str) else given.decode() if isinstance(given, bytes) else json.dumps(given)


def _query_value(connection: Connection, *, name: str, **parameters: Any) -> Any:
    row = connection.execute(query(name), parameters).fetchone()
    return row[0] if row else None
