"""A stream into a queue: each micro-batch is enqueued once, through restarts and repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import App


def write_files(spark: SparkSession, folder: Path, *names: str) -> None:
    for name in names:
        rows = [(f"{name}-{n}",) for n in range(10)]
        spark.createDataFrame(rows, "event string").coalesce(1).write.json(str(folder / name))


def run(spark: SparkSession, app: App, events: Path, checkpoint: Path, sink: str | None = "orders") -> None:
    """Process what is there, a file a micro-batch, and end."""
    frame = spark.readStream.schema("event string").option("maxFilesPerTrigger", 1).json(str(events / "*"))
    writer = frame.writeStream.format("penstock").options(url=app.url, queue="q", task="t")
    if sink is not None:
        writer = writer.option("sink", sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def enqueued(app: App) -> list[str]:
    return sorted(job.args["event"] for job in app.jobs(queue="q", limit=1_000))


def test_a_stream_is_enqueued_once_through_restarts_and_repeats_g8(
    spark: SparkSession, app: App, tmp_path: Path
) -> None:
    app.queue("q")
    app.migrate()
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    write_files(spark, events, "a", "b")
    run(spark, app, events, checkpoint)
    (load,) = app.loads()
    assert (load.name, load.rows, load.batches, load.is_stream) == ("orders", 20, 2, True)
    # Killed between our commit and Spark's own note of it: Spark gives the last batch again, under its number.
    for path in (checkpoint / "commits").iterdir():
        if path.name.lstrip(".").startswith("1"):
            path.unlink()
    write_files(spark, events, "c")
    run(spark, app, events, checkpoint)
    (load,) = app.loads()
    assert (load.rows, load.batches) == (30, 3)
    assert enqueued(app) == sorted(f"{name}-{n}" for name in "abc" for n in range(10))
    # The same sink from another checkpoint would count its batches from 0 again, and lose them without a word.
    with pytest.raises(Exception, match="sink: 'orders' belongs to a stream with another checkpoint"):
        run(spark, app, events, tmp_path / "another")
    run(spark, app, events, tmp_path / "third", sink=None)
    assert app.stats("q").total_enqueued == 60
    assert [load.rows for load in app.loads()] == [30, 30]
