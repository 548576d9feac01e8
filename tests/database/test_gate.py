"""The gate: a limit or a rate of a partition, kept by the claim itself, however many workers claim at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from psycopg import sql
from tests.database.conftest import TOKEN, Scene
from tests.database.stepwise import Actor

from penstock.storage import Connection
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.arrays import array_text
from penstock.storage.upkeep import sweep
from penstock.storage.work.exchange import ClaimWish, Turn, exchange
from penstock.storage.work.settle import End
from penstock.storage.work.workers import fall_asleep


def use(scene: Scene, **options: Any) -> QueueEntry:
    """A scene whose queue has these options."""
    scene.queue = scene.declare("gated", **options)
    scene.worker = scene.register()
    return scene.queue


def jobs(claimed: Sequence[tuple[int, int]]) -> list[int]:
    return [job for _, job in claimed]


def wait_seconds(scene: Scene, slots: int = 10, partitions: Sequence[int] | None = None) -> float | None:
    """Claim; how long until a rate lets more start, or None where nothing is said of it."""
    ids = list(partitions or scene.queue.partition_ids)
    turn = exchange(scene.connection, scene.worker, "w", [], [], ClaimWish(ids, ids, slots, 0))
    return turn.opens_in


def test_a_limit_gives_out_what_is_free_and_nothing_ahead(scene: Scene) -> None:
    use(scene, limit=3)
    ids = scene.enqueue(10)
    first = scene.claim(2, 100)
    assert jobs(first) == ids[:2]
    assert jobs(scene.claim(10, 100)) == ids[2:3]
    assert scene.claim(10, 100) == []
    assert scene.one("select bool_or(is_ahead) from penstock.lease") is False
    scene.succeed(first[:1])
    assert jobs(scene.claim(10)) == ids[3:4]
    scene.assert_conserved()


def test_a_limit_counts_the_jobs_of_every_worker_and_of_split_leases(scene: Scene) -> None:
    use(scene, limit=4)
    ids = scene.enqueue(10)
    held = scene.claim(3)
    scene.one(
        "select penstock.split_lease_if_leased(%s, %s, %s, %s, 1::smallint)",
        scene.worker,
        held[0][0],
        TOKEN,
        ids[0] // 1024,
    )
    assert jobs(scene.claim(10, worker=scene.register())) == ids[3:4]
    assert scene.claim(10, worker=scene.register()) == []


def test_a_limit_is_each_partition_s_own(scene: Scene) -> None:
    queue = use(scene, limit=2, partitions=3)
    for partition in range(3):
        scene.enqueue(5, partition=partition)
    scene.claim(100)
    rows = scene.connection.execute("select partition_id, sum(high - low) from penstock.lease group by 1 order by 1")
    assert rows.fetchall() == [(id_, 2) for id_ in queue.partition_ids]


def test_attune_a_to_e_start_in_order_two_at_a_time(scene: Scene) -> None:
    use(scene, limit=2)
    a, b, c, d, e = (scene.enqueue()[0] for _ in range(5))
    workers = [scene.register() for _ in range(3)]
    held = {job: lease for worker in workers for lease, job in scene.claim(1, worker=worker)}
    assert list(held) == [a, b]
    for ended, started in ((b, c), (a, d), (c, e)):
        scene.connection.execute("update penstock.lease set worker_id = %s", [scene.worker])
        scene.succeed([(held[ended], ended)])
        claimed = scene.claim(10)
        assert jobs(claimed) == [started]
        held[started] = claimed[0][0]


def test_a_waiting_job_that_is_cancelled_keeps_the_others_order(scene: Scene) -> None:
    use(scene, limit=1)
    a, b, c, d = (scene.enqueue()[0] for _ in range(4))
    held = scene.claim(10)
    assert jobs(held) == [a]
    scene.connection.execute("select penstock.cancel_in_range(%s, penstock.span(0, 1))", [b // 1024])
    scene.succeed(held)
    held = scene.claim(10)
    assert jobs(held) == [c]
    scene.succeed(held)
    assert jobs(scene.claim(10)) == [d]


def test_priorities_count_behind_a_limit_as_ever(scene: Scene) -> None:
    use(scene, limit=1)
    low, high = scene.enqueue(priority=9)[0], scene.enqueue(priority=0)[0]
    held = scene.claim()
    assert jobs(held) == [high]
    scene.succeed(held)
    assert jobs(scene.claim()) == [low]


def test_what_was_rescued_is_counted_again_and_not_twice(scene: Scene) -> None:
    use(scene, limit=2)
    ids = scene.enqueue(5)
    assert jobs(scene.claim(10)) == ids[:2]
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity'")
    sweep.rescue(scene.connection)
    scene.worker = scene.register()
    assert jobs(scene.claim(10)) == ids[:2]
    assert scene.claim(10) == []


def test_a_lowered_limit_lets_the_running_end_and_starts_none(scene: Scene) -> None:
    use(scene, limit=3)
    ids = scene.enqueue(10)
    held = scene.claim(10)
    catalogue.set_limits(scene.connection, "gated", {"limit": 1})
    for ended in range(2):
        scene.succeed(held[ended : ended + 1])
        assert scene.claim(10) == []
    scene.succeed(held[2:])
    assert jobs(scene.claim(10)) == ids[3:4]


def test_a_raised_limit_gives_out_at_once_and_none_gives_out_all(scene: Scene) -> None:
    use(scene, limit=1)
    ids = scene.enqueue(10)
    scene.claim(10)
    catalogue.set_limits(scene.connection, "gated", {"limit": 3})
    assert jobs(scene.claim(10)) == ids[1:3]
    catalogue.set_limits(scene.connection, "gated", {"limit": None})
    assert jobs(scene.claim(3, 100)) == ids[3:]


def test_of_an_owned_queue_nothing_is_claimed(scene: Scene) -> None:
    use(scene, order="key", limit=2)
    scene.enqueue(5)
    assert scene.claim(10) == []


def test_no_plain_partition_waits_behind_a_closed_gate_nor_the_other_way(scene: Scene) -> None:
    gated = use(scene, limit=1)
    plain = scene.declare("plain")
    scene.worker = scene.register()
    scene.connection.execute(
        "insert into penstock.worker_task (worker_id, queue_id, task) values (%s, %s, 't')", [scene.worker, plain.id]
    )
    scene.enqueue(5, queue=gated)
    scene.enqueue(5, queue=plain)
    both = [*gated.partition_ids, *plain.partition_ids]

    def claim(partitions: Sequence[int], slots: int, ahead: int) -> list[tuple[int, bool]]:
        wish = ClaimWish(partitions, partitions, slots, ahead)
        turn = exchange(scene.connection, scene.worker, "w", [], [], wish)
        return [(lease.partition_id, lease.is_ahead) for lease in turn.leases for _ in lease.positions]

    # Its slots are busy with the plain queue's jobs: the gate gives when it is first in turn, and only then.
    assert claim([both[1], both[0]], 0, 2) == [(both[1], True)] * 2
    assert claim(both, 0, 2) == [(both[0], True), (both[1], True)]
    assert claim(both, 5, 0) == [(both[1], False)] * 2


# Rates


def test_a_rate_lets_a_second_s_worth_start_at_once_and_then_says_when_the_next_may(scene: Scene) -> None:
    use(scene, rate="4/m")
    scene.enqueue(10)
    opens_at = [
        scene.connection.execute(
            "select id is null, ready_at from penstock.claim(%s, 1, %s, %s, 10, 0) order by id nulls last",
            [scene.worker, list(scene.queue.partition_ids), list(scene.queue.partition_ids)],
        ).fetchall()
        for _ in range(2)
    ]
    assert [[row[0] for row in rows] for rows in opens_at] == [[False, True], [True]]
    claimed_at = scene.one("select claimed_at from penstock.lease")
    assert opens_at[0][1][1] == opens_at[1][0][1]
    assert (opens_at[1][0][1] - claimed_at).total_seconds() >= 15
    assert wait_seconds(scene) is not None


def test_a_rate_never_gives_more_than_its_burst_and_what_came_in_since(scene: Scene) -> None:
    use(scene, rate="200/s")
    scene.enqueue(1000)
    began = scene.one("select clock_timestamp()")
    taken, looks = 0, 0
    while taken < 400:
        taken += len(scene.claim(37))
        most = 200 + 200 * scene.one("select extract(epoch from clock_timestamp() - %s)::float8", began)
        assert taken <= most
        looks += 1
    assert looks > 400 / 37


def test_what_a_rate_saved_up_is_no_more_than_its_burst(scene: Scene) -> None:
    queue = use(scene, rate="5/s")
    scene.enqueue(100)
    scene.connection.execute(
        "insert into penstock.spent (partition_id, full_at) values (%s, now() - interval '1 day')", queue.partition_ids
    )
    assert len(scene.claim(50)) == 5


def test_tokens_come_in_evenly(scene: Scene) -> None:
    queue = use(scene, rate="2/h")
    scene.enqueue(10)
    # Emptied 20 minutes ago, the bucket of one is two thirds full; 10 minutes later it is full.
    for minutes, taken in ((10, 0), (0, 1)):
        scene.connection.execute(
            "insert into penstock.spent (partition_id, full_at) values (%s, clock_timestamp() + %s * interval '1 min')",
            [queue.partition_ids[0], minutes],
        )
        assert len(scene.claim(10)) == taken


def test_a_full_limit_is_no_matter_of_time(scene: Scene) -> None:
    use(scene, limit=1, rate="100/s")
    scene.enqueue(10)
    assert wait_seconds(scene) is None
    assert wait_seconds(scene) is None


def test_an_empty_queue_waits_for_no_rate(scene: Scene) -> None:
    use(scene, rate="1/h")
    scene.enqueue(1)
    wait_seconds(scene)
    assert scene.one("select count(*) from penstock.lease") == 1
    assert wait_seconds(scene) is None


def test_a_worker_without_free_slots_is_told_nothing(scene: Scene) -> None:
    use(scene, rate="1/h")
    scene.enqueue(3)
    assert wait_seconds(scene, slots=1) is None
    assert wait_seconds(scene, slots=1) is not None


def test_a_rate_that_is_raised_does_not_wait_out_the_old_one(scene: Scene) -> None:
    queue = use(scene, rate="1/d")
    scene.enqueue(10)
    assert len(scene.claim(10)) == 1
    catalogue.set_limits(scene.connection, "gated", {"rate": "10/s"})
    wait = wait_seconds(scene)
    assert wait is not None
    assert wait <= 0.1
    rows = scene.connection.execute("select partition_id, full_at < now() + interval '2 s' from penstock.spent")
    assert rows.fetchall() == [(queue.partition_ids[0], False), (queue.partition_ids[0], True)]


def test_a_rate_that_is_lowered_gives_no_more_than_its_own_burst(scene: Scene) -> None:
    use(scene, rate="100/s")
    scene.enqueue(200)
    assert len(scene.claim(50)) == 50
    catalogue.set_limits(scene.connection, "gated", {"rate": "3/h"})
    assert len(scene.claim(50)) <= 1


def test_upkeep_keeps_only_the_last_start_of_each_partition(scene: Scene) -> None:
    queue = use(scene, rate="5/s", partitions=2)
    for partition in (0, 1):
        for _ in range(3):
            scene.enqueue(partition=partition)
            scene.claim(1)
    rows = scene.connection.execute(
        "select partition_id, max(id), count(*) from penstock.spent group by 1 order by 1"
    ).fetchall()
    assert [(row[0], row[2]) for row in rows] == [(id_, 3) for id_ in queue.partition_ids]
    sweep.clean(scene.connection)
    left = scene.connection.execute("select partition_id, id from penstock.spent order by 1").fetchall()
    assert left == [row[:2] for row in rows]


# Several gates at once, and who is woken


def test_two_workers_that_go_through_two_gates_in_opposite_order_do_not_wait_for_each_other(scene: Scene) -> None:
    first, second = use(scene, limit=1, partitions=2).partition_ids
    for partition in (0, 1):
        scene.enqueue(5, partition=partition)

    def claim(*partitions: int) -> Any:
        def act(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(
                "select partition_id, ready_at <= clock_timestamp() from penstock.claim(%s, 1, %s, %s, 10, 0)",
                [scene.worker, list(partitions), list(partitions)],
            ).fetchall()

        return act

    upwards, downwards = scene.connect(), scene.connect()
    with scene.connect() as keeper, keeper.transaction():
        keeper.execute("select penstock.enter_gate(%s, true)", [first])
        a, b = Actor("up", upwards), Actor("down", downwards)
        a.start(claim(first, second))
        assert not a.has_ended(scene.connection), "it waits for who is inside, and holds nothing"
        downwards.execute("begin")
        b.start(claim(second, first))
        assert b.has_ended(scene.connection), "it holds the second gate, so it does not wait at the first"
        assert b.results == [[(second, True), (None, True)]], "and is told to come again at once"
    assert not a.has_ended(scene.connection), "it waits for the second gate"
    downwards.execute("commit")
    assert a.has_ended(scene.connection)
    assert a.results == [[(first, True)]]
    for actor in (a, b):
        actor.close()


def test_a_limit_holds_where_the_database_s_default_is_repeatable_read(scene: Scene) -> None:
    use(scene, limit=1)
    for _ in range(3):
        scene.enqueue()
    name = scene.one("select current_database()")
    scene.connection.execute(
        sql.SQL("alter database {} set default_transaction_isolation = 'repeatable read'").format(sql.Identifier(name))
    )
    wish = ClaimWish(scene.queue.partition_ids, scene.queue.partition_ids, 1, 0)
    with scene.connect() as first, scene.connect() as second:
        actor = Actor("second", second)
        with first.transaction():
            assert len(scene.claim(1, connection=first)) == 1
            actor.start(lambda connection: exchange(connection, scene.worker, "w", [], [], wish).leases)
            assert not actor.has_ended(scene.connection)
        assert actor.has_ended(scene.connection)
        actor.close()
    assert actor.results == [[]]


@pytest.fixture
def listening(scene: Scene) -> Connection:
    use(scene, limit=1)
    fall_asleep(scene.connection, scene.register(), [scene.queue.id])
    listener = scene.connect()
    listener.execute(f"listen penstock_{scene.queue.id}")
    return listener


def is_woken(listener: Connection) -> bool:
    # Notifications of what has been committed are there with the next answer.
    return any(True for _ in listener.notifies(timeout=0.05, stop_after=1))


def settle(scene: Scene, held: Sequence[tuple[int, int]], wish: ClaimWish | None) -> Turn:
    ends = [End(lease, TOKEN, job % 1024, job // 1024, "discarded") for lease, job in held]
    return exchange(scene.connection, scene.worker, "w", [], ends, wish, freed=scene.queue.partition_ids)


def test_a_place_that_the_settling_worker_takes_again_wakes_nobody(scene: Scene, listening: Connection) -> None:
    scene.enqueue(3)
    held = scene.claim()
    is_woken(listening)
    assert len(settle(scene, held, ClaimWish(scene.queue.partition_ids, scene.queue.partition_ids, 5, 0)).leases) == 1
    assert not is_woken(listening)


def test_a_place_that_the_settling_worker_leaves_wakes_the_others(scene: Scene, listening: Connection) -> None:
    scene.enqueue(3)
    held = scene.claim()
    is_woken(listening)
    settle(scene, held, None)
    assert is_woken(listening)


def test_a_place_that_the_settling_worker_has_no_slot_for_wakes_the_others(scene: Scene, listening: Connection) -> None:
    plain = scene.declare("plain")
    scene.connection.execute(
        "insert into penstock.worker_task (worker_id, queue_id, task) values (%s, %s, 't')", [scene.worker, plain.id]
    )
    scene.enqueue(3)
    scene.enqueue(3, queue=plain)
    held = scene.claim()
    is_woken(listening)
    both = [*plain.partition_ids, *scene.queue.partition_ids]
    (lease,) = settle(scene, held, ClaimWish(both, both, 1, 0)).leases
    assert lease.partition_id == plain.partition_ids[0]
    assert is_woken(listening)


def test_a_place_that_nobody_waits_for_wakes_nobody(scene: Scene, listening: Connection) -> None:
    scene.enqueue(1)
    held = scene.claim()
    is_woken(listening)
    settle(scene, held, None)
    assert not is_woken(listening)


def test_a_changed_limit_wakes_who_sleeps(scene: Scene, listening: Connection) -> None:
    catalogue.set_limits(scene.connection, "gated", {"limit": 2})
    assert is_woken(listening)


def test_of_two_who_change_limits_at_once_neither_undoes_the_other(scene: Scene) -> None:
    use(scene, limit=1, max_length=10)
    with scene.connect() as first, scene.connect() as second:
        first.execute("begin")
        catalogue.set_limits(first, "gated", {"limit": 7})
        actor = Actor("second", second)
        actor.start(lambda connection: catalogue.set_limits(connection, "gated", {"rate": "5/s"}))
        assert not actor.has_ended(scene.connection)
        first.execute("commit")
        assert actor.has_ended(scene.connection)
        actor.close()
        assert actor.results == [None]
    entry = catalogue.find_queue(scene.connection, "gated")
    assert (entry.rules.limit, entry.rules.rate, entry.rules.max_length) == (7, "5/s", 10)


def test_the_order_of_the_partitions_in_a_wish_is_kept_where_no_gate_is(scene: Scene) -> None:
    queue = scene.declare("plain", partitions=3)
    scene.queue = queue
    scene.worker = scene.register()
    for partition in range(3):
        scene.enqueue(2, partition=partition)
    a, b, c = queue.partition_ids
    rows = scene.connection.execute(
        "select partition_id from penstock.claim(%s, 1, %s::int[], %s::int[], 6, 0)",
        [scene.worker, array_text([c, a, b]), array_text([c, a, b])],
    )
    assert [row[0] for row in rows] == [c, a, b]
