"""Slots and streams over two shards, one of which goes away and comes back; no Spark is needed to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.fault.proxy import Proxy
from tests.system.facts import eventually

import penstock.spark as ps
from penstock import App
from penstock.routing import shard_of
from penstock.shards.load_commit import MapChanged
from penstock.spark.claiming.known_tasks import KnownTasks
from penstock.spark.loading import load as loading
from penstock.spark.processing.executor_worker import ExecutorWorker
from penstock.spark.processing.row_outcome import Outcome
from penstock.spark.processing.work_plan import WorkPlan
from penstock.spark.streaming.consumer import Consumer
from penstock.spark.streaming.stream_offset import StreamOffset
from penstock.spark.streaming.stream_options import StreamOptions
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.work import workers


@pytest.fixture
def second(shard_urls: list[str]) -> Iterator[Proxy]:
    """What stands before the second shard."""
    proxy = Proxy(shard_urls[1])
    yield proxy
    proxy.close()


@pytest.fixture
def app(shard_urls: list[str], second: Proxy) -> Iterator[App]:
    with App(shards=[shard_urls[0], second.url]) as app:
        app.queue("q", partitions=2)
        app.queue("keyed", partitions=4, order="key")
        app.migrate()
        yield app


def enqueue(url: str, count: int, queue: str = "q") -> None:
    """Jobs without a key, on the shard that they are enqueued to."""
    with psycopg.connect(url) as connection:
        connection.execute("select penstock.enqueue(%s, 't') from generate_series(1, %s)", [queue, count])


def ended(url: str) -> list[int]:
    """The jobs that ended on a shard; one that ended twice is there twice."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("select job_id from penstock.finished_job order by 1")]


def slot(app: App, handler: Callable[[pa.RecordBatch], list[Outcome]], **options: Any) -> ExecutorWorker:
    entry = app.databases.read(lambda connection: find_queue(connection, "q"))

    def driver(connection: Any) -> int:
        return workers.register(
            connection, name="driver", host="", pid=0, version="", concurrency=0, lease_seconds=60.0, tasks=()
        )

    given: dict[str, Any] = {
        "urls": {database.shard: database.url for database in app.databases},
        "drivers": app.databases.each(driver).given,
        "run": "spark/test/",
        "slots": 1,
        "queue_id": entry.id,
        "is_owned": False,
        "handler": handler,
        "tasks": KnownTasks("q", {}, None),
        "batch_size": 50,
        "lease_seconds": 60.0,
        "until_idle": True,
        "budget_seconds": 60.0,
        **options,
    }
    return ExecutorWorker(WorkPlan(**given))


def succeed(batch: pa.RecordBatch) -> list[Outcome]:
    return [ps.Ok() for _ in range(batch.num_rows)]


def test_every_shard_has_a_slot_however_many_there_are() -> None:
    def shards_of(slots: int, shards: int, *, is_owned: bool) -> list[list[int]]:
        drivers = dict.fromkeys(range(1, shards + 1), 1)
        plan = WorkPlan({}, drivers, "", slots, 1, is_owned, succeed, KnownTasks("q", {}, None), None, 1.0, True, 1.0)
        return [plan.shards_of(slot) for slot in range(slots)]

    assert shards_of(2, 3, is_owned=False) == [[1, 2, 3], [2, 3, 1]]
    assert shards_of(4, 2, is_owned=True) == [[1], [2], [1], [2]]
    assert shards_of(2, 3, is_owned=True) == [[1, 3], [2]]
    assert shards_of(1, 3, is_owned=True) == [[1, 2, 3]]


def test_a_shard_that_always_has_work_does_not_starve_the_other(app: App, shard_urls: list[str]) -> None:
    enqueue(shard_urls[0], 50)
    enqueue(shard_urls[1], 50)
    seen: list[int] = []

    def work(batch: pa.RecordBatch) -> list[Outcome]:
        seen.append(shard_of(batch.column("id")[0].as_py()))
        if 2 not in seen and len(seen) < 400:
            enqueue(shard_urls[0], 50)
        return succeed(batch)

    assert slot(app, work).run() == "idle"
    assert 2 in seen
    assert len(seen) < 400


def test_what_ran_while_its_shard_went_away_is_settled_when_it_is_back_g3(
    app: App, shard_urls: list[str], second: Proxy
) -> None:
    enqueue(shard_urls[0], 500)
    enqueue(shard_urls[1], 100)
    ran: list[int] = []
    after: list[int] = []

    def work(batch: pa.RecordBatch) -> list[Outcome]:
        jobs = batch.column("id").to_pylist()
        ran.extend(jobs)
        if shard_of(jobs[0]) == 2 and not after:
            after.append(0)
            second.go_down()
        elif after:
            after.append(len(jobs))
            if len(after) == 4:
                second.come_up()
        return succeed(batch)

    # It begins with the second shard.
    first = slot(app, work)
    first._shard_workers.reverse()
    first.run()
    assert len(after) >= 4
    # What was left to the next round.
    eventually(lambda: not app.databases.of(2).breaker.is_down, "the second shard is back")
    slot(app, work).run()
    assert len(ran) == len(set(ran)) == 600
    assert sorted(ended(shard_urls[0]) + ended(shard_urls[1])) == sorted(ran)


def test_a_stream_goes_on_while_a_shard_is_away_and_settles_what_it_owes(
    app: App, shard_urls: list[str], second: Proxy
) -> None:
    for url in shard_urls:
        enqueue(url, 100)
    urls = "\n".join(database.url for database in app.databases)
    consumer = Consumer(StreamOptions(urls, "q", None, 60.0))
    first = consumer.claim_next(StreamOffset(), 60)
    assert [part.jobs for _, part in first.by_shard] == [30, 30]
    assert StreamOffset.read(first.write()) == first
    second.go_down()
    later = consumer.claim_next(first, 60)
    assert [part.jobs for _, part in later.by_shard] == [30, 0]
    last = consumer.claim_next(later, 100)
    assert [len(ended(url)) for url in shard_urls] == [60, 0]
    second.come_up()
    offsets = [first, later, last]

    def is_done() -> bool:
        found = consumer.claim_next(offsets[-1], 40)
        if found != offsets[-1]:
            offsets.append(found)
        return len(ended(shard_urls[1])) == 100

    eventually(is_done, "what the second shard has is taken and settled")
    # Some more on one shard, while the other has nothing new.
    for _ in range(3):
        enqueue(shard_urls[0], 10)
        offsets.append(consumer.claim_next(offsets[-1], 40))
    consumer.settle(offsets[-1])
    consumer.close()
    given = [job for offset in offsets for _, part in offset.by_shard for each in part.claimed for job in each.jobs]
    assert len(given) == len(set(given)) == 230
    assert [len(ended(url)) for url in shard_urls] == [130, 100]


def test_a_load_whose_keys_went_to_another_shard_is_staged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    class Frame:
        """What stands for a DataFrame whose first two writes are refused."""

        schema = None

        def __getattr__(self, name: str) -> Any:
            return self if name == "write" else lambda *_, **__: self

        def save(self) -> None:
            tries.append(1)
            if len(tries) < 3:
                raise RuntimeError("Spark says: [penstock:MapChanged] keys of queue 'q' belong to other shards by now")

    plans: list[object] = []
    monkeypatch.setattr(loading, "plan_load", lambda *_, **__: plans.append(1))
    frame: Any = Frame()
    plan: Any = None
    loading._write(frame, [], {}, plan)
    assert (len(tries), len(plans)) == (3, 2)
    monkeypatch.setattr(loading, "decode_errors", _refusing)
    with pytest.raises(MapChanged, match="moved"):
        loading._write(frame, [], {}, plan)


@contextmanager
def _refusing() -> Iterator[None]:
    yield
    raise MapChanged("moved")
