"""A slice on its way to a lake: prune passes it by, its jobs stay wanted, its keys taken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

import psycopg
import pytest
from tests.database.conftest import Scene
from tests.database.test_prune import DAYS, finish, pass_tables

from penstock.admin.doctor import doctor
from penstock.errors import PenstockError
from penstock.storage.history.archive import Archiving, archiving, read_slices
from penstock.storage.history.lake_writings import Sum, Writing, read_writings, writings_of
from penstock.storage.upkeep.prune import prune

AT_ONCE = dict.fromkeys(DAYS, 0.0)


def written(run: Archiving, number: int) -> Writing:
    """A slice as if it had been put into a lake, faithfully."""
    writing = run.begin_writing(number, "lake", "/lake", "slice")
    assert writing is not None
    return writing.with_content(run.count(number))


def test_what_an_archive_took_is_let_go_by_an_archive_alone(scene: Scene) -> None:
    jobs = finish(scene, 3)
    scene.enqueue()
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.list_taken() == [1]
        for _ in range(2):
            prune(scene.database, AT_ONCE)
        assert run.list_taken() == [1]
        assert run.set_apart(1)
    # As if it had been killed here. The slice is in no attached table, and its jobs are still wanted: they outlive the
    # table they were written to.
    low = pass_tables(scene)
    for _ in range(2):
        prune(scene.database, AT_ONCE)
    assert scene.one(f"select to_regclass('penstock.job_{low}')") is None
    with archiving(scene.database, wait_seconds=5.0) as run:
        counted = run.count(1)
        assert counted.jobs == len(jobs)
        assert run.count(1) == counted
        assert run.let_go(1, written(run, 1), DAYS)
        assert (run.list_taken(), run.waits_for) == ([], [])
    assert 1 not in read_slices(scene.connection)
    # Nothing has ended since: there is nothing to close, or to take.
    before = read_slices(scene.connection)
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.list_taken() == []
    assert read_slices(scene.connection) == before


def test_the_checksum_knows_every_column(scene: Scene) -> None:
    finish(scene, 2, key=b"\xff\x00", attributes={"tenant": "acme"})
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.set_apart(1)
        seen = {run.count(1)}
        for change in (
            "update penstock.finished_1 set attempt = attempt + 1",
            "update penstock.finished_1 set finished_at = finished_at + interval '1 microsecond'",
            "update penstock.finished_1 set worker = null",
            "update penstock.finished_1 set results = null",
            "update penstock.finished_1 set errors = array['e', null]",
            "update penstock.finished_1 set outcome = 3",
            "update penstock.finished_1 set start_ages = array[null, 5]",
            "update penstock.job set args = '{\"n\": 1}'",
            "update penstock.job set key = '\\xfe'",
            "update penstock.job set attributes = null",
            "update penstock.job set priority = 1",
            "update penstock.job set task = 'u'",
            "update penstock.job set enqueued_at = enqueued_at + interval '1 microsecond'",
            "update penstock.queue set name = 'r'",
            "update penstock.partition set name = 'r'",
            "insert into penstock.failure (job_id, attempt, error) select id, 1, 'e' from penstock.job",
        ):
            scene.connection.execute(change.encode())
            counted = run.count(1)
            assert counted not in seen, change
            seen.add(counted)


def test_the_idempotency_key_of_an_archived_job_lives_on_though_its_table_went_long_before(scene: Scene) -> None:
    """It waited for so long that its table is gone, and was kept."""
    job = scene.enqueue()[0]
    scene.connection.execute("insert into penstock.dedup values (%s, 'once', %s)", (scene.queue.id, job))
    low = pass_tables(scene)
    for _ in range(2):
        prune(scene.database, DAYS)
    assert scene.one(f"select count(*) from penstock.job_table where low = {low}") == 0
    scene.succeed(scene.claim(1))
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.set_apart(1)
        assert run.let_go(1, written(run, 1), DAYS)
    for _ in range(2):
        prune(scene.database, DAYS)
    assert scene.one("select count(*) from penstock.job_kept") == 0
    assert scene.one("select job_id from penstock.dedup") == job
    scene.connection.execute("update penstock.job_table set keys_until = now() where keys_until is not null")
    prune(scene.database, DAYS)
    assert scene.one("select count(*) from penstock.dedup") == 0
    assert scene.one("select count(*) from penstock.job_table where keys_until is not null") == 0


def end_guard(scene: Scene) -> None:
    """Cut the connection that holds an archive's lock."""
    ended = scene.connection.execute(
        """
        select pg_terminate_backend(pid, 10000) from pg_locks
         where locktype = 'advisory' and granted
           and (classid::bigint << 32 | objid::bigint) = hashtext('penstock.archive')::bigint
           and database = (select oid from pg_database where datname = current_database())
        """
    ).fetchall()
    assert ended == [(True,)]


def test_whoever_lost_the_duty_changes_nothing_more_g8(scene: Scene) -> None:
    jobs = finish(scene, 3)
    stack = ExitStack()
    first = stack.enter_context(archiving(scene.database, wait_seconds=5.0))
    assert first.set_apart(1)
    writing = written(first, 1)
    end_guard(scene)
    with archiving(scene.database, wait_seconds=5.0) as second:
        assert second.list_taken() == [1]
        acts: list[Callable[[], object]] = [
            lambda: first.set_apart(1),
            lambda: first.begin_writing(1, "lake", "/lake", "slice"),
            lambda: first.let_go(1, writing, DAYS),
            lambda: first.mark([writing], "verified"),
            lambda: first.abandoning("lake").__enter__(),
            first.take,
            first.end,
        ]
        for act in acts:
            with pytest.raises(PenstockError, match="has taken over"):
                act()
        assert second.count(1).jobs == len(jobs)
        # What the first wrote is removed, and its own is not: it goes by the duty's number and an identity.
        own = written(second, 1)
        with second.abandoning("lake") as abandoned:
            assert [each.identity for each in abandoned] == [writing.identity]
        assert (own.duty, writing.duty) == (2, 1)
        assert second.let_go(1, own, DAYS)
    with pytest.raises(PenstockError, match="has taken over"):
        stack.close()
    assert [(each.identity, each.state) for each in read_writings(scene.connection)] == [
        (writing.identity, "abandoned"),
        (own.identity, "verified"),
    ]
    assert writings_of(scene.connection, [1])[0].sum == own.sum


def test_nobody_takes_the_duty_in_the_middle_of_an_act_and_an_archive_without_its_lock_may_end_g8(scene: Scene) -> None:
    finish(scene, 3)
    with archiving(scene.database, wait_seconds=5.0) as first:
        assert first.set_apart(1)
        end_guard(scene)
        second = archiving(scene.database, wait_seconds=5.0)
        with first.acting(), pytest.raises(PenstockError, match="another archive of this database is running"):
            second.__enter__()
        assert first.let_go(1, written(first, 1), DAYS)
    assert scene.one("select ended_at is not null from penstock.archive_duty")


def test_a_slice_is_dropped_only_if_it_is_what_its_writing_holds_and_nothing_goes_before_it_g8(scene: Scene) -> None:
    finish(scene, 2)
    scene.connection.execute(
        "insert into penstock.failure (job_id, attempt, error) select id, 1, 'e' from penstock.job"
    )
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.set_apart(1)
        writing = written(run, 1)
        wrong = [Sum(1, writing.checksum), Sum(2, writing.checksum ^ 1), Sum(0, 0)]
        for sum_ in wrong:
            with pytest.raises(PenstockError, match=r"slice 1 has 2 jobs .* nothing was dropped"):
                run.let_go(1, writing.with_content(sum_), DAYS)
        with pytest.raises(PenstockError, match="nothing was dropped"):
            run.let_go(1, None, DAYS)
    # Somebody reads it: what was verified stays so, nothing is forgotten, and the next run goes on from there.
    with archiving(scene.database, wait_seconds=0.0) as run:
        with scene.connect() as reader, reader.transaction():
            reader.execute("select from penstock.finished_1")
            assert not run.let_go(1, writing, DAYS)
        assert run.waits_for == ["finished_1"]
        assert scene.one("select count(*) from penstock.failure") == 2
        assert [each.state for each in run.writings()] == ["verified"]
        scene.connection.execute("update penstock.job set priority = 1")
        with pytest.raises(PenstockError, match="nothing was dropped"):
            run.let_go(1, writing, DAYS)
        scene.connection.execute("update penstock.job set priority = 5")
        assert run.let_go(1, writing, DAYS)
    assert scene.one("select count(*) from penstock.failure") == 0
    assert scene.one("select to_regclass('penstock.finished_1')") is None


def test_a_prune_that_lost_its_duty_carries_nothing_from_what_an_archive_took(scene: Scene) -> None:
    finish(scene, 2)
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.list_taken() == [1]
        with pytest.raises(psycopg.errors.LockNotAvailable, match="slice 1 was taken by an archive"):
            scene.connection.execute("select penstock.keep_longer(1, '{9,9,9,9,9}', 200)")
        assert run.count(1).jobs == 2


def test_doctor_tells_of_an_archive_that_was_killed(scene: Scene) -> None:
    def said() -> tuple[bool, str, str]:
        check = next(check for check in doctor([scene.database]) if check.name == "archive")
        return check.ok, check.found, check.advice

    assert said() == (True, "none was run", "")
    finish(scene, 2)
    with suppress(KeyboardInterrupt), archiving(scene.database, wait_seconds=5.0, location="s3a://b/lake") as run:
        assert run.set_apart(1)
        ok, found, _ = said()
        assert (ok, found.startswith("one runs: to s3a://b/lake")) == (True, True)
        raise KeyboardInterrupt
    ok, found, advice = said()
    assert not ok
    assert found.startswith("the last one was killed or failed: to s3a://b/lake")
    assert found.endswith("slices 1 wait for it")
    assert "penstock archive s3a://b/lake" in advice
    with archiving(scene.database, wait_seconds=5.0, location="s3a://b/lake") as run:
        assert run.let_go(1, written(run, 1), DAYS)
    assert said()[0]
