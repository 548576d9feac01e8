"""G6 over two shards: while a partition moves, its limit and its rate count for both of its places together."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.shards.place import Place
from tests.shards.two_sites import TwoSites
from tests.system.facts import eventually

from penstock import App
from penstock.errors import InvalidInput
from penstock.model import Resize
from penstock.shards import draining, left_places
from penstock.shards.idempotency_keys import carry_keys
from penstock.shards.map_changes import change, move
from penstock.shards.upkeep_duties import advance_maps
from penstock.storage import Connection
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.enqueue.job_group import Destination, JobGroup
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_groups
from penstock.upkeep.shared_upkeep import SharedUpkeep

LATER = datetime.now(UTC) + timedelta(days=1)


class Moved(Place):
    """A queue `q` of one partition, which begins on shard 1 and has a limit of 2."""

    def __init__(self, urls: list[str], **rules: Any) -> None:
        app = App(shards=urls, request_timeout=2.0)
        super().__init__(app, urls)
        queue = app.queue("q", partitions=1, **rules)

        @queue.task(name="t")
        def t(n: int = 0) -> None: ...

        assert [each.shard for each in app.stats("q").partitions] == ["1"]

    def move(self, to: int) -> None:
        self.app.move_partition("q", 0, to)

    def go_on(self) -> None:
        """The rounds of upkeep that are about maps: places are shut, told of, and what is left is carried."""
        for _ in range(3):
            advance_maps(self.app.databases)

    def write_late(self, shard: int) -> int:
        """A job of a producer that goes by the map of before, which put the partition on this shard."""
        ((partition,),) = self.execute(
            shard, "select id from penstock.partition where name = 'q' and shard = %s", shard
        )
        with self.database(shard).connect() as connection, connection.transaction():
            ids = [0]
            group = JobGroup(Destination(find_queue(connection, "q").id, partition, 4, "t"), range(1), [b"{}"])
            drive(connection, write_groups([group], ids))
        return ids[0]


@pytest.fixture
def make(shard_urls: list[str]) -> Iterator[Callable[..., Moved]]:
    made: list[Moved] = []

    def make(**rules: Any) -> Moved:
        made.append(Moved(shard_urls, **rules))
        return made[-1]

    yield make
    for each in made:
        each.app.close()


def test_the_new_place_starts_nothing_until_the_old_one_is_worked_off(make: Callable[..., Moved]) -> None:
    q = make(limit=2)
    before = q.enqueue(1, 3)
    assert q.claim(1, 5) == before[:2]
    q.move(2)
    after = q.enqueue(2, 3)
    q.go_on()
    assert q.claim(2, 5) == []
    said = q.app.explain(after[0])
    assert said.reason.startswith("partition moved: what it left on shard 1 goes first")
    assert said.detail["earlier_shard"] == 1

    # One that runs there is enough.
    q.execute(1, "delete from penstock.lease")
    assert q.claim(1, 5) == before[2:]
    q.go_on()
    assert q.claim(2, 5) == []

    q.execute(1, "delete from penstock.lease")
    assert q.claim(2, 5) == []
    q.go_on()
    assert q.claim(2, 5) == after[:2]


def test_without_limit_and_rate_both_places_work_at_once(make: Callable[..., Moved]) -> None:
    q = make()
    before = q.enqueue(1, 3)
    q.move(2)
    after = q.enqueue(2, 3)
    assert q.claim(2, 5) == after
    assert q.claim(1, 5) == before


def test_g6_a_limit_that_is_set_later_counts_for_both_places_too(make: Callable[..., Moved]) -> None:
    q = make()
    before = q.enqueue(1, 4)
    q.move(2)
    after = q.enqueue(2, 6)
    assert q.claim(1) == before[:1]
    assert q.claim(2, 3) == after[:3]
    q.app.limit("q", limit=2)
    assert (q.claim(1, 5), q.claim(2, 5)) == ([], [])
    assert q.app.explain(before[1]).reason.startswith("partition moved: its limit or rate came later")
    q.go_on()
    assert (q.claim(1, 5), q.claim(2, 5)) == ([], []), "something runs in the old place"

    q.execute(1, "delete from penstock.lease")
    assert q.claim(1, 5) == []
    q.go_on()
    assert q.claim(2, 5) == [], "three run in the new one"
    assert q.execute(1, "select count(*) from penstock.ready") == [(0,)]
    q.execute(2, "delete from penstock.lease where range * 1024 + low = %s", after[0])
    assert q.claim(2, 5) == [], "two do"
    q.execute(2, "delete from penstock.lease")
    started = []
    while found := q.succeed(2, 5):
        started += found
        assert len(found) <= 2
        q.execute(2, "delete from penstock.lease")
    assert sorted(started) == sorted([*before[1:], *after[3:]])


@pytest.mark.parametrize("rules", [{"limit": 1}, {"rate": "1000/s"}], ids=["limit", "rate"])
def test_g6_nothing_starts_in_the_old_place_after_a_limit_was_set_whatever_is_ready_there(
    make: Callable[..., Moved], rules: dict[str, Any]
) -> None:
    q = make(order="key")
    q.enqueue(1, 3, key="k")
    q.move(2)
    ((place,),) = q.execute(1, "select id from penstock.partition where shard = 1")
    assert q.execute(1, "select penstock.is_still(%s)", place) == [(False,)]
    q.app.limit("q", **rules)
    assert q.execute(1, "select penstock.is_still(%s)", place) == [(True,)]
    q.go_on()
    assert q.execute(2, "select state from penstock.partition where shard = 1") == [("shut",)]
    assert q.execute(2, "select sum(penstock.members_count(low, high, members)) from penstock.ready") == [(3,)]


def test_a_limit_that_is_only_changed_lets_the_old_place_go_first(make: Callable[..., Moved]) -> None:
    q = make(limit=1)
    before = q.enqueue(1, 3)
    q.move(2)
    q.enqueue(2, 3)
    q.app.limit("q", limit=2)
    assert (q.claim(2, 5), q.claim(1, 5)) == ([], before[:2])


def test_g6_a_limit_that_was_taken_away_for_a_while_finds_jobs_in_both_places(make: Callable[..., Moved]) -> None:
    q = make(limit=1)
    before = q.enqueue(1, 2)
    q.move(2)
    after = q.enqueue(2, 2)
    q.app.limit("q", limit=None)
    assert (q.claim(1), q.claim(2)) == (before[:1], after[:1])
    q.app.limit("q", limit=1)
    q.execute(1, "delete from penstock.lease")
    assert q.claim(1) == []
    q.go_on()
    assert q.claim(2) == []
    q.execute(2, "delete from penstock.lease")
    assert len(q.claim(2, 5)) == 1


def test_g6_a_claim_that_began_before_the_limit_came_is_waited_for(make: Callable[..., Moved]) -> None:
    """It took a job in the old place, and commits when that is shut."""
    q = make()
    before = q.enqueue(1, 2)
    q.move(2)
    after = q.enqueue(2)
    with q.database(1).connect() as connection, connection.transaction():
        connection.execute(
            "insert into penstock.lease (token, worker_id, partition_id, priority, pos, range, low, high, attempt,"
            " rescues, is_ahead, ready_at, task)"
            " select 1, 1, partition_id, priority, pos, 99, 0, 1, 1, 0, false, ready_at, task from penstock.ready"
            " limit 1"
        )
        q.app.limit("q", limit=1)
        left_places.send_and_carry(q.app.databases, q.database(1))
    q.go_on()
    assert q.claim(2) == []
    q.execute(1, "delete from penstock.lease")
    q.go_on()
    assert set(q.claim(2)) < {*before, *after}


def test_what_comes_late_to_the_old_place_is_carried_to_the_new_one(make: Callable[..., Moved]) -> None:
    q = make(limit=5)
    delayed = q.enqueue(1, run_at=LATER)[0]
    parent = q.enqueue(1)[0]
    child = q.child(1, [parent])
    assert q.succeed(1) == [parent]
    q.move(2)
    q.go_on()
    late = q.write_late(1)
    q.go_on()
    assert q.claim(1, 5) == []
    q.execute(2, "update penstock.scheduled set due_at = now() - interval '1 s'")
    SharedUpkeep(q.app.databases).sweep()
    for shard in (1, 2):
        q.execute(shard, "select penstock.promote(100), penstock.unblock(null, 0, 100)")
    assert q.claim(2, 10) == sorted([delayed, child, late])


def test_a_task_that_no_worker_knows_does_not_hold_the_new_place_up(make: Callable[..., Moved]) -> None:
    q = make(limit=2)
    q.enqueue(1)
    ((unknown,),) = q.execute(1, "select penstock.enqueue('q', 'nobody', '{}')")
    assert len(q.succeed(1)) == 1
    q.execute(1, "select moved from penstock.park()")
    q.move(2)
    after = q.enqueue(2)
    q.go_on()
    assert q.claim(2, 5) == after
    assert q.app.job(unknown).state == "ready"
    assert q.execute(1, "select count(*) from penstock.ready") == [(0,)]


def test_a_rate_starts_with_nothing_in_the_new_place(make: Callable[..., Moved]) -> None:
    q = make(rate="60/m")
    before, _ = q.enqueue(1, 2)
    assert q.claim(1, 5) == [before]
    q.execute(1, "delete from penstock.lease")
    q.execute(1, "delete from penstock.ready")
    q.move(2)
    q.enqueue(2, 2)
    q.go_on()
    ((seconds,),) = q.execute(
        2,
        "select extract(epoch from max(full_at) - now())::float from penstock.spent as s join penstock.partition as p"
        " on p.id = s.partition_id where p.shard = 2",
    )
    # Counted from before the first statement on; the bucket of one fills in a second.
    assert seconds > 0
    eventually(lambda: q.claim(2, 5), "the bucket fills")


def test_a_partition_comes_back_when_its_old_place_is_worked_off(make: Callable[..., Moved]) -> None:
    q = make(limit=2)
    q.enqueue(1, 2)
    q.move(2)
    with pytest.raises(InvalidInput, match="has left shard 1 not long ago, and what it left there is not worked off"):
        q.move(1)
    assert len(q.succeed(1, 5)) == 2
    there = q.enqueue(2, 2)
    q.go_on()
    q.move(1)
    back = q.enqueue(1, 1)
    q.go_on()
    assert q.claim(1, 5) == []
    assert q.succeed(2, 5) == there
    q.go_on()
    assert q.claim(1, 5) == back


@pytest.mark.parametrize("rules", [{"limit": 2}, {"rate": "5/s"}, {"limit": 2, "order": "key"}])
def test_a_partition_that_would_come_back_too_early_is_refused_at_once(
    make: Callable[..., Moved], rules: dict[str, Any]
) -> None:
    q = make(**rules)
    q.enqueue(1, 2)
    q.move(2)
    tries = 0

    def move_back(connection: Connection) -> bool:
        nonlocal tries
        tries += 1
        return move(connection, "q", [0], [1])

    with pytest.raises(InvalidInput) as caught:
        change(q.app.databases, "q", move_back)
    assert tries == 1
    assert caught.value.field == "shard"
    assert caught.value.problem.endswith("call again when workers have ended what is ready or runs there")
    assert [each.shard for each in q.app.stats("q").partitions] == ["2"]


@pytest.mark.parametrize("rules", [{}, {"order": "key"}, {"per_key_rate": "5/s"}, {"fair_by": "tenant"}])
def test_without_limit_and_rate_a_partition_comes_back_at_once(
    make: Callable[..., Moved], rules: dict[str, Any]
) -> None:
    q = make(**rules)
    q.enqueue(1, 2)
    q.move(2)
    q.move(1)
    assert [each.shard for each in q.app.stats("q").partitions] == ["1"]


def test_a_shard_that_is_drained_is_waited_for_until_nothing_runs_there(make: Callable[..., Moved]) -> None:
    q = make(limit=1)
    before = q.enqueue(1, 2)
    assert q.claim(1, 5) == before[:1]
    q.app.drain_shard(1)
    after = q.enqueue(2, 2)
    q.go_on()
    assert q.claim(2, 5) == []
    q.execute(1, "delete from penstock.lease")
    assert q.succeed(1, 5) == before[1:]
    q.execute(1, "delete from penstock.worker_task")
    eventually(lambda: q.app.drain_shard(1).state == "drained", "the shard is drained")
    assert q.claim(2, 5) == after[:1]


def test_jobs_that_leave_a_drained_shard_start_before_those_that_came_after_them(make: Callable[..., Moved]) -> None:
    q = make(limit=1)
    # The younger shard has drawn fewer numbers.
    q.execute(1, "select penstock.draw_range() from generate_series(1, 100)")
    before = q.enqueue(1, 3)
    assert q.app.drain_shard(1).state == "drained"
    after = q.enqueue(2, 2)
    assert [q.succeed(2) for _ in range(5)] == [[job] for job in before + after]
    assert q.app.stats("q").queue_length == 0


def test_a_partition_that_moved_and_was_then_removed_is_worked_off_and_can_be_added_again(
    make: Callable[..., Moved],
) -> None:
    q = make(limit=2)
    q.app.resize("q", partitions=2)
    q.app.move_partition("q", 1, 1)
    ((partition,),) = q.execute(1, "select id from penstock.partition where name = 'q__p1' and shard = 1")
    with q.database(1).connect() as connection, connection.transaction():
        ids = [0]
        group = JobGroup(Destination(find_queue(connection, "q").id, partition, 4, "t"), range(1), [b"{}"])
        drive(connection, write_groups([group], ids))
    q.app.resize("q", partitions=1)
    q.go_on()
    assert q.claim(1, 5) == ids
    q.app.resize("q", partitions=2)


def test_what_is_left_in_a_place_that_is_shut_is_carried_also_when_the_limit_is_gone(
    make: Callable[..., Moved],
) -> None:
    q = make(limit=2)
    q.move(2)
    q.go_on()
    late = q.write_late(1)
    q.app.limit("q", limit=None)
    assert q.claim(1, 5) == []
    q.go_on()
    assert q.claim(2, 5) == [late]


def test_nothing_starts_where_a_move_that_was_taken_back_was_to_lead_to(make: Callable[..., Moved]) -> None:
    q = make(limit=1)
    q.move(2)
    q.go_on()
    running, waiting = q.enqueue(2, 2)
    assert q.claim(2, 5) == [running]
    q.execute(1, "select penstock.move_partitions('q', '{0}', '{1}')")
    assert q.execute(1, "select penstock.undo_map(id, epoch) from penstock.queue where name = 'q'") == [(True,)]
    q.app.databases.level()
    late = q.write_late(1)
    assert q.claim(1, 5) == []
    q.go_on()
    ran = []
    for _ in range(2):
        q.execute(2, "delete from penstock.lease")
        ran += q.claim(2, 5)
    assert sorted(ran) == sorted([waiting, late])


def test_a_rate_starts_with_nothing_where_the_old_place_came_back_before_that_was_told(
    make: Callable[..., Moved],
) -> None:
    q = make(rate="5/m")
    q.enqueue(1)
    assert len(q.succeed(1)) == 1
    q.move(2)
    q.enqueue(2)
    left_places.empty_left_places(q.app.databases)
    q.move(1)
    assert q.claim(2, 5) == []


def test_a_rate_starts_with_nothing_where_the_old_shard_is_drained(make: Callable[..., Moved]) -> None:
    q = make(rate="5/m")
    q.enqueue(1)
    assert len(q.succeed(1)) == 1
    q.execute(1, "delete from penstock.worker_task")
    draining.begin_draining(q.app.databases, 1)

    def is_drained() -> bool:
        for shard in (1, 2):
            q.execute(shard, "select penstock.close_maps()")
        carry_keys(q.app.databases)
        draining.advance_draining(q.app.databases)
        return q.execute(2, "select state from penstock.shard where number = 1") == [("drained",)]

    eventually(is_drained, "the shard is drained")
    q.enqueue(2)
    assert q.claim(2, 5) == []


@contextmanager
def two_workers(first: TwoSites, second: App) -> Iterator[None]:
    """Two workers on both shards, until the block ends."""
    other = threading.Thread(target=second.work, kwargs={"concurrency": 6})
    with first.working(concurrency=6):
        other.start()
        try:
            yield
        finally:
            while other.is_alive():
                second.stop()
                other.join(0.2)


def try_to_move(app: App, queue: str, to: int) -> Resize | None:
    """What became of a move; None where the place is not worked off yet that it leads back to."""
    try:
        return app.move_partition(queue, 0, to)
    except InvalidInput:
        return None


# Enough for the old place to be at work until the new one could be: with an owner the keys that are left are listed
# first, which takes some rounds of upkeep.
@pytest.mark.parametrize("rules", [{"limit": 3}, {"limit": 3, "order": "key"}], ids=["gate", "owner"])
def test_never_more_run_than_the_limit_while_a_partition_moves_to_and_fro(
    shard_urls: list[str], rules: dict[str, Any]
) -> None:
    ran = Counter[int]()
    lock = threading.Lock()
    running, most = 0, 0

    def handle(key: str, n: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            ran[n] += 1
        time.sleep(0.01)
        with lock:
            running -= 1

    sites = TwoSites(shard_urls, request_timeout=60.0)
    second = App(shards=sites.urls, lease=60.0)
    try:
        tasks = [app.queue("m", partitions=1, **rules).task(name="t", key="key")(handle) for app in (sites.app, second)]
        count = 0
        with two_workers(sites, second):
            for to in (1, 2):
                # The second app has not heard of the move when it enqueues.
                for task, some in ((tasks[0], 900), (tasks[0], 100), (tasks[1], 100)):
                    task.enqueue_many([{"key": f"k{n}", "n": n} for n in range(count, count + some)])
                    count += some
                    if some == 900:
                        done = eventually(lambda: try_to_move(sites.app, "m", to), "it may move there")  # noqa: B023
                        assert done is not None
                        assert not done.is_through
            eventually(lambda: sum(ran.values()) >= count, "all jobs ran")
        assert ran == Counter(range(count))
        assert most == 3
    finally:
        second.close()
        sites.close()
