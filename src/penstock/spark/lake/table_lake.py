"""A lake that is a Delta or Iceberg table, for whoever's Spark has one of them.

A slice is appended in one commit of the table, under a name in the column `slice` that is never used twice: the
database, the slice, the archive's duty, and an identity. That its rows are there says nothing: the database decides
which names count, as it does for folders. What else is there under a name of the database's was begun and abandoned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

from penstock.errors import PenstockError
from penstock.spark.lake.parquet_lake import FOLDERS, compute_checksum
from penstock.storage.history.lake_writings import Writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TableLake"]

_NAME = re.compile(r"(.*)-(\d+)-(\d+)-([0-9a-f]{32})")


class TableLake:
    """The slices of one database in a table."""

    def __init__(self, spark: SparkSession, table: str, identity: str, format_: str) -> None:
        self._spark = spark
        self._format = format_
        # What names of this database begin with.
        self.name = identity
        # Delta takes a path or a table's name, Iceberg a name.
        self.root = table

    def identity(self, *, create: bool = False) -> str:
        """What the database knows this lake by: its format and its name."""
        return f"{self._format}:{self.root}"

    def list_other_databases(self) -> list[str]:
        """The other databases whose history is here."""
        found = {match[1] for match in map(_NAME.fullmatch, self._names()) if match is not None}
        return sorted(found - {self.name})

    def list_writings(self) -> dict[str, int]:
        """What rows there are of this database: the slice of each writing, by its identity."""
        found = [match for match in map(_NAME.fullmatch, self._names()) if match is not None]
        return {str(UUID(match[4])): int(match[2]) for match in found if match[1] == self.name}

    def write(self, writing: Writing, rows: DataFrame) -> Writing:
        """Append a slice's rows and read them back: the writing, with what the table holds of it."""
        self._append(rows.withColumn("slice", f.lit(writing.folder)))
        return writing.with_content(compute_checksum(self.read([writing.folder])))

    def is_intact(self, writing: Writing) -> bool:
        """Whether the rows of a writing are what they were."""
        return self._load_table() is not None and compute_checksum(self.read([writing.folder])) == writing.sum

    def find_damaged(self, writings: Sequence[Writing]) -> list[Writing]:
        """Those whose rows are not all there, by their number."""
        rows = self._load_table()
        if not writings or rows is None:
            return list(writings)
        mine = rows.where(f.col("slice").isin([each.folder for each in writings]))
        found = {row["slice"]: row["count"] for row in mine.groupBy("slice").count().collect()}
        return [each for each in writings if found.get(each.folder) != each.jobs]

    def add_to_manifest(self, writing: Writing) -> None:
        """Nothing: the database lists it."""

    def remove(self, writing: Writing) -> None:
        """Delete the rows of a writing."""
        if self._load_table() is not None and not self.read([writing.folder]).isEmpty():
            self._delete(writing.folder)

    def read(self, folders: Iterable[str]) -> DataFrame:
        """The rows of these writings."""
        rows = self._load_table()
        assert rows is not None  # noqa: S101
        return rows.where(f.col("slice").isin(list(folders)))

    def _names(self) -> list[str]:
        rows = self._load_table()
        return [] if rows is None else [row["slice"] for row in rows.select("slice").distinct().collect()]

    def _append(self, rows: DataFrame) -> None:
        try:
            if self._format == "iceberg":
                writer: Any = rows.writeTo(self.root)
                if self._load_table() is None:
                    writer.using("iceberg").partitionedBy(*map(f.col, ("slice", *FOLDERS))).create()
                else:
                    writer.append()
                return
            appending = rows.write.format(self._format).partitionBy("slice", *FOLDERS).mode("append")
            appending.save(self.root) if self._is_path else appending.saveAsTable(self.root)
        except PySparkException as error:
            raise self._unavailable(error) from error

    def _delete(self, name: str) -> None:
        table = f"delta.`{self.root}`" if self._is_path else self.root
        self._spark.sql("delete from identifier(:table) where slice = :name", {"table": table, "name": name})

    def _load_table(self) -> DataFrame | None:
        try:
            if self._is_path:
                rows = self._spark.read.format(self._format).load(self.root)
            else:
                rows = self._spark.read.table(self.root)
        except Exception as error:
            # A format without its jars is an error of Java's, not one of PySpark's.
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                raise self._unavailable(error) from None
            if isinstance(error, AnalysisException):
                return None
            raise
        if "slice" not in rows.columns:
            raise PenstockError(f"the table {self.root} is no lake of penstock's: it has no column slice")
        return rows

    @property
    def _is_path(self) -> bool:
        return "/" in self.root

    def _unavailable(self, error: Exception) -> PenstockError:
        found = re.search(r"\[[A-Z_.]+\] [^\n]*", str(error))
        said = found[0][:200] if found else type(error).__name__
        return PenstockError(
            f"this Spark session cannot write {self._format} to {self.root!r}: {said}; start it with the jars and "
            f"settings of {self._format}, or leave format out to write Parquet"
        )
