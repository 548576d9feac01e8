"""A worker that does not own the schema: it works, and its upkeep makes and drops tables by the owner's functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue, LockNotAvailable
from tests.database.conftest import Scene
from tests.database.test_archive_slices import written
from tests.database.test_prune import DAYS, age, finish, pass_tables, run, tables
from tests.security.conftest import Realm
from tests.security.roles_at_work import works
from tests.spark.staged import Loader
from tests.system.cli_runs import CommandLine

from penstock import PenstockError, admin
from penstock.storage import Connection, Database
from penstock.storage.history.archive import archiving
from penstock.storage.history.bulk import RangeInterval, Table, read, split_interval
from penstock.storage.inspect.jobs import find_job
from penstock.storage.upkeep.prune import prune
from penstock.storage.upkeep.tables_ahead import make_ahead, rotate_slice


@pytest.fixture
def scene(realm: Realm) -> Iterator[Scene]:
    """What happens to jobs is done by the owner, who can let time pass; pruning and archiving are the worker's."""
    owner, database = Database(realm.url("owner")), Database(realm.url("worker"))
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(owner.connect())
        return opened[-1]

    yield Scene(database, connect(), connect)
    for connection in opened:
        connection.close()
    owner.close()
    database.close()


def test_a_worker_does_all_that_an_app_does(realm: Realm) -> None:
    app, double, follow = works(realm.url("worker"))
    with app:
        assert app.migrate() == []
        app.cron("daily", "0 0 * * *", double, args={"n": 1})
        ids = double.enqueue_many([{"n": n} for n in range(3000)])
        follow.enqueue_many([{"n": n % 3} for n in range(100)])
        child = double.options(after=[ids[0]], idempotency_key="once").enqueue(5)
        (dead,) = double.enqueue_many([{"n": -1}])
        later = double.options(delay=1000).enqueue(6)
        assert app.cancel(ids[7]) == "cancelled"
        app.pause("q")
        app.resume("q")
        app.limit("q", max_length=10_000)
        app.resize("ordered", partitions=3)
        app.work(until_idle=True)
        assert app.result(child) == 10
        assert app.job(dead).state == "failed"
        assert app.retry(dead) == "ready"
        app.reschedule(later, app.job(ids[0]).enqueued_at)
        app.work(until_idle=True)
        assert app.job(later).state == "succeeded"
        assert app.stats("q").total_completed == 3001
        assert app.stats("ordered").total_completed == 100
        app.run_cron("daily")
        assert app.purge("q", state="ready") == 1
        checks = {check.name: check for check in admin.doctor([app.database])}
        assert checks["role"].found == "worker (worker)"


def test_a_worker_s_own_upkeep_makes_and_drops_tables(scene: Scene) -> None:
    old = finish(scene, 20)
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    (ready,) = scene.enqueue()
    age(scene, 8)
    with scene.database.connect() as worker:
        make_ahead(worker)
        before = scene.one("select max(high) from penstock.job_table")
    done = run(scene)
    assert (done.slices, done.job_tables, done.waits_for) == ([1], [low], [])
    assert f"job_{low}" not in tables(scene, "job")
    assert "finished_1" not in tables(scene, "finished")
    assert scene.one("select count(*) from penstock.job where id = any(%s)", old) == 0
    assert find_job(scene.connection, ready).state == "ready"
    pass_tables(scene)
    prune(scene.database, DAYS)
    assert scene.one("select max(high) from penstock.job_table") > before
    scene.assert_conserved()


def test_a_held_transaction_stops_a_worker_s_pruning_and_nobody_else(scene: Scene) -> None:
    finish(scene, 3)
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    prune(scene.database, dict.fromkeys(DAYS, 99.0))
    holder = scene.connect()
    with holder.transaction():
        scene.enqueue(connection=holder)
        holder.execute("select count(*) from penstock.finished_job")
        pruning = threading.Thread(target=lambda: prune(scene.database, DAYS))
        pruning.start()
        # Whoever had to wait for a lock would fail.
        scene.connection.execute("set lock_timeout = '1ms'")
        while pruning.is_alive():
            ids = scene.enqueue(3)
            held = scene.claim(3)
            assert {job for _, job in held} == set(ids)
            assert scene.succeed(held) == 0
        pruning.join()
        assert "finished_1" in tables(scene, "finished")
        scene.connection.execute("set lock_timeout = 0")
    assert prune(scene.database, DAYS).job_tables == [low]
    assert "finished_1" not in tables(scene, "finished")
    scene.assert_conserved()


def test_a_table_that_is_always_in_use_by_somebody_is_let_go_in_between(scene: Scene) -> None:
    """Transactions overlap, so that the table is never free; each waits for the lock for no longer than others last."""
    finish(scene, 3)
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    prune(scene.database, dict.fromkeys(DAYS, 99.0))
    is_over = threading.Event()
    turns = [threading.Event(), threading.Event()]
    uses = [0, 0]

    def use(number: int, connection: Connection) -> None:
        while not is_over.is_set():
            with connection.transaction():
                connection.execute("select count(*) from penstock.job")
                connection.execute("select count(*) from penstock.finished")
                turns[1 - number].set()
                # The other has begun before this one ends, unless it waits for the lock.
                turns[number].wait(0.05)
                turns[number].clear()
            uses[number] += 1

    users = [threading.Thread(target=use, args=(number, scene.connect())) for number in (0, 1)]
    for user in users:
        user.start()
    try:
        while f"job_{low}" in tables(scene, "job") or "finished_1" in tables(scene, "finished"):
            prune(scene.database, DAYS)
    finally:
        is_over.set()
        for user in users:
            user.join()
    assert min(uses) > 0


def test_a_detach_that_the_owner_began_is_finalized_by_a_worker(scene: Scene) -> None:
    finish(scene)
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    prune(scene.database, dict.fromkeys(DAYS, 99.0))
    holder = scene.connect()
    with holder.transaction():
        holder.execute("select count(*) from penstock.job")
        scene.one("select penstock.keep_jobs(%s, %s, 10000)", low, low + 65536 * 1024)
        interrupted = scene.connect()
        interrupted.execute("set lock_timeout = '50ms'")
        detach = f"alter table penstock.job detach partition penstock.job_{low} concurrently"
        with pytest.raises(LockNotAvailable):
            interrupted.execute(detach.encode())
        assert scene.one("select penstock.standing(%s, 'penstock.job')", f"job_{low}") == "pending"
    assert low in prune(scene.database, DAYS).job_tables


@pytest.mark.parametrize(
    "call",
    [
        "penstock.drop_table('job_0')",
        "penstock.drop_table('queue')",
        "penstock.drop_table('job_kept')",
        "penstock.drop_table('job_0; drop schema penstock')",
        "penstock.drop_table('finished_1\" cascade; --')",
        "penstock.detach_table('queue', 'queue_1')",
        "penstock.detach_table('job', 'finished_1')",
        "penstock.detach_table('job', 'job_kept')",
    ],
)
def test_the_owners_functions_touch_no_table_but_those_they_are_for(realm: Realm, call: str) -> None:
    with realm.connect("worker") as connection, pytest.raises(InvalidParameterValue, match="InvalidInput: table"):
        connection.execute(f"select {call}".encode())


def test_a_worker_archives_and_a_reader_reads_what_is_set_apart(realm: Realm, scene: Scene) -> None:
    finish(scene, 3)
    with archiving(scene.database, wait_seconds=5.0) as archive:
        assert archive.list_taken() == [1]
        assert archive.set_apart(1)
        finish(scene, 2)
        scene.enqueue(4)
        counts: dict[Table, int] = {"finished": 5, "jobs": 4, "failures": 0}
        with realm.connect("reader") as reader:
            for table, count in counts.items():
                pieces = split_interval(reader, RangeInterval(table, 0, 0), 2)
                batches = [b for piece in pieces for b in read(realm.url("reader"), piece.statement(["id"], []))]
                assert sum(batch.num_rows for batch in batches) == count, table
        assert archive.count(1).jobs == 3
        assert archive.let_go(1, written(archive, 1), DAYS)
        assert (archive.list_taken(), archive.waits_for) == ([], [])
    assert "finished_1" not in tables(scene, "finished")


def test_a_worker_stages_and_publishes_loads(realm: Realm) -> None:
    with works(realm.url("worker")).app as app:
        app.queues()
        loader = Loader(app, "q")
        assert loader.publish("load", loader.stage(1, 2), loader.stage(3, once="k")).rows == 3
        app.pause_load("load")
        app.resume_load("load")
        assert [load.name for load in app.loads()] == ["load"]
        assert app.cancel_load("load") == 3


@pytest.mark.parametrize(
    "lacking",
    ["delete from penstock.table_file where name = 'roles'", "update penstock.function_set set version = 0"],
    ids=["a table file", "functions"],
)
def test_a_worker_that_would_have_to_migrate_is_told_who_must(realm: Realm, lacking: LiteralString) -> None:
    with realm.connect("owner") as owner:
        owner.execute(lacking)
    app = works(realm.url("worker")).app
    with app, pytest.raises(PenstockError, match=r"migrate as owner$"):
        app.migrate()


def test_the_command_grants_and_says_so(realm: Realm, tmp_path: Path) -> None:
    penstock = CommandLine(tmp_path, realm.url("owner"))
    assert penstock.done("grant", "reader", "stranger").out == "role 'stranger' is a reader\n"
    assert penstock.done("grant", "producer", "stranger", "--json").json == {"role": "stranger", "kind": "producer"}
    with (
        realm.connect("stranger") as connection,
        pytest.raises(psycopg.errors.UndefinedObject, match="NotFound: queue"),
    ):
        connection.execute("select penstock.enqueue('q', 'double')")
    assert "role: there is no database role 'nobody'" in penstock.refused("grant", "reader", "nobody")
    assert "kind: must be one of worker" in penstock.refused("grant", "admin", "stranger")
    assert penstock.done("grant", "none", "stranger").out == "role 'stranger' may do nothing here\n"
    refused = CommandLine(tmp_path, realm.url("worker")).refused("grant", "worker", "stranger")
    assert "only owner, who owns the schema, can grant" in refused
