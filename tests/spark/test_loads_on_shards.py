"""A load over two shards is visible everywhere or nowhere, whoever dies in between (G8). Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.spark.staged import Loader
from tests.system.facts import eventually

from penstock import App, InvalidInput, PartitionUnavailable, PenstockError, QueueFull
from penstock.shards import publishing
from penstock.shards.decided_loads import publish_all_decided, publish_decided
from penstock.shards.load_commit import LoadCommit, MapChanged, NotDecided, Published
from penstock.shards.publishing import find_published
from penstock.shards.shard_urls import ShardUrls, find_shards, join_urls
from penstock.spark.loading import load_plan
from penstock.storage import Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.loads.loads import forget_stages


class Killed(BaseException):
    """What stands for the end of a process: nothing of it runs any more."""


@pytest.fixture
def app(shard_urls: list[str]) -> Iterator[App]:
    with App(shards=shard_urls, request_timeout=2.0) as app:
        app.queue("q", partitions=4).task(name="t")(lambda n: None)
        app.queue("keyed", partitions=4, order="key").task(name="t")(lambda n: None)
        app.migrate()
        yield app


@pytest.fixture
def loader(app: App) -> Loader:
    return Loader(app, "q")


def places(app: App, queue: str = "q") -> tuple[int, int]:
    """A partition of the queue on each shard."""
    entry = app.databases.read(lambda connection: find_queue(connection, queue))
    return entry.partition_shards.index(1), entry.partition_shards.index(2)


def visible(database: Database) -> list[int]:
    """What can be claimed on a shard, in its order."""
    with psycopg.connect(database.url) as connection:
        rows = connection.execute(
            "select (j.args ->> 'n')::int from penstock.ready as r join penstock.job as j on j.id = r.range * 1024"
            " order by r.pos"
        ).fetchall()
    return [row[0] for row in rows]


def one(database: Database, statement: str) -> int:
    with psycopg.connect(database.url) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def do(database: Database, statement: str) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute(statement)


@contextmanager
def away(database: Database) -> Iterator[None]:
    """Nobody can connect to a shard, and whoever was is cut off."""
    name = database.url.rpartition("/")[2]
    start = database.url.rpartition("/")[0]
    with psycopg.connect(f"{start}/postgres", autocommit=True) as server:
        server.execute(f"alter database {name} allow_connections false")
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        try:
            yield
        finally:
            server.execute(f"alter database {name} allow_connections true")
    eventually(lambda: not database.breaker.is_down, "the shard is back")


def killed_after_the_decision(monkeypatch: pytest.MonkeyPatch, loader: Loader, *stages: tuple[str, int]) -> None:
    """Publish as far as the decision."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "publish_decided", die)
        with pytest.raises(Killed):
            loader.publish("l", *stages)


def killed_before_the_decision(monkeypatch: pytest.MonkeyPatch, loader: Loader, *stages: tuple[str, int]) -> str:
    """Publish as far as everything is prepared; the commit's name."""
    commits: list[str] = []

    def die(self: LoadCommit) -> Published:
        commits.append(self.commit_name)
        for number in self.others:
            self._prepare(number)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LoadCommit, "decide", die)
        patch.setattr(LoadCommit, "take_back", lambda self: None)
        with pytest.raises(Killed):
            loader.publish("l", *stages)
    return commits[0]


def test_a_load_is_published_on_each_shard_once_in_its_order_g8(loader: Loader) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    late_there = loader.stage(3, 4, partition=there)
    stages = [loader.stage(1, 2, partition=here), loader.stage(1, 2, partition=there), late_there]
    assert (visible(lead), visible(other)) == ([], [])
    done = loader.publish("l", *stages)
    assert (done.is_new, done.rows, done.duplicates) == (True, 6, 0)
    assert (visible(lead), visible(other)) == ([1, 2], [1, 2, 3, 4])
    again = loader.publish("l", loader.stage(9, partition=there))
    assert (again.is_new, again.rows, again.published_at) == (False, 6, done.published_at)
    # All of it on the other shard: decided here all the same.
    assert loader.publish("m", loader.stage(5, partition=there)).rows == 1
    assert (visible(lead), visible(other)) == ([1, 2], [1, 2, 3, 4, 5])
    assert [one(each, "select count(*) from penstock.prepared_stages") for each in (lead, other)] == [0, 0]
    assert publish_all_decided(loader.app.databases) == 0


def test_a_driver_killed_after_its_decision_is_gone_on_with_by_upkeep_g8(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    killed_after_the_decision(monkeypatch, loader, loader.stage(1, partition=here), loader.stage(2, 3, partition=there))
    assert (visible(lead), visible(other)) == ([1], [])
    # No janitor drops what was decided, however old it is.
    do(other, "update penstock.load_range set created_at = now() - interval '9 days'")
    do(other, "update penstock.prepared_stages set created_at = now() - interval '9 days'")
    with other.connection() as connection:
        assert forget_stages(connection) == 0
    assert publish_all_decided(loader.app.databases) == 1
    assert (visible(lead), visible(other)) == ([1], [2, 3])
    assert publish_all_decided(loader.app.databases) == 0
    assert (visible(lead), visible(other)) == ([1], [2, 3])


def test_a_driver_killed_after_its_decision_is_gone_on_with_by_its_repeat_g8(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    stages = [loader.stage(1, partition=here), loader.stage(2, 3, partition=there)]
    killed_after_the_decision(monkeypatch, loader, *stages)
    again = loader.publish("l", loader.stage(1, partition=here), loader.stage(2, 3, partition=there))
    assert (again.is_new, again.rows) == (False, 3)
    assert (visible(lead), visible(other)) == ([1], [2, 3])


def test_many_go_on_with_a_load_at_once_and_it_is_published_once_g8(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, there = places(loader.app)
    killed_after_the_decision(monkeypatch, loader, loader.stage(*range(50), partition=there))
    start = threading.Barrier(6)

    def roll() -> None:
        start.wait()
        publish_all_decided(loader.app.databases)

    threads = [threading.Thread(target=roll) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert visible(loader.app.databases.of(2)) == list(range(50))
    assert "refuses" not in caplog.text


def test_what_a_dead_driver_held_is_let_go_of_and_can_not_be_decided_any_more_g8(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    stages = [loader.stage(1, partition=here), loader.stage(2, 3, partition=there)]
    commit_name = killed_before_the_decision(monkeypatch, loader, *stages)
    # It may still come back: a minute passes first.
    assert publish_all_decided(loader.app.databases) == 0
    do(other, "update penstock.prepared_stages set created_at = now() - interval '61 seconds'")
    assert publish_all_decided(loader.app.databases) == 1
    assert one(other, "select count(*) from penstock.prepared_stages") == 0
    # The dead one comes back with its decision.
    commit = LoadCommit(
        loader.app.databases, lead, "l", "q", 0, False, None, None, loader.by_shard(stages[0]), 0, commit_name
    )
    with pytest.raises(NotDecided, match="given up"):
        commit.decide()
    assert (visible(lead), visible(other)) == ([], [])
    # Its stages are still there: prepared again, they are published by another commit.
    assert loader.publish("l", *stages).rows == 3
    assert (visible(lead), visible(other)) == ([1], [2, 3])


def test_held_stages_are_kept_while_the_shard_that_decides_is_away_g8(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    killed_after_the_decision(monkeypatch, loader, loader.stage(1, partition=here), loader.stage(2, partition=there))
    do(other, "update penstock.load_range set created_at = now() - interval '9 days'")
    do(other, "update penstock.prepared_stages set created_at = now() - interval '9 days'")
    with away(lead):
        assert publish_all_decided(loader.app.databases) == 0
        with other.connection() as connection:
            assert forget_stages(connection) == 0
    eventually(lambda: publish_all_decided(loader.app.databases) == 1, "upkeep goes on with it")
    assert visible(other) == [2]


def test_a_shard_that_is_away_before_the_decision_leaves_nothing_anywhere_g8(loader: Loader) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    stages = [loader.stage(1, partition=here), loader.stage(2, partition=there)]
    with away(other), pytest.raises(PartitionUnavailable, match="shard 2") as refused:
        loader.publish("l", *stages)
    assert refused.value.shard == 2
    assert (visible(lead), visible(other)) == ([], [])
    assert find_published(loader.app.databases, "l", "q", 0, is_stream=False) is None
    assert loader.publish("l", *stages).is_new


def test_a_shard_that_is_away_after_the_decision_follows_when_it_is_back_g8(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    stages = [loader.stage(1, partition=here), loader.stage(2, partition=there)]
    real = publish_decided

    def roll_without_it(shards: object, name: str) -> None:
        with away(other):
            real(loader.app.databases, name)

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "publish_decided", roll_without_it)
        with pytest.raises(PartitionUnavailable, match="is decided, and what lies on shard 2 becomes visible when"):
            loader.publish("l", *stages)
    assert (visible(lead), visible(other)) == ([1], [])
    # Spark aborts a load whose commit raised: what was decided stays.
    publishing.drop_stages(loader.app.databases, {2: [stages[1][0]]})
    eventually(lambda: publish_all_decided(loader.app.databases) == 1, "upkeep goes on with it")
    assert visible(other) == [2]


def test_all_is_checked_on_every_shard_before_the_decision_g8(app: App) -> None:
    loader = Loader(app, "q")
    here, there = places(app)
    lead, other = app.databases
    name, ranges = loader.stage(1, 2, partition=there)
    with pytest.raises(PenstockError, match="run the load again under the same name"):
        loader.publish("l", loader.stage(1, partition=here), (name, ranges + 1))
    app.limit("q", max_length=2)
    with pytest.raises(QueueFull):
        loader.publish("l", loader.stage(1, partition=here), loader.stage(1, 2, 3, partition=there))
    # Refused by the shard that decides, when the other holds its part already.
    with pytest.raises(QueueFull):
        loader.publish("l", loader.stage(1, 2, 3, partition=here), loader.stage(1, partition=there))
    assert (visible(lead), visible(other), app.loads()) == ([], [], [])
    assert one(other, "select count(*) from penstock.load_range where commit_name is not null") == 0
    assert one(other, "select count(*) from penstock.prepared_stages") == 0
    assert loader.publish("l", loader.stage(1, partition=here), loader.stage(1, 2, partition=there)).is_new
    with pytest.raises(InvalidInput, match="names another load"):
        Loader(app, "keyed").publish("l")


def test_of_two_drivers_with_one_name_one_loads_g8(loader: Loader) -> None:
    here, there = places(loader.app)
    lead, other = loader.app.databases
    pairs = [(loader.stage(n, partition=here), loader.stage(n, n, partition=there)) for n in range(6)]
    done: list[Published] = []
    start = threading.Barrier(6)

    def commit(stages: tuple[tuple[str, int], tuple[str, int]]) -> None:
        start.wait()
        done.append(loader.publish("same", *stages))

    threads = [threading.Thread(target=commit, args=[stages]) for stages in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.is_new for each in done) == [False] * 5 + [True]
    assert {each.rows for each in done} == {3}
    assert visible(other) == visible(lead) * 2
    assert one(other, "select count(*) from penstock.prepared_stages") == 0


def test_the_batches_of_a_stream_are_published_in_order_on_each_shard(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, there = places(loader.app)
    other = loader.app.databases.of(2)
    first, second = loader.stage(1, partition=there), loader.stage(2, partition=there)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "publish_decided", lambda *_: None)
        loader.publish("s", first, batch=0, origin="o")
    assert visible(other) == []
    loader.publish("s", second, batch=1, origin="o")
    assert visible(other) == [1, 2]


def test_idempotency_keys_count_on_the_shard_where_they_lie_g7(loader: Loader) -> None:
    here, there = places(loader.app)
    first = loader.publish("a", loader.stage(1, 2, once="k", partition=there), loader.stage(7, partition=here))
    assert (first.rows, first.duplicates) == (3, 0)
    second = loader.publish("b", loader.stage(2, 3, once="k", partition=there), loader.stage(8, partition=here))
    assert (second.rows, second.duplicates) == (3, 1)
    assert visible(loader.app.databases.of(2)) == [1, 2, 3]
    stages = [loader.stage(4, once="k", partition=there)]
    # While keys are on their way from one shard to another nobody knows all of them.
    do(loader.app.databases.of(2), "update penstock.queue_map set is_carried = false")
    with pytest.raises(PartitionUnavailable, match="being carried to other shards"):
        loader.publish("c", *stages)
    do(loader.app.databases.of(2), "update penstock.queue_map set is_carried = true")
    do(loader.app.databases.of(2), "update penstock.queue set homes = '{2}'")
    with pytest.raises(MapChanged, match="run it again under the same name"):
        loader.publish("c", *stages)


def test_a_held_map_is_not_closed_until_the_load_is_published_by_it_g5(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(app, "keyed")
    _, there = places(app, "keyed")
    lead, other = app.databases
    killed_after_the_decision(monkeypatch, loader, loader.stage(1, 2, key="k", partition=there))
    app.resize("keyed", partitions=7)
    closed = "select (state = 'closed')::int from penstock.map_here where epoch = 1 and queue_id = 2"
    for database in (lead, other):
        do(database, "select penstock.close_maps()")
    assert (one(lead, closed), one(other, closed)) == (1, 0)
    assert publish_all_decided(app.databases) == 1
    assert visible(other) == [1, 2]
    assert one(other, "select count(*) from penstock.ready where epoch = 1") == 2
    do(other, "select penstock.close_maps()")
    assert one(other, closed) == 1
    # What was staged by the old map and belongs elsewhere now is refused before anything is decided.
    with pytest.raises(MapChanged):
        loader.publish("n", *[_staged_by_an_old_map(loader, there, key) for key in "abcdefgh"])


def _staged_by_an_old_map(loader: Loader, partition: int, key: str) -> tuple[str, int]:
    stage = loader.stage(1, key=key, partition=partition)
    do(loader.app.databases.of(2), "update penstock.load_range set epoch = 1 where load_id is null")
    return stage


def test_a_load_that_begins_while_a_shard_joins_finds_it(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = find_shards(join_urls(app.databases))
    looks = [ShardUrls({1: whole.urls[1]}, 1), whole]
    monkeypatch.setattr(load_plan, "find_shards", lambda _: looks.pop(0))
    options = {"url": join_urls(app.databases), "queue": "q", "task": "t", "load": "l"}
    plan = load_plan.plan_load(options, StructType([StructField("n", LongType())]), False, is_stream=False)
    found = plan.destination
    assert set(found.partition_shards) == {1, 2} == found.shards.urls.keys()
