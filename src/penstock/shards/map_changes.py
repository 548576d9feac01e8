"""Changes of a queue's map of keys over several shards: resizing it, moving a partition.

    change     the new map is set on the lead, and nobody may write by it
    level      every shard learns it, and from then on lets nobody write by the map before
    open       when all that have partitions of the map before know it, everybody may write by the new one
    undo       where one of them does not answer for some seconds: a further map with the partitions there were
    tell_rest  each shard tells the others what is left there of maps before, until that is nothing
    tell_shut  and which partitions that moved are shut there: their new places may wait for that

All but the first are upkeep's, too: `advance_changes`, `tell_rest` and `tell_shut` may be called by anybody, any number
of times, at once, and a change that was killed anywhere goes on by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.deadline import writing_nothing
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import InvalidParameterValue, ObjectInUse

__all__ = ["advance_changes", "change", "move", "tell_rest", "tell_rest_of", "tell_shut"]

# So long nobody can write to a queue at most because a shard does not answer.
PATIENCE_SECONDS = 5.0
PAUSE_SECONDS = 0.02
ANSWER_SECONDS = 2.0


class Unopened(NamedTuple):
    """A map by which nobody may write yet, and the shards that have to know it before."""

    queue_id: int
    name: str
    epoch: int
    seconds: float
    shards: list[int]


class RestOfMap(NamedTuple):
    """What a shard tells of a closed map: partitions with anything left, keys that are waited for. The higher of two
    numbers has seen whatever was there when it was drawn.
    """

    number: int
    queue_id: int
    epoch: int
    open_ids: list[int]
    held_keys: list[bytes]


def change(databases: Databases, name: str, act: Callable[[Connection], bool]) -> bool:
    """Make a change of a queue's map and see it through; what `act` said.

    PartitionUnavailable: nothing is changed. InvalidInput: it is refused, now and until somebody has done something.
    """
    try:
        return _change(databases, name, act)
    except InvalidParameterValue as error:
        kind, _, said = str(error.diag.message_primary).partition(": ")
        if kind != "InvalidInput":
            raise
        field, _, problem = said.partition(": ")
        raise InvalidInput(field, problem) from None


def _change(databases: Databases, name: str, act: Callable[[Connection], bool]) -> bool:
    if databases.sole is not None:
        return databases.sole.run(act)
    with writing_nothing():
        # What others have changed is brought to all: where one does not answer, nothing of this change was begun.
        databases.learn_drained()
        databases.level().all()
    deadline = databases.lead.clock.monotonic() + databases.lead.request_timeout
    while True:
        advance_changes(databases)
        try:
            is_changed = databases.change(act)
            break
        except ObjectInUse as error:
            if databases.lead.clock.monotonic() >= deadline:
                raise PartitionUnavailable(f"{error.diag.message_primary}: call again later") from None
            databases.lead.clock.sleep(PAUSE_SECONDS)
    epoch = databases.lead.run(lambda connection: find_queue(connection, name)).epoch
    while True:
        undone = advance_changes(databases)
        has_opened = databases.lead.run(lambda connection: _has_opened(connection, name, epoch))
        if has_opened:
            return is_changed
        if has_opened is None:
            raise undone.get(name) or _not_learned(name, "a shard")
        databases.lead.clock.sleep(PAUSE_SECONDS)


def move(connection: Connection, name: str, numbers: Sequence[int], to: Sequence[int]) -> bool:
    """Begin to move partitions to other shards, the lists parallel; False where all are there. For `change` to do."""
    parameters = {"name": name, "numbers": array_text(numbers), "shards": array_text(to)}
    row = connection.execute(query("move_partitions"), parameters).fetchone()
    return bool(row and row[0])


def advance_changes(databases: Databases) -> dict[str, PartitionUnavailable]:
    """Open the maps that may be, and undo those that waited too long: by queue the shard that did not answer."""
    lead = databases.lead
    unopened = lead.ask(_read_unopened, timeout=ANSWER_SECONDS)
    if not unopened:
        return {}
    missing = databases.level().missing
    known = databases.each(
        lambda connection: _read_epochs(connection, [each.queue_id for each in unopened]), timeout=ANSWER_SECONDS
    )
    undone = {}
    for each in unopened:
        behind = [number for number in each.shards if known.given.get(number, {}).get(each.queue_id, 0) < each.epoch]
        if not behind:
            databases.change(lambda connection: _change_state(connection, "open_map", each))  # noqa: B023
        elif each.seconds > PATIENCE_SECONDS and databases.change(
            lambda connection: _change_state(connection, "undo_map", each)  # noqa: B023
        ):
            undone[each.name] = _not_learned(
                each.name, f"shard {behind[0]}", known.missing.get(behind[0]) or missing.get(behind[0])
            )
    return undone


def tell_rest(databases: Databases) -> int:
    """Tell each shard what is left of closed maps on the others; of how many maps that was."""
    if databases.sole is not None:
        return 0
    told = databases.each(_read_rest, timeout=ANSWER_SECONDS)
    if not any(told.given.values()):
        return 0

    def take(database: Database) -> None:
        for shard, rest in told.given.items():
            if shard != database.shard and rest:
                database.ask(lambda connection: _note_rest(connection, shard, rest), timeout=ANSWER_SECONDS)  # noqa: B023

    databases.each_database(take)
    return sum(len(rest) for rest in told)


def tell_shut(databases: Databases) -> int:
    """Tell each shard which places of partitions are shut on the others; how many were news to one."""
    told = databases.each(
        lambda connection: connection.execute(query("shut_places")).fetchall(), timeout=ANSWER_SECONDS
    )
    places = [place for given in told for place in given]

    def take(database: Database) -> int:
        return database.ask(lambda connection: _note_shut(connection, places), timeout=ANSWER_SECONDS)

    return sum(databases.each_database(take)) if places else 0


def tell_rest_of(databases: Databases, teller: Database) -> None:
    """Tell every other shard what is left on one of them, as of now. PartitionUnavailable: not everybody was told."""
    rest = teller.ask(_read_rest, timeout=ANSWER_SECONDS)
    for database in databases:
        if database is not teller and rest and database.shard not in databases.drained:
            database.ask(lambda connection: _tell_for_sure(connection, teller.shard, rest), timeout=ANSWER_SECONDS)


def _tell_for_sure(connection: Connection, shard: int, rest: Sequence[RestOfMap]) -> None:
    _note_rest(connection, shard, rest)
    known = _read_epochs(connection, [each.queue_id for each in rest])
    for each in rest:
        if known.get(each.queue_id, 0) < each.epoch:
            raise PartitionUnavailable("a shard has not learned the newest maps yet: it is told when it has")


def _not_learned(name: str, who: str, error: PartitionUnavailable | None = None) -> PartitionUnavailable:
    reason = f": {error}" if error is not None else "; call again"
    return PartitionUnavailable(
        f"the partitions of queue {name!r} are as they were: {who} did not learn the change in time{reason}",
        shard=None if error is None else error.shard,
    )


def _has_opened(connection: Connection, name: str, epoch: int) -> bool | None:
    row = connection.execute(query("has_opened"), {"name": name, "epoch": epoch}).fetchone()
    return row[0] if row else None


def _read_unopened(connection: Connection) -> list[Unopened]:
    return [Unopened(*row) for row in connection.execute(query("unopened_maps")).fetchall()]


def _read_epochs(connection: Connection, queues: Sequence[int]) -> dict[int, int]:
    return dict(connection.execute(query("read_epochs"), {"queues": array_text(queues)}).fetchall())


def _change_state(connection: Connection, name: str, each: Unopened) -> bool:
    row = connection.execute(query(name), {"queue": each.queue_id, "epoch": each.epoch}).fetchone()
    return bool(row and row[0])


def _read_rest(connection: Connection) -> list[RestOfMap]:
    connection.execute(query("forget_guests"))
    row = connection.execute(query("report_number")).fetchone()
    number = row[0] if row else 0
    return [RestOfMap(number, *row) for row in connection.execute(query("rest_of_maps")).fetchall()]


def _note_rest(connection: Connection, shard: int, rest: Sequence[RestOfMap]) -> None:
    for each in rest:
        connection.execute(
            query("note_rest"),
            {
                "queue": each.queue_id,
                "epoch": each.epoch,
                "shard": shard,
                "open_ids": each.open_ids,
                "held_keys": each.held_keys,
                "number": each.number,
            },
        )


def _note_shut(connection: Connection, places: Sequence[tuple[int, int]]) -> int:
    parameters = {
        "partitions": array_text(place[0] for place in places),
        "versions": array_text(place[1] for place in places),
    }
    row = connection.execute(query("note_shut"), parameters).fetchone()
    return int(row[0]) if row else 0
