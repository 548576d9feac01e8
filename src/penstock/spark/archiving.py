"""`archive`: what has ended, today's too, goes from the database into a lake and is dropped there.

Nothing is dropped that the lake does not hold: count and checksum over every column are taken in PostgreSQL, then from
the files that were written, and must be equal. It may be killed at any point and run again; a second run right after
the first finds nothing to do. Dead letters are work, and stay where they can be retried. Shard by shard: each has its
own slices, and the manifest says whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidJob, PartitionUnavailable
from penstock.spark.coded import decoded
from penstock.spark.lake import LAKE_COLUMNS, Entry, Lake
from penstock.spark.source import register
from penstock.spark.table_lake import TableLake
from penstock.storage.archive import Archiving, archiving, read_identity
from penstock.storage.database import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Archived", "archive", "opened_lake"]

ASK_SECONDS = 10.0
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
    """What one run put into the lake: slices by shard and number. `waits_for` names tables that somebody held, which
    the next run takes up.
    """

    slices: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    files: int = 0
    bytes: int = 0
    waits_for: list[str] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Count a slice that was put into the lake."""
        self.slices.append((entry.shard, entry.slice))
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
    transactions are waited for, `wait` seconds on each shard; what they still hold then is left for the next run. Where
    a shard is away the others are archived, and then `PartitionUnavailable` names it.
    """
    register(spark)
    shards = app.databases
    archived = Archived()
    missing: list[PartitionUnavailable] = []
    for database in shards:
        try:
            identity = database.run(read_identity, timeout=None if len(shards) == 1 else ASK_SECONDS)
        except PartitionUnavailable as error:
            missing.append(error)
            continue
        target = opened_lake(spark, lake, database.shard, identity, format)
        name = "" if len(shards) == 1 else f" of shard {database.shard}"
        with decoded(), _settings(spark), archiving(database, wait) as run:
            tell = partial(_tell, on_progress, name)
            for entry in _archived(spark, database, run, target, app.retention, tell):
                archived.add(entry)
            archived.waits_for += [f"{table}{name}" for table in run.waits_for]
    for away in missing:
        raise PartitionUnavailable(
            f"{away}. {archived.rows:,} jobs of the other shards were archived", shard=away.shard
        ) from None
    return archived


def opened_lake(
    spark: SparkSession, lake: str | PathLike[str], shard: int, identity: str, kind: str
) -> Lake | TableLake:
    """The lake of a database, of one of the formats."""
    if kind not in FORMATS:
        raise InvalidJob("format", f"{kind!r:.200} is none of {', '.join(FORMATS)}")
    if kind == "parquet":
        return Lake(spark, lake, shard, identity)
    return TableLake(spark, fspath(lake), shard, identity, kind)


def _archived(
    spark: SparkSession,
    database: Database,
    run: Archiving,
    target: Lake | TableLake,
    retention: Mapping[str, float],
    tell: Callable[[int, str], None],
) -> Iterator[Entry]:
    """Archive one shard; what was put into the lake."""
    for queue in run.queues():
        _check_folder(queue)
    target.clean()
    listed = {entry.slice for entry in target.entries()}
    for number in run.taken():
        if number not in listed:
            if not run.set_apart(number):
                continue
            tell(number, "counting")
            expected = run.count(number)
            tell(number, f"writing and verifying {expected.jobs:,} jobs")
            yield target.write(number, _rows(spark, database, number), expected)
        run.let_go(number, retention)
        tell(number, "dropped")


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


def _tell(on_progress: Callable[[str], None], name: str, number: int, step: str) -> None:
    on_progress(f"slice {number}{name}: {step}")


def _rows(spark: SparkSession, database: Database, number: int) -> DataFrame:
    reader = spark.read.format("penstock").option("url", database.url).option("table", "finished")
    reader = reader.option("shard", str(database.shard)).option("slice", str(number))
    return reader.option("columns", ",".join(LAKE_COLUMNS)).load()


def _check_folder(queue: str) -> None:
    """Refuse, before anything is taken apart, a queue whose name no folder can have."""
    folder = "queue=" + _ESCAPED.sub("%00", queue)
    if len(folder.encode()) > _LONGEST_FOLDER:
        raise InvalidJob("queue", f"the name of queue {queue!r} is too long for a folder of the lake")
