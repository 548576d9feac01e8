"""Why jobs were cancelled, discarded or have expired, and for when they were put off: told when all is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from tests.database.conftest import Scene

from penstock import App, admin
from penstock.errors import InvalidInput
from penstock.model.job_filters import JobFilters
from penstock.model.job_state import State
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.upkeep.prune import prune
from penstock.storage.upkeep.tables_ahead import rotate_slice

LATER = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)


def error(scene: Scene, job: int) -> str | None:
    """What `app.job` and history in bulk tell alike."""
    found = find_job(scene.connection, job)
    in_bulk = "select error from penstock.history_between(0, 1::bigint << 50, null, '{}', '{}') where id = %s"
    assert scene.one(in_bulk, job) == found.error
    return found.error


def explained(scene: Scene, job: int) -> str:
    return admin.explain(scene.databases, job).reason


def test_who_cancels_says_why(scene: Scene) -> None:
    ready, scheduled, other = scene.enqueue()[0], scene.enqueue(run_at=LATER)[0], scene.enqueue()[0]
    assert admin.cancel(scene.databases, ready) is State.CANCELLED
    assert admin.cancel(scene.databases, scheduled, reason="withdrawn") is State.CANCELLED
    assert admin.cancel(scene.databases, filters=JobFilters(queue="q"), reason="the customer left") == 1
    assert [error(scene, job) for job in (ready, scheduled, other)] == [
        "cancelled by app.cancel", "withdrawn", "the customer left",
    ]  # fmt: skip
    assert explained(scene, ready) == "finished: cancelled by app.cancel"
    assert explained(scene, other) == "finished: cancelled: the customer left"
    for bad in ("", " ", "x" * 201, 5):
        with pytest.raises(InvalidInput, match="reason"):
            admin.cancel(scene.databases, ready, reason=bad)  # type: ignore[arg-type]


def test_a_purge_tells_who_it_was(scene: Scene) -> None:
    parked, scheduled, parent = scene.enqueue(task="u")[0], scene.enqueue(run_at=LATER)[0], scene.enqueue()[0]
    (child,) = scene.enqueue(after=[parent], on_parent_failure="run")
    sweep.park(scene.connection)
    assert admin.purge(scene.databases, JobFilters(queue="q", state="blocked"), reason="a test") == 1
    assert admin.purge(scene.databases, JobFilters(queue="q")) == 3
    assert error(scene, child) == "a test"
    assert {error(scene, job) for job in (parked, scheduled, parent)} == {"cancelled by app.purge"}


def test_one_that_was_asked_to_stop_tells_who_asked(scene: Scene) -> None:
    jobs = scene.enqueue(4)
    held = scene.claim(4)
    for job in jobs:
        assert admin.cancel(scene.databases, job, reason="wrong price") is State.RUNNING
        assert admin.cancel(scene.databases, job, reason="too late") is State.RUNNING
    scene.end(held[:1], "cancelled", error="stopped on request")
    scene.end(held[1:2], "retry", error="ValueError: no")
    scene.end(held[2:3], "release")
    scene.connection.execute("update penstock.worker set renewed_at = '2000-01-01'")
    sweep.rescue(scene.connection)
    assert [error(scene, job) for job in jobs] == ["wrong price"] * 4
    assert [each.error for each in find_job(scene.connection, jobs[1]).failures] == ["ValueError: no"]


def test_what_expired_tells_what_it_waited_for_and_what_was_discarded_why(scene: Scene) -> None:
    late, unlucky, discarded = scene.enqueue()[0], scene.enqueue()[0], scene.enqueue()[0]
    held = scene.claim(3)
    scene.connection.execute("update penstock.queue set rules = '{\"max_wait\": 1.5}'")
    scene.end(held[1:2], "expired")
    scene.end(held[2:], "discarded", error="no such customer")
    scene.end(held[:1], "release")
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '1 min'")
    assert sweep.expire(scene.connection) == 1
    assert [error(scene, job) for job in (late, unlucky)] == ["max_wait 1.5 s passed"] * 2
    assert explained(scene, late) == "finished: expired: max_wait 1.5 s passed"
    assert explained(scene, discarded) == "finished: discarded: no such customer"


@pytest.mark.parametrize(("end", "how"), [("cancelled", "was cancelled"), ("discarded", "was discarded"),
                                          ("expired", "expired"), ("failed", "failed")])  # fmt: skip
def test_a_child_names_the_parent_that_did_not_succeed(scene: Scene, end: str, how: str) -> None:
    good, bad = scene.enqueue(2)
    (child,) = scene.enqueue(after=[good, bad])
    held = scene.claim(2)
    scene.succeed(held[:1])
    scene.end(held[1:], end)
    sweep.unblock_all(scene.connection)
    assert error(scene, child) == f"parent {bad} {how}"
    control.purge(scene.connection, scene.queue.partition_ids, State.FAILED)
    sweep.unblock_all(scene.connection)
    assert scene.one("select count(*) from penstock.blocked") == 0
    assert error(scene, child) == f"parent {bad} {how}"


def test_a_reason_is_kept_as_long_as_its_job(scene: Scene) -> None:
    (job,) = scene.enqueue()
    admin.cancel(scene.databases, job, reason="withdrawn")
    rotate_slice(scene.connection)
    days = {"succeeded": 0.0, "failed": 0.0, "cancelled": 30.0, "discarded": 0.0, "expired": 0.0}
    slices = "select count(distinct slice) from penstock.finished"
    before = scene.one("select slice from penstock.finished")
    for _ in range(3):
        prune(scene.database, days)
    assert scene.one(slices) == 1
    assert scene.one("select slice from penstock.finished") != before, "it was moved"
    assert error(scene, job) == "withdrawn"


def test_for_when_a_job_was_put_off_is_told_after_its_end(scene: Scene) -> None:
    few, many = scene.enqueue(2, run_at=LATER), scene.enqueue(150, run_at=LATER)
    by_sql = scene.one("select penstock.enqueue('q', 't', run_at => %s, tenant => 'acme')", LATER)
    (child,) = scene.enqueue(after=few[:1], run_at=LATER)
    (plain,) = scene.enqueue()
    (past,) = scene.enqueue(run_at=LATER - timedelta(days=30))
    moved = LATER + timedelta(days=1)
    assert control.reschedule_job(scene.connection, few[1], moved) is State.SCHEDULED
    assert control.reschedule_job(scene.connection, plain, moved) is State.SCHEDULED
    scene.connection.execute("update penstock.scheduled set due_at = now() - interval '1 s'")
    sweep.promote(scene.connection)
    due = {few[0]: LATER, few[1]: moved, many[7]: LATER, by_sql: LATER, child: LATER, plain: moved, past: None}
    assert {job: find_job(scene.connection, job).run_at for job in due} == due
    while held := scene.claim(1000):
        scene.succeed(held)
    sweep.unblock_all(scene.connection)
    control.cancel_job(scene.connection, child)
    assert {job: find_job(scene.connection, job).run_at for job in due} == due
    assert {str(find_job(scene.connection, job).state) for job in due} == {"succeeded", "cancelled"}
    assert find_job(scene.connection, by_sql).tenant == "acme"


def test_a_retry_and_a_snooze_leave_what_was_asked_for_and_the_job_as_it_was_written(scene: Scene) -> None:
    first, second, retried = scene.enqueue(run_at=LATER)[0], scene.enqueue(run_at=LATER)[0], scene.enqueue()[0]
    scene.end(scene.claim(1), "retry", error="no", due_in=60.0)
    now = scene.one("select now()")
    due_at = find_job(scene.connection, retried).run_at
    assert due_at is not None
    assert due_at > now
    written = "select array_agg(ctid::text order by id) from penstock.job"
    before = scene.one(written)
    for job in (second, retried):
        assert control.retry_job(scene.connection, job) is State.READY
    assert control.retry_scheduled(scene.connection, [first]) == 1
    scene.end(scene.claim(1), "snooze", due_in=60.0)
    for job in (first, second, retried):
        assert control.cancel_job(scene.connection, job) is State.CANCELLED
    assert find_job(scene.connection, retried).run_at is None, "nobody asked for a time"
    assert {find_job(scene.connection, job).run_at for job in (first, second)} == {LATER}
    assert scene.one(written) == before


def test_one_that_is_rescheduled_tells_that_it_was_moved(scene: Scene) -> None:
    (job,) = scene.enqueue(run_at=LATER)
    now = scene.one("select now()")
    assert control.reschedule_job(scene.connection, job, now) is State.READY
    assert find_job(scene.connection, job).run_at == now


@pytest.mark.parametrize("order", [None, "key"])
def test_however_it_is_enqueued_it_is_told_for_when(database_url: str, order: Literal["key"] | None) -> None:
    with App(database_url) as app:
        queue = app.queue("q", order=order)

        @queue.task
        def send(n: int) -> None: ...

        ids = [
            send.options(run_at=LATER, key="k").enqueue(n=1),
            send.options(run_at=LATER, key="k", tags=["x"]).enqueue(n=1),
            *send.options(run_at=LATER, key="k").enqueue_many([{"n": 2}] * 200),
        ]
        delayed = send.options(delay=3600).enqueue(n=3)
        plain = send.enqueue(n=4)
        due_at = app.job(delayed).run_at
        assert due_at is not None
        assert app.purge(queue, state="scheduled") == 203
        assert {app.job(id_).run_at for id_ in ids} == {LATER}
        assert (app.job(delayed).run_at, app.job(plain).run_at, app.job(ids[1]).tags) == (due_at, None, ["x"])


def test_a_dead_letter_tells_its_error_and_what_to_do(scene: Scene) -> None:
    (dead,) = scene.enqueue()
    scene.end(scene.claim(), "failed", error="LookupError: no such place\n  File ...")
    assert explained(scene, dead) == "finished: failed: LookupError: no such place; retry or purge it"
    control.clear_dead(scene.connection, [dead])
    assert explained(scene, dead) == "finished: failed: LookupError: no such place"
    (long,) = scene.enqueue()
    scene.end(scene.claim(), "failed", error="ValueError: " + "x" * 5000)
    assert len(explained(scene, long)) < 400
