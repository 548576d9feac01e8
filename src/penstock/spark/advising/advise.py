"""`ps.advise`: reads a queue's keys, waiting and ended, and says what number of partitions suits them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from penstock.spark.advising.advice import Advice, build_advice
from penstock.spark.advising.advice_page import build_advice_page
from penstock.spark.advising.key_weights import weigh
from penstock.spark.reporting.report import read_table, write_page
from penstock.storage.catalogue.queues import find_queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["advise"]

_KEYS = ("key", "key_bytes")
_TIMES = ("partition", "attempt", "enqueued_at", "started_at", "finished_at")


def advise(
    spark: SparkSession,
    app: Any,
    queue: str,
    lake: str | Path | None = None,
    path: str | Path | None = None,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """How a queue's jobs would lie on 1 to 64 partitions, by the keys of those that wait and those that ended, and how
    long the hottest key needs: where that bounds the speed-up, what `run` would make of it.

    With a lake the history in it counts too; with a path the picture is written there as an HTML page.
    """
    from penstock.spark.lake.history import history

    entry = app.databases.read(lambda connection: find_queue(connection, queue))
    on_progress("reading the keys")
    waiting = read_table(spark, app, "jobs", ("queue", *_KEYS)).where(f.col("queue") == queue).select(*_KEYS)
    ended = history(spark, app, lake, columns=(*_KEYS, *_TIMES), queue=queue)
    weights = weigh(ended.unionByName(waiting, allowMissingColumns=True), entry.rules)
    found = build_advice(queue, entry.partition_count, entry.rules, weights)
    if path is not None:
        on_progress("drawing")
        write_page(path, build_advice_page(found, weights))
    return found
