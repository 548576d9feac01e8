"""Everything leaves a shard while it is used: in order, once, found again, whoever is killed on the way."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.security.trace_contexts import SAMPLED
from tests.shards.drained_world import World, states
from tests.spark.staged import Loader
from tests.system.facts import eventually

from penstock import App, Drain, Retry
from penstock.admin.doctor import doctor
from penstock.errors import InvalidInput, NotFound
from penstock.routing.key_hash import partition_of
from penstock.shards import carrying, draining, left_places, map_changes
from penstock.shards.databases import Databases
from penstock.shards.membership import read_digest
from penstock.storage.catalogue.queues import find_queue
from penstock.upkeep import SharedUpkeep, troubles

LATER = datetime.now(UTC) + timedelta(days=1)


# Beginning


def test_nothing_is_placed_on_a_shard_that_is_drained_and_its_partitions_are_taken_over(world: World) -> None:
    done = world.drain(2)
    assert done == Drain(shard="2", state="drained", rest=[])
    assert states(world.databases) == {1: "active", 2: "drained"}
    for name in ("o", "p"):
        entry = world.databases.read(lambda c: find_queue(c, name))  # noqa: B023
        assert set(entry.partition_shards[: entry.partition_count]) == {1}
        assert set(entry.homes) == {1}
    world.app.queue("new", partitions=4)
    assert {each.shard for each in world.app.stats("new").partitions} == {"1"}
    assert len(set(world.databases.each(read_digest))) == 1
    assert world.app.drain_shard("2").state == "drained"
    world.run.enqueue_many([{"n": n} for n in range(10)])
    world.work()
    assert sorted(world.ran["plain"]) == list(range(10))


def test_the_partitions_of_a_queue_are_spread_evenly(world: World, empty_database_url: str) -> None:
    world.app.add_shard(empty_database_url)
    world.app.queue("wide", partitions=12)
    world.app.stats("wide")
    world.drain(1)
    entry = world.databases.read(lambda c: find_queue(c, "wide"))
    places = entry.partition_shards[: entry.partition_count]
    assert sorted(places.count(number) for number in (2, 3)) == [6, 6]
    assert entry.epoch == 2, "one map for all of them"


def test_how_far_a_drain_is_is_told_without_an_act(world: World) -> None:
    assert world.app.drain_progress(2) == Drain(shard="2", state="active", rest=[])
    key = world.key(2)
    with world.databases.of(2).connect() as connection, connection.transaction():
        # A producer that began before: what it writes comes by the earlier map.
        world.handle.options(connection=connection).enqueue(key=key, n=1)
        world.app.drain_shard(2)
        progress = world.app.drain_progress("2")
        assert progress.state == "draining"
        assert "producers" in {each.kind for each in progress.rest}
    assert any(part.left_on == ["2"] for part in world.app.stats("o").partitions)
    assert sum(jobs for _, jobs in world.app.resize_progress("o").draining) == 1
    assert [entry.act for entry in world.app.audit()].count("drain_shard") == 1
    world.drain(2)
    assert world.app.drain_progress(2) == Drain(shard="2", state="drained", rest=[])
    assert all(not part.left_on for part in world.app.stats("o").partitions)


def test_the_last_shard_in_use_cannot_be_drained(world: World) -> None:
    world.app.drain_shard(2)
    with pytest.raises(InvalidInput, match=r"the last one in use.*penstock shards add"):
        world.app.drain_shard(1)
    assert states(world.databases)[1] == "active"


def test_an_only_shard_cannot_be_drained(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q")
        with pytest.raises((InvalidInput, NotFound)):
            app.drain_shard(1)


@pytest.mark.parametrize("shard", [3, 0, "postgresql://elsewhere/jobs"])
def test_a_shard_that_is_not_there_is_refused(world: World, shard: Any) -> None:
    with pytest.raises(NotFound, match="there is no shard"):
        world.app.drain_shard(shard)


def test_what_can_be_no_shard_is_refused_as_such_with_those_there_are(world: World) -> None:
    wrong: list[Any] = ["x", "", True, None, 1.5, [1]]
    for shard in wrong:
        with pytest.raises(InvalidInput, match=r"there are 1 \(.*\), 2 \(") as refused:
            world.app.drain_shard(shard)
        assert refused.value.field == "shard", shard


# What waits


@pytest.mark.parametrize("shard", [1, 2])
def test_whatever_waits_is_carried_and_found_and_goes_on(world: World, shard: int) -> None:
    other = 3 - shard
    later = world.plain(shard, run_at=LATER)
    child = world.plain(shard, after=[later])
    dead = world.plain(shard)
    world.fetch(shard, 'update penstock.job set args = \'{"n": 1, "how": "bad"}\' where id = %s returning 1', dead)
    world.work()
    assert world.app.job(dead).state == "failed"
    unknown = world.plain(shard, task="nobody")
    world.app.pause("p")
    paused = world.plain(shard)
    key = world.key(shard)
    waits = world.handle.options(run_at=LATER).enqueue(key=key, n=0)
    ids = [later, child, dead, unknown, paused, waits]
    before = {id_: world.app.job(id_) for id_ in ids}
    world.drain(shard)
    assert world.is_empty(shard)
    after = {id_: world.app.job(id_) for id_ in ids}
    for id_ in ids:
        assert (after[id_].state, after[id_].attempt, after[id_].failures, after[id_].run_at) == (
            before[id_].state, before[id_].attempt, before[id_].failures, before[id_].run_at
        ), id_  # fmt: skip
        assert world.fetch(other, "select penstock.is_here(%s)", id_) == [(True,)]
    world.app.resume("p")
    world.fails.clear()
    for id_ in (later, dead, waits):
        world.app.retry(id_)
    world.work()
    world.work()
    assert [world.app.job(id_).state for id_ in ids] == [
        "succeeded",
        "succeeded",
        "succeeded",
        "ready",
        "succeeded",
        "succeeded",
    ]
    assert world.ran[key] == [0]


def test_a_child_hears_of_its_parents_whichever_way_they_went(world: World) -> None:
    ended = world.plain(2)
    world.work()
    later, fails = world.plain(2, run_at=LATER), world.plain(2, run_at=LATER)
    here = world.plain(1, after=[ended, later])
    there = world.plain(2, after=[ended, later])
    sad = world.plain(2, after=[ended, fails])
    elsewhere = world.plain(1, after=[fails])
    world.drain(2)
    world.app.cancel(fails)
    world.app.retry(later)
    world.work()
    assert [world.app.job(id_).state for id_ in (here, there, sad, elsewhere)] == [
        "succeeded", "succeeded", "cancelled", "cancelled"
    ]  # fmt: skip


def test_children_of_a_dead_letter_come_back_whichever_way_they_went(world: World) -> None:
    world.fails.add("")
    dead = world.plain(2)
    there, here = world.plain(2, after=[dead]), world.plain(1, after=[dead])
    family = [dead, there, here, world.plain(1, after=[there]), world.plain(2, after=[here])]
    world.work()
    assert [world.app.job(id_).state for id_ in family] == ["failed"] + ["cancelled"] * 4
    world.drain(2)
    world.work()
    assert [world.app.job(id_).state for id_ in family] == ["failed"] + ["cancelled"] * 4
    assert (world.app.stats("p").blocked, world.app.stats("p").total_cancelled) == (0, 4), "each is counted once"
    world.fails.discard("")
    assert world.app.retry(dead) == "ready"
    world.work()
    assert [world.app.job(id_).state for id_ in family] == ["succeeded"] * 5
    assert world.app.stats("p").total_cancelled == 4


def test_a_halted_key_a_held_one_and_what_stands_behind_them_keep_their_order(world: World) -> None:
    halted, held, free = (world.key(2, n) for n in range(3))
    first = world.handle.enqueue(key=halted, n=0, how="bad")
    world.fails.add("late")
    retry = world.again.enqueue(key=held, n=0)
    world.work()
    assert [world.app.job(id_).state for id_ in (first, retry)] == ["failed", "scheduled"]
    for n in range(1, 40):
        for key in (halted, held):
            world.handle.enqueue(key=key, n=n)
    assert world.app.drain_shard(2).state in ("draining", "drained")
    # By the new map, while what was there before is on its way.
    for n in range(40, 60):
        for key in (halted, held, free):
            world.handle.enqueue(key=key, n=n)
    world.drain(2)
    world.work()
    assert world.ran == {free: list(range(40, 60))}
    assert {each.key for each in world.app.blocked_keys("o")} == {halted, held}
    world.fails.clear()
    assert world.app.job(first).state == "failed"
    world.app.retry(first)
    world.app.retry(retry)
    world.work()
    assert world.ran == {free: list(range(40, 60)), halted: list(range(60)), held: list(range(60))}


def test_a_halted_key_that_came_from_a_drained_shard_can_be_released(world: World) -> None:
    key = world.key(2)
    world.handle.enqueue(key=key, n=0, how="bad")
    world.work()
    world.handle.enqueue(key=key, n=1)
    world.drain(2)
    world.handle.enqueue(key=key, n=2)
    world.work()
    assert key not in world.ran
    world.app.release("o", key)
    world.work()
    assert world.ran[key] == [1, 2]


def test_a_paused_queue_with_order_is_carried_in_its_order(world: World) -> None:
    keys = [world.key(2, n) for n in range(5)]
    world.app.pause("o")
    for n in range(100):
        world.handle.enqueue_many([{"key": key, "n": n} for key in keys])
    world.app.drain_shard(2)
    for n in range(100, 120):
        world.handle.enqueue_many([{"key": key, "n": n} for key in keys])
    world.drain(2)
    world.app.resume("o")
    world.work()
    assert world.ran == {key: list(range(120)) for key in keys}


def test_a_key_that_moves_twice_on_its_way_keeps_its_order(world: World, empty_database_url: str) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    number = partition_of(key.encode(), 2)
    world.app.pause("o")
    for n in range(30):
        world.handle.enqueue(key=key, n=n)
    world.app.move_partition("o", number, 1)
    for n in range(30, 60):
        world.handle.enqueue(key=key, n=n)
    world.app.move_partition("o", number, 3)
    for n in range(60, 90):
        world.handle.enqueue(key=key, n=n)
    world.drain(2)
    world.app.resume("o")
    world.work()
    assert world.ran == {key: list(range(90))}


# Killed on the way


@pytest.mark.parametrize(
    "killed_in",
    [(draining, "change"), (left_places, "carry"), (draining, "_end_if_drained"), (carrying, "_take"),
     (carrying, "tell_rest_of"), (map_changes, "_change_state"), (Databases, "level"), (Databases, "find_lead")],
    ids=lambda each: each[1],
)  # fmt: skip
@pytest.mark.parametrize("shard", [1, 2])
def test_killed_anywhere_it_goes_on(
    world: World, shard: int, killed_in: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    key, halted = world.key(shard), world.key(shard, 1)
    first = world.handle.enqueue(key=halted, n=0, how="bad")
    world.work()
    world.app.pause("o")
    for n in range(20):
        world.handle.enqueue_many([{"key": key, "n": n}, {"key": halted, "n": n + 1}])
    ids = [world.plain(shard, run_at=LATER) for _ in range(5)]
    owner, name = killed_in
    real = getattr(owner, name)
    for nth in range(4):
        for after in (False, True):
            calls: list[int] = []

            def die(*args: Any, **options: Any) -> Any:
                calls.append(1)  # noqa: B023
                if len(calls) <= nth:  # noqa: B023
                    return real(*args, **options)
                if after:  # noqa: B023
                    real(*args, **options)
                raise Killed

            with monkeypatch.context() as patched:
                patched.setattr(owner, name, die)
                with suppress(Killed):
                    world.app.drain_shard(shard)
    world.drain(shard)
    for n in range(20, 25):
        world.handle.enqueue_many([{"key": key, "n": n}, {"key": halted, "n": n + 1}])
    world.app.resume("o")
    world.app.retry(first)
    world.fails.clear()
    world.work()
    assert world.ran == {key: list(range(25)), halted: list(range(26))}
    assert [world.app.job(id_).state for id_ in ids] == ["scheduled"] * 5
    assert len(set(world.databases.each(read_digest))) == 1


# Under load


@pytest.mark.parametrize("shard", [1, 2])
def test_under_load_nothing_is_lost_doubled_or_out_of_order(world: World, shard: int) -> None:
    is_over = threading.Event()
    written: dict[str, int] = {}
    problems: list[BaseException] = []

    def produce(name: str) -> None:
        try:
            keys, n = [f"{name}-{each}" for each in range(8)], 0
            while not is_over.is_set():
                world.handle.enqueue_many([{"key": key, "n": n} for key in keys])
                world.run.enqueue(n=n * 10 + int(name))
                n += 1
                written.update(dict.fromkeys(keys, n))
                written[f"plain {name}"] = n
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=produce, args=(str(each),)) for each in range(3)]
    worker = threading.Thread(target=world.app.work)
    for thread in [*threads, worker]:
        thread.start()
    try:
        eventually(lambda: len(written) == 27 and min(written.values()) > 5, "producers are at work")
        assert world.app.drain_shard(shard).shard == str(shard)
        eventually(lambda: world.app.drain_shard(shard).state == "drained", "drained")
        more = dict(written)
        eventually(lambda: all(written[name] > more[name] + 3 for name in more), "producers go on")
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    jobs = sum(written.values())
    eventually(lambda: sum(len(ran) for ran in list(world.ran.values())) >= jobs, "all ran")
    while worker.is_alive():
        world.app.stop()
        worker.join(0.2)
    assert not problems
    plain = [n * 10 + each for each in range(3) for n in range(written.pop(f"plain {each}"))]
    assert sorted(world.ran.pop("plain")) == sorted(plain)
    assert {key: world.ran[key] for key in written} == {key: list(range(n)) for key, n in written.items()}
    assert world.is_empty(shard)


# Loads


@pytest.mark.parametrize("shard", [1, 2])
def test_a_paused_load_is_carried_and_resumed_in_its_order(world: World, shard: int) -> None:
    world.app.queue("l", order="key", partitions=2).task(name="t", key="key")(
        lambda n, key="": world.ran[key].append(n)
    )
    loader = Loader(world.app, "l")
    entry = world.databases.read(lambda c: find_queue(c, "l"))
    key = next(k for k in (f"k{n}" for n in range(99)) if entry.partition_shards[partition_of(k.encode(), 2)] == shard)
    number = partition_of(key.encode(), 2)
    trace = {"traceparent": SAMPLED}
    loader.publish("much", loader.stage(*range(5), key=key, partition=number), batch=0, origin="a", trace=trace)
    world.app.pause_load("much")
    world.app.drain_shard(shard)
    loader.publish("much", loader.stage(*range(5, 8), key=key, partition=number), batch=1, origin="a")
    world.drain(shard)
    (load,) = world.app.loads()
    assert (load.state, load.rows, load.waiting) == ("paused", 8, 8)
    again = loader.publish("much", loader.stage(99, key=key, partition=number), batch=0, origin="a")
    assert (again.is_new, again.rows) == (False, 5), "decided once, whoever leads"
    left = world.databases.of(3 - shard)
    kept = left.ask(lambda c: c.execute("select trace ->> 'traceparent' from penstock.load").fetchall())
    assert kept == [(SAMPLED,)], "its jobs go on to link to where it was loaded"
    world.app.resume_load("much")
    world.work()
    assert world.ran[""] == list(range(8))


# Several queues


def test_g2_what_holds_keys_of_queues_with_different_epochs_leaves_together(world: World) -> None:
    """The map that one queue has left may have the number of the one that another writes by now."""
    other = world.app.queue("other", order="key", partitions=2)

    @other.task(key="key", max_attempts=5)
    def hold(key: str, n: int) -> None:
        if "late" in world.fails:
            raise Retry(after=timedelta(hours=1))
        with world.lock:
            world.ran[key].append(n)

    world.app.databases.level().all()
    # `o` is one map ahead.
    world.app.move_partition("o", 0, 2)
    key = world.key(2)
    world.fails.add("late")
    ids = [world.again.enqueue(key=key, n=0), *(hold.enqueue(key=f"h{n}", n=n) for n in range(8))]
    world.work()
    epochs = [world.databases.read(lambda c: find_queue(c, name)).epoch for name in ("o", "other")]  # noqa: B023
    assert epochs == [2, 1]
    world.drain(2)
    assert {world.app.job(id_).state for id_ in ids} == {"scheduled"}
    world.fails.clear()
    for id_ in ids:
        world.app.retry(id_)
    world.work()
    assert {world.app.job(id_).state for id_ in ids} == {"succeeded"}


def test_g2_a_job_on_its_way_is_listed_and_why_it_is_not_taken_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(troubles, "TOLD_SECONDS", 0.0)
    key, here = world.key(2), world.key(1)
    world.fails.add("late")
    job = world.again.enqueue(key=key, n=0)
    world.work()
    upkeep = SharedUpkeep(world.databases)
    with world.databases.of(1).connect() as connection, connection.transaction():
        # A producer whose transaction began by the map before, where the job is to go.
        connection.execute("select penstock.enqueue('o', 'handle', '{\"key\": \"k\", \"n\": 0}', key => %s)", [here])
        world.app.drain_shard(2)
        rest = {each.kind: each.reason for each in world.app.drain_shard(2).rest}
        assert "somebody writes by an earlier map here" in rest["on their way"]
        assert world.app.explain(job).reason.startswith("on its way to shard 1, where it will be scheduled")
        for _ in range(2):
            upkeep.sweep()
        assert "it is not taken there since" in world.app.explain(job).reason
        assert [each.id for each in world.app.jobs(queue="o", state="ready") if each.id == job] == [job]
        assert job in [each.id for each in world.app.jobs(queue="o")]
        told = {(each.name, each.ok, each.shard) for each in doctor(list(world.databases)) if each.name == "upkeep"}
        assert told == {("upkeep", False, "1"), ("upkeep", False, "2")}
    upkeep.sweep()
    world.drain(2)
    assert world.app.job(job).state == "scheduled"
    assert all(each.ok for each in doctor(list(world.databases)) if each.name == "upkeep")
