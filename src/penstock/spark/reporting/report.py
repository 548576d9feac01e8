"""`ps.report`: the history and what waits, read by Spark, counted, and written as one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import system
from penstock.errors import InvalidInput, PenstockError
from penstock.spark.reporting.figures import Figures
from penstock.spark.reporting.measure import HISTORY_COLUMNS, WAITING_COLUMNS, measure
from penstock.spark.reporting.page import build_page
from penstock.storage.catalogue.queues import find_queue, read_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from penstock.model.short_repr import ShortRepr

__all__ = ["Report", "read_table", "report", "write_page"]


@dataclass(frozen=True, slots=True, repr=False)
class Report(ShortRepr):
    """A report that was made: where its page lies, and every figure on it."""

    path: Path
    figures: Figures


def report(
    spark: SparkSession,
    app: Any,
    lake: str | Path | None,
    path: str | Path,
    *,
    since: datetime | None = None,
    queue: str | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write the report on everything that ended, hot and cold, as one HTML page; its figures.

    `since` leaves out what ended before, `queue` all other queues. Without a lake it speaks of what the database still
    holds. `on_progress` is told what is being done.
    """
    from penstock.spark.lake.history import history

    since = checked_since(since)
    if queue is not None:
        app.databases.read(lambda connection: find_queue(connection, queue))
    entries = app.databases.read(lambda connection: read_queues(connection, queue))
    figures = measure(
        history(spark, app, lake, columns=HISTORY_COLUMNS, queue=queue, since=since),
        read_table(spark, app, "jobs", WAITING_COLUMNS),
        now=system.now(),
        since=since,
        queue=queue,
        ordered={entry.name: entry.rules for entry in entries if entry.rules.per_key == 1},
        on_progress=on_progress,
    )
    return Report(write_page(path, build_page(figures)), figures)


def checked_since(since: object) -> datetime | None:
    """The same instant in UTC; one without its zone is refused."""
    if since is None:
        return None
    if not isinstance(since, datetime):
        raise InvalidInput("since", "a datetime with its zone is needed, such as datetime.now(UTC) - timedelta(days=7)")
    if since.utcoffset() is None:
        raise InvalidInput("since", "it has no time zone; write since.replace(tzinfo=UTC), or with its own")
    return since.astimezone(UTC)


def read_table(spark: SparkSession, app: Any, table: str, columns: Sequence[str]) -> DataFrame:
    """A table of the databases as Spark reads it."""
    from penstock.shards.shard_urls import join_urls
    from penstock.spark.data_source.penstock_source import register

    register(spark)
    options = {"url": join_urls(app.databases), "table": table, "columns": ",".join(columns)}
    return spark.read.format("penstock").options(**options).load()


def write_page(path: str | Path, text: str) -> Path:
    """Put a page where it was asked for; its whole path."""
    place = Path(path).expanduser().absolute()
    try:
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PenstockError(
            f"the page cannot be written to {place}: {error.strerror}; name a file in a folder that exists"
        ) from error
    return place
