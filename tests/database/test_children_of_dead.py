"""A child of a dead letter is cancelled for now: it comes back with its parent, or becomes history with it."""

from __future__ import annotations

import pytest
from tests.database.conftest import Scene
from tests.database.ledger import check

from penstock.model.job import Job
from penstock.model.job_state import State
from penstock.storage.connection.queries import query
from penstock.storage.inspect.jobs import find_job
from penstock.storage.inspect.selection import Selection, looks
from penstock.storage.inspect.stats import read_stats
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.upkeep.prune import prune

NO_DAYS = dict.fromkeys(("succeeded", "failed", "cancelled", "discarded", "expired"), 0.0)


def states(scene: Scene, *ids: int) -> list[str]:
    """The states of these jobs, with every job in one place and every figure right."""
    ledger = check(scene.connection)
    found = [str(find_job(scene.connection, id_).state) for id_ in ids]
    assert found == [{"dead": "failed"}.get(ledger.places[id_], ledger.places[id_]) for id_ in ids]
    return found


def family(scene: Scene) -> tuple[int, int, int]:
    """A dead letter, its child and its grandchild."""
    (parent,) = scene.dead()
    (child,) = scene.enqueue(after=[parent])
    (grandchild,) = scene.enqueue(after=[child])
    sweep.unblock_all(scene.connection)
    assert states(scene, parent, child, grandchild) == ["failed", "cancelled", "cancelled"]
    return parent, child, grandchild


def cancelled(scene: Scene) -> int:
    return read_stats(scene.connection, scene.queue).total_cancelled


def in_history(scene: Scene) -> set[int]:
    return {row[0] for row in scene.connection.execute("select job_id from penstock.finished_job where outcome = 2")}


def test_retrying_a_dead_letter_brings_back_its_children_and_theirs(scene: Scene) -> None:
    ids = family(scene)
    assert in_history(scene) == set(), "what can come back is not archived"
    for _ in range(2):
        assert control.retry_job(scene.connection, ids[0]) is State.READY
        assert states(scene, *ids) == ["ready", "blocked", "blocked"]
        scene.end(scene.claim(), "failed", error="again")
        sweep.unblock_all(scene.connection)
        assert states(scene, *ids) == ["failed", "cancelled", "cancelled"]
        assert cancelled(scene) == 2, "each counts once, however often it comes back"
    control.retry_job(scene.connection, ids[0])
    for id_ in ids:
        assert [job for _, job in scene.claim()] == [id_]
        scene.succeed([(scene.one("select id from penstock.lease"), id_)])
        sweep.unblock_all(scene.connection)
    assert states(scene, *ids) == ["succeeded"] * 3
    assert scene.one("select count(*) from penstock.dependency") == 0


def test_purging_a_dead_letter_makes_its_children_history(scene: Scene) -> None:
    ids = family(scene)
    told_at = find_job(scene.connection, ids[1]).finished_at
    assert control.purge(scene.connection, scene.queue.partition_ids, State.FAILED) == 1
    assert states(scene, *ids) == ["failed", "cancelled", "cancelled"]
    assert in_history(scene) == set(ids[1:])
    assert cancelled(scene) == 2, "counted when it was cancelled for now"
    assert find_job(scene.connection, ids[1]).finished_at == told_at
    assert control.retry_job(scene.connection, ids[0]) is State.FAILED
    assert scene.one("select count(*) from penstock.blocked") == 0


def test_a_dead_letter_whose_time_has_come_takes_its_children_along(scene: Scene) -> None:
    ids = family(scene)
    prune(scene.database, NO_DAYS)
    sweep.unblock_all(scene.connection)
    assert states(scene, *ids) == ["failed", "cancelled", "cancelled"]
    assert in_history(scene) == set(ids[1:])


def test_who_is_to_wait_stays_blocked_until_the_dead_letter_is_retried_or_purged(scene: Scene) -> None:
    retried, purged = scene.dead(2)
    runs, ends = (scene.enqueue(after=[id_], on_parent_failure="wait")[0] for id_ in (retried, purged))
    (of_runs,) = scene.enqueue(after=[runs])
    sweep.unblock_all(scene.connection)
    assert states(scene, runs, ends, of_runs) == ["blocked"] * 3
    control.retry_job(scene.connection, retried)
    scene.succeed(scene.claim())
    control.purge(scene.connection, scene.queue.partition_ids, State.FAILED)
    sweep.unblock_all(scene.connection)
    assert states(scene, runs, ends, of_runs) == ["ready", "cancelled", "blocked"]


@pytest.mark.parametrize("end", ["cancelled", "discarded", "expired"])
@pytest.mark.parametrize("on_parent_failure", ["cancel", "wait"])
def test_a_parent_that_cannot_come_back_cancels_for_good(scene: Scene, end: str, on_parent_failure: str) -> None:
    (parent,) = scene.enqueue()
    (child,) = scene.enqueue(after=[parent], on_parent_failure=on_parent_failure)
    scene.end(scene.claim(), end)
    sweep.unblock_all(scene.connection)
    assert states(scene, child) == ["cancelled"]
    assert in_history(scene) >= {child}


def test_of_two_parents_the_one_that_is_lost_decides_and_a_dead_one_only_for_now(scene: Scene) -> None:
    (broken,) = scene.dead()
    waits, goes = scene.enqueue(2)
    of_both, other = (scene.enqueue(after=[broken, parent])[0] for parent in (waits, goes))
    sweep.unblock_all(scene.connection)
    assert states(scene, of_both, other) == ["cancelled", "cancelled"]
    assert in_history(scene) == set()
    control.cancel_job(scene.connection, waits)
    assert in_history(scene) == {waits, of_both}
    scene.succeed(scene.claim())
    control.retry_job(scene.connection, broken)
    assert states(scene, of_both, other) == ["cancelled", "blocked"]
    scene.succeed(scene.claim())
    sweep.unblock_all(scene.connection)
    assert states(scene, other) == ["ready"]


def test_one_that_was_enqueued_by_sql_waits_too(scene: Scene) -> None:
    (parent,) = scene.dead()
    enqueue = "select penstock.enqueue('q', 't', after => array[%s::bigint], on_parent_failure => 'wait')"
    child = scene.one(enqueue, parent)
    sweep.unblock_all(scene.connection)
    assert states(scene, child) == ["blocked"]


def test_one_that_runs_whatever_happens_does_not_wait_for_a_dead_letter(scene: Scene) -> None:
    (parent, child, _) = family(scene)
    runs, of_child = (scene.enqueue(after=[id_], on_parent_failure="run")[0] for id_ in (parent, child))
    sweep.unblock_all(scene.connection)
    assert states(scene, runs, of_child) == ["ready", "ready"]


def test_cancelled_by_hand_it_does_not_come_back(scene: Scene) -> None:
    (parent, child, grandchild) = family(scene)
    assert control.cancel_job(scene.connection, child) is State.CANCELLED
    assert in_history(scene) == {child, grandchild}
    assert cancelled(scene) == 2
    control.retry_job(scene.connection, parent)
    assert states(scene, parent, child, grandchild) == ["ready", "cancelled", "cancelled"]


def test_what_is_cancelled_for_now_is_neither_retried_rescheduled_nor_purged(scene: Scene) -> None:
    (parent, child, grandchild) = family(scene)
    job: Job = find_job(scene.connection, child)
    assert (job.error, job.attempt, job.run_at) == (f"parent {parent} failed", 0, None)
    assert control.retry_job(scene.connection, child) is State.CANCELLED
    assert control.reschedule_job(scene.connection, child, job.enqueued_at) is State.CANCELLED
    assert control.purge(scene.connection, scene.queue.partition_ids, State.BLOCKED) == 0
    assert in_history(scene) == set()
    assert states(scene, child, grandchild) == ["cancelled", "cancelled"]


@pytest.mark.parametrize("has_queue", [True, False])
def test_it_is_found_as_cancelled_and_not_as_blocked(scene: Scene, has_queue: bool) -> None:
    (_, child, grandchild) = family(scene)
    (waits,) = scene.enqueue(after=scene.enqueue())
    partitions = scene.queue.partition_ids if has_queue else None

    def found(state: State) -> list[int]:
        selection = Selection(partitions=partitions, state=state)
        return [id_ for found in looks(scene.connection, selection) for id_ in found.ids]

    assert found(State.CANCELLED) == [grandchild, child]
    assert found(State.BLOCKED) == [waits]


def test_history_in_bulk_tells_it_as_cancelled_and_no_slice_has_it(scene: Scene) -> None:
    (parent, child, grandchild) = family(scene)
    every = "0, 1::bigint << 50"
    history = (
        f"select id, outcome, attempt, error from penstock.history_between({every}, %s, '{{}}', '{{}}') order by id"
    )
    assert scene.connection.execute(history, [None]).fetchall() == [
        (parent, "failed", 1, "ValueError: no"),
        (child, "cancelled", 0, f"parent {parent} failed"),
        (grandchild, "cancelled", 0, f"parent {child} was cancelled"),
    ]
    assert scene.connection.execute(history, [1]).fetchall() == []
    assert scene.connection.execute(f"select id from penstock.waiting_between({every})").fetchall() == []
    control.retry_job(scene.connection, parent)
    assert scene.connection.execute(history, [None]).fetchall() == []


def test_whoever_retries_and_dies_before_the_children_are_told_leaves_that_to_upkeep(scene: Scene) -> None:
    ids = family(scene)
    scene.connection.execute(query("retry_dead"), {"ids": f"{{{ids[0]}}}"})
    assert states(scene, *ids) == ["ready", "cancelled", "cancelled"]
    sweep.unblock_all(scene.connection)
    assert states(scene, *ids) == ["ready", "blocked", "blocked"]


def test_of_very_many_children_a_retry_looks_at_some_and_upkeep_at_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "CHILDREN", 10)
    monkeypatch.setattr(control, "MOST_CHILDREN", 20)
    (parent,) = scene.dead()
    children = scene.enqueue(50, after=[parent])
    sweep.unblock_all(scene.connection)
    control.retry_job(scene.connection, parent)
    assert check(scene.connection).of("blocked") < set(children)
    assert len(check(scene.connection).of("blocked")) == 20
    sweep.unblock_all(scene.connection)
    assert check(scene.connection).of("blocked") == set(children)


def test_a_retry_that_meets_a_look_at_the_children_is_seen_at_last(scene: Scene) -> None:
    (parent,) = scene.dead()
    (child,) = scene.enqueue(after=[parent])
    looker = scene.connect()
    with looker.transaction():
        sweep.unblock(looker, [child])
        # The child's row is locked: whoever retries passes it over.
        control.retry_job(scene.connection, parent)
    assert states(scene, parent, child) == ["ready", "cancelled"]
    sweep.unblock_all(scene.connection)
    assert states(scene, parent, child) == ["ready", "blocked"]


def test_the_idempotency_key_of_a_child_that_may_come_back_is_kept(scene: Scene) -> None:
    (parent,) = scene.dead()
    (child,) = scene.enqueue(after=[parent], idempotency_key="once")
    sweep.unblock_all(scene.connection)
    assert scene.enqueue(idempotency_key="once") == [child]
