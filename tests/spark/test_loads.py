"""Loads as objects, without Spark: published once, paused, resumed and cancelled as a whole."""

from __future__ import annotations

import threading
from contextlib import closing

import pyarrow as pa
import pytest
from tests.fault.proxy import Proxy
from tests.spark.staged import Loader

from penstock import App, InvalidInput, NotFound, PenstockError
from penstock.routing import partition_of
from penstock.shards.load_commit import Published
from penstock.storage import Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.loads.loads import forget_stages, suspend_paused_loads
from penstock.storage.loads.stage import Stage, StagedRange


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def loader(app: App, ran: list[int]) -> Loader:
    app.queue("q", partitions=2).task(name="t")(lambda n: ran.append(n))
    app.migrate()
    return Loader(app, "q")


def test_stages_are_invisible_until_published_and_then_in_the_order_given_g8(loader: Loader, ran: list[int]) -> None:
    late, early = loader.stage(3, 4), loader.stage(1, 2)
    aborted = loader.stage(5)
    assert loader.app.stats("q").queue_length == 0
    assert loader.app.jobs(queue="q") == []
    loader.app.work(until_idle=True)
    assert ran == []
    assert loader.publish("l", early, late).is_new
    loader.app.work(until_idle=True, concurrency=1)
    assert ran == [1, 2, 3, 4]
    assert not loader.publish("l", aborted).is_new
    loader.app.work(until_idle=True)
    assert ran == [1, 2, 3, 4]
    (load,) = loader.app.loads()
    assert (load.state, load.rows, load.done, load.waiting) == ("done", 4, 4, 0)


def test_of_two_commits_of_one_load_one_publishes_g8(loader: Loader) -> None:
    stages = [loader.stage(*range(50)) for _ in range(8)]
    done: list[Published] = []
    start = threading.Barrier(8)

    def commit(stage: tuple[str, int]) -> None:
        start.wait()
        done.append(loader.publish("same", stage))

    threads = [threading.Thread(target=commit, args=[stage]) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.is_new for each in done) == [False] * 7 + [True]
    assert {each.rows for each in done} == {50}
    assert loader.app.stats("q").total_enqueued == 50


def test_a_stage_that_is_gone_or_not_whole_publishes_nothing(loader: Loader) -> None:
    name, ranges = loader.stage(1, 2)
    with pytest.raises(PenstockError, match="run the load again under the same name"):
        loader.publish("l", (name, ranges + 1))
    with loader.app.database.connection() as connection:
        connection.execute("update penstock.load_range set created_at = now() - interval '25 hours'")
        assert forget_stages(connection) == 2
    with pytest.raises(PenstockError, match="run the load again under the same name"):
        loader.publish("l", (name, ranges))
    assert loader.app.stats("q").total_enqueued == 0
    assert loader.publish("l", loader.stage(1)).is_new


def test_a_stream_counts_its_batches_by_its_own_checkpoint(loader: Loader) -> None:
    assert loader.publish("s", loader.stage(1), batch=0, origin="one").is_new
    assert not loader.publish("s", loader.stage(1), batch=0, origin="one").is_new
    assert loader.publish("s", loader.stage(2), batch=1, origin="one").is_new
    with pytest.raises(InvalidInput, match="belongs to a stream with another checkpoint"):
        loader.publish("s", loader.stage(9), batch=0, origin="two")
    with pytest.raises(InvalidInput, match="names another load"):
        loader.publish("s", loader.stage(9))
    (load,) = loader.app.loads()
    assert (load.rows, load.batches, load.is_stream, load.state) == (2, 2, True, "running")


def test_idempotency_keys_hold_within_a_load_and_between_loads_g7(loader: Loader) -> None:
    # Of those with one key (2 and 12) the first in the load's order stays, whichever was staged first.
    later = loader.stage(12, 3, once="k")
    first = loader.publish("a", loader.stage(1, 2, once="k"), later)
    assert (first.rows, first.duplicates) == (4, 1)
    second = loader.publish("b", loader.stage(1, 3, once="k"), loader.stage(7))
    assert (second.rows, second.duplicates) == (3, 2)
    assert sorted(job.args["n"] for job in loader.app.jobs(queue="q")) == [1, 2, 3, 7]
    assert loader.app.stats("q").total_enqueued == 4


def test_a_paused_load_starts_nothing_and_comes_back_in_its_order(loader: Loader, ran: list[int]) -> None:
    app = loader.app
    late = loader.stage(3, 4)
    loader.publish("l", loader.stage(1, 2), late)
    app.pause_load("l")
    (other,) = app.queue("q", partitions=2).task(name="u")(lambda: ran.append(0)).enqueue_many([{}])
    app.work(until_idle=True)
    assert ran == [0]
    assert app.job(other).state == "succeeded"
    waiting = app.jobs(load="l")
    assert {job.state for job in waiting} == {"scheduled"}
    assert app.explain(waiting[0].id).reason == "paused: load 'l' starts no jobs until it is resumed"
    assert (app.loads()[0].state, app.loads()[0].waiting) == ("paused", 4)
    # What comes back into the order meanwhile leaves it again.
    last = next(job for job in waiting if job.args["n"] == 4)
    app.retry(last.id)
    with app.database.connection() as connection:
        assert suspend_paused_loads(connection) == 1
        connection.execute("update penstock.scheduled set due_at = now() where range = %s", [last.id // 1024])
        assert connection.execute("select penstock.promote(100)").fetchone() == (0,)
    app.work(until_idle=True)
    assert ran == [0]
    app.resume_load("l")
    app.work(until_idle=True, concurrency=1)
    assert ran == [0, 1, 2, 3, 4]
    assert app.stats("q").scheduled == 0


def test_a_load_published_while_its_stream_is_paused_waits_too(loader: Loader, ran: list[int]) -> None:
    loader.publish("s", loader.stage(1), batch=0, origin="o")
    loader.app.pause_load("s")
    loader.publish("s", loader.stage(2), batch=1, origin="o")
    loader.app.work(until_idle=True)
    assert ran == []
    loader.app.resume_load("s")
    loader.app.work(until_idle=True)
    assert sorted(ran) == [1, 2]


def test_a_cancelled_load_has_ended_when_the_call_returns(loader: Loader, ran: list[int]) -> None:
    loader.publish("l", loader.stage(*range(100)))
    loader.publish("other", loader.stage(1000))
    loader.app.pause_load("l")
    assert loader.app.cancel_load("l") == 100
    loader.app.work(until_idle=True)
    assert ran == [1000]
    assert {job.state for job in loader.app.jobs(load="l")} == {"cancelled"}
    assert loader.app.loads()[1].state == "cancelled"
    assert loader.app.cancel_load("l") == 0
    for act in (loader.app.pause_load, loader.app.resume_load, loader.app.cancel_load):
        with pytest.raises(NotFound, match="load 'nothing' does not exist"):
            act("nothing")


def test_a_load_cancelled_while_it_runs_starts_no_job_afterwards(loader: Loader) -> None:
    started: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def run(n: int) -> None:
        started.append(n)
        begun.set()
        go_on.wait()

    loader.app.queue("q", partitions=2).task(name="v")(run)
    with loader.app.database.connection() as connection:
        entry = find_queue(connection, "q")
    jobs = pa.table({
        "partition_id": pa.array([entry.partition_ids[0]] * 1000, pa.int32()),
        "priority": pa.array([5] * 1000, pa.int16()),
        "task": ["v"] * 1000,
        "args": [f'{{"n":{n}}}' for n in range(1000)],
    })  # fmt: skip
    Stage(loader.app.url, "big", "load", 4).write(
        jobs, [StagedRange(1000, entry.partition_ids[0], 5, "v", None, False, None)]
    )
    loader.publish("l", ("big", 1))
    worker = threading.Thread(target=lambda: loader.app.work(until_idle=True, concurrency=4))
    worker.start()
    begun.wait()
    loader.app.cancel_load("l")
    known = list(started)
    go_on.set()
    worker.join()
    assert sorted(started) == sorted(known)
    assert len(known) <= 4


def test_a_cancel_waits_for_what_a_worker_may_be_about_to_start(loader: Loader) -> None:
    loader.publish("l", loader.stage(1, 2, 3))
    with loader.app.database.connection() as connection:
        entry = find_queue(connection, "q")
        connection.execute(
            "with w as (insert into penstock.worker (id, name, host, pid, version, concurrency, lease_seconds)"
            " values (1, 'w', 'h', 1, '0', 1, 600) returning id)"
            " insert into penstock.worker_task select id, %s, 't' from w",
            [entry.id],
        )
        connection.execute(
            "select penstock.claim((select max(id) from penstock.worker), 1, %s, %s, 0, 1)",
            [list(entry.partition_ids), list(entry.partition_ids)],
        )
        assert connection.execute("select is_ahead from penstock.lease").fetchall() == [(True,)]
        cancel = threading.Thread(target=lambda: loader.app.cancel_load("l"))
        cancel.start()
        while loader.app.stats("q").queue_length:
            pass
        cancel.join(0.5)
        assert cancel.is_alive()
        connection.execute("update penstock.lease set is_ahead = false")
        cancel.join()
        # What it found running was asked to stop.
        assert connection.execute("select count(*) from penstock.cancellation").fetchone() == (1,)


def test_stages_of_an_earlier_map_are_routed_anew_in_their_order(app: App) -> None:
    seen: list[tuple[str, int]] = []
    app.queue("keyed", partitions=1, order="key").task(name="t", key=lambda n: "ab"[n % 2])(
        lambda n: seen.append(("ab"[n % 2], n))
    )
    app.migrate()
    loader = Loader(app, "keyed")
    odd, even = loader.stage(1, 3, 5, key="b"), loader.stage(2, 4, key="a")
    app.resize("keyed", partitions=4)
    loader.publish("l", odd, even)
    expected = [0] * 4
    for key, number in (("b", 3), ("a", 2)):
        expected[partition_of(key.encode(), 4)] += number
    assert [part.queue_length for part in app.stats("keyed").partitions] == expected
    app.work(until_idle=True)
    assert [n for key, n in seen if key == "b"] == [1, 3, 5]
    assert [n for key, n in seen if key == "a"] == [2, 4]
    jobs = app.jobs(queue="keyed")
    assert len(jobs) == 5
    assert app.stats("keyed").queue_length == 0


def test_at_most_so_many_writers_hold_a_connection(database: Database, app: App) -> None:
    with database.connect() as first, database.connect() as second, database.connect() as third:

        def enter(connection: object, load: str) -> bool:
            row = connection.execute("select penstock.enter_stage(%s, 2)", [load]).fetchone()  # type: ignore[attr-defined]
            return bool(row[0])

        with first.transaction(), second.transaction():
            assert enter(first, "l")
            assert enter(second, "l")
            assert not enter(third, "l")
            assert enter(third, "m")
        assert enter(third, "l")


def test_a_stage_forgotten_while_it_is_published_is_missed_and_the_name_stays_free_g8(loader: Loader) -> None:
    old, new = loader.stage(1, 2, 3), loader.stage(4)
    refused: list[PenstockError] = []

    def publish_both() -> None:
        with pytest.raises(PenstockError) as caught:
            loader.publish("l", old, new)
        refused.append(caught.value)

    with loader.app.database.connect() as janitor, janitor.transaction():
        janitor.execute("delete from penstock.load_range where stage = %s", [old[0]])
        publisher = threading.Thread(target=publish_both)
        publisher.start()
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%publish_load%%'"
        )
        with loader.app.database.connection() as connection:
            while connection.execute(waiting).fetchone() == (0,):
                pass
    publisher.join()
    assert "part of what was staged for it is gone" in str(refused[0])
    assert (loader.app.loads(), loader.app.stats("q").total_enqueued) == ([], 0)
    assert loader.publish("l", loader.stage(1)).is_new


def test_a_resume_waits_for_upkeep_and_leaves_nothing_behind(loader: Loader, ran: list[int]) -> None:
    loader.publish("l", loader.stage(1))
    loader.app.pause_load("l")
    with loader.app.database.connect() as upkeep, upkeep.transaction():
        upkeep.execute("select penstock.suspend_paused_loads()")
        resume = threading.Thread(target=lambda: loader.app.resume_load("l"))
        resume.start()
        resume.join(0.3)
        assert resume.is_alive()
    resume.join()
    loader.app.work(until_idle=True)
    assert ran == [1]


def test_a_cancelled_stream_goes_on_with_its_next_batch(loader: Loader, ran: list[int]) -> None:
    loader.publish("s", loader.stage(1), batch=0, origin="o")
    assert loader.app.cancel_load("s") == 1
    loader.publish("s", loader.stage(2), batch=1, origin="o")
    assert loader.app.loads()[0].state == "running"
    loader.app.work(until_idle=True)
    assert ran == [2]


def test_a_load_paused_under_its_owner_keeps_the_order_of_its_key_g5(app: App) -> None:
    seen: list[int] = []
    begun = threading.Event()

    def run(n: int) -> None:
        seen.append(n)
        if n == 5:
            begun.set()

    app.queue("keyed", partitions=1, order="key").task(name="t", key=lambda n: "a")(run)
    app.migrate()
    loader = Loader(app, "keyed")
    loader.publish("l", loader.stage(*range(300), key="a"))
    worker = threading.Thread(target=app.work)
    worker.start()
    begun.wait()
    for _ in range(3):
        app.pause_load("l")
        app.resume_load("l")
    while len(seen) < 300:
        pass
    app.stop()
    worker.join()
    assert seen == list(range(300))


def test_a_task_that_loses_its_session_before_it_wrote_anything_goes_on(loader: Loader) -> None:
    with closing(Proxy(loader.app.url)) as proxy:
        with loader.app.database.connection() as connection:
            entry = find_queue(connection, "q")
        jobs = pa.table({
            "partition_id": pa.array([entry.partition_ids[0]], pa.int32()),
            "priority": pa.array([5], pa.int16()),
            "task": ["t"],
            "args": ['{"n":1}'],
        })  # fmt: skip
        for _ in range(2):
            proxy.cut_next("unsent", lambda chunk, _: b"enter_stage" in chunk)
        proxy.cut_next("ended", lambda chunk, _: b"enter_stage" in chunk)
        Stage(proxy.url, "cut", "load", 4).write(
            jobs, [StagedRange(1, entry.partition_ids[0], 5, "t", None, False, None)]
        )
        assert proxy.cut_count == 3
    assert loader.publish("l", ("cut", 1)).rows == 1
