"""Cancel, retry, reschedule and purge, also while jobs move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.database.conftest import Scene

from penstock.errors import NotFound
from penstock.model.job_state import State
from penstock.storage import Connection
from penstock.storage.inspect.jobs import find_job
from penstock.storage.inspect.stats import read_stats
from penstock.storage.repair import control
from penstock.storage.upkeep.sweep import promote

LATER = datetime.now(UTC) + timedelta(days=1)


def state_of(scene: Scene, job_id: int) -> State:
    return find_job(scene.connection, job_id).state


def run_beside(act: Callable[[Connection], Any], connection: Connection) -> Callable[[], Any]:
    """Start an act in a thread; the returned function waits for it and gives what it returned."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(act(connection)))
    thread.start()

    def wait() -> Any:
        thread.join()
        return result[0]

    return wait


def wait_until_blocked(scene: Scene, connection: Connection) -> None:
    """Until that connection waits for a lock."""
    while not scene.one(
        "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", connection.info.backend_pid
    ):
        pass


def test_a_waiting_job_is_cancelled_in_every_state(scene: Scene) -> None:
    ready, other = scene.enqueue(2)
    (scheduled,) = scene.enqueue(run_at=LATER)
    (blocked,) = scene.enqueue(after=[other])
    for id_ in (ready, scheduled, blocked):
        assert control.cancel_job(scene.connection, id_) == "cancelled"
        assert state_of(scene, id_) == "cancelled"
        assert find_job(scene.connection, id_).attempt == 0
        assert control.cancel_job(scene.connection, id_) == "cancelled"
    assert scene.one("select count(*) from penstock.dependency") == 0
    assert [job for _, job in scene.claim()] == [other]
    scene.assert_conserved()


def test_a_running_job_is_asked_to_stop_and_an_ended_one_left_alone(scene: Scene) -> None:
    (id_,) = scene.enqueue()
    held = scene.claim()
    assert control.cancel_job(scene.connection, id_) == "running"
    assert scene.one("select job_id from penstock.cancellation") == id_
    scene.succeed(held)
    assert control.cancel_job(scene.connection, id_) == "succeeded"
    with pytest.raises(NotFound):
        control.cancel_job(scene.connection, 99)
    scene.assert_conserved()


def test_cancelling_many_takes_ranges_apart_once(scene: Scene) -> None:
    ids = [*scene.enqueue(1000), *scene.enqueue(500, run_at=LATER)]
    running = [job for _, job in scene.claim(10)]
    done = control.cancel_jobs(scene.connection, ids[::2])
    assert set(done.asked) == set(running) & set(ids[::2])
    assert set(done.ended) == set(ids[::2]) - set(running)
    assert {job for _, job in scene.claim(2000)} == set(ids[1:1000:2]) - set(running)
    scene.assert_conserved()


def test_a_cancelled_parent_tells_its_children_and_grandchildren(scene: Scene) -> None:
    (parent,) = scene.enqueue()
    (child,) = scene.enqueue(after=[parent])
    (runs_anyway,) = scene.enqueue(after=[parent], on_parent_failure="run")
    (grandchild,) = scene.enqueue(after=[child])
    control.cancel_job(scene.connection, parent)
    assert [state_of(scene, id_) for id_ in (child, runs_anyway, grandchild)] == ["cancelled", "ready", "cancelled"]
    scene.assert_conserved()


def test_a_cancel_that_meets_a_claim_asks_the_worker(scene: Scene) -> None:
    ids = scene.enqueue(10)
    claimer, canceller = scene.connect(), scene.connect()
    with claimer.transaction():
        scene.claim(5, connection=claimer)
        wait = run_beside(lambda connection: control.cancel_jobs(connection, [ids[0], ids[7]]), canceller)
        wait_until_blocked(scene, canceller)
    done = wait()
    assert (done.ended, done.asked) == ([ids[7]], [ids[0]])
    assert {job for _, job in scene.claim()} == set(ids[5:]) - {ids[7]}
    scene.assert_conserved()


def test_a_cancel_that_meets_a_promotion_finds_the_job_ready(scene: Scene) -> None:
    (id_,) = scene.enqueue(run_at=LATER)
    scene.connection.execute("update penstock.scheduled set due_at = now()")
    promoter, canceller = scene.connect(), scene.connect()
    with promoter.transaction():
        promoter.execute("select penstock.promote(10)")
        wait = run_beside(lambda connection: control.cancel_job(connection, id_), canceller)
        wait_until_blocked(scene, canceller)
    assert wait() == "cancelled"
    scene.assert_conserved()


def test_a_cancel_does_not_wait_for_a_handler_that_settles_in_its_own_transaction(scene: Scene) -> None:
    (id_,) = scene.enqueue()
    held = scene.claim()
    handler = scene.connect()
    with handler.transaction():
        scene.succeed(held, connection=handler)
        scene.connection.execute("set lock_timeout = '1ms'")
        assert control.cancel_job(scene.connection, id_) == "running"
    assert state_of(scene, id_) == "succeeded"
    scene.assert_conserved()


def test_two_cancels_of_one_job_end_it_once(scene: Scene) -> None:
    ids = scene.enqueue(3)
    one, two = scene.connect(), scene.connect()
    with one.transaction():
        one.execute("select cancelled from penstock.cancel_in_range(%s, penstock.single(0))", (ids[0] // 1024,))
        wait = run_beside(lambda connection: control.cancel_jobs(connection, ids[:2]), two)
        wait_until_blocked(scene, two)
    assert wait().ended == [ids[1]]
    scene.assert_conserved()


def test_a_dead_letter_runs_again_and_keeps_its_failures(scene: Scene) -> None:
    (id_,) = scene.dead()
    assert control.retry_job(scene.connection, id_) == "ready"
    assert control.retry_job(scene.connection, id_) == "ready"
    held = scene.claim()
    assert [job for _, job in held] == [id_]
    scene.succeed(held)
    job = find_job(scene.connection, id_)
    assert (job.state, job.attempt, len(job.failures)) == ("succeeded", 2, 1)
    scene.assert_conserved()


def test_two_retries_of_one_dead_letter_make_it_ready_once(scene: Scene) -> None:
    ids = scene.dead(3)
    one, two = scene.connect(), scene.connect()
    with one.transaction():
        assert control.retry_dead(one, ids[:2]) == ids[:2]
        wait = run_beside(lambda connection: control.retry_dead(connection, ids), two)
        wait_until_blocked(scene, two)
    assert wait() == ids[2:]
    assert sorted(job for _, job in scene.claim()) == ids
    scene.assert_conserved()


def test_a_scheduled_job_can_be_run_now_or_moved_and_a_ready_one_put_off(scene: Scene) -> None:
    first, second = scene.enqueue(2, run_at=LATER)
    assert control.retry_job(scene.connection, first) == "ready"
    assert control.reschedule_job(scene.connection, second, LATER + timedelta(days=1)) == "scheduled"
    assert find_job(scene.connection, second).run_at == LATER + timedelta(days=1)
    assert control.reschedule_job(scene.connection, first, LATER) == "scheduled"
    assert promote(scene.connection) == 0
    (child,) = scene.enqueue(after=[first])
    assert control.reschedule_job(scene.connection, child, LATER) == "blocked"
    assert control.reschedule_job(scene.connection, second, datetime(2000, 1, 1, tzinfo=UTC)) == "ready"
    scene.assert_conserved()
    scene.succeed(scene.claim())
    assert control.reschedule_job(scene.connection, second, LATER) == "succeeded"


def test_a_retry_of_a_ready_job_leaves_it_in_its_place(scene: Scene) -> None:
    first, second = scene.enqueue()[0], scene.enqueue()[0]
    assert control.retry_job(scene.connection, first) == "ready"
    assert control.reschedule_job(scene.connection, first, datetime(2000, 1, 1, tzinfo=UTC)) == "ready"
    assert [job for _, job in scene.claim(1)] == [first]
    assert control.retry_job(scene.connection, first) == "running"
    assert state_of(scene, second) == "ready"


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.BLOCKED])
def test_a_purge_ends_every_job_of_a_state_and_no_other(scene: Scene, state: State) -> None:
    parents = scene.enqueue(3000)
    scene.enqueue(5, queue=scene.declare("other"))
    scene.end(scene.claim(2), "retry", error="x")
    scene.enqueue(1500, run_at=LATER)
    scene.enqueue(20, after=parents[2990:2991])
    (grandchild,) = scene.enqueue(after=[scene.enqueue(after=parents[2990:2991])[0]])
    scene.enqueue(4, task="unknown")
    scene.connection.execute("update penstock.ready set is_parked = true where task = 'unknown'")
    running = scene.claim(10)
    before = read_stats(scene.connection, scene.queue)
    expected = {State.READY: before.queue_length, State.SCHEDULED: before.scheduled, State.BLOCKED: before.blocked}
    assert control.purge(scene.connection, scene.queue.partition_ids, state) == expected[state]
    places = scene.places()
    of_other = 5 if state is State.READY else 0
    assert sum(found == [state] for found in places.values()) == of_other
    assert sum(found == ["running"] for found in places.values()) == len(running)
    if state is not State.SCHEDULED:
        assert places[grandchild] == ["cancelled"]
    scene.assert_conserved()


def test_a_purge_of_dead_letters_keeps_their_history(scene: Scene) -> None:
    ids = scene.dead(20)
    before = find_job(scene.connection, ids[3])
    assert control.purge(scene.connection, scene.queue.partition_ids, State.FAILED) == 20
    after = find_job(scene.connection, ids[3])
    assert (after.state, after.attempt, after.error, after.failures) == (
        "failed",
        1,
        "ValueError: no",
        before.failures,
    )
    assert after.finished_at == before.finished_at
    assert control.retry_job(scene.connection, ids[3]) == "failed"
    stats = read_stats(scene.connection, scene.queue)
    assert (stats.dead, stats.total_failed) == (0, 20)
    scene.assert_conserved()


def test_a_purge_meets_what_was_carried_here_and_stands_before_all_others(scene: Scene) -> None:
    scene.enqueue(3)
    scene.one("update penstock.ready set pos = penstock.carried_pos(pos) returning 1")
    assert control.purge(scene.connection, scene.queue.partition_ids, State.READY) == 3
    scene.assert_conserved()
