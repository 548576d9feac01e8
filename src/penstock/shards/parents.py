"""Parents on other shards: which of them are waited for here, how they ended there, and what becomes of it here.

A shard whose jobs are waited for elsewhere notes by whom, and keeps their ends until they were heard there, whatever is
pruned or archived meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.errors import NotFound, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.locating import find_shards_of, locate
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.enqueue.write import unknown_parent
from penstock.storage.upkeep.sweep import MOST_CHILDREN, children_of, unblock

__all__ = ["check_parents", "forget_ends", "tell_children"]

log = logging.getLogger("penstock")

BATCH = 1_000
ASK_SECONDS = 3.0
# Generations that are told at once, from shard to shard.
ROUNDS = 20


def check_parents(databases: Databases, waits: Iterable[tuple[Parents, int]]) -> None:
    """Refuse parents, each with the shard their child goes to, that are nowhere: each of them is asked for on the
    shard that wrote it, and where it went from there. With one database the statement that writes the children does so.

    Where a parent is, how it ends is kept from now on for the shards that its children go to.
    """
    if databases.sole is not None:
        return
    by_shard: dict[int, set[tuple[int, int]]] = {}
    for parent, to in {(parent, to) for parents, to in waits for parent in parents.stored}:
        number = databases.number_of(parent)
        if number not in databases or number in databases.drained:
            number = _carried_to(databases, parent)
        by_shard.setdefault(number, set()).add((parent, to))
    # Again for those that were carried away, and on from there.
    for _ in databases:
        went: dict[int, set[tuple[int, int]]] = {}
        for number, waited_for in by_shard.items():
            found = databases.of(number).run(partial(_check_here, waited_for=waited_for), writes=False)
            for parent, to in waited_for:
                if parent in found:
                    elsewhere = found[parent]
                    if elsewhere is None:
                        raise unknown_parent(parent)
                    if elsewhere in databases:
                        went.setdefault(elsewhere, set()).add((parent, to))
        if not went:
            return
        by_shard = went
    raise unknown_parent(min(parent for pairs in by_shard.values() for parent, _ in pairs))


def _carried_to(databases: Databases, parent: int) -> int:
    """The shard that has a job which was written by one that is drained."""
    try:
        return locate(databases, parent).shard
    except NotFound:
        raise unknown_parent(parent) from None


class ParentEnd(NamedTuple):
    """How a parent ended. Not final: it is a dead letter, or cancelled for one, and may come back."""

    has_succeeded: bool
    is_final: bool


def tell_children(databases: Databases) -> int:
    """Ask for the ends of parents on other shards, and let their children go, or wait again for what was retried; how
    many parents are waited for.

    What is new for a child may be new for its own children on other shards: they hear of it in the next round.
    """
    for _ in range(ROUNDS):
        told = list(databases.each_database(partial(_tell, databases)))
        if not any(news for _, news in told):
            break
    return sum(waited_for for waited_for, _ in told)


def _tell(databases: Databases, database: Database) -> tuple[int, int]:
    """The same for children on one database: how many parents are waited for, and how many of them moved."""
    waited_for, moved, after = 0, 0, 0
    while asked_for := database.ask(lambda c: parents_elsewhere(c, after), timeout=ASK_SECONDS):  # noqa: B023
        for asked, ends in _ends_elsewhere(databases, list(asked_for), database.shard):
            news = {id_: end for id_, end in ends.items() if _is_news(end, asked_for[id_])}
            if not news:
                continue
            database.ask(lambda c: enter_parent_ends(c, news), timeout=ASK_SECONDS)  # noqa: B023
            final = [id_ for id_, end in news.items() if end is not None and end.is_final]
            if final:
                asked.ask(lambda c: await_no_more(c, final, database.shard), timeout=ASK_SECONDS)  # noqa: B023
            moved += len(news)
        waited_for += sum(not may_come_back for may_come_back in asked_for.values())
        after = max(asked_for)
    return waited_for, moved


def _is_news(end: ParentEnd | None, may_come_back: bool) -> bool:
    """Whether what was heard of a parent differs from what is known: nothing, or that it failed and may come back."""
    return may_come_back if end is None else end.is_final or not may_come_back


def forget_ends(databases: Databases) -> int:
    """Forget the ends of parents that nobody waits for, and who waited for them: where that was not said."""

    def forget(database: Database) -> int:
        for number, ids in database.ask(parents_awaited, timeout=ASK_SECONDS).items():
            if number not in databases or databases.of(number).breaker.is_down:
                continue
            left = databases.of(number).ask(lambda c: parents_not_heard_of(c, ids), timeout=ASK_SECONDS)  # noqa: B023
            heard = [id_ for id_ in ids if id_ not in left]
            database.ask(lambda c: await_no_more(c, heard, number), timeout=ASK_SECONDS)  # noqa: B023
        return 0

    databases.each_database(forget)
    return sum(databases.each(clean_parent_ends, timeout=ASK_SECONDS))


def _ends_elsewhere(
    databases: Databases, ids: Sequence[int], child_shard: int
) -> Iterator[tuple[Database, dict[int, ParentEnd | None]]]:
    """How these jobs ended, None where they have not, shard by shard, as far as they answer."""
    by_shard: dict[int, list[int]] = {}
    # Jobs of a drained shard are on the shards they were carried to. What ended on it is known by it alone: it is asked
    # as long as it is there.
    of_drained = [
        id_ for id_ in ids if (number := databases.number_of(id_)) not in databases or number in databases.drained
    ]
    carried_to = find_shards_of(databases, of_drained) if of_drained else {}
    for id_ in ids:
        by_shard.setdefault(carried_to.get(id_, databases.number_of(id_)), []).append(id_)
    # Again for those that were carried away, and on from there.
    for _ in databases:
        carried: dict[int, list[int]] = {}
        for number, group in by_shard.items():
            if number not in databases or databases.of(number).breaker.is_down:
                continue
            asked = databases.of(number)
            try:
                told = asked.ask(lambda c: ends_of_parents(c, group, child_shard), timeout=ASK_SECONDS)  # noqa: B023
            except PartitionUnavailable as error:
                log.debug("parents could not be asked for: %s", error)
                continue
            ends: dict[int, ParentEnd | None] = dict.fromkeys(group)
            for id_, end, elsewhere in told:
                ends[id_] = end
                if elsewhere is not None:
                    carried.setdefault(elsewhere, []).append(id_)
                    del ends[id_]
            yield asked, ends
        by_shard = carried


def parents_elsewhere(connection: Connection, after: int) -> dict[int, bool]:
    """The next parents, by id, that are to be asked for on other shards, and whether they are known to have failed in
    a way that they may come back from.
    """
    return dict(connection.execute(query("parents_elsewhere"), {"after": after, "limit": BATCH}).fetchall())


def _check_here(connection: Connection, waited_for: Iterable[tuple[int, int]]) -> dict[int, int | None]:
    """Note that children on other shards are about to wait for jobs here, pairs of parent and the children's shard.

    Those that are not here, each with the shard it went to, or None where it is nowhere: it cannot be waited for. From
    then on the ends of the others are kept, for an hour at least until the children are written and ask.
    """
    pairs = sorted(waited_for)
    parameters = {"parents": array_text([id_ for id_, _ in pairs]), "shards": array_text([to for _, to in pairs])}
    return dict(connection.execute(query("check_parents"), parameters).fetchall())


def ends_of_parents(connection: Connection, ids: Sequence[int], shard: int) -> list[tuple[int, ParentEnd, int | None]]:
    """Those of these jobs that have ended, and how; a job that is gone did not succeed. And those that were carried
    away, with the shard to ask instead.

    That children on a shard wait is noted first: from then on no end is forgotten before it was heard there.
    """
    connection.execute(query("await_parents"), {"ids": array_text(ids), "shard": shard})
    rows = _read_ends(connection, ids)
    if gone := [id_ for id_, end, elsewhere in rows if not end.has_succeeded and elsewhere is None]:
        # What was on its way out in the first snapshot may have been put back and its slice dropped since: it is gone
        # if the next one has it nowhere either.
        again = {row[0]: row for row in _read_ends(connection, gone)}
        rows = [again.get(row[0], row) for row in rows if row[0] in again or row[0] not in gone]
    if carried := [id_ for id_, _, elsewhere in rows if elsewhere is not None]:
        await_no_more(connection, carried, shard)
    return rows


def _read_ends(connection: Connection, ids: Sequence[int]) -> list[tuple[int, ParentEnd, int | None]]:
    rows = connection.execute(query("ends_of_parents"), {"ids": array_text(ids)}).fetchall()
    return [(id_, ParentEnd(has_succeeded, is_final), elsewhere) for id_, has_succeeded, is_final, elsewhere in rows]


def enter_parent_ends(connection: Connection, ends: Mapping[int, ParentEnd | None]) -> int:
    """Write down how parents ended, or that they wait again, and look at their children; how many changed."""
    ended = {id_: end for id_, end in ends.items() if end is not None}
    if ended:
        succeeded, final = zip(*ended.values(), strict=True)
        parameters = {"ids": array_text(ended), "succeeded": list(succeeded), "final": list(final)}
        connection.execute(query("enter_parent_ends"), parameters)
    if wait_again := ends.keys() - ended.keys():
        connection.execute(query("forget_parents_that_wait_again"), {"ids": array_text(sorted(wait_again))})
    # A transaction of its own, as everywhere: of two who learn the ends of the last two parents, the later sees both.
    return unblock(connection, children_of(connection, list(ends)), most=MOST_CHILDREN)


def await_no_more(connection: Connection, ids: Sequence[int], shard: int) -> None:
    """The ends of these jobs were heard on that shard."""
    connection.execute(query("await_no_more"), {"ids": array_text(ids), "shard": shard})


def parents_awaited(connection: Connection) -> dict[int, list[int]]:
    """Jobs here that have ended, by the shard on which children waited for them."""
    return dict(connection.execute(query("parents_awaited")).fetchall())


def parents_not_heard_of(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Those of these parents that a child here waits for, and whose final end is not known here."""
    return {row[0] for row in connection.execute(query("parents_not_heard_of"), {"ids": array_text(ids)}).fetchall()}


def clean_parent_ends(connection: Connection) -> int:
    """Forget the ends that no child waits for any more."""
    row = connection.execute(query("clean_parent_ends")).fetchone()
    return int(row[0]) if row else 0
