"""What a monitoring system is told of one database is what the stats tell, and which tasks nobody has a handler for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from psycopg import sql
from tests.database.conftest import Scene

from penstock.storage.inspect.stats import read_stats
from penstock.storage.inspect.system_figures import (
    PartitionFigures,
    QueueFigures,
    SystemFigures,
    read_system_figures,
)
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)
SAME = {
    "waiting": "queue_length",
    "running": "active_count",
    **{name: name for name in ("scheduled", "blocked", "dead")},
    **{name: f"total_{name}" for name in ("enqueued", "completed", "failed", "cancelled", "discarded", "expired")},
}


def read(scene: Scene) -> SystemFigures:
    return read_system_figures(scene.connection)


def partition(scene: Scene, name: str = "q") -> PartitionFigures:
    (found,) = [each for each in read(scene).partitions if each.partition == name]
    return found


def queue(scene: Scene, name: str) -> QueueFigures:
    (found,) = [each for each in read(scene).queues if each.queue == name]
    return found


def unserved(scene: Scene) -> list[tuple[str, str, bool]]:
    return [(each.queue, each.task, each.is_announced) for each in read(scene).unserved]


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_partition_is_told_as_the_stats_tell_it(scene: Scene, is_folded: bool) -> None:
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
    found = partition(scene)
    assert {name: getattr(found, name) for name in SAME} == {
        name: getattr(stats, other) for name, other in SAME.items()
    }
    assert (found.queue, found.running_limit, found.max_length, found.rate) == ("q", None, None, None)


def test_the_oldest_is_that_of_any_priority_and_of_what_was_promoted_or_parked(scene: Scene) -> None:
    other = scene.declare("other", partitions=3)
    assert partition(scene).oldest_wait_seconds == 0
    scene.enqueue(2, priority=2)
    scene.enqueue(2, priority=7)
    scene.enqueue(1, queue=other, partition=2)
    age = "update penstock.ready set ready_at = now() - interval '1 s' * %s where partition_id = %s and priority = %s"
    scene.connection.execute(age, [100, scene.queue.partition_ids[0], 7])
    scene.connection.execute(age, [50, other.partition_ids[2], 5])
    assert 100 <= partition(scene).oldest_wait_seconds < 3_700
    assert 50 <= partition(scene, "other__p2").oldest_wait_seconds < 100
    assert partition(scene, "other").oldest_wait_seconds == partition(scene, "other__p1").oldest_wait_seconds == 0
    scene.enqueue(1, task="unknown")
    sweep.park(scene.connection)
    parked = "update penstock.ready set ready_at = now() - interval '200 s' where is_parked returning task"
    assert scene.one(parked) == "unknown"
    assert 200 <= partition(scene).oldest_wait_seconds < 3_700


def test_limits_are_told_and_how_many_have_started_by_a_rate(scene: Scene) -> None:
    limited = scene.declare("limited", partitions=2, limit=3, max_length=10, rate="5/s")
    scene.declare("whole", partitions=2, total_limit=4, total_rate="30/m")
    scene.connection.execute("update penstock.partition set permits = number + 1 where name like 'whole%'")
    scene.connection.execute(
        "insert into penstock.spent (partition_id, full_at, starts) values (%s, now(), 7), (%s, now(), 9)",
        [limited.partition_ids[1]] * 2,
    )
    found = partition(scene, "limited__p1")
    assert (found.running_limit, found.max_length, found.rate, found.rate_starts) == (3, 10, 5.0, 9)
    found = partition(scene, "whole__p1")
    assert (found.running_limit, found.rate, found.rate_starts) == (2, None, 0)
    assert (queue(scene, "whole").total_limit, queue(scene, "whole").total_rate) == (4, 0.5)
    assert (queue(scene, "limited").total_limit, queue(scene, "limited").total_rate) == (None, None)


def test_pauses_halted_keys_and_workers_are_told_of_each_queue(scene: Scene) -> None:
    other = scene.declare("other")
    scene.connection.execute("update penstock.queue set is_paused = true where name = 'other'")
    scene.connection.execute(
        "insert into penstock.halted (queue_id, key, job_id, epoch, since) values"
        " (%(q)s, 'a', 1, 1, now() - interval '1 h'), (%(q)s, 'b', 2, 1, now())",
        {"q": other.id},
    )
    scene.register(("t", "u"), queue=other)
    scene.register(queue=other)
    found = queue(scene, "other")
    assert (found.is_paused, found.halted_keys, found.workers) == (True, 2, 2)
    assert 3_600 <= found.halted_seconds < 7_200
    assert queue(scene, "q") == QueueFigures("q", False, None, None, 0, 0.0, 1)


def test_a_worker_that_is_silent_is_not_alive_and_serves_nothing(scene: Scene) -> None:
    found = read(scene)
    assert (found.workers_alive, found.workers_silent, found.concurrency) == (1, 0, 10)
    scene.enqueue(1)
    assert unserved(scene) == []
    scene.connection.execute("update penstock.worker set renewed_at = now() - interval '1 h'")
    found = read(scene)
    assert (found.workers_alive, found.workers_silent, found.concurrency) == (0, 1, 0)
    assert queue(scene, "q").workers == 0
    assert unserved(scene) == [("q", "t", False)]


def test_a_server_that_acts_for_workers_is_none_itself(scene: Scene) -> None:
    scene.enqueue(1)
    scene.connection.execute("update penstock.worker set concurrency = 0")
    found = read(scene)
    assert (found.workers_alive, found.workers_silent, queue(scene, "q").workers) == (0, 0, 0)
    assert unserved(scene) == [("q", "t", False)]


def test_a_task_that_nobody_has_is_told_from_the_head_of_each_priority_and_from_what_is_parked(scene: Scene) -> None:
    announce = "insert into penstock.task (queue_id, name, max_attempts) values (%s, %s, 5)"
    scene.connection.execute(announce, [scene.queue.id, "announced"])
    other = scene.declare("other", partitions=2)
    for task in ("announced", "made up"):
        scene.enqueue(2, task=task)
    scene.enqueue(1, task="urgent", priority=0)
    scene.enqueue(1, queue=other, partition=1, task="t")
    # Of the queue that is served only heads are seen until what is unknown was parked.
    assert unserved(scene) == [("other", "t", False), ("q", "announced", True), ("q", "urgent", False)]
    sweep.park(scene.connection)
    assert unserved(scene) == [
        ("other", "t", False),
        ("q", "announced", True),
        ("q", "made up", False),
        ("q", "urgent", False),
    ]
    scene.register(("t",), queue=other)
    assert ("other", "t", False) not in unserved(scene)


def test_a_task_of_a_queue_with_an_owner_is_looked_up_in_the_first_job_that_is_meant(scene: Scene) -> None:
    ordered = scene.declare("ordered", order="key")
    ids = scene.enqueue(3, queue=ordered, key=b"k", task="mine")
    scene.connection.execute("update penstock.ready set task = ''")
    assert unserved(scene) == [("ordered", "mine", False)]
    scene.register(("mine",), queue=ordered)
    assert unserved(scene) == []
    scene.connection.execute("update penstock.job set task = 'other' where id = %s", [ids[1]])
    assert unserved(scene) == []
    scene.connection.execute("update penstock.ready set members = penstock.span(1::smallint, 3::smallint)")
    assert unserved(scene) == [("ordered", "other", False)]


def test_what_was_set_aside_waits_for_a_person_not_for_a_worker(scene: Scene) -> None:
    scene.enqueue(1, task="broken")
    scene.connection.execute("update penstock.ready set is_parked = true, reason = 'no' where task = 'broken'")
    assert unserved(scene) == []


def test_so_many_parked_tasks_are_looked_at(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        scene.enqueue(1, task=f"made up {number}")
    sweep.park(scene.connection)
    monkeypatch.setattr("penstock.storage.inspect.system_figures.MOST_PARKED", 5)
    assert len(unserved(scene)) == 5


def test_a_deleted_queue_is_not_told(scene: Scene) -> None:
    scene.enqueue(3)
    scene.connection.execute("update penstock.queue set is_paused = true, deleted_at = now()")
    found = read(scene)
    assert (found.partitions, found.queues, found.unserved) == ([], [], [])


def test_what_upkeep_is_behind_with_is_told(scene: Scene) -> None:
    assert read(scene).overdue_seconds == 0
    scene.enqueue(1, run_at=LATER)
    assert (read(scene).overdue_seconds, read(scene).failing_duties) == (0, 0)
    scene.connection.execute("update penstock.scheduled set due_at = now() - interval '10 min'")
    scene.connection.execute("insert into penstock.trouble (duty, error, since) values ('fold', 'no', now())")
    assert 600 <= read(scene).overdue_seconds < 4_200
    assert read(scene).failing_duties == 1


def test_figures_that_nobody_folds_are_folded_once_they_are_long(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.enqueue(1)
    read(scene)
    assert scene.one("select count(*) from penstock.tally") == 1
    monkeypatch.setattr("penstock.storage.inspect.system_figures.MUCH_TALLY_BYTES", 0)
    assert partition(scene).waiting == 1
    assert scene.one("select count(*) from penstock.tally") == 0
    assert partition(scene).waiting == 1


def test_a_reader_reads_them_and_folds_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    role = sql.Identifier(f"metrics_{scene.one('select pg_backend_pid()')}")
    scene.connection.execute(sql.SQL("create role {}").format(role))
    try:
        scene.connection.execute("select penstock.grant_to(%s, 'reader')", [role._obj[0]])
        scene.enqueue(2)
        monkeypatch.setattr("penstock.storage.inspect.system_figures.MUCH_TALLY_BYTES", 0)
        scene.connection.execute(sql.SQL("set role {}").format(role))
        assert partition(scene).waiting == 2
        assert read(scene).takes_writes
        scene.connection.execute("set default_transaction_read_only = on")
        assert not read(scene).takes_writes
    finally:
        scene.connection.execute("reset role")
        scene.connection.execute("set default_transaction_read_only = off")
        scene.connection.execute("select penstock.grant_to(%s, 'none')", [role._obj[0]])
        scene.connection.execute(sql.SQL("drop role {}").format(role))
