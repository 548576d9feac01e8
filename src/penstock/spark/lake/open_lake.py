"""The lake of a database, of one of the formats."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import InvalidInput
from penstock.spark.data_source.options import checked_lake
from penstock.spark.lake.parquet_lake import ParquetLake
from penstock.spark.lake.table_lake import TableLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMATS", "Lake", "open_lake"]

FORMATS = ("parquet", "delta", "iceberg")

Lake: TypeAlias = ParquetLake | TableLake


def open_lake(spark: SparkSession, lake: str | PathLike[str], shard: int, identity: str, kind: str) -> Lake:
    """What the database with this shard number and identity has in a lake."""
    path = checked_lake(lake)
    if kind not in FORMATS:
        raise InvalidInput("format", f"{kind!r:.200} is none of {', '.join(FORMATS)}")
    if kind == "parquet":
        return ParquetLake(spark, path, shard, identity)
    return TableLake(spark, path, identity, kind)
