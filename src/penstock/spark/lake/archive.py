"""`archive`: what has ended, today's too, goes from the database into a lake and is dropped there.

Nothing is dropped that the lake does not hold: count and checksum over every column are taken from the files that were
written, then in PostgreSQL, in the transaction that drops, and must be equal. It may be killed at any point and run
again; a second run right after the first finds nothing to do. One that was replaced by another, because its connection
was lost, can list, remove and drop nothing more. Dead letters are work, and stay where they can be retried. Shard by
shard: each has its own slices, and the manifest says whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.model.checks import checked_delay, shown
from penstock.spark.data_source.error_codes import decode_errors
from penstock.spark.data_source.options import checked_lake
from penstock.spark.data_source.penstock_source import register
from penstock.spark.lake.consistency import LakeComparison
from penstock.spark.lake.open_lake import Lake, open_lake
from penstock.spark.lake.parquet_lake import LAKE_COLUMNS
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.history.archive import Archiving, archiving, read_lake_identity, read_queue_names, read_slices
from penstock.storage.history.lake_writings import Writing, read_writings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from penstock.model.short_repr import ShortRepr

__all__ = ["Archived", "archive"]

ASK_SECONDS = 10.0
_LONGEST_FOLDER = 255
# The characters that Spark writes as %xx in the name of a folder.
_ESCAPED_BY_SPARK = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")

# Spark's settings while the archive writes: times as standard Parquet has them, and a file for each folder without a
# sort.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}


@dataclass(slots=True, kw_only=True, repr=False)
class Archived(ShortRepr):
    """What one run put into the lake: slices by shard and number. `waits_for` names tables that somebody held, which
    the next run takes up.
    """

    slices: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    files: int = 0
    bytes: int = 0
    waits_for: list[str] = field(default_factory=list)

    def add(self, shard: int, writing: Writing) -> None:
        """Count a slice that was put into the lake."""
        self.slices.append((shard, writing.slice))
        self.rows += writing.jobs
        self.files += writing.files
        self.bytes += writing.bytes


def archive(
    spark: SparkSession,
    app: Any,
    lake: str | PathLike[str],
    format: str = "parquet",  # noqa: A002
    *,
    wait: float = 30.0,
    reconcile: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Archived:
    """Put every job that has ended into the lake, verify it there, and let it go from the database.

    `lake` is a folder that Spark can write to, or with `format="delta"` or `"iceberg"` a table of that kind. Open
    transactions are waited for, `wait` seconds on each shard; what they still hold then is left for the next run. Where
    a shard is away the others are archived, and then `PartitionUnavailable` names it. Where database and lake do not
    know the same past nothing is moved and an error says why; `reconcile` first gives up what only one of them has.
    """
    lake, wait = checked_lake(lake), checked_delay("wait", wait)
    if not isinstance(reconcile, bool):
        raise InvalidInput("reconcile", f"True or False is needed, not {type(reconcile).__name__} {shown(reconcile)}")
    register(spark)
    databases = app.databases
    archived = Archived()
    targets, missing = _check_shards(spark, databases, lake, format, reconcile=reconcile)
    for database, target in targets:
        name = databases.named(database.shard, " of shard {}")
        with (
            decode_errors(),
            _apply_settings(spark),
            _report_lost_connection(database),
            archiving(database, wait, target.root) as run,
        ):
            if reconcile:
                LakeComparison.compare(target, target.list_writings(), run.slices(), run.writings()).reconcile(run)
            tell = partial(_tell, on_progress, name)
            shard_archive = _ShardArchive(spark, database, run, target, app.retention, tell)
            for writing in shard_archive.move_slices():
                archived.add(database.shard, writing)
            archived.waits_for += [f"{table}{name}" for table in run.waits_for]
    for away in missing:
        raise PartitionUnavailable(
            f"{away}. {archived.rows:,} jobs of the other shards were archived", shard=away.shard
        ) from None
    return archived


def _check_shards(
    spark: SparkSession, databases: Any, lake: str, kind: str, *, reconcile: bool
) -> tuple[list[tuple[Database, Lake]], list[PartitionUnavailable]]:
    """Each database that answers, with what it has in the lake, and why others do not answer.

    Raises where one of them cannot be archived, before a slice of any is closed or moved.
    """
    targets: list[tuple[Database, Lake]] = []
    missing: list[PartitionUnavailable] = []
    timeout = databases.patience(ASK_SECONDS)
    for database in databases:
        try:
            target = open_lake(spark, lake, database.shard, database.run(read_lake_identity, timeout=timeout), kind)
            listed = target.list_writings()
            queues, slices, writings = database.run(_read_known, timeout=timeout)
        except PartitionUnavailable as error:
            missing.append(error)
            continue
        for queue in queues:
            _check_folder(queue)
        if not reconcile:
            comparison = LakeComparison.compare(target, listed, slices, writings)
            comparison.check()
            comparison.check_begun()
        targets.append((database, target))
    return targets, missing


@dataclass(frozen=True, slots=True)
class _ShardArchive:
    """The archive of one shard, under the duty that `run` holds."""

    spark: SparkSession
    database: Database
    run: Archiving
    lake: Lake
    retention: Mapping[str, float]
    tell: Callable[[int, str], None]

    def move_slices(self) -> Iterator[Writing]:
        """Write, verify and drop slice by slice; what was put into the lake."""
        run, tell = self.run, self.tell
        identity = self.lake.identity(create=True)
        assert identity is not None  # noqa: S101
        with run.abandoning(identity) as abandoned:
            for writing in abandoned:
                self.lake.remove(writing)
        verified = {each.slice: each for each in run.writings() if each.lake == identity and each.state == "verified"}
        listed = self.lake.list_writings()
        for writing in verified.values():
            if writing.identity not in listed:
                self._add_to_manifest(writing)
        for number in run.list_taken():
            if not run.set_apart(number):
                continue
            earlier = verified.get(number)
            if earlier is not None and not self.lake.is_intact(earlier):
                run.mark([earlier], "abandoned")
                earlier = None
            writing_now = earlier
            if earlier is None:
                begun = run.begin_writing(number, identity, self.lake.root, self.lake.name)
                if begun is not None:
                    tell(number, "writing")
                    writing_now = self._write(begun)
            if writing_now is not None:
                tell(number, f"verifying {writing_now.jobs:,} jobs")
            is_dropped = run.let_go(number, writing_now, self.retention)
            if writing_now is not None and earlier is None:
                self._add_to_manifest(writing_now)
                yield writing_now
            if is_dropped:
                tell(number, "dropped")

    def _write(self, writing: Writing) -> Writing:
        rows = self._read_slice(writing.slice)
        try:
            return self.lake.write(writing, rows)
        except Exception:
            # Another archive that took over the duty may have dropped the table while Spark read it: then `acting`
            # raises that this one was replaced, instead of what Spark made of it.
            with self.run.acting():
                raise

    def _add_to_manifest(self, writing: Writing) -> None:
        with self.run.acting():
            self.lake.add_to_manifest(writing)

    def _read_slice(self, number: int) -> DataFrame:
        reader = self.spark.read.format("penstock").option("url", self.database.url).option("table", "finished")
        reader = reader.option("shard", str(self.database.shard)).option("slice", str(number))
        return reader.option("columns", ",".join(LAKE_COLUMNS)).load()


def _read_known(connection: Connection) -> tuple[list[str], list[int], list[Writing]]:
    """The queues of a database, its slices, and after those its writings."""
    return read_queue_names(connection), read_slices(connection), read_writings(connection)


@contextmanager
def _report_lost_connection(database: Database) -> Iterator[None]:
    try:
        yield
    except ConnectionLost as error:
        raise database.unavailable(error) from error


@contextmanager
def _apply_settings(spark: SparkSession) -> Iterator[None]:
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


def _check_folder(queue: str) -> None:
    """Refuse, before anything is taken apart, a queue whose name no folder can have."""
    folder = "queue=" + _ESCAPED_BY_SPARK.sub("%00", queue)
    if len(folder.encode()) > _LONGEST_FOLDER:
        raise InvalidInput("queue", f"the name of queue {queue!r} is too long for a folder of the lake")
