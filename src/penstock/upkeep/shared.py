"""The round of upkeep that is about several shards at once.

    learn     shards that were added are taken in                        every 2 s
    level     what is new in the catalogue is carried to every shard     every 2 s
    ids       shards whose ids are behind draw up to the others          every 2 s
    maps      changes of partitions go on; what is left of old maps      twice a second
              is told to the other shards
    carry     jobs whose key lives elsewhere by now are carried there    twice a second
    clean     where jobs went that are nowhere any more                  every minute
    keys      idempotency keys are carried to their homes                every 2 s
    let go    carried keys whose jobs are forgotten                      every minute
    parents   children hear of parents that ended on other shards        every 2 s; twice a second while any wait
    crons     entries move to the shard their jobs go to                 every 2 s
    loads     loads that were decided are published on every shard       every 2 s
    drain     everything leaves the shards that are being drained        every 2 s; twice a second while it does
    forget    what was heard of parents that nobody waits for any more   every minute

One thread a worker, safe in any number of workers at once. A duty passes over a shard that is down, and fails alone:
one that raises is logged and tried again next time. On an only shard there is nothing to do but to learn of others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.clock import system
from penstock.errors import PartitionUnavailable
from penstock.storage import draining
from penstock.storage.carrying import carry, clean, holders
from penstock.storage.database import ConnectionLost, Database
from penstock.storage.homes import carry_keys, forget_carried_keys
from penstock.storage.ids import level_ids
from penstock.storage.map_changes import go_on, tell_left, tell_shut
from penstock.storage.parents import (
    await_no_more,
    clean_parent_ends,
    ends_of_parents,
    enter_parent_ends,
    parents_awaited,
    parents_elsewhere,
    parents_not_heard_of,
)
from penstock.storage.publishing import roll_loads
from penstock.storage.shards import Shards
from penstock.storage.sweep import note_trouble
from penstock.upkeep.cron import move_crons
from penstock.upkeep.troubles import Troubles

__all__ = ["DUTIES", "Duty", "SharedUpkeep", "tell_children"]

log = logging.getLogger("penstock")

ROUND_SECONDS = 2.0
PARENTS_SECONDS = 0.5
CARRY_SECONDS = 0.5
FORGET_SECONDS = 60.0
ASK_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Duty:
    """Something to be done for all shards, every so many seconds; `busy_seconds`: while it finds something to do.

    What it returns says how much it did. It is left out where there is one shard.
    """

    name: str
    act: Callable[[Shards], int]
    seconds: float = ROUND_SECONDS
    busy_seconds: float | None = None


def level(shards: Shards) -> int:
    """Carry what is new in the catalogue to every shard."""
    shards.level()
    return 0


def maps(shards: Shards) -> int:
    """Bring changes of maps further, and tell each shard what is left of old ones and what is shut on the others."""
    return len(go_on(shards)) + draining.leave(shards) + tell_left(shards) + tell_shut(shards)


def carry_all(shards: Shards) -> int:
    """Carry what was sent between shards; raises what the first refused where none took anything."""
    refusals: list[Exception] = []
    carried = carry(shards, refusals)
    if refusals and not carried:
        raise refusals[0]
    return carried


def tell_children(shards: Shards) -> int:
    """Ask for the ends of parents on other shards, and let their children go; how many parents are waited for."""

    def tell(database: Database) -> int:
        waited_for, after = 0, 0
        while ids := database.ask(lambda c: parents_elsewhere(c, after), timeout=ASK_SECONDS):  # noqa: B023
            for asked, ends in _ends(shards, ids, database.shard):
                database.ask(lambda c: enter_parent_ends(c, ends), timeout=ASK_SECONDS)  # noqa: B023
                asked.ask(lambda c: await_no_more(c, list(ends), database.shard), timeout=ASK_SECONDS)  # noqa: B023
            waited_for += len(ids)
            after = ids[-1]
        return waited_for

    return sum(shards.each_database(tell))


def forget_ends(shards: Shards) -> int:
    """Forget the ends of parents that nobody waits for, and who waited for them: where that was not said."""

    def forget(database: Database) -> int:
        for number, ids in database.ask(parents_awaited, timeout=ASK_SECONDS).items():
            if number not in shards or shards.of(number).breaker.is_down:
                continue
            left = shards.of(number).ask(lambda c: parents_not_heard_of(c, ids), timeout=ASK_SECONDS)  # noqa: B023
            heard = [id_ for id_ in ids if id_ not in left]
            database.ask(lambda c: await_no_more(c, heard, number), timeout=ASK_SECONDS)  # noqa: B023
        return 0

    shards.each_database(forget)
    return sum(shards.each(clean_parent_ends, timeout=ASK_SECONDS))


# What is done for all shards, in this order; each on its own time.
DUTIES: list[Duty] = [
    Duty("level", level),
    Duty("ids", level_ids),
    Duty("maps", maps, CARRY_SECONDS),
    Duty("carry", carry_all, CARRY_SECONDS),
    Duty("clean", clean, FORGET_SECONDS),
    Duty("keys", carry_keys),
    Duty("let go", forget_carried_keys, FORGET_SECONDS),
    Duty("parents", tell_children, busy_seconds=PARENTS_SECONDS),
    Duty("crons", move_crons),
    Duty("loads", roll_loads),
    Duty("drain", draining.go_on, busy_seconds=CARRY_SECONDS),
    Duty("forget", forget_ends, FORGET_SECONDS),
]


class SharedUpkeep:
    """A thread of a worker, beside the upkeep of each shard. `also` are the app's own: to learn of further shards."""

    def __init__(self, shards: Shards, also: Sequence[Callable[[], None]] = ()) -> None:
        self._shards = shards
        self._also = [Duty(getattr(act, "__name__", "duty"), _alone(act)) for act in also]
        self._stopped = threading.Event()
        self._next: dict[str, float] = {}
        # Held while something is done: a sweep that went past what the thread is about to commit would miss it.
        self._doing = threading.Lock()
        self._troubles = Troubles(self._note_trouble)
        self._thread = threading.Thread(target=self._run, name="penstock-shared-upkeep", daemon=True)

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def stop(self) -> None:
        """End them. Whoever is asked just then and hangs is not waited for."""
        self._stopped.set()
        self._thread.join(ASK_SECONDS)

    @property
    def errors(self) -> dict[str, str]:
        """By the name of a duty what went wrong with it the last time; without those that were done."""
        return self._troubles.errors

    def sweep(self) -> None:
        """Every duty, now, in the calling thread; for whoever must know that nothing is left to do."""
        if len(self._shards) < 2:
            return
        for duty in DUTIES:
            # A child that is cancelled may have children on other shards: again, until nobody hears anything new.
            before = None
            while (done := self._do(duty)) and duty.busy_seconds is not None and done != before:
                before = done

    def _run(self) -> None:
        while not self._stopped.is_set():
            is_down = all(database.breaker.is_down for database in self._shards)
            for duty in self._also if not is_down else ():
                self._do_in_time(duty)
            for duty in DUTIES if len(self._shards) > 1 else ():
                self._do_in_time(duty)
            self._stopped.wait(PARENTS_SECONDS)

    def _do_in_time(self, duty: Duty) -> None:
        now = system.monotonic()
        if self._stopped.is_set() or now < self._next.get(duty.name, 0.0):
            return
        did_something = bool(self._do(duty)) and duty.busy_seconds is not None
        self._next[duty.name] = now + (duty.busy_seconds or duty.seconds if did_something else duty.seconds)

    def _do(self, duty: Duty) -> int:
        try:
            with self._doing:
                done = duty.act(self._shards)
        except Exception as error:
            if isinstance(error, (PartitionUnavailable, *ConnectionLost)) and self._has_shard_down():
                # That is told where it is found out.
                log.debug("upkeep's %s could not reach a shard: %s", duty.name, error)
            elif not self._stopped.is_set():
                self._troubles.failed(duty.name, error)
            return 0
        self._troubles.done(duty.name)
        return done

    def _has_shard_down(self) -> bool:
        return any(database.breaker.is_down for database in self._shards)

    def _note_trouble(self, duty: str, error: str | None, seconds: float) -> None:
        self._shards.each(lambda c: note_trouble(c, duty, error, seconds), timeout=ASK_SECONDS)


def _ends(shards: Shards, ids: Sequence[int], child_shard: int) -> Iterator[tuple[Database, dict[int, bool]]]:
    """How those of these jobs ended that have, shard by shard, as far as they answer."""
    by_shard: dict[int, list[int]] = {}
    # Those of a drained shard are where they were carried to, or have ended there: then it is asked while it is there.
    of_drained = [id_ for id_ in ids if (number := shards.number_of(id_)) not in shards or number in shards.drained]
    carried_to = holders(shards, of_drained) if of_drained else {}
    for id_ in ids:
        by_shard.setdefault(carried_to.get(id_, shards.number_of(id_)), []).append(id_)
    # Again for those that were carried away, and on from there.
    for _ in range(len(shards)):
        carried: dict[int, list[int]] = {}
        for number, group in by_shard.items():
            if number not in shards or shards.of(number).breaker.is_down:
                continue
            asked = shards.of(number)
            try:
                told = asked.ask(lambda c: ends_of_parents(c, group, child_shard), timeout=ASK_SECONDS)  # noqa: B023
            except PartitionUnavailable as error:
                log.debug("parents could not be asked for: %s", error)
                continue
            for id_, _, elsewhere in told:
                if elsewhere is not None:
                    carried.setdefault(elsewhere, []).append(id_)
            if ends := {id_: has_succeeded for id_, has_succeeded, elsewhere in told if elsewhere is None}:
                yield asked, ends
        by_shard = carried


def _alone(act: Callable[[], None]) -> Callable[[Shards], int]:
    def run(_: Shards) -> int:
        act()
        return 0

    return run
