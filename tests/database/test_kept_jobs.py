"""A job that outlives its table: it is moved, so that every look finds it once, whatever is held open meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.database.conftest import Scene
from tests.database.ledger import check
from tests.database.owned import Owned
from tests.database.stepwise import Step, orders, play, transaction

from penstock.storage import Connection
from penstock.storage.catalogue.resize import resize
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair.control import retry_job
from penstock.storage.upkeep import sweep
from penstock.storage.upkeep.prune import prune
from penstock.storage.work import owner as storage
from penstock.storage.work.owner import LookWish

DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene, partitions=1, on_dead="halt")


def keep(scene: Scene) -> None:
    """What prune does to the table of jobs in use before it detaches it."""
    low, high = scene.connection.execute("select min(low), min(high) from penstock.job_table").fetchall()[0]
    assert scene.one("select penstock.keep_jobs(%s, %s, 10000)", low, high)


def stored(scene: Scene, job: int) -> list[str]:
    """The tables that hold a job, as one snapshot shows them."""
    rows = scene.connection.execute(
        "select 'job' from penstock.job where id = %(id)s"
        " union all select 'kept' from penstock.job_kept where id = %(id)s",
        {"id": job},
    )
    return [row[0] for row in rows]


def test_a_kept_job_is_stored_once(scene: Scene) -> None:
    waiting, _ = scene.enqueue(2)
    (child,) = scene.enqueue(after=[waiting])
    (dead,) = scene.dead(task="t")
    keep(scene)
    for job in (waiting, child, dead):
        assert stored(scene, job) == ["kept"]
        assert find_job(scene.connection, job).id == job
    check(scene.connection)


@pytest.mark.parametrize("order", list(orders(2, 2)))
def test_a_kept_job_is_stored_once_whoever_looks_meanwhile(scene: Scene, order: str) -> None:
    ids = scene.enqueue(5)

    def look(connection: Connection) -> list[int]:
        return [row[0] for row in connection.execute("select id from penstock.job_stored order by id")]

    def move(connection: Connection) -> None:
        connection.execute("select penstock.keep_jobs(0, 67108864, 10000)")

    connections = (scene.connect(), scene.connect())
    played = play(order, transaction(move), [look, look], connections, scene.connection)
    assert played.waited == []
    assert played.b == [ids, ids]


def test_a_kept_child_becomes_ready_once(owned: Owned) -> None:
    """G2, G3: it was written into `ready` twice, and no worker of the queue went on."""
    key = owned.key(0, 1)
    (parent,) = owned.enqueue([key])
    (child,) = owned.enqueue([key], parents={0: _after(parent)})
    (held,) = owned.lease([parent])
    owned.scene.worker = owned.worker
    owned.scene.succeed([held])
    keep(owned.scene)
    assert sweep.unblock_all(owned.connection) == 1
    assert owned.row(child).number == 0
    check(owned.connection)


def test_a_kept_dead_letter_is_written_once(owned: Owned) -> None:
    key = owned.key(0, 1)
    first, second = owned.enqueue([key, key])
    (held,) = owned.lease([first])
    keep(owned.scene)
    owned.end([held], "failed")
    assert owned.halted() == [(key, first)]
    check(owned.connection)
    assert retry_job(owned.connection, first)
    owned.connection.execute("insert into penstock.task values (%s, 't', 1)", [owned.entry.id])
    owned.lease([first])
    owned.kill()
    assert sweep.rescue(owned.connection) == (2, 1, 1)
    assert owned.halted() == [(key, first)]
    assert check(owned.connection).of("ready") == {second}


def test_a_kept_job_that_is_due_takes_one_place(owned: Owned) -> None:
    key = owned.key(0, 1, moves_to=(1, 2))
    (job,) = owned.enqueue([key], run_at=LATER)
    resize(owned.connection, "o", 2)
    owned.connection.execute("update penstock.scheduled set due_at = now()")
    keep(owned.scene)
    assert sweep.promote(owned.connection) == 1
    assert owned.row(job).number == 1


def test_an_owner_sees_a_kept_job_run_once(owned: Owned) -> None:
    key = owned.key(0, 1)
    first, _ = owned.enqueue([key, key])
    owned.lease([first])
    keep(owned.scene)
    (ownership,) = storage.share(owned.connection, owned.worker)
    (seen,) = storage.look(owned.connection, [LookWish(ownership, None, [0] * 10, 100, with_others=True)])
    assert seen.running == [(first, key)]


def test_an_owner_sees_what_runs_though_its_table_goes_in_the_middle_of_the_look(owned: Owned) -> None:
    """The look's snapshot is of before the move: while it lasts the table stays attached."""
    key = owned.key(0, 1)
    first, _ = owned.enqueue([key, key])
    owned.lease([first])
    owned.connection.execute("select setval('penstock.range_number', high + 1) from penstock.job_table where low = 0")
    prune(owned.scene.database, dict.fromkeys(DAYS, 99.0), budget_seconds=0.0)
    (ownership,) = storage.share(owned.connection, owned.worker)
    looker = owned.scene.connect()
    steps: list[Step] = [
        lambda c: c.execute("begin isolation level repeatable read read only"),
        lambda c: c.execute(query("lock_job_tables")),
        lambda c: c.execute(query("read_snapshot")).fetchall(),
    ]
    for step in steps:
        step(looker)
    pruned = prune(owned.scene.database, dict.fromkeys(DAYS, 99.0))
    assert stored(owned.scene, first) == ["kept"], "it was moved meanwhile"
    assert "job_0" in pruned.waits_for
    where = {"partition": ownership.partition_id}
    assert [row[:2] for row in looker.execute(query("read_running"), where)] == [(first, key)]
    looker.execute("commit")
    assert prune(owned.scene.database, dict.fromkeys(DAYS, 99.0)).job_tables == [0]


def _after(parent: int) -> Parents:
    return Parents([parent])
