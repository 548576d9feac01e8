"""Loads from other threads and sessions, by two at once, and of data that Python cannot hold."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock.spark as ps
from penstock import App, InvalidInput
from penstock.spark.loading import load as loading
from penstock.spark.loading.load import Loaded


@pytest.fixture
def queue(app: App) -> str:
    app.queue("q")
    app.migrate()
    return "q"


def in_thread(act: Callable[[], Any]) -> Any:
    """What an act gives in a thread of its own."""
    given: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(act())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return given[0]


def test_any_thread_and_any_session_can_load_and_read(spark: SparkSession, app: App, queue: str) -> None:
    other = spark.newSession()
    for name, session in (("here", spark), ("other", other)):
        frame = session.range(3).withColumnRenamed("id", "n")
        assert in_thread(lambda: ps.load(frame, app, queue, "t", load=f"{name}-thread").rows) == 3  # noqa: B023
        assert ps.load(frame, app, queue, "t", load=name).rows == 3
        assert in_thread(lambda: ps.history(session, app).count()) == 0  # noqa: B023
    ps.register(spark)
    app.purge(queue)
    replayed = in_thread(lambda: ps.replay(spark, app, None, "outcome = 'cancelled'", "again"))
    assert replayed.loads[0].rows == 12


def test_g8_of_two_loads_of_one_name_one_is_new(
    spark: SparkSession, app: App, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either has published."""
    frame = spark.range(50).withColumnRenamed("id", "n")
    both_looked = threading.Barrier(2)
    write = loading._write

    def meet(*given: Any) -> None:
        both_looked.wait(120)
        write(*given)

    monkeypatch.setattr(loading, "_write", meet)
    done: list[Loaded] = []
    threads = [
        threading.Thread(target=lambda: done.append(ps.load(frame, app, queue, "t", load="same"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.is_new for each in done) == [False, True]
    assert {each.rows for each in done} == {50}
    assert app.stats(queue).queue_length == 50


def bad_frames(spark: SparkSession) -> dict[str, DataFrame]:
    """A good row, and one that Python cannot hold; by the field at fault."""
    broken = f.expr("cast(unhex('63FF') as string)")
    late = f.expr("date_add(date '9999-12-31', 400)")
    ids = spark.range(0, 2, 1, 1)

    def second(value: Any, other: Any) -> Any:
        return f.when(f.col("id") == 1, value).otherwise(other)

    return {
        "text": ids.select("id", second(broken, f.lit("a")).alias("text")),
        "day": ids.select("id", second(late, f.current_date()).alias("day")),
        "nested": ids.select("id", f.struct(second(broken, f.lit("a")).alias("text")).alias("nested")),
        "args": ids.select(
            second(f.concat(f.lit('{"a": "'), broken, f.lit('"}')), f.lit('{"a": "b"}')).alias("args"),
            f.lit("t").alias("task"),
        ),
        "tenant": ids.select("id", second(broken, f.lit("acme")).alias("tenant")),
        "idempotency_key": ids.select("id", second(broken, f.lit("k")).alias("idempotency_key")),
    }


@pytest.mark.parametrize("field", ["text", "day", "nested", "args", "tenant", "idempotency_key"])
def test_a_row_that_python_cannot_hold_is_named_or_put_aside(
    spark: SparkSession, app: App, queue: str, field: str, tmp_path: Path
) -> None:
    frame = bad_frames(spark)[field]
    task = None if field == "args" else "t"
    with pytest.raises(InvalidInput, match=rf"^{field}: .*\(row 1 of Spark partition 0"):
        ps.load(frame, app, queue, task, load="refused")
    assert app.stats(queue).queue_length == 0
    done = ps.load(frame, app, queue, task, load="aside", bad_rows=str(tmp_path / "bad"))
    assert (done.rows, done.bad_rows) == (1, 1)
    (line,) = (tmp_path / "bad" / "aside.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["row"], told["field"]) == (1, field)
    assert field in told["data"]


def test_a_key_that_is_not_utf8_is_bytes(spark: SparkSession, app: App, queue: str) -> None:
    frame = spark.range(1).select("id", f.expr("cast(unhex('63FF') as string)").alias("key"))
    ps.load(frame, app, queue, "t")
    assert app.jobs(queue=queue)[0].key == b"c\xff"


def test_a_value_that_cannot_be_ordered_by_is_named(spark: SparkSession, app: App, queue: str) -> None:
    frame = bad_frames(spark)["day"]
    options = {"url": app.url, "queue": queue, "task": "t", "order_by": "day"}
    with pytest.raises(Exception, match=r"day: no rows can be ordered by"):
        frame.write.format("penstock").options(**options).mode("append").save()


@pytest.mark.parametrize("name", ["KEY", "Task", "Run_At"])
def test_a_reserved_column_in_another_case_is_refused(spark: SparkSession, app: App, queue: str, name: str) -> None:
    frame = spark.range(1).select("id", f.lit("x").alias(name))
    with pytest.raises(
        InvalidInput, match=rf"^{name}: it differs from the reserved column '{name.lower()}' only by case"
    ):
        ps.load(frame, app, queue, "t")


def test_a_frame_without_columns_is_refused_and_its_name_stays_free(spark: SparkSession, app: App, queue: str) -> None:
    with pytest.raises(InvalidInput, match=r"^columns: there are none"):
        ps.load(spark.range(3).select(), app, queue, "t", load="none")
    assert ps.load(spark.range(3), app, queue, "t", load="none").rows == 3


def test_columns_with_backticks_and_those_that_differ_by_case(spark: SparkSession, app: App, queue: str) -> None:
    odd = spark.range(3).select(f.col("id").alias("a`b"), (-f.col("id")).alias("x.y"))
    ps.load(odd, app, queue, "t", key="a`b", order_by=["x.y", "a`b"], load="odd")
    assert [job.args for job in reversed(app.jobs(load="odd"))] == [{"a`b": n, "x.y": -n} for n in (2, 1, 0)]
    twins = spark.range(1).select(f.lit(1).alias("n"), f.lit(2).alias("N"))
    with pytest.raises(InvalidInput, match=r"^n: Spark cannot tell 'n' and 'N' apart"):
        ps.load(twins, app, queue, "t", order_by="n")
