"""Watching in SQL alone: views of what is, the short history of what was, and what the doctor warns of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.database.conftest import Scene

from penstock import admin
from penstock.model.check import Check
from penstock.storage.catalogue.queues import find_queue, set_limits
from penstock.storage.inspect.stats import read_stats
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)
SAME = {
    "waiting": "queue_length",
    "running": "active_count",
    **{name: name for name in ("scheduled", "blocked", "dead", "total_enqueued", "total_completed", "total_failed")},
    **{name: name for name in ("total_cancelled", "total_discarded", "total_expired")},
}


def row(scene: Scene, view: str, columns: str, where: str = "true") -> tuple[Any, ...]:
    found = scene.connection.execute(f"select {columns} from penstock.{view} where {where}".encode()).fetchall()
    assert len(found) == 1, found
    return tuple(found[0])


def pass_a_minute(scene: Scene, count: int = 1) -> None:
    """Everything that was noted is so many minutes older."""
    scene.connection.execute(
        "update penstock.minute set minute = minute - %(n)s * interval '1 minute',"
        " noted_at = noted_at - %(n)s * interval '1 minute', previous = previous - %(n)s * interval '1 minute'",
        {"n": count},
    )


@pytest.mark.parametrize("is_folded", [False, True])
@pytest.mark.parametrize("view", ["queue_stats", "partition_stats"])
def test_the_views_tell_what_the_stats_tell(scene: Scene, view: str, is_folded: bool) -> None:
    scene.enqueue(4)
    scene.succeed(scene.claim(4))
    scene.dead(2)
    first = scene.enqueue(10)
    scene.claim(3)
    scene.enqueue(5, run_at=LATER)
    scene.enqueue(1, after=first[:1])
    if is_folded:
        sweep.fold(scene.connection)
    stats = read_stats(scene.connection, scene.queue)
    assert row(scene, view, ", ".join(SAME)) == tuple(getattr(stats, name) for name in SAME.values())
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '5 min' where pos = range")
    (seconds,) = row(scene, view, "oldest_wait_seconds")
    assert 300 <= seconds < 3_900


def test_limits_and_pauses_are_in_the_views(scene: Scene) -> None:
    scene.declare("limited", partitions=3, limit=2, max_length=10)
    where = "queue = 'limited'"
    assert row(scene, "queue_stats", "partitions, running_limit, max_length, is_paused", where) == (3, 6, 30, False)
    scene.connection.execute("update penstock.queue set is_paused = true where name = 'limited'")
    assert row(scene, "queue_stats", "is_paused, waiting, oldest_wait_seconds", where) == (True, 0, None)


def test_a_total_limit_is_in_the_views_and_what_may_run_in_each_partition_by_its_permits(scene: Scene) -> None:
    queue = scene.declare("whole", partitions=2, total_limit=4)
    scene.connection.execute("update penstock.partition set permits = number + 1 where queue_id = %s", [queue.id])
    where = "queue = 'whole'"
    assert row(scene, "queue_stats", "running_limit, total_limit", where) == (4, 4)
    limits = "array_agg(running_limit order by partition_id)"
    assert row(scene, "partition_stats", limits, where) == ([1, 2],)
    set_limits(scene.connection, "whole", {"limit": 1})
    assert row(scene, "queue_stats", "running_limit, total_limit", where) == (2, 4)
    assert row(scene, "partition_stats", limits, where) == ([1, 1],)


def test_a_minute_is_noted_once_and_the_counts_are_those_since_the_one_before(scene: Scene) -> None:
    scene.enqueue(3)
    assert 0 < sweep.note_minute(scene.connection) <= 60
    scene.enqueue(1)
    sweep.note_minute(scene.connection)
    history = "waiting, enqueued, completed, seconds"
    # The minute may have turned in between; then it was noted again, and this says as much.
    assert scene.one("select count(*) = count(distinct minute) from penstock.stats_history")
    pass_a_minute(scene, 3)
    scene.succeed(scene.claim(2))
    sweep.note_minute(scene.connection)
    waiting, enqueued, completed, seconds = row(
        scene, "stats_history", history, "minute = (select max(minute) from penstock.minute)"
    )
    assert (waiting, completed) == (2, 2)
    assert enqueued in (0, 1)
    assert seconds >= 170
    assert scene.one("select sum(waiting) from penstock.stats_history where enqueued is null") == 3


def test_a_partition_that_is_new_began_at_nothing(scene: Scene) -> None:
    sweep.note_minute(scene.connection)
    pass_a_minute(scene)
    other = scene.declare("other")
    scene.enqueue(7, queue=other)
    sweep.note_minute(scene.connection)
    newest = "queue = 'other' and minute = (select max(minute) from penstock.minute)"
    assert row(scene, "stats_history", "waiting, enqueued", newest) == (7, 7)


def test_rates_are_those_of_the_last_minutes(scene: Scene) -> None:
    assert row(scene, "queue_stats", "in_per_second, out_per_second") == (None, None)
    sweep.note_minute(scene.connection)
    pass_a_minute(scene, 4)
    scene.enqueue(600)
    scene.succeed(scene.claim(300))
    into, out = row(scene, "queue_stats", "in_per_second, out_per_second")
    assert 0 < into <= 600 / 180
    assert into == pytest.approx(2 * out)


def test_history_is_kept_for_a_day(scene: Scene) -> None:
    sweep.note_minute(scene.connection)
    pass_a_minute(scene, 24 * 60 + 2)
    sweep.note_minute(scene.connection)
    assert scene.one("select count(*) from penstock.minute where minute < now() - interval '1 day'") == 0
    assert scene.one("select count(*) from penstock.minute") == 1


def checked(scene: Scene, name: str) -> Check:
    return next(check for check in admin.doctor([scene.database]) if check.name == name)


def test_the_doctor_warns_of_jobs_that_have_waited_long(scene: Scene) -> None:
    scene.enqueue(3)
    assert checked(scene, "backlog").ok
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '1 hour'")
    found = checked(scene, "backlog")
    assert not found.ok
    assert found.found.startswith("q: 3 jobs, the oldest ready for ")
    assert "penstock explain" in found.advice
    scene.connection.execute("update penstock.queue set is_paused = true")
    assert checked(scene, "backlog").ok


def test_the_doctor_warns_of_a_queue_that_is_nearly_full(scene: Scene) -> None:
    full = scene.declare("full", max_length=10)
    scene.enqueue(8, queue=full)
    assert checked(scene, "max_length").ok
    scene.enqueue(1, queue=full)
    assert (checked(scene, "max_length").ok, checked(scene, "max_length").found) == (False, "full: 9 of 10")


def test_the_doctor_warns_of_halted_keys(scene: Scene) -> None:
    assert checked(scene, "halted keys").ok
    scene.connection.execute(
        "insert into penstock.halted (queue_id, key, job_id, epoch) values (%s, 'k', 1, 1)",
        [find_queue(scene.connection, "q").id],
    )
    found = checked(scene, "halted keys")
    assert (found.ok, found.found.startswith("q: 1 keys")) == (False, True)


@pytest.mark.parametrize(
    ("timeout", "minutes", "is_stuck"), [("30", 1.5, False), ("30", 3, True), ("null", 600, False)]
)
def test_the_doctor_warns_of_jobs_that_run_far_beyond_their_timeout(
    scene: Scene, timeout: str, minutes: float, is_stuck: bool
) -> None:
    (job,) = scene.enqueue(1)
    scene.claim(1)
    scene.connection.execute(f"update penstock.worker_task set timeout_seconds = {timeout}".encode())
    scene.connection.execute(
        "update penstock.lease set is_ahead = false, claimed_at = now() - %s * interval '1 minute'", [minutes]
    )
    found = checked(scene, "stuck jobs")
    assert found.ok is not is_stuck
    assert (f" {job} for " in found.found) is is_stuck


def test_the_doctor_warns_of_jobs_without_a_timeout_that_run_for_an_hour(scene: Scene) -> None:
    scene.enqueue(1)
    scene.claim(1)
    scene.connection.execute("update penstock.worker_task set timeout_seconds = 'infinity'")
    scene.connection.execute("update penstock.lease set is_ahead = false, claimed_at = now() - interval '59 min'")
    assert checked(scene, "stuck jobs").ok
    scene.connection.execute("update penstock.lease set claimed_at = now() - interval '61 min'")
    found = checked(scene, "stuck jobs")
    assert (found.ok, "without a timeout" in found.found) == (False, True)
