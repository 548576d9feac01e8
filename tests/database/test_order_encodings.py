"""Two values that say more than they seem to: the time that a paused load waits for, and the order of carried jobs."""

from __future__ import annotations

from tests.database.conftest import Scene

from penstock.storage.work.exchange import FROM_THE_START

# The highest range number: times 1,024 it is the highest bigint.
LAST_RANGE = 2**53 - 1


def test_a_paused_load_waits_for_a_time_that_nobody_can_give(scene: Scene) -> None:
    row = scene.connection.execute(
        "select penstock.paused_from() > timestamptz '9999-12-31 23:59:59.999999+00'"
    ).fetchone()
    assert row == (True,)


def test_jobs_of_a_paused_load_wait_in_their_order_and_carried_ones_before_them(scene: Scene) -> None:
    rows = scene.connection.execute(
        "select n, penstock.paused_at(pos) >= penstock.paused_from() from unnest(array["
        " penstock.carried_pos(0), penstock.carried_pos(%(last)s), 0, 1, %(last)s]) with ordinality as g(pos, n)"
        " order by penstock.paused_at(pos)",
        {"last": LAST_RANGE},
    ).fetchall()
    assert rows == [(n, True) for n in range(1, 6)]


def test_carried_jobs_stand_before_all_that_is_written_here_and_a_first_claim_meets_them(
    scene: Scene,
) -> None:
    row = scene.connection.execute("select penstock.carried_pos(0), penstock.carried_pos(%s)", [LAST_RANGE]).fetchone()
    assert row is not None
    first, last = row
    assert FROM_THE_START[0] <= first < last < 0


def test_jobs_of_a_resumed_load_are_due_at_once_in_their_order(scene: Scene) -> None:
    rows = scene.connection.execute(
        "select n, penstock.resumed_at(penstock.paused_at(pos)) < now() from unnest(array["
        " penstock.carried_pos(0), 0, 1, %(last)s]) with ordinality as g(pos, n)"
        " order by penstock.resumed_at(penstock.paused_at(pos))",
        {"last": LAST_RANGE},
    ).fetchall()
    assert rows == [(n, True) for n in range(1, 5)]
