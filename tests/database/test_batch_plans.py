"""A claim that makes batches looks at few rows, whatever else waits between and behind the jobs of a batch task.

Counted are the rows of `ready` that the server read while the claim ran: a walk through the backlog reads all of them.
"""

from __future__ import annotations

import msgspec
import pytest
from tests.database.conftest import TOKEN, Scene

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.queries import query

MANY = 50_000
FEW_ROWS = 2_500
SLOTS = 200
# Of the task `together` ten jobs are one batch.
BATCH = 10

# The rows of a backlog in order, as (how many, task, attempt); how long a batch waits; how many leases a claim gives.
BACKLOGS: dict[str, tuple[list[tuple[int, str, int]], float, int]] = {
    "one that waits before many of another task": ([(1, "together", 1), (MANY, "alone", 1)], 10.0, SLOTS),
    "one that waits no more before many of another task": ([(1, "together", 1), (MANY, "alone", 1)], 0.0, SLOTS),
    "one that waits before many that have failed": ([(1, "together", 1), (MANY, "together", 2)], 10.0, SLOTS),
    "one that has failed before many that have not": (
        [(1, "together", 2), (MANY, "together", 1)],
        10.0,
        1 + (SLOTS - 1) * BATCH,
    ),
    "one of another task before many": ([(1, "alone", 1), (MANY, "together", 1)], 10.0, 1 + (SLOTS - 1) * BATCH),
    # The one that waits is passed over by nine batches in this claim, and is the first of the next claim's.
    "one that waits far before many": (
        [(1, "together", 1), (SLOTS - 9, "alone", 1), (MANY, "together", 1)],
        10.0,
        SLOTS - 9 + 9 * BATCH,
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["as the server finds it", "after ANALYZE"])
@pytest.mark.parametrize("name", BACKLOGS)
def test_a_claim_with_batches_looks_at_few_rows_of_a_large_backlog(scene: Scene, name: str, is_analyzed: bool) -> None:
    connection = scene.connection
    rows, wait, leases = BACKLOGS[name]
    worker = scene.register(["together", "alone"])
    pos = 1
    for count, task, attempt in rows:
        connection.execute(
            "insert into penstock.ready (partition_id, priority, pos, range, low, high, task, attempt, ready_at)"
            " select %s, 5, n, n, 0, 1, %s, %s, now() from generate_series(%s::bigint, %s) as n",
            [scene.queue.partition_ids[0], task, attempt, pos, pos + count - 1],
        )
        pos += count
    if is_analyzed:
        connection.execute("vacuum analyze penstock.ready")
    wish = {
        "worker": worker, "token": TOKEN, "firsts": array_text(scene.queue.partition_ids[:1]),
        "lasts": array_text(scene.queue.partition_ids[:1]), "started": None, "starts": None,
        "slots": SLOTS, "ahead": 0, "has_suspect": False, "freed": "{}", "caps": None,
        "batch_sizes": msgspec.json.encode({str(scene.queue.id): {"together": [BATCH, wait]}}).decode(),
    }  # fmt: skip
    with connection.transaction():
        before = rows_read(scene)
        claimed = connection.execute(query("claim_unread"), wish).fetchall()
        read = rows_read(scene) - before
    # The last row may only say from when on more may start.
    assert sum(1 for lease in claimed if lease[0] is not None) == leases
    # What is leased is read some times over: to be seen, locked, cut.
    assert read <= FEW_ROWS + 10 * leases


def rows_read(scene: Scene) -> int:
    return int(
        scene.one(
            "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
            " where schemaname = 'penstock' and relname = 'ready'"
        )
    )
