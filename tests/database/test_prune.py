"""Pruning: nothing that is wanted is lost, nobody waits, and a crash between two steps is gone on from."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import psycopg
import pytest
from tests.database.conftest import Scene

from penstock.errors import NotFound
from penstock.storage.enqueue.job_group import Destination, JobGroup
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_few
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair.control import retry_job
from penstock.storage.upkeep.prune import Pruned, prune
from penstock.storage.upkeep.sweep import unblock_all
from penstock.storage.upkeep.tables_ahead import make_ahead, rotate_slice
from penstock.storage.work.leases import Lease, read_jobs

DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}


def pass_tables(scene: Scene) -> int:
    """Let the numbers pass the table of jobs in use; where it began."""
    low, high = scene.connection.execute(
        "select low, high from penstock.job_table, penstock.range_number where last_value >= low and last_value < high"
    ).fetchall()[0]
    scene.connection.execute("select setval('penstock.range_number', %s)", (high + 1,))
    return int(low)


def age(scene: Scene, days: float) -> None:
    """Let everything in the database have happened so many days earlier."""
    passed = {"days": days}
    for table, column in (("slice", "used_from"), ("finished", "finished_at"), ("dead", "failed_at")):
        statement = f"update penstock.{table} set {column} = {column} - make_interval(secs => 86400 * %(days)s)"
        scene.connection.execute(statement, passed)


def run(scene: Scene, days: Mapping[str, float] = DAYS) -> Pruned:
    """Twice: the first notes who might still write, the second knows that they have ended. What both did."""
    first, second = prune(scene.database, days), prune(scene.database, days)
    second.slices += first.slices
    second.job_tables += first.job_tables
    return second


def tables(scene: Scene, kind: str) -> set[str]:
    rows = scene.connection.execute(
        "select relname from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'r' and relname ~ %s",
        (f"^{kind}_[0-9]+$",),
    )
    return {row[0] for row in rows}


def finish(scene: Scene, count: int = 1, **options: object) -> list[int]:
    ids = scene.enqueue(count, **options)  # type: ignore[arg-type]
    scene.succeed(scene.claim(count))
    return ids


def test_three_tables_of_each_kind_lie_ahead(scene: Scene) -> None:
    pass_tables(scene)
    make_ahead(scene.connection)
    ahead = "select count(*) from penstock.job_table, penstock.range_number where low > last_value"
    assert scene.one(ahead) == 3
    assert scene.one("select count(*) from penstock.slice where used_from is null") == 3
    assert rotate_slice(scene.connection) == 2
    assert scene.one("select penstock.current_slice()") == 2
    assert scene.one("select count(*) from penstock.slice where used_from is null") == 3


@pytest.mark.parametrize("is_one_statement", [True, False])
def test_producers_alone_never_run_out_of_tables(scene: Scene, is_one_statement: bool) -> None:
    high = scene.one("select max(high) from penstock.job_table")
    scene.connection.execute("select setval('penstock.range_number', %s)", (high - 100 * 1024 + 1,))
    for _ in range(200):
        if is_one_statement:
            group = JobGroup(Destination(scene.queue.id, scene.queue.partition_ids[0], 5, "t"), [0], [b"{}"])
            drive(scene.connection, write_few(group, [0]))
        else:
            scene.enqueue()
    assert scene.one("select count(*) from penstock.job") == 200
    assert scene.one("select count(*) from penstock.shortage") == 0


def test_a_new_slice_is_opened_each_day_by_the_databases_clock(scene: Scene) -> None:
    prune(scene.database, DAYS)
    assert scene.one("select penstock.current_slice()") == 1
    age(scene, 1)
    prune(scene.database, DAYS)
    prune(scene.database, DAYS)
    assert scene.one("select penstock.current_slice()") == 2


def test_history_and_its_jobs_go_when_their_time_has_come_and_not_before(scene: Scene) -> None:
    old = finish(scene, 20)
    (keyed,) = finish(scene, idempotency_key="k")
    low = pass_tables(scene)
    new = finish(scene, 5)
    rotate_slice(scene.connection)
    age(scene, 6)
    # So few are in it that they are kept elsewhere.
    assert run(scene).job_tables == [low]
    assert find_job(scene.connection, old[3]).state == "succeeded"
    age(scene, 1.1)
    assert run(scene).slices == [1]
    for gone in (*old, keyed, *new):
        with pytest.raises(NotFound):
            find_job(scene.connection, gone)
    assert scene.one("select count(*) from penstock.dedup") == 0
    assert f"job_{low}" not in tables(scene, "job")
    assert "finished_1" not in tables(scene, "finished")


def test_an_idempotency_key_and_failures_go_with_the_history(scene: Scene) -> None:
    scene.enqueue(idempotency_key="k")
    scene.end(scene.claim(), "retry", error="x")
    scene.succeed(scene.claim())
    (waiting,) = scene.enqueue(idempotency_key="other")
    rotate_slice(scene.connection)
    age(scene, 8)
    assert run(scene).slices == [1]
    assert scene.connection.execute("select idempotency_key, job_id from penstock.dedup").fetchall() == [
        ("other", waiting)
    ]
    assert scene.one("select count(*) from penstock.failure") == 0


def test_what_must_stay_longer_is_carried_along(scene: Scene) -> None:
    succeeded = finish(scene, 3)
    cancelled = scene.enqueue(3)
    scene.end(scene.claim(3), "cancelled", error="why")
    rotate_slice(scene.connection)
    age(scene, 8)
    before = find_job(scene.connection, cancelled[1])
    days = {**DAYS, "cancelled": 20.0}
    assert run(scene, days).slices == [1]
    with pytest.raises(NotFound):
        find_job(scene.connection, succeeded[0])
    assert find_job(scene.connection, cancelled[1]) == before
    for _ in range(2):
        age(scene, 20)
        assert run(scene, days).is_done
    with pytest.raises(NotFound):
        find_job(scene.connection, cancelled[1])


def test_a_slice_that_mostly_must_stay_is_not_carried_about(scene: Scene) -> None:
    finish(scene)
    rotate_slice(scene.connection)
    scene.connection.execute("update penstock.slice set counts = '{10, 0, 100000, 0, 0}' where number = 1")
    age(scene, 8)
    days = {**DAYS, "cancelled": 20.0}
    assert run(scene, days).slices == []
    age(scene, 13)
    assert 1 in run(scene, days).slices


def test_kept_jobs_can_be_read_claimed_retried_and_unblocked(scene: Scene) -> None:
    (first,) = finish(scene)
    (dead,) = scene.dead()
    (scheduled,) = scene.enqueue()
    scene.end(scene.claim(), "retry", error="x", due_in=100 * 86400)
    (running,) = scene.enqueue()
    scene.claim()
    (ready,) = scene.enqueue()
    (blocked,) = scene.enqueue(after=[running, first])
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    assert run(scene).job_tables == [low]
    states = {id_: find_job(scene.connection, id_).state for id_ in (dead, scheduled, running, ready, blocked)}
    assert list(states.values()) == ["failed", "scheduled", "running", "ready", "blocked"]
    assert retry_job(scene.connection, dead) == "ready"
    rows = scene.connection.execute("select id, range, low from penstock.lease").fetchall()
    for lease, number, position in rows:
        kept = Lease(lease, 1, 5, number, number, position, position + 1, None, 1, 0, False, "t", 0.0)
        assert list(read_jobs(scene.connection, [kept])) == [running]
    held = scene.claim()
    assert sorted(job for _, job in held) == sorted((dead, ready))
    leases = scene.connection.execute("select id from penstock.lease where range = %s", (running // 1024,)).fetchall()
    scene.succeed([*held, (leases[0][0], running)])
    # The first parent ended eight days ago, and its slice is gone: the child must still learn how it ended.
    unblock_all(scene.connection)
    assert find_job(scene.connection, blocked).state == "ready"
    scene.assert_conserved()


def test_a_child_that_comes_while_its_parents_history_goes_learns_how_it_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2: it was accepted after the ends that are waited for were carried, and waited for ever."""
    from penstock.storage.upkeep import prune as module

    (first,) = finish(scene)
    (running,) = scene.enqueue()
    held = scene.claim()
    rotate_slice(scene.connection)
    age(scene, 8)
    prune(scene.database, dict.fromkeys(DAYS, 99.0))
    real, children = module._Pruning._detach, []

    def detach(pruning: module._Pruning, parent: str, *rest: str) -> bool:
        if parent == "finished":
            children.extend(scene.enqueue(after=[first, running]))
        return real(pruning, parent, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(module._Pruning, "_detach", detach)
        assert prune(scene.database, DAYS).slices == [1]
    scene.succeed(held)
    unblock_all(scene.connection)
    (child,) = children
    assert find_job(scene.connection, child).state == "ready"
    scene.assert_conserved()


def test_kept_jobs_go_when_their_own_time_has_come(scene: Scene) -> None:
    (id_,) = scene.dead()
    pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    run(scene)
    assert scene.one("select count(*) from penstock.job_kept") == 1
    age(scene, 30)
    assert prune(scene.database, DAYS).buried == 1
    assert find_job(scene.connection, id_).state == "failed"
    for _ in range(2):
        age(scene, 8)
        assert run(scene).is_done
    for table in ("job_kept", "failure", "dead"):
        assert scene.one(f"select count(*) from penstock.{table}") == 0, table
    with pytest.raises(NotFound):
        find_job(scene.connection, id_)


def test_a_straggler_that_wrote_or_may_write_into_an_old_table_is_waited_for(scene: Scene) -> None:
    drew_only, wrote = scene.connect(), scene.connect()
    finish(scene, 3)
    with drew_only.transaction():
        (number,) = drew_only.execute("select penstock.draw_range()").fetchall()[0]
        with wrote.transaction():
            (written,) = scene.enqueue(connection=wrote)
            low = pass_tables(scene)
            rotate_slice(scene.connection)
            age(scene, 8)
            assert run(scene).job_tables == []
            assert f"job_{low}" in tables(scene, "job")
        assert find_job(scene.connection, written).state == "ready"
        assert run(scene).job_tables == []
        partition = scene.queue.partition_ids[0]
        drew_only.execute(
            "insert into penstock.job values (%s, now(), %s, 5, 't', null, '{}', null)", (number * 1024, partition)
        )
        drew_only.execute(
            "insert into penstock.ready (partition_id, priority, pos, range, low, high, task)"
            " values (%s, 5, %s, %s, 0, 1, 't')",
            (partition, number, number),
        )
    assert run(scene).job_tables == [low]
    assert find_job(scene.connection, number * 1024).state == "ready"
    assert find_job(scene.connection, written).state == "ready"


@pytest.mark.parametrize("is_repeatable_read", [False, True])
def test_a_held_transaction_stops_pruning_and_nobody_else(scene: Scene, is_repeatable_read: bool) -> None:
    finish(scene, 3)
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    prune(scene.database, {**DAYS, "succeeded": 99.0, "cancelled": 99.0, "discarded": 99.0, "expired": 99.0})
    holder = scene.connect()
    with holder.transaction():
        if is_repeatable_read:
            holder.execute("set transaction isolation level repeatable read")
        scene.enqueue(connection=holder)
        holder.execute("select count(*) from penstock.job_stored")
        holder.execute("select count(*) from penstock.finished_job")
        first = prune(scene.database, DAYS)
        assert first.waits_for
        assert first.job_tables == []
        pruning = threading.Thread(target=lambda: [prune(scene.database, DAYS) for _ in range(5)])
        pruning.start()
        # Whoever had to wait for a lock would fail.
        scene.connection.execute("set lock_timeout = '1ms'")
        while pruning.is_alive():
            ids = scene.enqueue(3)
            held = scene.claim(3)
            assert {job for _, job in held} == set(ids)
            assert scene.succeed(held) == 0
            assert find_job(scene.connection, ids[0]).state == "succeeded"
        pruning.join()
        make_ahead(scene.connection)
    run(scene)
    assert f"job_{low}" not in tables(scene, "job")
    assert "finished_1" not in tables(scene, "finished")
    scene.connection.execute("set lock_timeout = 0")
    pass_tables(scene)
    make_ahead(scene.connection)
    scene.assert_conserved()


STEPS = (
    "count_slice",
    "keep_longer",
    "detach finished",
    "keep_parents",
    "forget_slice",
    "remove_slice",
    "keep_jobs",
    "detach job",
    "forget_jobs",
    "remove_job_table",
    "clean_kept",
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_after", [False, True])
def test_a_crash_before_or_after_any_step_is_gone_on_from(
    scene: Scene, step: str, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.storage.upkeep import prune as module

    finish(scene, 3)
    cancelled = scene.enqueue(2)
    scene.end(scene.claim(2), "cancelled", error="why")
    (dead,) = scene.dead()
    (ready,) = scene.enqueue()
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    days = {**DAYS, "cancelled": 20.0}
    prune(scene.database, dict.fromkeys(DAYS, 99.0))

    class CrashError(Exception):
        pass

    real_run, real_detach, real_drop = module._Pruning._run, module._Pruning._detach, module._Pruning._drop

    def crashing(name: str, act: object, *arguments: object) -> object:
        if name == step and not is_after:
            raise CrashError
        result = act(*arguments)  # type: ignore[operator]
        if name == step:
            raise CrashError
        return result

    with monkeypatch.context() as patched:
        patched.setattr(module._Pruning, "_run", lambda s, n, p=None: crashing(n, real_run, s, n, p))
        patched.setattr(module._Pruning, "_detach", lambda s, *a: crashing(f"detach {a[0]}", real_detach, s, *a))
        patched.setattr(module._Pruning, "_drop", lambda s, t, r, w: crashing(r, real_drop, s, t, r, w))
        with pytest.raises(CrashError):
            prune(scene.database, days)
    for _ in range(2):
        scene.assert_conserved()
        assert [find_job(scene.connection, id_).state for id_ in (*cancelled, dead, ready)] == [
            "cancelled",
            "cancelled",
            "failed",
            "ready",
        ]
        run(scene, days)
    assert f"job_{low}" not in tables(scene, "job")
    assert "finished_1" not in tables(scene, "finished")
    assert scene.one("select count(*) from penstock.job_kept") == 4


def test_an_interrupted_detach_is_finalized(scene: Scene) -> None:
    finish(scene)
    low = pass_tables(scene)
    rotate_slice(scene.connection)
    age(scene, 8)
    prune(scene.database, dict.fromkeys(DAYS, 99.0))
    holder = scene.connect()
    with holder.transaction():
        holder.execute("select count(*) from penstock.job")
        assert f"job_{low}" in prune(scene.database, DAYS).waits_for
        assert scene.one("select penstock.standing(%s, 'penstock.job')", f"job_{low}") == "pending"
        pass_tables(scene)
        make_ahead(scene.connection)
        scene.enqueue(3)
    assert low in prune(scene.database, DAYS).job_tables


def test_one_process_prunes_at_a_time(scene: Scene) -> None:
    other = scene.connect()
    with other.transaction():
        other.execute("select pg_advisory_xact_lock(hashtext('penstock.prune'))")
        assert prune(scene.database, DAYS).is_busy_elsewhere
    assert not prune(scene.database, DAYS).is_busy_elsewhere


def test_a_table_of_jobs_that_many_still_want_stays(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.upkeep.prune.FEW_JOBS", 10)
    scene.enqueue(11)
    low = pass_tables(scene)
    assert run(scene).job_tables == []
    assert scene.one("select count(*) from penstock.job_kept") == 0
    scene.claim(1)
    scene.connection.execute("delete from penstock.lease")
    assert run(scene).job_tables == [low]
    assert scene.one("select count(*) from penstock.job_kept") == 10


def test_tables_of_jobs_grow_with_the_load_and_stay_few(scene: Scene) -> None:
    widths = []
    for _ in range(12):
        scene.enqueue()
        scene.connection.execute("update penstock.job set enqueued_at = now() - interval '1 minute'")
        pass_tables(scene)
        make_ahead(scene.connection)
        widths.append(scene.one("select high - low from penstock.job_table order by low desc limit 1"))
    assert widths == sorted(widths)
    assert widths[-1] > 2**8 * widths[0] // 2


def test_a_slice_that_an_archive_drops_while_prune_looks_is_not_wanted(scene: Scene) -> None:
    (job,) = finish(scene)
    rotate_slice(scene.connection)
    scene.connection.execute("update penstock.slice set taken_at = now() where number = 1")
    other = scene.connect()
    with other.transaction():
        other.execute("set transaction isolation level repeatable read")
        assert other.execute("select count(*) from penstock.slice where taken_at is not null").fetchone() == (1,)
        scene.connection.execute("drop table penstock.finished_1")
        scene.connection.execute("delete from penstock.slice where number = 1")
        assert other.execute("select penstock.wanted(%s, %s)", (job // 1024, job // 1024 + 1)).fetchall() == []
        assert other.execute("select penstock.outcome_apart(%s)", (job,)).fetchone() == (None,)
        # Whoever reads history is told, and looks into the lake.
        with pytest.raises(psycopg.DatabaseError, match="slices of history are gone: 1;") as gone, other.transaction():
            other.execute("select penstock.finished_rows(0, 1024, null, '{}', '{}')")
        assert gone.value.sqlstate == "PS001"
