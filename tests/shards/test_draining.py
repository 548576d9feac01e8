"""Everything leaves a shard while it is used: in order, once, found again, whoever is killed on the way."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fault.proxy import Proxy
from tests.spark.staged import Loader
from tests.system.cli_runs import CommandLine
from tests.system.facts import eventually

from penstock import App, Drain, Retry, Task
from penstock.admin.doctor import doctor
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable
from penstock.routing.key_hash import partition_of
from penstock.shards import carrying, draining, left_places, map_changes
from penstock.shards.databases import Databases
from penstock.shards.idempotency_keys import carry_keys
from penstock.shards.membership import read_digest, read_shards
from penstock.storage.catalogue import resize
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.catalogue.resize import UndrainedKeyMaps
from penstock.storage.connection.breaker import Breaker
from penstock.storage.connection.queries import query
from penstock.upkeep import SharedUpkeep, troubles

LATER = datetime.now(UTC) + timedelta(days=1)


class World:
    """An ordered queue `o` and a plain one `p` on two shards; handlers do what the key or argument says."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.ran: dict[str, list[int]] = defaultdict(list)
        self.lock = threading.Lock()
        self.fails = {"bad"}
        self.app = App(shards=urls, request_timeout=10.0, lease=5.0)
        ordered = self.app.queue("o", order="key", partitions=2, on_dead="halt")
        plain = self.app.queue("p", partitions=2)

        @ordered.task(key="key", max_attempts=1)
        def handle(key: str, n: int, how: str = "") -> None:
            if how in self.fails:
                raise ValueError(how)
            with self.lock:
                self.ran[key].append(n)

        @ordered.task(key="key", max_attempts=5)
        def again(key: str, n: int) -> None:
            if "late" in self.fails:
                raise Retry(after=timedelta(hours=1))
            with self.lock:
                self.ran[key].append(n)

        @plain.task(max_attempts=1)
        def run(n: int, how: str = "") -> None:
            if how in self.fails:
                raise ValueError(how)
            with self.lock:
                self.ran["plain"].append(n)

        self.handle: Task[..., None] = handle
        self.again: Task[..., None] = again
        self.run: Task[..., None] = run
        self.app.databases  # noqa: B018

    @property
    def databases(self) -> Databases:
        return self.app.databases

    def key(self, shard: int, nth: int = 0) -> str:
        """A key of `o` that lives on a shard by the map of now."""
        entry = self.databases.read(lambda c: find_queue(c, "o"))
        keys = (f"k{n}" for n in range(10_000))
        places = entry.partition_shards
        return [k for k in keys if places[partition_of(k.encode(), entry.partition_count)] == shard][nth]

    def fetch(self, shard: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.databases.of(shard).run(lambda c: c.execute(statement, parameters).fetchall())

    def plain(self, shard: int, task: str = "run", **options: Any) -> int:
        """A job of `p` on a shard."""
        names = "".join(f", {name} => %s" for name in options)
        ((id_,),) = self.fetch(
            shard, f"select penstock.enqueue('p', %s, '{{\"n\": 1}}'{names})", task, *options.values()
        )
        return int(id_)

    def drain(self, shard: int, tries: int = 30) -> Drain:
        """Drain to the end, without a worker."""
        for _ in range(tries):
            done = self.app.drain_shard(shard)
            if done.state == "drained":
                return done
        raise AssertionError(done)

    def is_empty(self, shard: int) -> bool:
        return bool(self.fetch(shard, "select penstock.is_vacant()")[0][0])

    def work(self) -> None:
        self.app.work(until_idle=True)


@pytest.fixture
def world(shard_urls: list[str]) -> Iterator[World]:
    world = World(shard_urls)
    yield world
    world.app.close()


def states(databases: Databases) -> dict[int, str]:
    return {entry.number: entry.state for entry in databases.lead.run(read_shards)}


def shard_of(job_id: int) -> int:
    return (job_id >> 10) & 1023


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


@pytest.mark.parametrize("shard", [3, 0, True, "postgresql://elsewhere/jobs"])
def test_a_shard_that_is_not_there_is_refused(world: World, shard: Any) -> None:
    with pytest.raises(NotFound, match="there is no shard"):
        world.app.drain_shard(shard)


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
    assert world.app.stats("p").blocked == 0
    world.fails.discard("")
    assert world.app.retry(dead) == "ready"
    world.work()
    assert [world.app.job(id_).state for id_ in family] == ["succeeded"] * 5


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


# The end


def test_a_drained_lead_hands_over_and_its_url_is_not_needed_any_more(world: World) -> None:
    key = world.key(1)
    later = world.handle.options(run_at=LATER).enqueue(key=key, n=0)
    ended = world.handle.enqueue(key=key, n=1)
    world.work()
    world.drain(1)
    assert world.databases.lead.shard == 2
    assert world.app.job(ended).state == "succeeded", "history stays readable"
    world.app.pause("p")
    world.app.resume("p")
    with App(shards=world.urls[1:]) as alone:
        assert alone.job(later).state == "scheduled"
        alone.pause("p")
        alone.retry(later)
        with pytest.raises(NotFound):
            alone.job(ended)
    with App(shards=world.urls[:1]) as other:
        assert other.databases.lead.shard == 2, "found by its address"
    world.work()
    assert world.ran[key] == [1, 0]


def test_an_app_that_believes_in_the_drained_lead_learns_better(world: World) -> None:
    with App(shards=world.urls) as late:
        assert late.databases.lead.shard == 1
        world.drain(1)
        late.databases.note_drained([])
        late.pause("p")
        assert late.databases.lead.shard == 2
        assert world.databases.read(lambda c: find_queue(c, "p")).rules.paused
    assert len(set(world.databases.each(read_digest))) == 1


def test_a_lead_that_was_killed_while_it_handed_over_is_followed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(_: Databases) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Databases, "find_lead", die)
        with pytest.raises(Killed):
            world.drain(1)
    with App(shards=world.urls) as app:
        assert app.databases.lead.shard == 2
        app.pause("p")
        assert len(set(app.databases.each(read_digest))) == 1


def test_nobody_writes_to_a_drained_shard_whatever_it_believes(world: World) -> None:
    entry = world.databases.read(lambda c: find_queue(c, "p"))
    world.drain(2)
    producer = world.app.sender.producer
    assert producer is not None or world.run.enqueue(n=1)
    # As it was planned before.
    world.app._declarations._entries["p"] = (entry, 1e12)
    ids = [world.run.enqueue(n=n) for n in range(6)]
    assert {shard_of(id_) for id_ in ids} == {1}
    assert world.is_empty(2)


def test_nothing_is_drained_while_a_producer_has_a_transaction_open(world: World) -> None:
    with world.databases.of(2).connect() as connection, connection.transaction():
        connection.execute("select penstock.enqueue('p', 'run', '{\"n\": 1}')")
        for _ in range(3):
            assert world.app.drain_shard(2).state == "draining"
    world.work()
    world.drain(2)
    assert world.ran["plain"] == [1]


def test_progress_says_what_is_left_and_why(world: World) -> None:
    key = world.key(2)
    world.handle.enqueue(key=key, n=0)
    stuck = world.plain(2)
    with world.databases.of(2).connect() as connection, connection.transaction():
        connection.execute("select from penstock.ready where task = 'run' for update")
        rest = world.app.drain_shard(2).rest
    assert {(each.queue, each.kind, each.count) for each in rest} >= {("p", "ready", 1)}
    assert all(each.reason for each in rest)
    assert stuck


def test_a_cron_entry_fires_on_after_its_shard_is_drained(world: World) -> None:
    world.app.cron("tick", "* * * * *", world.run, args={"n": 7})
    ((shard,),) = {(n,) for n in (1, 2) if world.fetch(n, "select from penstock.cron")} or {(0,)}
    if not shard:
        world.app.crons()
        shard = next(n for n in (1, 2) if world.fetch(n, "select 1 from penstock.cron"))
    world.drain(shard)
    other = 3 - shard
    assert world.fetch(other, "select name from penstock.cron") == [("tick",)]
    world.fetch(other, "update penstock.cron set next_at = now() - interval '1 s' returning 1")
    world.work()
    assert world.ran["plain"] == [7]


@pytest.mark.parametrize("shard", [1, 2])
def test_idempotency_keys_hold_after_their_home_is_drained(world: World, shard: int) -> None:
    keys = [f"once-{n}" for n in range(40)]
    plain = {once: world.run.options(idempotency_key=once).enqueue(n=1) for once in keys}
    ordered = {once: world.handle.options(idempotency_key=once).enqueue(key=once, n=1) for once in keys}
    world.work()
    assert {shard_of(id_) for id_ in [*plain.values(), *ordered.values()]} == {1, 2}
    world.drain(shard)
    for once in keys:
        assert world.run.options(idempotency_key=once).enqueue(n=2) == plain[once]
        assert world.handle.options(idempotency_key=once).enqueue(key=once, n=2) == ordered[once]
    with App(shards=[url for n, url in enumerate(world.urls, 1) if n != shard]) as app:
        queue = app.queue("p", partitions=2)

        @queue.task
        def run(n: int, how: str = "") -> None: ...

        assert [run.options(idempotency_key=once).enqueue(n=3) for once in keys] == list(plain.values())
    world.work()
    assert world.ran["plain"] == [1] * 40


def test_a_drained_shard_that_is_gone_keeps_nobody_from_anything(
    shard_urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_for = []
    wait_until_up = Breaker.wait_until_up

    def note(breaker: Breaker, seconds: float) -> bool:
        waited_for.append(breaker)
        return wait_until_up(breaker, seconds)

    monkeypatch.setattr(Breaker, "wait_until_up", note)
    proxy = Proxy(shard_urls[1])
    world = World([shard_urls[0], proxy.url])
    try:
        key = world.key(2)
        later = world.handle.options(run_at=LATER).enqueue(key=key, n=0)
        world.drain(2)
        proxy.go_down()
        assert world.app.job(later).state == "scheduled"
        world.app.resize("o", partitions=3)
        world.app.pause("p")
        world.app.resume("p")
        world.app.retry(later)
        child = world.run.options(after=[later]).enqueue(n=5)
        assert world.databases.of(2).breaker not in waited_for
        world.work()
        assert world.ran[key] == [0]
        assert world.app.job(child).state == "succeeded"
    finally:
        world.app.close()
        proxy.close()


# The steps, one by one


def send(world: World, shard: int, rows: int) -> int:
    """Put some into the outbox, and carry nothing."""
    return int(world.fetch(shard, "select penstock.send_off(%s)", rows)[0][0])


def begin(world: World, shard: int) -> None:
    """As far as nothing is sent yet."""
    draining.begin_draining(world.databases, shard)
    for queue in ("o", "p"):
        map_changes.change(
            world.databases,
            queue,
            lambda c: bool(c.execute("select penstock.vacate_queue(%s, %s)", [queue, shard]).fetchone()),  # noqa: B023
        )
    world.databases.each(resize.close)


def held(world: World, shard: int) -> set[tuple[int, bytes]]:
    """The keys that wait on a shard for an earlier map, for all that is known there."""
    queue = world.databases.read(lambda c: find_queue(c, "o")).id
    rows = world.databases.of(shard).run(lambda c: c.execute(query("undrained_maps"), {"queue": queue}).fetchall())
    return UndrainedKeyMaps.of(rows).held


def test_a_shard_that_has_let_a_key_go_is_not_the_last_to_be_waited_for(world: World, empty_database_url: str) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    world.app.pause("o")
    world.handle.enqueue(key=key, n=0)
    world.app.move_partition("o", partition_of(key.encode(), 2), 3)
    begin(world, 2)
    assert send(world, 2, 50) == 1
    map_changes.tell_rest(world.databases)
    assert [held(world, number) for number in (1, 2, 3)] == [{(1, key.encode())}] * 3, "it is on its way"
    assert carrying.carry(world.databases) == 1
    map_changes.tell_rest_of(world.databases, world.databases.of(2))
    assert [held(world, number) for number in (1, 2, 3)] == [{(1, key.encode())}] * 3, "it waits there"
    world.app.resume("o")
    world.work()
    assert world.ran[key] == [0]
    map_changes.tell_rest(world.databases)
    assert [held(world, number) for number in (1, 2, 3)] == [set()] * 3


def test_a_job_does_not_leave_before_every_shard_was_told(
    world: World, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    world.app.pause("o")
    world.handle.enqueue(key=key, n=0)
    begin(world, 2)
    send(world, 2, 50)
    entry = world.databases.read(lambda c: find_queue(c, "o"))
    third = world.databases.of(4 - entry.partition_shards[partition_of(key.encode(), 2)])
    with monkeypatch.context() as patched:
        patched.setattr(type(third.breaker), "is_down", property(lambda self: self is third.breaker))
        carrying.carry(world.databases)
    assert world.fetch(2, "select count(*) from penstock.outbox") == [(1,)]
    assert carrying.carry(world.databases) == 1
    assert world.fetch(2, "select count(*) from penstock.outbox") == [(0,)]
    assert sum(world.fetch(number, "select count(*) from penstock.ready")[0][0] for number in (1, 2, 3)) == 1


def test_an_older_report_never_replaces_a_newer_one(world: World) -> None:
    world.app.pause("o")
    world.handle.enqueue(key=world.key(1), n=0)
    world.app.move_partition("o", 0, 2)
    world.app.move_partition("o", 1, 2)
    queue = world.databases.read(lambda c: find_queue(c, "o")).id
    for number, keys in ((8, [b"k"]), (7, []), (8, [])):
        given = {"queue": queue, "epoch": 1, "shard": 1, "open_ids": [], "held_keys": keys, "number": number + 10**6}
        world.databases.of(2).run(lambda c: c.execute(query("note_rest"), given))  # noqa: B023
    assert (1, b"k") in held(world, 2)


def test_nothing_starts_where_the_rest_of_a_key_is_on_its_way(world: World) -> None:
    key = world.key(2)
    world.app.pause("o")
    for n in range(60):
        world.handle.enqueue(key=key, n=n)
    begin(world, 2)
    send(world, 2, 10)
    world.app.resume("o")
    world.work()
    world.drain(2)
    world.work()
    assert world.ran == {key: list(range(60))}


def test_what_holds_a_key_leaves_before_what_stands_behind_it(world: World) -> None:
    keys = [world.key(2, n) for n in range(6)]
    world.fails.add("late")
    for n, key in enumerate(keys):
        (world.again.enqueue if n % 2 else world.handle.options(priority=3).enqueue)(
            **{"key": key, "n": 0} | ({} if n % 2 else {"how": "bad"})
        )
    world.work()
    for key in keys:
        world.handle.options(priority=1).enqueue(key=key, n=1)
    begin(world, 2)
    seen: list[str] = []
    while send(world, 2, 1):
        seen = [row[0] for row in world.fetch(2, "select facts ->> 'state' from penstock.outbox order by id")]
    assert sorted(seen[:6]) == ["dead"] * 3 + ["scheduled"] * 3
    assert seen[6:] == ["ready"] * 6


def test_a_key_is_not_parted_by_a_change_on_its_way(world: World, empty_database_url: str) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    number = partition_of(key.encode(), 2)
    world.app.pause("o")
    for n in range(60):
        world.handle.enqueue(key=key, n=n)
    begin(world, 2)
    first = world.databases.read(lambda c: find_queue(c, "o")).partition_shards[number]
    send(world, 2, 20)
    assert carrying.carry(world.databases) == 20
    world.app.move_partition("o", number, 4 - first)
    world.handle.enqueue(key=key, n=60)
    world.drain(2)
    world.app.resume("o")
    world.work()
    assert world.ran == {key: list(range(61))}


def test_a_child_takes_along_how_its_parents_ended(world: World) -> None:
    ended = world.plain(2)
    world.work()
    later = world.plain(1, run_at=LATER)
    child = world.plain(2, after=[ended, later])
    begin(world, 2)
    assert send(world, 2, 10) == 1
    # Nobody keeps it for the child any more.
    world.fetch(2, "delete from penstock.finished returning 1")
    world.drain(2)
    world.app.retry(later)
    world.work()
    assert world.app.job(child).state == "succeeded"


def test_nobody_has_to_ask_a_drained_shard_for_idempotency_keys(world: World) -> None:
    begin(world, 2)
    for _ in range(3):
        draining.advance_draining(world.databases)
    assert states(world.databases)[2] == "draining"
    assert {(each.queue, each.kind) for each in draining.count_rest(world.databases, 2)} == {
        ("o", "idempotency keys"),
        ("p", "idempotency keys"),
    }
    carry_keys(world.databases)
    draining.advance_draining(world.databases)
    assert states(world.databases)[2] == "drained"


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
    loader.publish("much", loader.stage(*range(5), key=key, partition=number), batch=0, origin="a")
    world.app.pause_load("much")
    world.app.drain_shard(shard)
    loader.publish("much", loader.stage(*range(5, 8), key=key, partition=number), batch=1, origin="a")
    world.drain(shard)
    (load,) = world.app.loads()
    assert (load.state, load.rows, load.waiting) == ("paused", 8, 8)
    again = loader.publish("much", loader.stage(99, key=key, partition=number), batch=0, origin="a")
    assert (again.is_new, again.rows) == (False, 5), "decided once, whoever leads"
    world.app.resume_load("much")
    world.work()
    assert world.ran[""] == list(range(8))


# The command


def test_the_command_tells_how_far_it_is(world: World, tmp_path: Path) -> None:
    penstock = CommandLine(tmp_path, " ".join(world.urls))
    stuck = world.plain(2)
    with world.databases.of(2).connect() as connection, connection.transaction():
        connection.execute("select from penstock.ready where task = 'run' for update")
        title, head, *rows = penstock.done("shards", "drain", "2").out.splitlines()
        assert title == "shard 2 is being drained"
        assert head.split() == ["queue", "left", "count", "why"]
        assert [row.split()[:3] for row in rows] == [["p", "ready", "1"]]
        record = penstock.done("shards", "drain", "2", "--json").json
        assert (record["shard"], record["state"]) == ("2", "draining")
        assert record["rest"][0]["kind"] == "ready"
    while penstock.done("shards", "drain", world.urls[1], "--json").json["state"] != "drained":
        continue
    assert penstock.done("shards", "drain", "2").out.startswith("shard 2 is drained")
    assert world.app.job(stuck).state == "ready"
    assert "the last one in use" in penstock.refused("shards", "drain", "1")
    assert "there is no shard" in penstock.refused("shards", "drain", "7")


def test_nothing_is_begun_while_another_shard_does_not_answer(shard_urls: list[str], empty_database_url: str) -> None:
    proxy = Proxy(shard_urls[1])
    try:
        with App(shards=[shard_urls[0], proxy.url], request_timeout=5.0) as app:
            app.queue("p", partitions=2)
            app.add_shard(empty_database_url)
            proxy.go_down()
            with pytest.raises(PartitionUnavailable, match=r"shard 2, .*does not answer") as refused:
                app.drain_shard(3)
            assert refused.value.outcome == "not written"
            with pytest.raises(PartitionUnavailable, match=r"shard 2, .*does not answer") as refused:
                app.resize("p", partitions=3)
            assert refused.value.outcome == "not written"
            assert [each.state for each in app.shards] == ["active"] * 3
    finally:
        proxy.close()


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
