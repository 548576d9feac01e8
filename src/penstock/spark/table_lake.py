"""A lake that is a Delta or Iceberg table, for whoever's Spark has one of them.

The table's own transactions do what the manifest does for plain files: a slice is replaced whole, in one commit, and is
listed by being there. Its column `slice` names the database and the slice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

from penstock.errors import PenstockError
from penstock.spark.lake import FOLDERS, Entry, checksum_of
from penstock.storage.archive import Sum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TableLake"]


class TableLake:
    """The slices of one database in a table."""

    def __init__(self, spark: SparkSession, table: str, shard: int, identity: str, format_: str) -> None:
        self._spark = spark
        self._shard = shard
        self._format = format_
        self._identity = identity
        # Delta takes a path or a table's name, Iceberg a name.
        self.root = table

    def entries(self) -> list[Entry]:
        """What is listed, oldest first."""
        rows = self._loaded()
        if rows is None:
            return []
        mine = rows.where(f.col("slice").startswith(f"{self._identity}-"))
        found = mine.groupBy("slice").count().collect()
        names = sorted((int(row["slice"].rpartition("-")[2]), row["slice"], row["count"]) for row in found)
        return [Entry(self._shard, number, name, jobs, "", 0, 0) for number, name, jobs in names]

    def clean(self) -> None:
        """Nothing: a commit of a table is whole or not there."""

    def write(self, number: int, rows: DataFrame, expected: Sum) -> Entry:
        """Replace a slice by these rows, read them back, and compare."""
        name = f"{self._identity}-{number:06}"
        if expected.jobs:
            self._replace(name, rows.withColumn("slice", f.lit(name)))
            found = checksum_of(self.read([name]))
            if found != expected:
                raise PenstockError(
                    f"slice {number} has {expected.jobs} jobs with checksum {expected.checksum:x}, and {self.root} has "
                    f"{found.jobs} with {found.checksum:x}; nothing was dropped, run the archive again"
                )
        return Entry(self._shard, number, name, expected.jobs, f"{expected.checksum:x}", 0, 0)

    def read(self, folders: Iterable[str]) -> DataFrame:
        """The rows of these slices."""
        rows = self._loaded()
        assert rows is not None  # noqa: S101
        return rows.where(f.col("slice").isin(list(folders)))

    def _replace(self, name: str, rows: DataFrame) -> None:
        try:
            if self._format == "iceberg":
                writer: Any = rows.writeTo(self.root)
                if self._loaded() is None:
                    writer.using("iceberg").partitionedBy(*map(f.col, ("slice", *FOLDERS))).create()
                else:
                    writer.overwrite(f.col("slice") == name)
                return
            delta = rows.write.format("delta").partitionBy("slice", *FOLDERS)
            if self._loaded() is not None:
                delta = delta.mode("overwrite").option("replaceWhere", f"slice = '{name}'")
            delta.save(self.root) if self._is_path else delta.saveAsTable(self.root)
        except PySparkException as error:
            raise self._unavailable(error) from error

    def _loaded(self) -> DataFrame | None:
        try:
            if self._format == "delta" and self._is_path:
                return self._spark.read.format("delta").load(self.root)
            return self._spark.read.table(self.root)
        except Exception as error:
            # Comes as an error of Java's, not as one of PySpark's.
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                raise self._unavailable(error) from None
            if isinstance(error, AnalysisException):
                return None
            raise

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
