"""`archive`: what has ended, today's too, goes from the database into a lake and is dropped there.

Nothing is dropped that the lake does not hold: count and checksum over every column are taken in PostgreSQL, then from
the files that were written, and must be equal. It may be killed at any point and run again; a second run right after
the first finds nothing to do. Dead letters are work, and stay where they can be retried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidJob
from penstock.spark.coded import decoded
from penstock.spark.lake import LAKE_COLUMNS, Entry, Lake
from penstock.spark.source import register
from penstock.spark.table_lake import TableLake
from penstock.storage.archive import archiving, read_identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Archived", "archive", "opened_lake"]

FORMATS = ("parquet", "delta", "iceberg")
_LONGEST_FOLDER = 255
# What Spark writes as three characters in the name of a folder.
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")

# For what is written here only: times as standard Parquet has them, and a file for each folder without a sort.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}


@dataclass(slots=True, kw_only=True)
class Archived:
    """What one run put into the lake. `waits_for` names tables that somebody held, which the next run takes up."""

    slices: list[int] = field(default_factory=list)
    rows: int = 0
    files: int = 0
    bytes: int = 0
    waits_for: list[str] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Count a slice that was put into the lake."""
        self.slices.append(entry.slice)
        self.rows += entry.jobs
        self.files += entry.files
        self.bytes += entry.bytes


def archive(
    spark: SparkSession,
    app: Any,
    lake: str | PathLike[str],
    format: str = "parquet",  # noqa: A002
    *,
    wait: float = 30.0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Archived:
    """Put every job that has ended into the lake, verify it there, and let it go from the database.

    `lake` is a folder that Spark can write to, or with `format="delta"` or `"iceberg"` a table of that kind. Open
    transactions are waited for, `wait` seconds in all; what they still hold then is left for the next run.
    """
    database = app.database
    register(spark)
    target = opened_lake(spark, lake, database.run(read_identity), format)
    archived = Archived()
    with decoded(), _settings(spark), archiving(database, wait) as run:
        for name in run.queues():
            _check_folder(name)
        target.clean()
        listed = {entry.slice for entry in target.entries()}
        for number in run.taken():
            if number not in listed:
                if not run.set_apart(number):
                    continue
                on_progress(f"slice {number}: counting")
                expected = run.count(number)
                on_progress(f"slice {number}: writing and verifying {expected.jobs:,} jobs")
                archived.add(target.write(number, _rows(spark, app.url, number), expected))
            run.let_go(number, app.retention)
            on_progress(f"slice {number}: dropped")
        archived.waits_for = run.waits_for
    return archived


def opened_lake(spark: SparkSession, lake: str | PathLike[str], identity: str, kind: str) -> Lake | TableLake:
    """The lake of a database, of one of the formats."""
    if kind not in FORMATS:
        raise InvalidJob("format", f"{kind!r:.200} is none of {', '.join(FORMATS)}")
    return Lake(spark, lake, identity) if kind == "parquet" else TableLake(spark, fspath(lake), identity, kind)


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Spark's settings for writing, while the block lasts. (A session of its own would not know the data source.)"""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def _rows(spark: SparkSession, url: str, number: int) -> DataFrame:
    reader = spark.read.format("penstock").option("url", url).option("table", "finished")
    return reader.option("slice", str(number)).option("columns", ",".join(LAKE_COLUMNS)).load()


def _check_folder(queue: str) -> None:
    """Refuse, before anything is taken apart, a queue whose name no folder can have."""
    folder = "queue=" + _ESCAPED.sub("%00", queue)
    if len(folder.encode()) > _LONGEST_FOLDER:
        raise InvalidJob("queue", f"the name of queue {queue!r} is too long for a folder of the lake")
