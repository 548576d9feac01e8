"""The data source `penstock`: what Spark's readers and writers are given, batch and stream.

Spark builds these objects anew wherever it needs them, in processes of its own: nothing may be kept in one that must
be known in another, except by its options. The URL travels as the option `url`, which Spark hides in its logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.errors import InvalidInput
from penstock.model.checks import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

__all__ = ["PenstockSource", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session, in whichever thread it is used."""
    if not hasattr(type(spark), "dataSource"):
        raise InvalidInput("spark", f"a SparkSession is needed, such as ps.session(), not {shown(spark)}")
    # Spark looks a format up in the session that is active in this thread, which is none, or another, where this is not
    # the thread that started it. A session over Spark Connect has no such thing.
    if hasattr(spark, "_jsparkSession"):
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    spark.dataSource.register(PenstockSource)


class PenstockSource(DataSource):
    """Reads tables of jobs, claims jobs as a stream, writes loads; by the options that were given."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        if "table" in self.options:
            from penstock.spark.tables.columns import table_schema

            return table_schema(self.options)
        from penstock.spark.streaming.stream_reader import STREAM_COLUMNS

        return STREAM_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.tables.table_reader import TableReader

        return TableReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.streaming.stream_reader import JobStreamReader

        return JobStreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from penstock.spark.loading.load_writer import LoadWriter

        return LoadWriter(schema, overwrite, self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from penstock.spark.loading.load_writer import StreamWriter

        return StreamWriter(schema, overwrite, self.options)
