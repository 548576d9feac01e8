"""What upkeep and people do to jobs of queues with an owner: place, map and stamp stay right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned, Row

from penstock.routing.key_hash import partition_of
from penstock.storage.catalogue.queues import announce_task
from penstock.storage.catalogue.resize import resize
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene)


def make_due(owned: Owned) -> None:
    owned.connection.execute("update penstock.scheduled set due_at = now() - interval '1 s'")


def test_a_retry_that_holds_its_key_comes_back_to_its_place_also_after_a_resize(owned: Owned) -> None:
    key = owned.key(0, 2, moves_to=(2, 3))
    first, second = owned.enqueue([key, key])
    place = owned.row(first)
    owned.end(owned.lease([first]), "retry", due_in=60)
    assert owned.row(first, "scheduled") == place == Row(0, first // 1024, 1, "")
    resize(owned.connection, "o", 3)
    before = owned.stamp(second)
    make_due(owned)
    assert sweep.promote(owned.connection) == 1
    assert owned.row(first) == place
    assert owned.stamp(first) > before
    owned.scene.assert_conserved()


def test_a_delay_takes_its_place_by_the_map_of_the_time_it_is_due(owned: Owned) -> None:
    moved, stays = owned.key(0, 2, moves_to=(2, 3)), owned.key(0, 2, moves_to=(0, 3))
    jobs = owned.enqueue([moved, stays, moved, None], tasks=["t", "u", "t", "u"], run_at=LATER)
    (ready,) = owned.enqueue([stays])
    resize(owned.connection, "o", 3)
    make_due(owned)
    assert sweep.promote(owned.connection) == 4
    rows = [owned.row(job) for job in jobs]
    assert [row.number for row in rows] == [2, 0, 2, 0]
    assert {row.epoch for row in rows} == {2}
    assert {row.task for row in rows} == {""}
    assert min(row.pos or 0 for row in rows) > ready // 1024
    assert rows[0].pos == rows[2].pos
    owned.scene.assert_conserved()


def test_a_delay_whose_map_is_still_the_queues_stays_one_range(owned: Owned) -> None:
    key = owned.key(1, 2)
    jobs = owned.enqueue([key] * 50, run_at=LATER)
    make_due(owned)
    sweep.promote(owned.connection)
    assert owned.scene.one("select count(*) from penstock.ready") == 1
    assert owned.row(jobs[0])[0::2] == (1, 1)
    assert owned.stamp(jobs[49]) > 0


def test_unkeyed_delays_leave_a_partition_that_is_no_longer_used(owned: Owned) -> None:
    (job,) = owned.enqueue([None], run_at=LATER, number=1)
    resize(owned.connection, "o", 1)
    make_due(owned)
    sweep.promote(owned.connection)
    assert owned.row(job)[0::2] == (0, 2)
    owned.scene.assert_conserved()


def test_more_delays_than_one_promotion_routes_anew_all_become_ready(owned: Owned) -> None:
    for _ in range(130):
        owned.enqueue([b"a", b"a"], run_at=LATER)
    resize(owned.connection, "o", 5)
    make_due(owned)
    assert sweep.promote(owned.connection) == 260
    assert owned.scene.one("select count(*) from penstock.scheduled") == 0
    places = owned.connection.execute(
        "select distinct p.number, r.epoch"
        " from penstock.ready as r join penstock.partition as p on p.id = r.partition_id"
    ).fetchall()
    assert places == [(partition_of(b"a", 5), 2)]
    owned.scene.assert_conserved()


def test_a_child_takes_its_place_by_the_map_of_the_time_its_parents_ended(owned: Owned) -> None:
    key = owned.key(0, 2, moves_to=(2, 3))
    (parent,) = owned.enqueue([key])
    (child,) = owned.enqueue([key], tasks=["u"], parents={0: Parents([parent])})
    resize(owned.connection, "o", 3)
    held = owned.lease([parent])
    owned.end(held, "discarded")
    owned.connection.execute("update penstock.blocked set on_parent_failure = 'run'")
    assert sweep.unblock_all(owned.connection) == 1
    row = owned.row(child)
    assert (row.number, row.epoch, row.task) == (2, 2, "")
    assert (row.pos or 0) > child // 1024
    assert owned.stamp(child) > 0
    assert find_job(owned.connection, child).task == "u"
    owned.scene.assert_conserved()


def test_a_child_with_a_later_time_waits_for_it_and_takes_its_place_then(owned: Owned) -> None:
    key = owned.key(0, 2, moves_to=(2, 3))
    (parent,) = owned.enqueue([key])
    (child,) = owned.enqueue([key], run_at=LATER, parents={0: Parents([parent], "run")})
    owned.end(owned.lease([parent]), "discarded")
    sweep.unblock_all(owned.connection)
    assert owned.row(child, "scheduled") == (0, None, None, "")
    resize(owned.connection, "o", 3)
    make_due(owned)
    sweep.promote(owned.connection)
    assert owned.row(child)[0::2] == (2, 2)
    owned.scene.assert_conserved()


def test_a_rescue_puts_jobs_back_in_place_and_counts_attempts_by_each_jobs_task(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    key, other = owned.key(0, 2), b"x"
    other = next(k for k in (b"x%d" % n for n in range(99)) if partition_of(k, 2) == 0)
    announce_task(owned.connection, owned.entry.id, "t", 1)
    announce_task(owned.connection, owned.entry.id, "u", 5)
    dead, alive, never = owned.enqueue([key, other, key], tasks=["t", "u", "t"])
    place, before = owned.row(alive), owned.stamp(alive)
    owned.lease([dead, alive])
    owned.lease([never], is_ahead=True)
    owned.kill()
    rescued = sweep.rescue(owned.connection)
    assert (rescued.jobs, rescued.dead) == (3, 1)
    assert owned.row(alive) == owned.row(never) == place
    assert owned.stamp(alive) > before
    assert owned.scene.one("select task from penstock.dead") == "t"
    assert owned.halted() == [(key, dead)]
    owned.scene.assert_conserved()


def test_a_rescue_halts_no_key_where_keys_go_on(owned: Owned) -> None:
    announce_task(owned.connection, owned.entry.id, "t", 1)
    (job,) = owned.enqueue([b"a"])
    owned.lease([job])
    owned.kill()
    assert sweep.rescue(owned.connection).dead == 1
    assert owned.halted() == []


def test_the_retry_of_the_dead_letter_that_halted_its_key_is_the_first_of_its_key(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    key = owned.key(0, 2, moves_to=(2, 3))
    jobs = owned.enqueue([key, key, key])
    owned.end(owned.lease(jobs[:1]), "failed")
    assert owned.halted() == [(key, jobs[0])]
    resize(owned.connection, "o", 3)
    owned.enqueue([key])
    assert control.retry_dead(owned.connection, jobs[:1]) == jobs[:1]
    # Beside those that wait by the earlier map, before them, not behind them in its new partition.
    assert owned.row(jobs[0]) == owned.row(jobs[1])
    assert owned.halted() == []
    assert owned.stamp(jobs[0]) > owned.stamp(jobs[1])
    owned.scene.assert_conserved()


def test_other_dead_letters_take_their_place_by_the_map_of_now(owned: Owned) -> None:
    key = owned.key(0, 2, moves_to=(2, 3))
    jobs = owned.enqueue([key, key, None])
    owned.end(owned.lease(jobs), "failed")
    resize(owned.connection, "o", 3)
    (newer,) = owned.enqueue([key])
    assert sorted(control.retry_dead(owned.connection, jobs)) == jobs
    rows = [owned.row(job) for job in jobs]
    assert [(row.number, row.epoch, row.task) for row in rows] == [(2, 2, ""), (2, 2, ""), (0, 2, "")]
    assert min(row.pos or 0 for row in rows) > newer // 1024
    owned.scene.assert_conserved()


def test_a_dead_letter_of_a_halted_key_that_did_not_halt_it_leaves_it_halted(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    first, second = owned.enqueue([b"a", b"a"])
    owned.end(owned.lease([first]), "failed")
    control.retry_dead(owned.connection, [first])
    owned.end(owned.lease([first]), "failed")
    owned.connection.execute("update penstock.halted set job_id = %s", [second])
    control.retry_dead(owned.connection, [first])
    assert owned.halted() == [(b"a", second)]


def test_a_held_retry_that_is_made_ready_now_keeps_its_place_and_a_delay_takes_one(owned: Owned) -> None:
    key = owned.key(0, 2, moves_to=(2, 3))
    held, behind = owned.enqueue([key, key])
    (delayed,) = owned.enqueue([key], run_at=LATER)
    place = owned.row(held)
    owned.end(owned.lease([held]), "retry", due_in=60)
    resize(owned.connection, "o", 3)
    assert control.reschedule_job(owned.connection, held, LATER) == "scheduled"
    assert owned.row(held, "scheduled") == place
    assert control.retry_job(owned.connection, held) == "ready"
    assert owned.row(held) == place
    assert owned.stamp(held) > owned.stamp(behind)
    assert control.retry_job(owned.connection, delayed) == "ready"
    assert owned.row(delayed)[0::2] == (2, 2)
    owned.scene.assert_conserved()


def test_a_ready_job_that_is_put_off_holds_nothing_and_takes_its_place_when_it_is_due(owned: Owned) -> None:
    key = owned.key(0, 2, moves_to=(2, 3))
    first, second = owned.enqueue([key, key])
    assert control.reschedule_job(owned.connection, first, LATER) == "scheduled"
    assert owned.row(first, "scheduled") == (0, None, 1, "")
    resize(owned.connection, "o", 3)
    make_due(owned)
    sweep.promote(owned.connection)
    row = owned.row(first)
    assert (row.number, row.epoch) == (2, 2)
    assert (row.pos or 0) > second // 1024
    owned.scene.assert_conserved()


def test_cancel_and_purge_end_owned_jobs_wherever_they_wait(owned: Owned) -> None:
    key = owned.key(0, 2)
    held, ready, other = owned.enqueue([key] * 3)
    (delayed,) = owned.enqueue([key], run_at=LATER)
    owned.end(owned.lease([held]), "retry", due_in=60)
    before = owned.stamp(other)
    for job in (held, ready, delayed):
        assert control.cancel_job(owned.connection, job) == "cancelled"
    assert owned.stamp(other) == before  # its owner has read it: it is not read again
    owned.scene.assert_conserved()


def test_owned_rows_are_never_parked(owned: Owned) -> None:
    jobs = owned.enqueue([b"a"], tasks=["nobody knows it"])
    sweep.park(owned.connection)
    assert owned.scene.one("select is_parked from penstock.ready") is False
    assert owned.row(jobs[0]).task == ""
