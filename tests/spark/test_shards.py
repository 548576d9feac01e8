"""The pipeline over two shards: a load is there everywhere or nowhere, and everything else covers both."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.fault.proxy import Proxy
from tests.system.facts import eventually

import penstock.spark as ps
from penstock import App, PartitionUnavailable
from penstock.routing import home_of
from penstock.shards.decided_loads import publish_all_decided
from penstock.shards.upkeep_duties import DUTIES
from penstock.spark.lake.parquet_lake import ParquetLake


@pytest.fixture
def second(shard_urls: list[str]) -> Iterator[Proxy]:
    """What stands before the second shard."""
    proxy = Proxy(shard_urls[1])
    yield proxy
    proxy.close()


@pytest.fixture
def app(shard_urls: list[str], second: Proxy) -> Iterator[App]:
    """An app on two fresh shards."""
    with App(shards=[shard_urls[0], second.url], request_timeout=3.0) as app:
        app.queue("orders", partitions=4)
        app.queue("updates", partitions=4, order="key")
        app.migrate()
        yield app


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def ready(url: str) -> list[dict[str, Any]]:
    """The arguments of what can be claimed on a shard, in its order."""
    return [
        row[0]
        for row in rows(
            url,
            "select j.args::jsonb from penstock.ready as r cross join lateral unnest(penstock.positions(r.low, r.high,"
            " r.members)) as m join penstock.job as j on j.id = r.range * 1024 + m order by r.pos, m",
        )
    ]


def events(spark: SparkSession, count: int, partitions: int = 4) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(
        f.concat(f.lit("c-"), f.col("id") % 37).alias("customer"), f.col("id").alias("n"), (-f.col("id")).alias("time")
    )


def load(spark: SparkSession, app: App, queue: str, count: int, name: str = "l", **options: Any) -> Any:
    return ps.load(events(spark, count), app, queue, "t", key="customer", load=name, **options)


def succeed(batch: pa.RecordBatch) -> list[ps.Ok]:
    return [ps.Ok() for _ in range(batch.num_rows)]


def test_a_load_lies_on_both_shards_and_is_loaded_once_g8(spark: SparkSession, app: App, shard_urls: list[str]) -> None:
    done = load(spark, app, "orders", 4_000)
    assert (done.rows, done.duplicates, done.is_new) == (4_000, 0, True)
    again = load(spark, app, "orders", 4_000)
    assert (again.rows, again.is_new, again.published_at) == (4_000, False, done.published_at)
    # Who writes by himself gives one URL: the catalogue knows the other.
    options = {"url": shard_urls[0], "queue": "orders", "task": "t", "key": "customer", "load": "l"}
    events(spark, 4_000).write.format("penstock").options(**options).mode("append").save()
    here, there = ({each["n"] for each in ready(url)} for url in shard_urls)
    assert len(here) > 500
    assert len(there) > 500
    assert here | there == set(range(4_000))
    assert not here & there
    assert rows(shard_urls[1], "select count(*) from penstock.load_range where load_id is null") == [(0,)]


@pytest.mark.long_run
def test_an_idempotency_key_is_found_again_whichever_shard_it_lies_on_g7(
    spark: SparkSession, app: App, shard_urls: list[str]
) -> None:
    once = events(spark, 1_000).withColumn("idempotency_key", f.concat(f.lit("k-"), f.col("n")))
    for queue, key in (("orders", "customer"), ("orders", None), ("updates", "customer")):
        name = f"{queue}-{key}"
        frame = once if key is not None else once.withColumn("idempotency_key", f.concat(f.lit("u-"), f.col("n")))
        first = ps.load(frame, app, queue, "t", key=key, load=f"{name}-1")
        assert (first.rows, first.duplicates) == (1_000, 0)
        second = ps.load(frame.repartition(3), app, queue, "t", key=key, load=f"{name}-2")
        assert (second.rows, second.duplicates) == (1_000, 1_000)
    counts = [rows(url, "select count(*) from penstock.dedup")[0][0] for url in shard_urls]
    assert sum(counts) == 3_000
    assert min(counts) > 500
    # Where a producer looks for them.
    plain = "select idempotency_key from penstock.dedup join penstock.queue as q on q.id = queue_id where not is_owned"
    for number, url in enumerate(shard_urls, 1):
        assert {home_of(key, [1, 2]) for (key,) in rows(url, plain)} == {number}


def test_the_jobs_of_a_key_run_in_the_order_of_the_data_on_any_shard_g5(spark: SparkSession, app: App) -> None:
    load(spark, app, "updates", 3_000, order_by="time")
    folder_of: dict[str, list[int]] = defaultdict(list)

    def note(batch: pa.RecordBatch) -> list[ps.Ok]:
        import json

        return [ps.Ok(json.loads(args)["time"]) for args in batch.column("args").to_pylist()]

    done = ps.process(spark, app, "updates", note)
    assert done.succeeded == 3_000
    history = ps.history(spark, app, columns=["key", "result", "started_at", "id"])
    for row in history.orderBy("started_at", "id").collect():
        folder_of[row.key].append(int(row.result))
    assert len(folder_of) == 37
    assert all(sorted(times) == times for times in folder_of.values())


@pytest.mark.long_run
def test_a_task_that_fails_after_it_staged_on_both_shards_is_run_again_and_counts_once_g8(
    spark: SparkSession, app: App, shard_urls: list[str], tmp_path: Path
) -> None:
    met = tmp_path / "met"

    def trouble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not met.exists():
            met.touch()
            raise OSError("a disk failed, as disks do")

    frame = events(spark, 300_000, 2).mapInArrow(trouble, "customer string, n long, time long")
    done = ps.load(frame, app, "orders", "t", key="customer", load="l")
    assert (done.rows, done.is_new) == (300_000, True)
    left = "select count(*) from penstock.load_range where load_id is null"
    assert all(rows(url, left)[0][0] > 0 for url in shard_urls)  # of the first attempt, which nobody can claim
    seen = [each["n"] for url in shard_urls for each in ready(url)]
    assert sorted(seen) == list(range(300_000))


_DRIVER = """
import os, signal, sys
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType
from penstock.spark.loading.load_writer import LoadWriter
from penstock.shards import publishing
from penstock.shards.load_commit import LoadCommit

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

where, url = sys.argv[1:]
schema = StructType([StructField("id", LongType())])
writer = LoadWriter(schema, False, {"url": url, "queue": "orders", "task": "t", "load": "l"})
staged = writer.write(iter([pa.record_batch({"id": list(range(1000))})]))
assert len(staged.ranges) == 2
asked = LoadCommit._ask
if where == "before the decision":
    LoadCommit._ask = lambda self, database, name, parameters: (
        die() if name == "publish_load" else asked(self, database, name, parameters))
elif where == "after the decision":
    publishing.publish_decided = die
writer.commit([staged])
die()
"""


@pytest.mark.parametrize("where", ["before the decision", "after the decision", "after all"])
def test_a_killed_driver_has_loaded_everywhere_or_nowhere_and_its_repeat_completes_it_g8(
    spark: SparkSession, app: App, shard_urls: list[str], where: str
) -> None:
    url = "\n".join(database.url for database in app.databases)
    driver = subprocess.run([sys.executable, "-c", _DRIVER, where, url], capture_output=True, text=True, check=False)
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    visible = [len(ready(each)) for each in shard_urls]
    if where == "before the decision":
        assert visible == [0, 0]
        assert publish_all_decided(app.databases) == 0
        assert [len(ready(each)) for each in shard_urls] == [0, 0]
    elif where == "after the decision":
        assert visible == [500, 0]
    again = ps.load(spark.range(0, 1_000, 1, 2), app, "orders", "t", load="l")
    assert (again.rows, again.is_new) == (1_000, where == "before the decision")
    assert sorted(each["id"] for url in shard_urls for each in ready(url)) == list(range(1_000))


def test_upkeep_of_any_worker_goes_on_with_loads() -> None:
    assert any(duty.act is publish_all_decided for duty in DUTIES)


def test_rows_that_may_lie_anywhere_are_loaded_while_a_shard_is_away(
    spark: SparkSession, app: App, shard_urls: list[str], second: Proxy
) -> None:
    second.go_down()
    done = ps.load(spark.range(0, 1_000, 1, 2), app, "orders", "t", load="l")
    assert done.rows == 1_000
    second.come_up()
    assert [len(ready(url)) for url in shard_urls] == [1_000, 0]


def test_a_stream_in_writes_to_both_shards_batch_by_batch_g8(
    spark: SparkSession, app: App, shard_urls: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "in"
    events(spark, 1_000, 4).write.parquet(str(source))
    url = "\n".join(database.url for database in app.databases)
    writer = spark.readStream.schema("customer string, n long, time long").option("maxFilesPerTrigger", 1)
    options = {"url": url, "queue": "updates", "task": "t", "key": "customer", "sink": "s"}
    query = (
        writer.parquet(str(source))
        .writeStream.format("penstock")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    numbers = [[each["n"] for each in ready(url)] for url in shard_urls]
    assert min(map(len, numbers)) > 200
    assert sorted(numbers[0] + numbers[1]) == list(range(1_000))
    assert rows(shard_urls[0], "select count(*) from penstock.load_share where published_at is null") == [(0,)]


@pytest.mark.long_run
def test_tables_history_and_advice_cover_both_shards_and_name_one_that_is_away(
    spark: SparkSession, app: App, second: Proxy
) -> None:
    load(spark, app, "orders", 2_000)
    url = "\n".join(database.url for database in app.databases)

    def read(table: str, **options: str) -> DataFrame:
        return spark.read.format("penstock").options(url=url, table=table, columns="id", **options).load()

    waiting = {row.id for row in read("jobs", partitions="6").collect()}
    assert len(waiting) == 2_000
    assert {(job >> 10) & 1023 for job in waiting} == {1, 2}
    assert ps.process(spark, app, "orders", succeed).succeeded == 2_000
    assert {row.id for row in ps.history(spark, app, columns=["id"]).collect()} == waiting
    # It reads both tables as the report does.
    advice = ps.advise(spark, app, "orders")
    assert (advice.partitions, advice.jobs, advice.keys) == (4, 2_000, 37)
    second.go_down()
    with pytest.raises(PartitionUnavailable, match="shard 2"):
        ps.history(spark, app)
    with pytest.raises(Exception, match=r"\[penstock:PartitionUnavailable\] shard 2"):
        read("jobs").collect()
    second.come_up()


@pytest.mark.long_run
def test_an_archive_covers_both_shards_and_may_be_killed_between_them(
    spark: SparkSession, app: App, second: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(spark, app, "orders", 2_000)
    ps.process(spark, app, "orders", succeed)
    lake = tmp_path / "lake"
    columns = ["id", "args", "outcome", "load"]
    before = sorted(ps.history(spark, app, lake, columns).collect())
    assert len(before) == 2_000

    class Killed(BaseException):
        pass

    written: list[int] = []
    write = ParquetLake.write

    def die_at_the_second(self: ParquetLake, *arguments: Any) -> Any:
        if written:
            raise Killed
        written.append(1)
        return write(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ParquetLake, "write", die_at_the_second)
        with pytest.raises(Killed):
            ps.archive(spark, app, lake)
    assert sorted(ps.history(spark, app, lake, columns).collect()) == before
    # One shard away: the other is archived, and the error says so.
    second.go_down()
    with pytest.raises(PartitionUnavailable, match=r"shard 2.*0 jobs of the other shards were archived"):
        ps.archive(spark, app, lake)
    second.come_up()
    eventually(lambda: not app.databases.of(2).breaker.is_down, "the second shard is back")
    planned = ps.history(spark, app, lake, columns)
    archived = ps.archive(spark, app, lake)
    assert [shard for shard, _ in archived.slices] == [2]
    # What was planned before reads the slice from the lake instead.
    assert sorted(planned.collect()) == before
    assert sorted(ps.history(spark, app, lake, columns).collect()) == before
    manifests = [path.read_text() for path in lake.glob("_penstock/*/*.json")]
    assert {text.partition(",")[0] for text in manifests} == {'{"shard":1', '{"shard":2'}
    hot = spark.read.format("penstock").options(url=app.url, table="finished", columns="id").load()
    assert hot.collect() == []
    assert ps.archive(spark, app, lake).slices == []


@pytest.mark.parametrize("queue", ["orders", "updates"])
def test_a_dead_shard_does_not_keep_slots_from_the_jobs_of_the_other(
    spark: SparkSession, app: App, second: Proxy, queue: str
) -> None:
    load(spark, app, queue, 1_000)
    second.go_down()
    with pytest.raises(PartitionUnavailable, match="shard 2"):
        ps.process(spark, app, queue, succeed)
    second.come_up()
    eventually(lambda: not app.databases.of(2).breaker.is_down, "the second shard is back")
    assert app.stats(queue).total_completed > 300
    ps.process(spark, app, queue, succeed)
    assert app.stats(queue).total_completed == 1_000


@pytest.mark.long_run
def test_slots_go_on_with_a_shard_that_comes_back(spark: SparkSession, app: App, second: Proxy) -> None:
    load(spark, app, "orders", 1_000)
    second.go_down()
    stop = Event()
    run = Thread(target=lambda: ps.process(spark, app, "orders", succeed, until_idle=False, stop=stop))
    run.start()
    try:
        eventually(lambda: app.databases.of(2).breaker.is_down, "the shard is known to be down")
        second.come_up()
        eventually(lambda: app.stats("orders").total_completed == 1_000, "all have run")
    finally:
        stop.set()
        run.join()


def test_a_stream_of_jobs_takes_them_from_both_shards_and_settles_them_there(
    spark: SparkSession, app: App, shard_urls: list[str], tmp_path: Path
) -> None:
    load(spark, app, "orders", 3_000)
    url = "\n".join(database.url for database in app.databases)
    batches: list[list[int]] = []

    def take(batch: DataFrame, number: int) -> None:
        batches.append([row.id for row in batch.select("id").collect()])

    reader = spark.readStream.format("penstock").options(url=url, queue="orders", max_jobs="1000")
    writer = reader.load().writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(take)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert {(job >> 10) & 1023 for job in batches[0]} == {1, 2}
    jobs = [job for batch in batches for job in batch]
    assert len(jobs) == len(set(jobs)) == 3_000
    ended = [rows(each, "select job_id from penstock.finished_job") for each in shard_urls]
    assert sorted(row[0] for each in ended for row in each) == sorted(jobs)
    assert min(map(len, ended)) > 500
