"""Causes: what dead letters have in common, counted wherever one comes or goes, and how often attempts failed of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.database.conftest import Scene
from tests.database.error_shapes import SHAPES

from penstock import admin
from penstock.errors import InvalidInput
from penstock.model.cause import Cause, cause_id, checked_cause
from penstock.model.job_filters import JobFilters
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep


def causes(scene: Scene, queue: str | None = None, limit: int = 100) -> list[Cause]:
    return admin.causes(scene.databases, queue, limit)


def dead(scene: Scene, error: str, count: int = 1) -> list[int]:
    ids = scene.enqueue(count)
    scene.end(scene.claim(count), "failed", error=error)
    return ids


def be_earlier(scene: Scene, seconds: float) -> None:
    """Everything that failed did so that much earlier."""
    by = {"by": timedelta(seconds=seconds)}
    scene.connection.execute("update penstock.dead set failed_at = failed_at - %(by)s", by)
    scene.connection.execute("update penstock.cause_tally set at = at - %(by)s", by)
    scene.connection.execute("update penstock.cause_period set began_at = began_at - %(by)s", by)
    scene.connection.execute("update penstock.cause set failed_at = failed_at - %(by)s", by)


@pytest.mark.parametrize(("error", "shape"), SHAPES.items())
def test_the_shape_of_an_error_leaves_out_what_differs_from_job_to_job(scene: Scene, error: str, shape: str) -> None:
    assert scene.one("select penstock.error_shape(%s)", error) == shape


def test_a_shape_has_a_bound_and_no_error_is_a_shape_too(scene: Scene) -> None:
    assert len(scene.one("select penstock.error_shape(%s)", "word " * 5_000)) == 200
    assert scene.one("select penstock.error_shape(null)") == ""


def test_the_id_of_a_cause_is_that_of_its_queue_task_and_shape(scene: Scene) -> None:
    of = "select penstock.cause_of(%s, %s, %s)"
    numbers = {
        scene.one(of, queue, task, shape) for queue in (1, 2) for task in ("a", "b") for shape in ("x", "b\x1fx", "")
    }
    assert len(numbers) == 12
    # Written down, since it must be the same on every shard and in every version.
    assert cause_id(scene.one(of, 1, "charge", "ValueError: no")) == "64659baa3f309b9a"
    assert {checked_cause(cause_id(number)) for number in numbers} == numbers


@pytest.mark.parametrize("given", ["", "12", "g" * 16, "A" * 16, "0" * 17, 5, None, "\u0660" * 16])
def test_what_is_no_id_of_a_cause_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="cause"):
        checked_cause(given)


@pytest.mark.parametrize("is_folded", [False, True])
def test_dead_letters_are_told_by_cause_and_the_figures_are_those_of_the_last_commit(
    scene: Scene, is_folded: bool
) -> None:
    refused = [*dead(scene, "ValueError: order 5 is refused"), *dead(scene, "ValueError: order 6 is refused")]
    be_earlier(scene, 600)
    if is_folded:
        assert sweep.fold_causes(scene.connection) == 2
    (last,) = dead(scene, "ValueError: order 7 is refused")
    (other,) = dead(scene, "TimeoutError")
    found = causes(scene)
    assert [(each.queue, each.task, each.shape, each.dead, each.job_id) for each in found] == [
        ("q", "t", "ValueError: order … is refused", 3, last),
        ("q", "t", "TimeoutError", 1, other),
    ]
    first, newest = (find_job(scene.connection, id_) for id_ in (refused[0], last))
    assert (found[0].first_at, found[0].last_at) == (first.finished_at, newest.finished_at)
    assert (first.cause, newest.cause) == (found[0].id, found[0].id)
    assert (found[0].last_hour[-1], sum(found[0].last_hour), sum(found[0].last_day)) == (1, 3, 3)
    assert (len(found[0].last_hour), len(found[0].last_day)) == (12, 24)
    assert causes(scene, limit=1) == found[:1]
    scene.assert_conserved()


def test_only_a_dead_letter_has_a_cause(scene: Scene) -> None:
    (id_,) = scene.enqueue()
    scene.end(scene.claim(), "retry", error="ValueError: no", due_in=60.0)
    assert find_job(scene.connection, id_).cause is None
    assert causes(scene) == []


def test_each_way_out_of_the_dead_letters_is_counted(scene: Scene) -> None:
    ids = dead(scene, "ValueError: no", 5)
    (cause,) = causes(scene)
    control.retry_job(scene.connection, ids[0])
    control.clear_dead(scene.connection, ids[1:3])
    assert (causes(scene)[0].dead, causes(scene)[0].id) == (2, cause.id)
    sweep.fold_causes(scene.connection)
    scene.assert_conserved()
    chosen = JobFilters(cause=cause.id)
    assert [job.id for job in admin.jobs(scene.databases, chosen)] == ids[:2:-1]
    assert admin.retry(scene.databases, filters=chosen, preview=True) == 2
    assert admin.purge(scene.databases, JobFilters(queue="q", cause=cause.id), preview=True) == 2
    assert admin.purge(scene.databases, JobFilters(queue="q", cause=cause.id)) == 2
    assert causes(scene) == []
    scene.assert_conserved()
    sweep.fold_causes(scene.connection)
    # It is known still: attempts of the day failed of it.
    assert scene.one("select dead from penstock.cause") == 0


def test_a_group_is_retried_or_discarded_and_no_other(scene: Scene) -> None:
    refused = dead(scene, "ValueError: 1", 3)
    slow = dead(scene, "TimeoutError: 1", 2)
    by_shape = {each.shape: each.id for each in causes(scene)}
    assert admin.retry(scene.databases, filters=JobFilters(cause=by_shape["ValueError: …"])) == 3
    assert sorted(job for _, job in scene.claim()) == refused
    assert [job.id for job in admin.jobs(scene.databases, JobFilters(state="failed"))] == slow[::-1]
    assert admin.retry(scene.databases, filters=JobFilters(cause=by_shape["ValueError: …"])) == 0
    both = dead(scene, "ValueError: 1")
    chosen = JobFilters(queue="q", cause=by_shape["ValueError: …"])
    assert admin.purge(scene.databases, chosen, preview=True) == admin.purge(scene.databases, chosen) == len(both)
    assert [job.id for job in admin.jobs(scene.databases, JobFilters(state="failed"))][-2:] == slow[::-1]
    scene.declare("elsewhere")
    chosen = JobFilters(queue="elsewhere", cause=by_shape["TimeoutError: …"])
    assert admin.purge(scene.databases, chosen) == 0
    assert admin.jobs(scene.databases, chosen) == []
    assert admin.jobs(scene.databases, JobFilters(task="other", cause=by_shape["TimeoutError: …"])) == []


def test_what_goes_on_has_no_cause_to_be_chosen_by(scene: Scene) -> None:
    dead(scene, "ValueError: 1")
    (cause,) = causes(scene)
    with pytest.raises(InvalidInput, match="cancel ends what has not ended"):
        admin.cancel(scene.databases, filters=JobFilters(cause=cause.id))
    for act in (admin.jobs, lambda databases, filters: admin.retry(databases, filters=filters)):
        with pytest.raises(InvalidInput, match="only dead letters have a cause"):
            act(scene.databases, JobFilters(state="scheduled", cause=cause.id))


def test_a_worker_that_died_is_a_cause(scene: Scene) -> None:
    scene.connection.execute("insert into penstock.task values (%s, 't', 1)", [scene.queue.id])
    scene.enqueue(2)
    scene.claim(2)
    scene.connection.execute("update penstock.worker set renewed_at = now() - interval '1 h'")
    assert sweep.rescue(scene.connection).dead == 2
    (cause,) = causes(scene)
    assert (cause.shape, cause.dead) == ("WorkerDied: worker … ended or died while it held this job", 2)
    scene.assert_conserved()


def test_a_queue_is_asked_for_alone(scene: Scene) -> None:
    dead(scene, "ValueError: 1", 3)
    other = scene.declare("other")
    scene.register(queue=other)
    assert [each.queue for each in causes(scene, "q")] == ["q"]
    assert causes(scene, "other") == []
    assert admin.causes(scene.databases, None, 10, {"other"}) == []
    assert [each.dead for each in admin.causes(scene.databases, None, 10, {"q", "other"})] == [3]
    assert admin.causes(scene.databases, "q", 10, {"other"}) == []


@pytest.mark.parametrize("is_folded", [False, True])
def test_failed_attempts_are_counted_by_cause_and_time(scene: Scene, is_folded: bool) -> None:
    for error, count in (("A: 1", 4), ("B: 1", 3), ("C: 1", 2)):
        scene.enqueue(count)
        scene.end(scene.claim(count), "retry", error=error, due_in=60.0)
    be_earlier(scene, 900)
    dead(scene, "A: 2")
    if is_folded:
        sweep.fold_causes(scene.connection)
    told = admin.failures(scene.databases, "q", 60, 2)
    assert [(each.task, each.shape, each.failed[-4:]) for each in told.causes] == [
        ("t", "A: …", [4, 0, 0, 1]),
        ("t", "B: …", [3, 0, 0, 0]),
    ]
    assert told.others[-4:] == [2, 0, 0, 0]
    assert len(told.began_at) == len(told.others) == 12
    assert told.began_at[-1] <= datetime.now(UTC) < told.began_at[-1] + timedelta(minutes=6)
    assert admin.failures(scene.databases, "q", 5, 5).causes[0].failed == [1]
    assert causes(scene)[0].last_hour[-4:] == [4, 0, 0, 1]


def test_so_many_causes_of_a_time_have_rows_of_their_own(scene: Scene) -> None:
    for word in ("once", "twice", "thrice", "often"):
        dead(scene, f"Error: {word}", 1 + ("once", "twice", "thrice", "often").index(word))
    fold = "select penstock.fold_causes(2)"
    scene.one(fold)
    rows = "select array_agg(failed order by failed) from penstock.cause_period where (cause = 0) = %s"
    assert (scene.one(rows, False), scene.one(rows, True)) == ([3, 4], [3])
    # What has a row is counted there, what is new beyond the bound is not; all of them have dead letters.
    dead(scene, "Error: often")
    dead(scene, "Error: anew")
    scene.one(fold)
    assert (scene.one(rows, False), scene.one(rows, True)) == ([3, 5], [4])
    assert {each.shape.removeprefix("Error: "): each.dead for each in causes(scene)} == {
        "once": 1, "twice": 2, "thrice": 3, "often": 5, "anew": 1,
    }  # fmt: skip
    told = admin.failures(scene.databases, "q", 60, 50)
    assert ([sum(each.failed) for each in told.causes], sum(told.others)) == ([5, 3], 4)
    # Attempts of a cause beyond the bound that leave no dead letter are not written down by name.
    scene.enqueue(1)
    scene.end(scene.claim(1), "retry", error="Error: unheard", due_in=60.0)
    scene.one(fold)
    assert scene.one("select count(*) from penstock.cause where shape like '%%unheard'") == 0


def test_what_failed_more_than_a_day_ago_is_forgotten_unless_dead_letters_have_it(scene: Scene) -> None:
    stays = dead(scene, "Error: stays")
    scene.enqueue(1)
    scene.end(scene.claim(1), "retry", error="Error: goes", due_in=60.0)
    sweep.fold_causes(scene.connection)
    be_earlier(scene, 86_400 + 900)
    sweep.fold_causes(scene.connection)
    assert scene.one("select array_agg(shape) from penstock.cause") == ["Error: stays"]
    assert scene.one("select count(*) from penstock.cause_period") == 0
    (cause,) = causes(scene)
    assert (cause.job_id, sum(cause.last_day)) == (stays[0], 0)
    control.clear_dead(scene.connection, stays)
    sweep.fold_causes(scene.connection)
    assert scene.one("select count(*) from penstock.cause") == 0


def test_a_settle_without_failures_says_nothing_of_causes(scene: Scene) -> None:
    scene.enqueue(3)
    held = scene.claim(3)
    scene.succeed(held[:1])
    scene.end(held[1:2], "snooze", due_in=60.0)
    scene.end(held[2:], "discarded", error="no")
    assert scene.one("select count(*) from penstock.cause_tally") == 0


def test_causes_of_an_owned_queue_are_those_of_its_tasks(scene: Scene) -> None:
    scene.queue = scene.declare("owned", order="key")
    scene.worker = scene.register()
    scene.enqueue(1, key=b"k")
    scene.connection.execute(
        "insert into penstock.lease (token, worker_id, partition_id, priority, pos, range, low, high, attempt, rescues,"
        " is_ahead, ready_at, epoch, task) select 1, %s, partition_id, priority, pos, range, low, high, attempt, 0,"
        " false, ready_at, epoch, task from penstock.ready",
        [scene.worker],
    )
    scene.connection.execute("delete from penstock.ready")
    lease, job = scene.connection.execute("select id, range * 1024 from penstock.lease").fetchall()[0]
    scene.tokens[lease] = 1
    scene.end([(lease, job)], "failed", error="ValueError: 1")
    assert [(each.queue, each.task, each.dead) for each in causes(scene)] == [("owned", "t", 1)]
    scene.assert_conserved()
