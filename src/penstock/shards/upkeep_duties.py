"""What any worker does for several shards at once.

    level        every shard learns what is new in the lead's catalogue           every 2 s
    tokens       every shard learns of access tokens that others have, and which   every 2 s
                 are revoked
    ids          shards whose ids are behind draw up to the others                every 2 s
    maps         changes of partitions go on; left places are shut and emptied;   every 0.5 s
                 each shard tells the others what is left there of old maps,
                 and which places are shut
    carry        jobs whose key lives elsewhere by now are carried there          every 0.5 s
    clean        where jobs went that are nowhere any more is forgotten           every minute
    keys         idempotency keys are carried to their homes                      every 2 s
    forget keys  carried keys whose jobs are forgotten are forgotten              every minute
    parents      children hear of parents that ended on other shards              every 2 s; 0.5 s while any wait
    crons        entries move to the shard their jobs go to                       every 2 s
    loads        loads that were decided are published on every shard             every 2 s
    drain        everything leaves the shards that are being drained              every 2 s; 0.5 s while it does
    forget ends  what was heard of parents that nobody waits for is forgotten     every minute

Each is safe in any number of workers at once, and passes over a shard that is down. With one database there is nothing
to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.shards.access_tokens import level_tokens
from penstock.shards.carrying import carry, clean
from penstock.shards.crons import move_crons
from penstock.shards.databases import Databases
from penstock.shards.decided_loads import publish_all_decided
from penstock.shards.draining import advance_draining
from penstock.shards.idempotency_keys import carry_keys, forget_carried_keys
from penstock.shards.ids import level_ids
from penstock.shards.left_places import empty_left_places
from penstock.shards.map_changes import advance_changes, tell_rest, tell_shut
from penstock.shards.parents import forget_ends, tell_children
from penstock.storage.connection.error_meaning import may_repeat

__all__ = ["DUTIES", "Duty", "shared_duties"]

ROUND_SECONDS = 2.0
PARENTS_SECONDS = 0.5
CARRY_SECONDS = 0.5
FORGET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Duty:
    """What upkeep does for all shards every `seconds`, or every `busy_seconds` while there is something to do.

    What `act` returns says how much it did.
    """

    name: str
    act: Callable[[Databases], int]
    seconds: float = ROUND_SECONDS
    busy_seconds: float | None = None


def level_catalogues(databases: Databases) -> int:
    """Let every shard learn what is new in the lead's catalogue."""
    databases.level()
    return 0


def advance_maps(databases: Databases) -> int:
    """Bring changes of maps further, empty left places, and tell each shard what is left and what is shut on others."""
    return len(advance_changes(databases)) + empty_left_places(databases) + tell_rest(databases) + tell_shut(databases)


def carry_all(databases: Databases) -> int:
    """Carry what was sent between shards; then raises what the first refused, where none took anything, or for good."""
    refusals: list[Exception] = []
    carried = carry(databases, refusals)
    for error in refusals:
        if not carried or not may_repeat(error):
            raise error
    return carried


# In this order; each on its own time.
DUTIES: list[Duty] = [
    Duty("level", level_catalogues),
    Duty("tokens", level_tokens),
    Duty("ids", level_ids),
    Duty("maps", advance_maps, CARRY_SECONDS),
    Duty("carry", carry_all, CARRY_SECONDS),
    Duty("clean", clean, FORGET_SECONDS),
    Duty("keys", carry_keys),
    Duty("forget keys", forget_carried_keys, FORGET_SECONDS),
    Duty("parents", tell_children, busy_seconds=PARENTS_SECONDS),
    Duty("crons", move_crons),
    Duty("loads", publish_all_decided),
    Duty("drain", advance_draining, busy_seconds=CARRY_SECONDS),
    Duty("forget ends", forget_ends, FORGET_SECONDS),
]


def shared_duties(databases: Databases) -> Sequence[Duty]:
    """What is to be done between these databases: with one, nothing."""
    return DUTIES if databases.sole is None else ()
