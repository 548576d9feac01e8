"""A lake: history in files, by day, queue and outcome, and a manifest of what the files are.

    lake/history/slice=8c1f93d2-000007-000012-3f2a…/day=2026-11-05/queue=emails/outcome=succeeded/part-….parquet
    lake/_penstock/<database>/lake                        the identity of the lake, for this database
    lake/_penstock/<database>/slice-000007-3f2a….json     what the slice has and of which shard, written last

Each writing of a slice has a folder of its own, which bears the number of the slice, that of the archive's duty, and an
identity that never comes again. Which of them count is decided in the database. The manifest repeats it for others, and
for the database itself when it was restored: what is listed there and unknown to it is of a past that it lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import msgspec
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import PenstockError
from penstock.spark.lake.lake_files import Files
from penstock.spark.tables.columns import HISTORY, MORE_HISTORY
from penstock.storage.history.lake_writings import Sum, Writing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FOLDERS", "LAKE_COLUMNS", "Entry", "ParquetLake", "compute_checksum"]

LAKE_COLUMNS = [*HISTORY, *MORE_HISTORY]
FOLDERS = ["day", "queue", "outcome"]
_MANIFEST = "_penstock"
_HISTORY = "history"
_IDENTITY = "lake"
_MANIFEST_FILE = re.compile(r"slice-(\d+)-([0-9a-f]{32})\.json")
_SEPARATOR, _NULL = "\x1f", "\x1e"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a manifest says about a slice."""

    shard: int
    slice: int
    identity: str
    duty: int
    folder: str
    jobs: int
    checksum: str
    files: int
    bytes: int


class ParquetLake:
    """The slices of one database in a lake of Parquet files."""

    def __init__(self, spark: SparkSession, path: str, shard: int, identity: str) -> None:
        self._spark = spark
        self._shard = shard
        self._files = Files(spark, path)
        self._manifest = f"{_MANIFEST}/{identity}"
        # What folders of this database begin with.
        self.name = f"{_HISTORY}/slice={identity[:8]}"

    @property
    def root(self) -> str:
        """The whole path of the lake."""
        return self._files.root

    def identity(self, *, create: bool = False) -> str | None:
        """The id that the database knows this lake by, wherever it is moved; None where none was written yet."""
        path = f"{self._manifest}/{_IDENTITY}"
        if create and not self._files.exists(path):
            self._files.commit(path, str(uuid4()))
        if not self._files.exists(path):
            return None
        text = self._files.read(path).strip()
        try:
            return str(UUID(text))
        except ValueError:
            raise PenstockError(
                f"{self._files.path(path)} is damaged: it has the identity of the lake, and is {text!r:.60}; "
                "bring it back from a backup of the lake"
            ) from None

    def list_other_databases(self) -> list[str]:
        """The other databases whose history is here."""
        mine = self._manifest.rpartition("/")[2]
        return [name for name in self._files.list_names(_MANIFEST) if name != mine]

    def list_writings(self) -> dict[str, int]:
        """What the manifest lists: the slice of each writing, by its identity."""
        names = map(_MANIFEST_FILE.fullmatch, self._files.list_names(self._manifest))
        return {str(UUID(name[2])): int(name[1]) for name in names if name is not None}

    def write(self, writing: Writing, rows: DataFrame) -> Writing:
        """Write a slice's rows and read them back: the writing, with what its files hold."""
        rows.write.partitionBy(*FOLDERS).option("compression", "zstd").parquet(self._files.path(writing.folder))
        found = compute_checksum(self.read([writing.folder]))
        sizes = [each.size for each in self._files.list_files(writing.folder) if each.path.endswith(".parquet")]
        return writing.with_content(found, len(sizes), sum(sizes))

    def is_intact(self, writing: Writing) -> bool:
        """Whether the files of a writing, read again, are what they were."""
        return not self.find_damaged([writing]) and compute_checksum(self.read([writing.folder])) == writing.sum

    def find_damaged(self, writings: Sequence[Writing]) -> list[Writing]:
        """Those whose files are not all there, by their sizes."""
        sizes = self._files.measure_sizes([each.folder for each in writings])
        return [each for each, size in zip(writings, sizes, strict=True) if size != each.bytes]

    def add_to_manifest(self, writing: Writing) -> None:
        """List a writing in the manifest."""
        entry = Entry(
            *(self._shard, writing.slice, writing.identity, writing.duty, writing.folder),
            *(writing.jobs, f"{writing.checksum:x}", writing.files, writing.bytes),
        )
        self._files.commit(self._listing(writing), msgspec.json.encode(asdict(entry)).decode())

    def remove(self, writing: Writing) -> None:
        """Remove the files of a writing, and what lists it."""
        self._files.remove(self._listing(writing))
        self._files.remove(writing.folder)

    def _listing(self, writing: Writing) -> str:
        return f"{self._manifest}/slice-{writing.slice:06}-{UUID(writing.identity).hex}.json"

    def read(self, folders: Iterable[str]) -> DataFrame:
        """The rows of folders."""
        types = {**HISTORY, **MORE_HISTORY}
        fields = [StructField(name, types[name]) for name in LAKE_COLUMNS if name not in FOLDERS]
        # The columns that folders tell come last, with their types: a queue called 007 is no number.
        fields += [StructField("slice", StringType()), *(StructField(name, types[name]) for name in FOLDERS)]
        paths = [self._files.path(folder) for folder in folders]
        reader = self._spark.read.schema(StructType(fields)).option("basePath", self._files.path(_HISTORY))
        return reader.parquet(*paths)


def compute_checksum(rows: DataFrame) -> Sum:
    """Count and checksum as `penstock.checksum_slice` takes them in the database."""
    digest = f.sha2(f.concat_ws(_SEPARATOR, *_checksum_columns()), 256)
    bits = f.conv(f.substring(digest, 1, 16), 16, -10).cast("long")
    found = rows.agg(f.count(f.lit(1)).alias("jobs"), f.bit_xor(bits).alias("checksum")).collect()[0]
    return Sum(found.jobs, found.checksum or 0)


def _checksum_columns() -> list[Column]:
    """Every column as text, in the order of the database's checksum."""
    key = f.lower(f.hex(f.coalesce(f.col("key_bytes"), f.col("key").cast("binary"))))
    columns = {name: f.col(name).cast("string") for name in LAKE_COLUMNS if name not in ("key_bytes", "day")}
    columns["key"] = key
    for name in ("enqueued_at", "started_at", "finished_at"):
        columns[name] = f.unix_micros(f.col(name)).cast("string")
    return [f.coalesce(column, f.lit(_NULL)) for column in columns.values()]
