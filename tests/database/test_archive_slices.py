"""A slice on its way to a lake: prune passes it by, its jobs stay wanted, its keys taken."""

from __future__ import annotations

from tests.database.conftest import Scene
from tests.database.test_prune import DAYS, finish, pass_tables

from penstock.storage.archive import archiving, read_slices
from penstock.storage.prune import prune

AT_ONCE = dict.fromkeys(DAYS, 0.0)


def test_what_an_archive_took_is_let_go_by_an_archive_alone(scene: Scene) -> None:
    jobs = finish(scene, 3)
    scene.enqueue()
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.taken() == [1]
        for _ in range(2):
            prune(scene.database, AT_ONCE)
        assert run.taken() == [1]
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
        assert run.let_go(1, DAYS)
        assert (run.taken(), run.waits_for) == ([], [])
    assert 1 not in read_slices(scene.connection)
    # Nothing has ended since: there is nothing to close, or to take.
    before = read_slices(scene.connection)
    with archiving(scene.database, wait_seconds=5.0) as run:
        assert run.taken() == []
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
