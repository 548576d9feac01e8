"""Idempotency keys follow their home.

A key is unique on one shard. Another map of a queue, or other homes, may give it another one; then it is carried there:

    close      nothing is written by the earlier map any more, on any shard
    carry      each key that is not at home is written there, then deleted where it was
    note       the map's keys are carried: nobody asks the former home any more

Until then a producer asks the former home of each key it writes (`ask_former_home`). Each step may be done again, by
anybody, and by several at once: a key that is at home already stays, and deleting twice deletes once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query

__all__ = ["ask_former_home", "carry_keys", "forget_carried_keys"]

BATCH = 5_000


class Uncarried(NamedTuple):
    """A queue with keys that may lie where earlier maps, by their epochs, sent them."""

    queue_id: int
    name: str
    epoch: int
    earlier: list[int]


def ask_former_home(connection: Connection, queue_id: int, epoch: int, keys: Sequence[str]) -> dict[str, int] | None:
    """The jobs that hold these keys on this shard; None where somebody may still write by the earlier map."""
    if not _is_closed(connection, queue_id, epoch):
        return None
    rows = connection.execute(query("ask_former_home"), {"queue": queue_id, "keys": list(keys)}).fetchall()
    return dict(rows)


def carry_keys(databases: Databases) -> int:
    """Carry every key that is not at home; how many. Where a shard does not answer its queues wait."""
    rows = databases.read(lambda connection: connection.execute(query("uncarried_queues")).fetchall())
    return sum(_carry(databases, Uncarried(*row)) for row in rows)


def _carry(databases: Databases, queue: Uncarried) -> int:
    def are_closed(connection: Connection) -> bool:
        return all(_is_closed(connection, queue.queue_id, epoch) for epoch in queue.earlier)

    answers = databases.each(are_closed, timeout=5.0)
    if answers.missing or not all(answers):
        return 0
    carried = 0
    for database in databases:
        if database.shard in databases.drained:
            continue
        count = _carry_from(databases, database, queue)
        if count is None:
            return carried
        carried += count
    databases.change(
        lambda connection: connection.execute(
            query("note_carried"), {"queue": queue.queue_id, "epoch": queue.epoch}
        ).fetchone()
    )
    return carried


def _carry_from(databases: Databases, here: Database, queue: Uncarried) -> int | None:
    """How many keys went home from here; None where the queue has another map by now."""
    after, carried = "", 0
    while True:
        asked = {"queue": queue.queue_id, "epoch": queue.epoch, "after": after, "limit": BATCH}
        row = here.run(lambda connection: connection.execute(query("strayed_keys"), asked).fetchone())  # noqa: B023
        assert row is not None  # noqa: S101
        is_current, homes, keys, job_ids, last_key = row
        if not is_current:
            return None
        by_home: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for home, key, job_id in zip(homes or (), keys or (), job_ids or (), strict=True):
            by_home[home].append((key, job_id))
        for home, strayed in by_home.items():
            given = {
                "queue": queue.queue_id,
                "epoch": queue.epoch,
                "keys": [key for key, _ in strayed],
                "job_ids": [job for _, job in strayed],
            }
            taken = databases.of(home).run(lambda c: c.execute(query("take_in_keys"), given).fetchone())  # noqa: B023
            if taken is None or not taken[0]:
                return None
            gone = here.run(lambda c: c.execute(query("let_go_keys"), given).fetchone())  # noqa: B023
            if gone is None or not gone[0]:
                return None
            carried += len(strayed)
        if last_key is None:
            return carried
        after = last_key


def forget_carried_keys(databases: Databases) -> int:
    """Let go of carried keys whose jobs are forgotten where they were written; how many."""
    forgotten = 0
    for database in databases:
        after = 0
        while not database.breaker.is_down:
            asked = {"after": after, "limit": BATCH}
            rows = database.run(lambda c: c.execute(query("carried_keys"), asked).fetchall())  # noqa: B023
            if not rows:
                break
            after = rows[-1][0]
            gone = _find_forgotten(databases, [row[0] for row in rows])
            if gone:
                database.run(lambda c: c.execute(query("let_go_keys_of_jobs"), {"ids": gone}))  # noqa: B023
                forgotten += len(gone)
    return forgotten


def _find_forgotten(databases: Databases, job_ids: Sequence[int]) -> list[int]:
    by_shard: dict[int, list[int]] = defaultdict(list)
    for job_id in job_ids:
        by_shard[databases.number_of(job_id)].append(job_id)
    gone: list[int] = []
    for number, ids in by_shard.items():
        try:
            row = databases.of(number).run(lambda c: c.execute(query("jobs_forgotten"), {"ids": ids}).fetchone())  # noqa: B023
        except PartitionUnavailable:
            continue
        gone += row[0] if row else []
    return gone


def _is_closed(connection: Connection, queue_id: int, epoch: int) -> bool:
    row = connection.execute(query("is_closed_here"), {"queue": queue_id, "epoch": epoch}).fetchone()
    return bool(row and row[0])
