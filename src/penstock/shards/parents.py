"""Parents on other shards: which of them are waited for here, how they ended there, and what becomes of it here.

A shard whose jobs are waited for elsewhere notes by whom, and keeps their ends until they were heard there, whatever is
pruned or archived meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from penstock.errors import NotFound, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.locating import find_shards_of, locate
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.enqueue.write import unknown_parent
from penstock.storage.upkeep.sweep import children_of, unblock

__all__ = ["check_parents", "forget_ends", "tell_children"]

log = logging.getLogger("penstock")

BATCH = 1_000
ASK_SECONDS = 3.0


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


def tell_children(databases: Databases) -> int:
    """Ask for the ends of parents on other shards, and let their children go; how many parents are waited for."""

    def tell(database: Database) -> int:
        waited_for, after = 0, 0
        while ids := database.ask(lambda c: parents_elsewhere(c, after), timeout=ASK_SECONDS):  # noqa: B023
            for asked, ends in _ends_elsewhere(databases, ids, database.shard):
                database.ask(lambda c: enter_parent_ends(c, ends), timeout=ASK_SECONDS)  # noqa: B023
                asked.ask(lambda c: await_no_more(c, list(ends), database.shard), timeout=ASK_SECONDS)  # noqa: B023
            waited_for += len(ids)
            after = ids[-1]
        return waited_for

    return sum(databases.each_database(tell))


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
) -> Iterator[tuple[Database, dict[int, bool]]]:
    """How those of these jobs ended that have, shard by shard, as far as they answer."""
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
            for id_, _, elsewhere in told:
                if elsewhere is not None:
                    carried.setdefault(elsewhere, []).append(id_)
            if ends := {id_: has_succeeded for id_, has_succeeded, elsewhere in told if elsewhere is None}:
                yield asked, ends
        by_shard = carried


def parents_elsewhere(connection: Connection, after: int) -> list[int]:
    """The next parents, by id, whose end is to be asked for on other shards."""
    rows = connection.execute(query("parents_elsewhere"), {"after": after, "limit": BATCH}).fetchall()
    return [row[0] for row in rows]


def _check_here(connection: Connection, waited_for: Iterable[tuple[int, int]]) -> dict[int, int | None]:
    """Note that children on other shards are about to wait for jobs here, pairs of parent and the children's shard.

    Those that are not here, each with the shard it went to, or None where it is nowhere: it cannot be waited for. From
    then on the ends of the others are kept, for an hour at least until the children are written and ask.
    """
    pairs = sorted(waited_for)
    parameters = {"parents": array_text([id_ for id_, _ in pairs]), "shards": array_text([to for _, to in pairs])}
    return dict(connection.execute(query("check_parents"), parameters).fetchall())


def ends_of_parents(connection: Connection, ids: Sequence[int], shard: int) -> list[tuple[int, bool, int | None]]:
    """Those of these jobs that have ended, and whether they succeeded; a job that is gone did not. And those that were
    carried away, with the shard to ask instead.

    That children on a shard wait is noted first: from then on no end is forgotten before it was heard there.
    """
    connection.execute(query("await_parents"), {"ids": array_text(ids), "shard": shard})
    rows = _read_ends(connection, ids)
    if gone := [id_ for id_, has_succeeded, elsewhere in rows if not has_succeeded and elsewhere is None]:
        # What was on its way out in the first snapshot may have been put back and its slice dropped since: it is gone
        # if the next one has it nowhere either.
        again = {row[0]: row for row in _read_ends(connection, gone)}
        rows = [again.get(row[0], row) for row in rows if row[0] in again or row[0] not in gone]
    if carried := [id_ for id_, _, elsewhere in rows if elsewhere is not None]:
        await_no_more(connection, carried, shard)
    return rows


def _read_ends(connection: Connection, ids: Sequence[int]) -> list[tuple[int, bool, int | None]]:
    rows = connection.execute(query("ends_of_parents"), {"ids": array_text(ids)}).fetchall()
    return [(id_, has_succeeded, elsewhere) for id_, has_succeeded, elsewhere in rows]


def enter_parent_ends(connection: Connection, ends: Mapping[int, bool]) -> int:
    """Write down how parents ended, and let go the children that waited for the last of them; how many."""
    connection.execute(query("enter_parent_ends"), {"ids": list(ends), "succeeded": list(ends.values())})
    # A transaction of its own, as everywhere: of two who learn the ends of the last two parents, the later sees both.
    return unblock(connection, children_of(connection, list(ends)))


def await_no_more(connection: Connection, ids: Sequence[int], shard: int) -> None:
    """The ends of these jobs were heard on that shard."""
    connection.execute(query("await_no_more"), {"ids": array_text(ids), "shard": shard})


def parents_awaited(connection: Connection) -> dict[int, list[int]]:
    """Jobs here that have ended, by the shard on which children waited for them."""
    return dict(connection.execute(query("parents_awaited")).fetchall())


def parents_not_heard_of(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Those of these parents that a child here waits for, and whose end is not known here."""
    return {row[0] for row in connection.execute(query("parents_not_heard_of"), {"ids": array_text(ids)}).fetchall()}


def clean_parent_ends(connection: Connection) -> int:
    """Forget the ends that no child waits for any more."""
    row = connection.execute(query("clean_parent_ends")).fetchone()
    return int(row[0]) if row else 0
