"""A load from Spark: every row a job, all at once, once, in the order of the data."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock.spark as ps
from penstock import App, InvalidInput, NotFound, QueueFull, UnknownTask
from penstock.spark.data_source.error_codes import decode_errors
from penstock.spark.loading.load_writer import LoadWriter

FULL = os.environ.get("PENSTOCK_FAULT") == "full"


def staged(app: App) -> int:
    """Ranges that belong to no load."""
    with app.database.connection() as connection:
        row = connection.execute("select count(*) from penstock.load_range where load_id is null").fetchone()
    assert row is not None
    return int(row[0])


def events(spark: SparkSession, rows: int, partitions: int = 4) -> DataFrame:
    return spark.range(0, rows, 1, partitions).select(
        f.concat(f.lit("c-"), f.col("id") % 37).alias("customer_id"),
        f.col("id").alias("n"),
        # Runs against the order the rows are in.
        (rows - f.col("id")).alias("event_time"),
    )


def test_a_load_becomes_jobs_all_at_once_and_once_for_its_name(spark: SparkSession, app: App) -> None:
    app.queue("orders", partitions=3)
    app.migrate()
    frame = events(spark, 5_000)
    done = ps.load(frame, app, "orders", "ship", load="first")
    assert (done.rows, done.duplicates, done.bad_rows, done.is_new) == (5_000, 0, 0, True)
    again = ps.load(frame, app, "orders", "ship", load="first")
    assert (again.rows, again.is_new, again.published_at) == (5_000, False, done.published_at)
    # The writer itself is asked too, by who does not use ps.load.
    options = {"url": app.url, "queue": "orders", "task": "ship", "load": "first"}
    frame.write.format("penstock").options(**options).mode("append").save()
    stats = app.stats("orders")
    assert (stats.queue_length, stats.total_enqueued, staged(app)) == (5_000, 5_000, 0)
    assert max(part.queue_length for part in stats.partitions) <= 1_670
    (load,) = app.loads()
    assert (load.name, load.queue, load.state, load.rows, load.waiting) == ("first", "orders", "running", 5_000, 5_000)
    assert len(app.jobs(load="first", limit=10_000)) == 5_000
    assert app.jobs(load="other") == []


@pytest.mark.parametrize("by", ["data", "event_time"])
def test_the_jobs_of_a_key_run_in_the_order_of_the_data_g5(spark: SparkSession, app: App, by: str) -> None:
    queue = app.queue("updates", partitions=4, order="key")
    seen: dict[str, list[int]] = defaultdict(list)

    @queue.task(key="customer_id")
    def update(customer_id: str, n: int, event_time: int) -> None:
        seen[customer_id].append(n)

    app.migrate()
    ps.load(
        events(spark, 3_000),
        app,
        "updates",
        "update",
        key="customer_id",
        order_by=None if by == "data" else by,
        load=by,
    )
    app.work(until_idle=True)
    assert sum(map(len, seen.values())) == 3_000
    assert len(seen) == 37
    for order in seen.values():
        assert order == sorted(order, reverse=by == "event_time")


def test_a_plain_write_sorts_within_its_tasks_and_refuses_what_overlaps(spark: SparkSession, app: App) -> None:
    queue = app.queue("updates", partitions=2, order="key")
    seen: dict[str, list[int]] = defaultdict(list)

    @queue.task(key="customer_id")
    def update(customer_id: str, n: int, event_time: int) -> None:
        seen[customer_id].append(n)

    app.migrate()
    options = {"url": app.url, "queue": "updates", "task": "update", "key": "customer_id", "order_by": "event_time"}
    apart = events(spark, 1_000)
    apart.write.format("penstock").options(**options).mode("append").save()
    app.work(until_idle=True)
    for order in seen.values():
        assert order == sorted(order, reverse=True)
    mixed = apart.repartition(3)
    with pytest.raises(Exception, match=r"overlap in event_time; use penstock\.spark\.load"):
        mixed.write.format("penstock").options(**options).mode("append").save()
    assert (app.stats("updates").total_enqueued, staged(app)) == (1_000, 0)


def test_every_type_of_spark_comes_back_as_the_handler_asks(spark: SparkSession, app: App) -> None:
    queue = app.queue("types")
    seen: list[dict[str, Any]] = []

    @queue.task
    def take(
        s: str, b: bool, i1: int, i2: int, i4: int, i8: int, f4: float, f8: float, d: Decimal, day: dt.date,
        at: dt.datetime, naive: dt.datetime, took: dt.timedelta, raw: bytes, items: list[int | None],
        inner: dict[str, Any], by_text: dict[str, dt.date], by_number: dict[str, str], free: dict[str, Any],
        nothing: None, absent: int | None, fixed: str, clock: dt.time, deep: list[dict[str, list[Decimal]]],
    ) -> None:  # fmt: skip
        seen.append(locals())

    app.migrate()
    frame = spark.sql(
        """select 'é"\\n' as s, true as b, 1Y as i1, 2S as i2, 3 as i4, 9007199254740993L as i8, 0.5F as f4,
        1e300D as f8, 1234567890.1234567890BD as d, date'2026-11-15' as day,
        timestamp'2026-11-15 10:00:00.123456 Europe/Berlin' as at,
        timestamp_ntz'2026-11-15 10:00:00.5' as naive, interval '1 02:03:04.000005' day to second as took,
        x'00ff' as raw, array(1, null) as items, named_struct('a', 1, 'b', array(named_struct('c', null))) as inner,
        map('x', date'2026-01-01') as by_text, map(1, 'one') as by_number, parse_json('{"a":[1,{"b":null}]}') as free,
        null as nothing, cast(null as int) as absent, cast('ab' as char(4)) as fixed, time'10:00:00.25' as clock,
        array(map('k', array(1.50BD))) as deep"""
    )
    ps.load(frame, app, "types", "take")
    app.work(until_idle=True)
    (got,) = seen
    berlin = dt.timezone(dt.timedelta(hours=1))
    assert got["s"] == 'é"\n'
    assert (got["b"], got["i1"], got["i2"], got["i4"], got["i8"]) == (True, 1, 2, 3, 9007199254740993)
    assert (got["f4"], got["f8"], got["d"]) == (0.5, 1e300, Decimal("1234567890.1234567890"))
    assert got["day"] == dt.date(2026, 11, 15)
    assert got["at"] == dt.datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=berlin)
    assert got["naive"] == dt.datetime(2026, 11, 15, 10, 0, 0, 500000)  # noqa: DTZ001
    assert got["took"] == dt.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5)
    assert (got["raw"], got["items"], got["inner"]) == (b"\x00\xff", [1, None], {"a": 1, "b": [{"c": None}]})
    assert (got["by_text"], got["by_number"]) == ({"x": dt.date(2026, 1, 1)}, {"1": "one"})
    assert (got["free"], got["nothing"], got["absent"]) == ({"a": [1, {"b": None}]}, None, None)
    assert (got["fixed"].rstrip(), got["clock"]) == ("ab", dt.time(10, 0, 0, 250000))
    assert got["deep"] == [{"k": [Decimal("1.50")]}]


def test_reserved_columns_set_the_options_of_each_job(spark: SparkSession, app: App) -> None:
    app.queue("mixed", partitions=2)
    app.migrate()
    rows = [
        ("a", '{"x": 1}', b"\xff", 0, None, "once", "acme"),
        ("b", '{"x": 2}', b"k", None, dt.datetime(2040, 1, 1, tzinfo=dt.UTC), None, None),
        ("a", '{"x": 3}', None, 9, dt.datetime(2000, 1, 1, tzinfo=dt.UTC), "once", None),
    ]
    frame = spark.createDataFrame(
        rows,
        "task string, args string, key binary, priority int, run_at timestamp, idempotency_key string, tenant string",
    ).coalesce(1)
    done = ps.load(frame, app, "mixed", load="mixed")
    assert (done.rows, done.duplicates) == (3, 1)
    jobs = {job.args["x"]: job for job in app.jobs(queue="mixed")}
    assert sorted(jobs) == [1, 2]
    assert (jobs[1].task, jobs[1].key, jobs[1].priority, jobs[1].tenant, jobs[1].state) == (
        "a",
        b"\xff",
        0,
        "acme",
        "ready",
    )
    assert (jobs[2].key, jobs[2].priority, jobs[2].state) == ("k", 5, "scheduled")
    assert jobs[2].run_at == dt.datetime(2040, 1, 1, tzinfo=dt.UTC)
    # Known from an earlier load, and from an enqueue.
    assert ps.load(frame, app, "mixed", load="again").duplicates == 2
    struct = spark.sql("select 't' as task, named_struct('y', date'2026-01-02') as args")
    ps.load(struct, app, "mixed", load="struct")
    (job,) = app.jobs(queue="mixed", task="t")
    assert job.args == {"y": "2026-01-02"}


def test_a_bad_row_ends_the_load_and_is_named(spark: SparkSession, app: App, tmp_path: Path) -> None:
    app.queue("orders")
    app.migrate()
    frame = spark.range(0, 100, 1, 2).selectExpr("id as n", "if(id = 70, double('NaN'), 1.0D) as amount")
    with pytest.raises(InvalidInput, match=r"amount: nan is not JSON.*row 20 of Spark partition 1: n=70") as caught:
        ps.load(frame, app, "orders", "ship", load="bad")
    assert caught.value.field == "amount"
    assert (app.stats("orders").total_enqueued, staged(app), app.loads()) == (0, 0, [])
    done = ps.load(frame, app, "orders", "ship", load="bad", bad_rows=str(tmp_path / "bad"))
    assert (done.rows, done.bad_rows, app.stats("orders").queue_length) == (99, 1, 99)
    (line,) = (tmp_path / "bad" / "bad.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["spark_partition"], told["row"], told["field"], told["data"]["n"]) == (1, 20, "amount", 70)
    assert "not JSON" in told["reason"]


BAD_ROWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "key": ("select cast(null as string) as key_, 1 as x", {"key": "key_"}, "key_"),
    "long key": ("select repeat('k', 513) as k", {"key": "k"}, "key"),
    "priority": ("select '{}' as args, 10 as priority", {}, "priority"),
    "run_at": ("select '{}' as args, timestamp'1000-01-01 00:00:00' as run_at", {}, "run_at"),
    "args": ("select '[]' as args", {}, "args"),
    "no args": ("select cast(null as string) as args", {}, "args"),
    "broken args": ("select '{\"a\":' as args", {}, "args"),
    "long args": ("select repeat('x', 300000) as x", {}, "args"),
    "tenant": ("select '{}' as args, ' ' as tenant", {}, "tenant"),
    "once": ("select '{}' as args, '' as idempotency_key", {}, "idempotency_key"),
    "NUL in a name": ("select '{}' as args, concat('a', char(0)) as tenant", {}, "tenant"),
    "infinity": ("select array(double('Infinity')) as x", {}, "x[0]"),
}


def test_each_kind_of_bad_row_is_refused_by_its_field(spark: SparkSession, app: App) -> None:
    app.queue("q")
    app.migrate()
    for name, (statement, options, field) in BAD_ROWS.items():
        frame = spark.sql(statement)
        writer = LoadWriter(frame.schema, False, {"url": app.url, "queue": "q", "task": "t", **options})
        staged_rows = writer.write(iter(frame.toArrow().to_batches()))
        with pytest.raises(InvalidInput) as caught, decode_errors():
            writer.commit([staged_rows])
        assert caught.value.field == field, name
    assert (app.stats("q").total_enqueued, staged(app)) == (0, 0)


BAD_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("select 1 as x", {"task": None}, "task"),
    ("select 1 as x, 't' as task", {}, "task"),
    ("select 1 as x", {"key": "y"}, "key"),
    ("select 1.5D as x", {"key": "x"}, "key"),
    ("select '{}' as args, 1 as x", {}, "x"),
    ("select '{}' as args, 'high' as priority", {}, "priority"),
    ("select '{}' as args, timestamp_ntz'2026-01-01 00:00:00' as run_at", {}, "run_at"),
    ("select interval '1' month as x", {}, "x"),
    ("select 1 as x", {"order_by": "y"}, "order_by"),
    ("select 1 as x", {"connections": 0}, "connections"),
    ("select 1 as x", {"load": " "}, "load"),
    ("select 1 as x, 2 as x", {}, "x"),
]


def test_what_cannot_be_loaded_is_refused_before_anything_runs(spark: SparkSession, app: App) -> None:
    app.queue("q")
    app.migrate()
    for statement, options, field in BAD_CALLS:
        with pytest.raises(InvalidInput) as caught:
            ps.load(spark.sql(statement), app, "q", **{"task": "t", **options})
        assert caught.value.field == field, (statement, options)
    frame = spark.sql("select 1 as x")
    with pytest.raises(NotFound, match="queue 'nowhere' does not exist"):
        ps.load(frame, app, "nowhere", "t")
    writer = frame.write.format("penstock").options(url=app.url, queue="q", task="t")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="ordr_by: a load has no such option"):
        writer.option("ordr_by", "x").mode("append").save()
    ps.load(frame, app, "q", "t", load="one")
    app.queue("other")
    app.migrate()
    with pytest.raises(InvalidInput, match="names a load into queue 'q' already"):
        ps.load(frame, app, "other", "t", load="one")


@pytest.mark.long_run
def test_empty_frames_full_queues_and_very_many_partitions(spark: SparkSession, app: App) -> None:
    app.queue("q", max_length=5_000)
    app.migrate()
    empty = ps.load(spark.range(0), app, "q", "t", load="empty")
    assert (empty.rows, empty.is_new, app.loads()[0].state) == (0, True, "done")
    with pytest.raises(QueueFull, match="queue 'q' is full: max_length 5000"):
        ps.load(spark.range(5_001), app, "q", "t", load="full")
    assert (app.stats("q").total_enqueued, staged(app)) == (0, 0)
    # As many partitions as a wide shuffle has, most of them empty.
    many = spark.range(0, 1_000, 1, 10_000 if FULL else 1_000).filter("id % 50 = 0").repartition(200)
    done = ps.load(many, app, "q", "t", load="many", connections=2)
    assert (done.rows, app.stats("q").queue_length) == (20, 20)


def test_a_task_nobody_has_announced_waits_and_says_so(spark: SparkSession, app: App) -> None:
    app.queue("q").task(name="known")(lambda: None)
    app.migrate()
    # An app that declares no task of the queue does not know that there is none of that name.
    with App(app.url) as other:
        ps.load(spark.sql("select 1 as x"), other, "q", "unknown")
    app.work(until_idle=True)
    (job,) = app.jobs(queue="q")
    assert job.state == "ready"
    assert "no worker" in app.explain(job.id).reason


DECLARED: list[tuple[str, dict[str, Any], str, str]] = [
    ("select 'a' as customer_id, 1.0D as amount, 7 as extra", {}, "extra", "ship has no argument 'extra'; it takes: "),
    ("select 'a' as customer_id, 1.0D as Amount", {}, "Amount", "ship has no argument 'Amount'"),
    ("select 'a' as customer_id", {}, "amount", "ship needs argument 'amount'; pass it; the columns are customer_id"),
    ("select 1.0D as amount, 'a' as key", {}, "customer_id", "ship needs argument 'customer_id'"),
    ("select 1.0D as amount", {}, "key", "the key of task 'ship' is argument 'customer_id', and no column is"),
    ("select '{}' as args", {}, "key", "the key of task 'ship' is argument 'customer_id'"),
    ("select '{}' as args", {"task": "by_function"}, "key", "is a function of its arguments, and no column is"),
    ("select named_struct('amount', 1) as args, 'a' as key", {}, "customer_id", "ship needs argument 'customer_id'"),
    ("select 7L as customer_id, 1.0D as amount", {}, "customer_id", "the column is bigint, and task 'ship' wants str"),
    ("select 'a' as customer_id, 1.0BD as amount", {}, "amount", r"the column is decimal.*wants float; cast it"),
    ("select 'a' as customer_id, '1' as amount", {}, "amount", "the column is string, and task 'ship' wants float"),
    ("select 'a' as customer_id, 1 as amount, date'2026-01-01' as at", {}, "at", r"date, and .* wants .*datetime"),
    ("select 'a' as customer_id, 1 as amount, 7 as id", {}, "id", r"the column is int, and .* wants .*UUID"),
    ("select 'a' as customer_id, 1 as amount, array('a') as id", {}, "id", r"array<string>"),
    ("select 'a' as customer_id, 1 as amount, 'l' as line", {}, "line", r"the column is string, and .* wants .*Line"),
    ("select 'a' as customer_id, 1 as amount, true as tags", {}, "tags", r"the column is boolean, and .* wants list"),
]
FITTING = [
    "select 'a' as customer_id, 1 as amount",
    "select 'a' as customer_id, 1.5D as amount, timestamp'2026-01-01 00:00:00' as at, uuid() as id, array() as tags",
    "select named_struct('customer_id', 'a', 'amount', 1) as args, 'a' as key",
    'select \'{"customer_id": "a", "amount": 1}\' as args, \'a\' as key',
    "select 'a' as customer_id, 1 as amount, 'red' as color, named_struct('sku', 'x') as line, 5 as priority",
]


class Color(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str


def _declare(app: App) -> list[Any]:
    queue = app.queue("orders")
    seen: list[Any] = []

    @queue.task(key="customer_id")
    def ship(
        customer_id: str, amount: float, at: dt.datetime | None = None, id: UUID | None = None,  # noqa: A002
        line: Line | None = None, color: Color = Color.RED, tags: list[str] | None = None,
    ) -> None:  # fmt: skip
        seen.append((customer_id, amount))

    @queue.task(key=lambda **named: named["n"])
    def by_function(n: int) -> None:
        seen.append(n)

    app.migrate()
    return seen


def test_what_the_app_does_not_declare_is_refused_before_spark_starts(spark: SparkSession, app: App) -> None:
    seen = _declare(app)
    spark.sparkContext.setJobGroup("refused loads", "")
    with pytest.raises(UnknownTask, match=r"declares no task 'shpi' of queue 'orders'; it has by_function, ship"):
        ps.load(spark.sql(FITTING[0]), app, "orders", "shpi")
    for statement, options, field, said in DECLARED:
        with pytest.raises(InvalidInput, match=said) as caught:
            ps.load(spark.sql(statement), app, "orders", **{"task": "ship", **options})
        assert caught.value.field == field, statement
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("refused loads")) == []
    assert (app.stats("orders").total_enqueued, staged(app), app.loads()) == (0, 0, [])
    for statement in FITTING:
        ps.load(spark.sql(statement), app, "orders", "ship")
    app.work(until_idle=True)
    assert [customer for customer, _ in seen] == ["a"] * len(FITTING)
    assert app.stats("orders").dead == 0


def test_rows_that_name_a_task_are_checked_by_what_that_task_takes(
    spark: SparkSession, app: App, tmp_path: Path
) -> None:
    seen = _declare(app)
    rows = "select 7L as n, 'k' as key, task from values ('by_function'), ('ship'), ('shpi') as t(task)"
    with pytest.raises(InvalidInput, match=r"n: ship has no argument 'n'|task: the app declares no task 'shpi'"):
        ps.load(spark.sql(rows), app, "orders")
    assert app.stats("orders").total_enqueued == 0
    done = ps.load(spark.sql(rows), app, "orders", load="some", bad_rows=str(tmp_path))
    assert (done.rows, done.bad_rows) == (1, 2)
    told = [json.loads(line) for line in (tmp_path / "some.jsonl").read_text().splitlines()]
    assert {each["field"]: each["reason"].split(";")[0] for each in told} == {
        "n": "ship has no argument 'n'",
        "task": "the app declares no task 'shpi'",
    }
    with pytest.raises(InvalidInput, match="nobody: ship has no argument 'nobody'"):
        ps.load(spark.sql("select 'x' as nobody, 'k' as key, 'ship' as task"), app, "orders")
    app.work(until_idle=True)
    assert seen == [7]
