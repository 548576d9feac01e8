"""What needs attention is found by its facts, with its figures, and by the doctor's measure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.database.conftest import Scene
from tests.database.test_monitoring import pass_a_minute
from tests.database.test_plans import assert_cheap

from penstock import Attention, admin
from penstock.model.attention import KINDS
from penstock.policy.judgements import grows
from penstock.storage.catalogue.queues import set_paused
from penstock.storage.inspect.system_figures import MOST_PARKED
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)


def found(scene: Scene, kind: str | None = None) -> list[Attention]:
    return [each for each in admin.attention(scene.databases) if kind in (None, each.kind)]


def the(scene: Scene, kind: str) -> Attention:
    (one,) = found(scene, kind)
    return one


def age(scene: Scene, table: str, column: str, seconds: int) -> datetime:
    """Let everything of a table be as old as that; when that was."""
    statement = f"update penstock.{table} set {column} = now() - %s * interval '1 s' returning {column}"
    moment: datetime = scene.one(statement, seconds)
    return moment


def is_close(one: datetime | None, other: datetime) -> bool:
    return one is not None and abs((one - other).total_seconds()) < 60


def lose_workers(scene: Scene) -> None:
    scene.connection.execute("update penstock.worker set renewed_at = now() - interval '1 day'")


def test_nothing_needs_attention_where_all_is_well(scene: Scene) -> None:
    scene.enqueue(10)
    scene.enqueue(5, run_at=LATER)
    scene.claim(3)
    scene.declare("empty")
    assert found(scene) == []


def test_a_queue_that_nobody_serves_is_told_with_what_waits(scene: Scene) -> None:
    scene.enqueue(7)
    lose_workers(scene)
    ready_at = age(scene, "ready", "ready_at", 500)
    told = the(scene, "no-worker")
    assert (told.queue, told.count, is_close(told.since, ready_at)) == ("q", 7, True)
    assert found(scene, "unserved-task") == []


def test_a_task_that_no_worker_has_is_told_of_a_queue_that_is_served(scene: Scene) -> None:
    scene.enqueue(3, task="other")
    scene.enqueue(2, queue=(further := scene.declare("further")), task="third")
    scene.register(("t",), further)
    sweep.park(scene.connection)
    told = found(scene, "unserved-task")
    assert [(each.queue, each.task) for each in told] == [("further", "third"), ("q", "other")]
    assert all(each.since is not None for each in told)
    set_paused(scene.connection, "q", True)
    assert [each.queue for each in found(scene, "unserved-task")] == ["further"]


def test_a_job_without_a_worker_for_its_task_is_told_once_and_makes_no_backlog(scene: Scene) -> None:
    scene.enqueue(1, task="other")
    sweep.park(scene.connection)
    age(scene, "ready", "ready_at", 5_000)
    assert [each.kind for each in found(scene)] == ["unserved-task"]
    assert checks(scene) == set()
    scene.enqueue(1)
    assert [each.kind for each in found(scene)] == ["unserved-task"]
    waiting_since = age(scene, "ready", "ready_at", 1_000)
    told = the(scene, "long-wait")
    assert (told.queue, is_close(told.since, waiting_since)) == ("q", True)
    assert checks(scene) == {"backlog"}


def test_halted_keys_are_counted_by_queue(scene: Scene) -> None:
    scene.connection.execute(
        "insert into penstock.halted (queue_id, key, job_id, epoch, since)"
        " select %s, n::text::bytea, n, 1, now() - n * interval '1 minute' from generate_series(1, 12) as n",
        [scene.queue.id],
    )
    told = the(scene, "halted-keys")
    assert (told.queue, told.count) == ("q", 12)
    assert is_close(told.since, datetime.now(UTC) - timedelta(minutes=12))


def test_the_doctor_and_attention_judge_alike(scene: Scene) -> None:
    full = scene.declare("full", max_length=10)
    scene.register(("t",), full)
    scene.enqueue(8, queue=full)
    age(scene, "ready", "ready_at", 890)
    assert (found(scene), checks(scene)) == ([], set())
    scene.enqueue(1, queue=full)
    age(scene, "ready", "ready_at", 910)
    assert checks(scene) == {"max_length", "backlog"}
    nearly, long = the(scene, "nearly-full"), the(scene, "long-wait")
    assert (nearly.queue, nearly.count, nearly.detail) == ("full", 9, {"partition": "full", "max_length": 10})
    assert (long.queue, long.count) == ("full", 9)


def checks(scene: Scene) -> set[str]:
    """What the doctor finds of backlogs."""
    return {each.name for each in admin.doctor([scene.database]) if not each.ok} & {"max_length", "backlog"}


def test_a_paused_queue_is_told_where_jobs_wait(scene: Scene) -> None:
    set_paused(scene.connection, "q", True)
    assert found(scene) == []
    scene.enqueue(4)
    age(scene, "ready", "ready_at", 10_000)
    told = the(scene, "paused-queue")
    assert (told.queue, told.count, len(found(scene))) == ("q", 4, 1)


def test_stuck_jobs_are_told_by_task_with_their_ids(scene: Scene) -> None:
    jobs = scene.enqueue(2)
    scene.claim(2)
    scene.connection.execute("update penstock.worker_task set timeout_seconds = 30")
    scene.connection.execute("update penstock.lease set is_ahead = false")
    started_at = age(scene, "lease", "claimed_at", 200)
    told = the(scene, "stuck-jobs")
    assert (told.queue, told.task, told.count, is_close(told.since, started_at)) == ("q", "t", 2, True)
    assert told.detail == {"jobs": jobs, "has_timeout": True}


def test_new_dead_letters_are_counted_and_the_last_is_told(scene: Scene) -> None:
    scene.dead(2)
    failed_at = age(scene, "dead", "failed_at", 7_200)
    assert found(scene, "dead-letters") == []
    for minutes in (90, 30):
        sweep.note_minute(scene.connection)
        pass_a_minute(scene, minutes)
    scene.dead(3)
    told = the(scene, "dead-letters")
    assert (told.queue, told.count, told.detail["dead"]) == ("q", 3, 5)
    assert told.detail["last_at"] > failed_at + timedelta(hours=1)


def test_new_dead_letters_are_counted_beyond_those_that_are_looked_at(scene: Scene) -> None:
    sweep.note_minute(scene.connection)
    pass_a_minute(scene, 10)
    scene.connection.execute(
        "insert into penstock.dead (job_id, partition_id, task, attempt, cause) select n, %s, 't', 1, 0"
        " from generate_series(1, 2500) as n",
        [scene.queue.partition_ids[0]],
    )
    scene.connection.execute(
        "insert into penstock.tally (partition_id, dead, failed) values (%s, 2500, 2500)", scene.queue.partition_ids
    )
    assert the(scene, "dead-letters").count == 2_500
    # Most of them were cleared since.
    scene.connection.execute(
        "insert into penstock.tally (partition_id, dead) values (%s, -2400)", scene.queue.partition_ids
    )
    assert the(scene, "dead-letters").count == 100


def test_what_was_set_aside_is_found_among_all_that_is_parked(scene: Scene) -> None:
    scene.enqueue(300, task="unknown")
    jobs = [scene.enqueue(1, task=task)[0] for task in ("a", "unknown", "z")]
    sweep.park(scene.connection)
    scene.connection.execute("select penstock.set_aside(%s, %s)", [jobs, ["no room", "no sense", "no use"]])
    told = the(scene, "set-aside")
    assert (told.queue, told.count, sorted(told.detail["jobs"])) == ("q", 3, jobs)
    assert told.detail["reason"] in ("no room", "no sense", "no use")
    (check,) = [each for each in admin.doctor([scene.database]) if each.name == "jobs set aside"]
    assert check.found.startswith(f"3 jobs: {', '.join(map(str, jobs))}; the first: no room")


def test_what_was_set_aside_is_found_in_few_pages(scene: Scene) -> None:
    scene.connection.execute(
        "insert into penstock.ready (partition_id, priority, pos, range, low, high, task, is_parked)"
        " select %s, 5, n * 1024, n * 1024, 0, 1, 't' || n %% 3, true from generate_series(1, 30000) as n",
        [scene.queue.partition_ids[0]],
    )
    (job,) = scene.enqueue(1, task="t1")
    scene.connection.execute("select penstock.set_aside(%s, %s)", [[job], ["no sense"]])
    assert the(scene, "set-aside").detail["jobs"] == [job]
    assert_cheap(scene.connection, "jobs_set_aside", {"most_parked": MOST_PARKED}, pages=100)


def test_a_queue_grows_where_clearly_more_comes_than_goes(scene: Scene) -> None:
    scene.enqueue(10)
    sweep.note_minute(scene.connection)
    pass_a_minute(scene, 2)
    for _ in range(3):
        scene.succeed(scene.claim(10))
    scene.enqueue(400)
    told = the(scene, "growing")
    assert (told.queue, told.count) == ("q", 400)
    assert 100 < told.detail["in_per_minute"] <= 205
    assert 2 < told.detail["out_per_minute"] <= 5
    lose_workers(scene)
    assert [each.kind for each in found(scene)] == ["no-worker"]


@pytest.mark.parametrize(
    ("waiting", "in_per_minute", "out_per_minute", "answer"),
    [
        (1_200, 1_200, 400, True),
        (50, 100, 0, False),
        (1_000, 110, 100, False),
        (150, 900, 200, False),
        (5_000, 0, 0, False),
    ],
)
def test_what_grows(waiting: int, in_per_minute: float, out_per_minute: float, answer: bool) -> None:
    assert grows(waiting, in_per_minute, out_per_minute) is answer


def make_cron(scene: Scene, name: str, **columns: Any) -> None:
    scene.connection.execute(
        "insert into penstock.cron (name, expression, timezone, queue_id, task, args, next_at, is_paused, last_job)"
        " values (%s, '@daily', 'UTC', %s, 't', '{}', now() + interval '1 day', %s, %s)",
        [name, scene.queue.id, columns.get("is_paused", False), columns.get("last_job")],
    )


def test_crons_that_are_paused_or_failed_are_told(scene: Scene) -> None:
    (dead,) = scene.dead()
    (waiting,) = scene.enqueue(1)
    make_cron(scene, "well", last_job=waiting)
    make_cron(scene, "new")
    make_cron(scene, "failed", last_job=dead)
    make_cron(scene, "paused", is_paused=True)
    told = the(scene, "failed-cron")
    assert (told.name, told.queue, told.task, told.detail) == ("failed", "q", "t", {"job_id": dead})
    assert told.since is not None
    assert (the(scene, "paused-cron").name, the(scene, "paused-cron").queue) == ("paused", "q")


def test_a_duty_that_fails_is_told(scene: Scene) -> None:
    scene.connection.execute(
        "insert into penstock.trouble (duty, error, since) values ('fold', 'no room', now() - interval '5 minutes')"
    )
    told = the(scene, "failing-duty")
    assert (told.shard, told.name, told.detail) == ("1", "fold", {"error": "no room"})
    assert is_close(told.since, datetime.now(UTC) - timedelta(minutes=5))


def test_what_is_asked_for_some_queues_is_about_these_only(scene: Scene) -> None:
    other = scene.declare("other")
    scene.enqueue(3)
    scene.enqueue(1, queue=other)
    lose_workers(scene)
    scene.connection.execute("insert into penstock.trouble (duty, error, since) values ('fold', 'no room', now())")
    told = admin.attention(scene.databases, ["other"])
    assert [(each.kind, each.queue) for each in told] == [("no-worker", "other")]


def test_the_most_urgent_comes_first(scene: Scene) -> None:
    scene.dead(1)
    make_cron(scene, "paused", is_paused=True)
    other = scene.declare("other")
    scene.enqueue(5, queue=other)
    third = scene.declare("third")
    scene.enqueue(9, queue=third)
    told = [(each.kind, each.queue) for each in found(scene)]
    assert told[:2] == [("no-worker", "third"), ("no-worker", "other")]
    places = [KINDS.index(each.kind) for each in found(scene)]
    assert places == sorted(places)


def test_a_deleted_queue_needs_none(scene: Scene) -> None:
    other = scene.declare("other")
    scene.enqueue(3, queue=other)
    admin.delete_queue(scene.databases, "other", force=True)
    assert found(scene) == []
