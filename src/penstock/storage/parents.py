"""Parents on other shards: which of them are waited for here, how they ended there, and what becomes of it here.

A shard whose jobs are waited for elsewhere notes by whom, and keeps their ends until they were heard there, whatever is
pruned or archived meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.storage.arrays import array_text
from penstock.storage.database import Connection
from penstock.storage.queries import query
from penstock.storage.sweep import children_of, unblock

__all__ = [
    "await_no_more",
    "check_parents",
    "clean_parent_ends",
    "ends_of_parents",
    "enter_parent_ends",
    "parents_awaited",
    "parents_elsewhere",
    "parents_not_heard_of",
]

BATCH = 1_000


def parents_elsewhere(connection: Connection, after: int) -> list[int]:
    """The next parents, by id, whose end is to be asked for on other shards."""
    rows = connection.execute(query("parents_elsewhere"), {"after": after, "limit": BATCH}).fetchall()
    return [row[0] for row in rows]


def check_parents(connection: Connection, waited_for: Iterable[tuple[int, int]]) -> dict[int, int | None]:
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
    rows = _ends(connection, ids)
    if gone := [id_ for id_, has_succeeded, elsewhere in rows if not has_succeeded and elsewhere is None]:
        # What was on its way out in the first snapshot may have been put back and its slice dropped since: it is gone
        # if the next one has it nowhere either.
        again = {row[0]: row for row in _ends(connection, gone)}
        rows = [again.get(row[0], row) for row in rows if row[0] in again or row[0] not in gone]
    if carried := [id_ for id_, _, elsewhere in rows if elsewhere is not None]:
        await_no_more(connection, carried, shard)
    return rows


def _ends(connection: Connection, ids: Sequence[int]) -> list[tuple[int, bool, int | None]]:
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
