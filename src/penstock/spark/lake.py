"""A lake: history in files, by day, queue and outcome, and a manifest that says which of them count.

    lake/history/slice=8c1f93d2-000007-3f2a/day=2026-11-05/queue=emails/outcome=succeeded/part-….parquet
    lake/_penstock/<database>/slice-000007.json          what the slice has and of which shard, written last

Only slices that a manifest lists are ever read. Each writing of a slice has a folder of its own, so what a killed run
left behind is known by not being listed, and is removed by the next run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from os import PathLike
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import PenstockError
from penstock.spark.lake_files import Files
from penstock.spark.table_columns import HISTORY, MORE_HISTORY
from penstock.storage.archive import Sum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FOLDERS", "LAKE_COLUMNS", "Entry", "Lake", "checksum_of"]

LAKE_COLUMNS = [*HISTORY, *MORE_HISTORY]
FOLDERS = ["day", "queue", "outcome"]
MANIFEST = "_penstock"
_HISTORY = "history"
_SEPARATOR, _NULL = "\x1f", "\x1e"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a manifest says about a slice."""

    shard: int
    slice: int
    folder: str | None
    jobs: int
    checksum: str
    files: int
    bytes: int


class Lake:
    """The slices of one database in a lake of Parquet files."""

    def __init__(self, spark: SparkSession, path: str | PathLike[str], shard: int, identity: str) -> None:
        self._spark = spark
        self._shard = shard
        self._files = Files(spark, path)
        self._manifest = f"{MANIFEST}/{identity}"
        self._prefix = f"slice={identity[:8]}-"

    @property
    def root(self) -> str:
        """The whole path of the lake."""
        return self._files.root

    def entries(self) -> list[Entry]:
        """What is listed, oldest first."""
        names = [name for name in self._files.names(self._manifest) if name.endswith(".json")]
        return [msgspec.json.decode(self._files.read(f"{self._manifest}/{name}"), type=Entry) for name in names]

    def clean(self) -> None:
        """Remove what earlier runs of this database began and did not list."""
        listed = {entry.folder for entry in self.entries()}
        for name in self._files.names(_HISTORY):
            if name.startswith(self._prefix) and f"{_HISTORY}/{name}" not in listed:
                self._files.remove(f"{_HISTORY}/{name}")

    def write(self, number: int, rows: DataFrame, expected: Sum) -> Entry:
        """Write a slice's rows, read them back, and list them if they are what was expected."""
        folder = None
        sizes: list[int] = []
        if expected.jobs:
            folder = f"{_HISTORY}/{self._prefix}{number:06}-{token_hex(4)}"
            path = self._files.path(folder)
            rows.write.partitionBy(*FOLDERS).option("compression", "zstd").parquet(path)
            found = checksum_of(self.read([folder]))
            if found != expected:
                raise PenstockError(
                    f"slice {number} has {expected.jobs} jobs with checksum {expected.checksum:x}, and what was "
                    f"written to {path} has {found.jobs} with {found.checksum:x}; nothing was dropped, "
                    "run the archive again"
                )
            sizes = [each.size for each in self._files.found(folder) if each.path.endswith(".parquet")]
        entry = Entry(self._shard, number, folder, expected.jobs, f"{expected.checksum:x}", len(sizes), sum(sizes))
        self._files.commit(f"{self._manifest}/slice-{number:06}.json", msgspec.json.encode(asdict(entry)).decode())
        return entry

    def read(self, folders: Iterable[str]) -> DataFrame:
        """The rows of folders that are listed, or about to be."""
        types = {**HISTORY, **MORE_HISTORY}
        fields = [StructField(name, types[name]) for name in LAKE_COLUMNS if name not in FOLDERS]
        # The columns that folders tell come last, with their types: a queue called 007 is no number.
        fields += [StructField("slice", StringType()), *(StructField(name, types[name]) for name in FOLDERS)]
        paths = [self._files.path(folder) for folder in folders]
        reader = self._spark.read.schema(StructType(fields)).option("basePath", self._files.path(_HISTORY))
        return reader.parquet(*paths)


def checksum_of(rows: DataFrame) -> Sum:
    """Count and checksum as `penstock.checksum_slice` takes them in the database."""
    digest = f.sha2(f.concat_ws(_SEPARATOR, *_texts()), 256)
    bits = f.conv(f.substring(digest, 1, 16), 16, -10).cast("long")
    found = rows.agg(f.count(f.lit(1)).alias("jobs"), f.bit_xor(bits).alias("checksum")).collect()[0]
    return Sum(found.jobs, found.checksum or 0)


def _texts() -> list[Column]:
    """Every column as text, in the order of the database's checksum."""
    key = f.lower(f.hex(f.coalesce(f.col("key_bytes"), f.col("key").cast("binary"))))
    columns = {name: f.col(name).cast("string") for name in LAKE_COLUMNS if name not in ("key_bytes", "day")}
    columns["key"] = key
    for name in ("enqueued_at", "started_at", "finished_at"):
        columns[name] = f.unix_micros(f.col(name)).cast("string")
    return [f.coalesce(column, f.lit(_NULL)) for column in columns.values()]
