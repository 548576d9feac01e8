"""`spark.readStream.format("penstock")`: what was committed is settled, and a restart repeats the same jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.system.facts import eventually

from penstock import App

Take = Callable[[DataFrame, int], None]


def _started(
    spark: SparkSession, url: str, checkpoint: Path, take: Take, *, available_now: bool = True, **options: Any
) -> StreamingQuery:
    reader = spark.readStream.format("penstock").option("url", url).option("queue", "events")
    for name, value in options.items():
        reader = reader.option(name, value)
    writer = reader.load().writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _ids(batch: DataFrame) -> list[int]:
    return [row.id for row in batch.select("id").collect()]


def _ends(url: str) -> dict[int, str]:
    """The worker that wrote each job's end; an end written twice fails here."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select job_id, worker from penstock.finished_job").fetchall()
    assert len(rows) == len({job for job, _ in rows})
    return dict(rows)


def test_batches_hold_what_is_asked_for_and_every_one_is_settled(
    spark: SparkSession, app: App, database_url: str, tmp_path: Path
) -> None:
    events = app.queue("events", partitions=2)

    @events.task
    def note(number: int, customer: str) -> None: ...

    jobs = note.enqueue_many([{"number": number, "customer": "ä"} for number in range(2_500)])
    jobs += [
        note.options(key="c-1", tenant="acme", priority=9).enqueue(number=number, customer="b") for number in range(5)
    ]
    batches: list[list[Any]] = []

    def take(batch: DataFrame, number: int) -> None:
        if number == 0:
            # Of later ones the query must know nothing: it takes what is there when it starts.
            note.enqueue(number=-1, customer="late")
        batches.append(batch.collect())

    _started(spark, database_url, tmp_path, take, max_jobs=1_000).awaitTermination()
    assert [len(batch) for batch in batches] == [1_000, 1_000, 505]
    rows = {row.id: row for batch in batches for row in batch}
    assert len(rows) == 2_505
    assert rows[jobs[0]].asDict() == {
        "id": jobs[0], "task": "note", "key": None, "args": '{"number":0,"customer":"ä"}', "attempt": 1, "tenant": None,
    }  # fmt: skip
    assert (rows[jobs[-1]].key, rows[jobs[-1]].tenant) == ("c-1", "acme")
    assert set(_ends(database_url)) == rows.keys()
    assert str(app.job(jobs[0]).worker).startswith("spark/stream ")
    stats = app.stats("events")
    assert (stats.total_completed, stats.queue_length) == (2_505, 1)


def test_a_running_stream_settles_its_last_batch_and_ends_with_its_query(
    spark: SparkSession, app: App, database_url: str, tmp_path: Path
) -> None:
    @app.queue("events").task
    def note(number: int) -> None: ...

    seen: list[int] = []
    query = _started(
        spark, database_url, tmp_path, lambda batch, _: seen.extend(_ids(batch)), available_now=False, tasks="note"
    )
    try:
        note.options(delay=0.2).enqueue(number=0)
        eventually(lambda: app.stats("events").total_completed == 1, "the first is settled")
        note.enqueue_many([{"number": number} for number in range(1, 100)])
        eventually(lambda: app.stats("events").total_completed == 100, "all are settled")
    finally:
        query.stop()
    assert len(seen) == len(set(seen)) == 100
    (worker,) = app.workers()
    assert worker.running == 0
    eventually(lambda: not Path(f"/proc/{worker.pid}").exists(), "nobody renews that worker any more")


def test_g3_a_query_that_is_started_again_repeats_the_same_jobs_and_settles_them_once(
    spark: SparkSession, app: App, database_url: str, tmp_path: Path
) -> None:
    ran: list[int] = []

    @app.queue("events").task
    def note(number: int) -> None:
        ran.append(number)

    jobs = note.enqueue_many([{"number": number} for number in range(300)])
    seen: list[list[int]] = []
    failing = {0}

    def take(batch: DataFrame, number: int) -> None:
        seen.append(sorted(_ids(batch)))
        if number in failing:
            failing.discard(number)
            raise RuntimeError("the sink is away")

    # Within the lease: the same worker goes on, nobody else had a chance.
    with pytest.raises(StreamingQueryException, match="sink is away"):
        _started(spark, database_url, tmp_path, take, max_jobs=100).awaitTermination()
    held = app.workers()
    assert [worker.running for worker in held] == [100]
    failing.add(2)
    with pytest.raises(StreamingQueryException, match="sink is away"):
        _started(spark, database_url, tmp_path, take, max_jobs=100, lease=1).awaitTermination()
    assert seen[0] == seen[1]
    assert sorted(job for batch in seen[1:] for job in batch) == sorted(jobs)
    assert len(_ends(database_url)) == 200

    # Past it: a plain worker rescues and runs what the query held; the query repeats it, and settles nothing.
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update penstock.worker set renewed_at = now() - interval '1 hour'")
    app.work(until_idle=True)
    assert len(ran) == 100
    before = _ends(database_url)
    _started(spark, database_url, tmp_path, take, max_jobs=100).awaitTermination()
    assert seen[-1] == seen[-2]
    assert _ends(database_url) == before
    assert before.keys() == set(jobs)


def test_what_a_stream_cannot_be_is_refused(spark: SparkSession, app: App, database_url: str, tmp_path: Path) -> None:
    app.queue("events", order="key")
    app.migrate()

    def take(batch: DataFrame, number: int) -> None: ...

    with pytest.raises(
        StreamingQueryException, match=r"\[penstock:InvalidInput\] queue: 'events' has rules about keys"
    ):
        _started(spark, database_url, tmp_path, take).awaitTermination()
    with pytest.raises(Exception, match=r"\[penstock:InvalidInput\] max_jobs"):
        _started(spark, database_url, tmp_path / "other", take, max_jobs=0).awaitTermination()
