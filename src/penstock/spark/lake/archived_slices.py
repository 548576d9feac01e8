"""Slices that left the database while a query ran, read from the lake by the task that missed them.

Spark has planned that task to read PostgreSQL, so it reads files here by Arrow alone: those of the writings that the
database names by now. A slice that has none has been pruned, and its rows are gone by intent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import PenstockError
from penstock.spark.lake.parquet_lake import FOLDERS
from penstock.spark.tables.row_filter import RowFilter
from penstock.storage.enqueue.job_group import RANGE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.storage.history.bulk import RangeInterval
    from penstock.storage.history.lake_writings import Writing

__all__ = ["ArchivedSlices"]

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class ArchivedSlices:
    """A lake as a task sees it."""

    def __init__(self, root: str, format_: str) -> None:
        self._root = root
        self._format = format_

    def read(
        self, writings: Sequence[Writing], part: RangeInterval, schema: StructType, row_filter: RowFilter
    ) -> Iterator[pa.RecordBatch]:
        """The rows of these writings that a part would have had."""
        if not writings:
            return
        system, root = self._open(writings)
        wanted = to_arrow_schema(schema, timezone="UTC")
        for writing in writings:
            folder_columns = pa.schema([(name, pa.string()) for name in ("slice", *FOLDERS)])
            files = ds.dataset(
                f"{root}/{writing.folder}",
                filesystem=system,
                format="parquet",
                partitioning=ds.partitioning(folder_columns, flavor="hive"),
                partition_base_dir=f"{root}/{writing.folder.rpartition('/')[0]}",
            )
            for batch in files.to_batches(columns=wanted.names, filter=_build_filter(part, row_filter)):
                if batch.num_rows:
                    columns = [batch.column(field.name).cast(field.type) for field in wanted]
                    yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _open(self, writings: Sequence[Writing]) -> tuple[fs.FileSystem, str]:
        scheme, separator, rest = self._root.partition(":")
        try:
            if self._format != "parquet":
                raise ValueError(f"a task cannot read {self._format}")
            system, root = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}")
            for writing in writings:
                if not system.get_file_info(f"{root}/{writing.folder}").type:
                    raise ValueError(f"{writing.folder} is not there")
                files = system.get_file_info(fs.FileSelector(f"{root}/{writing.folder}", recursive=True))
                if sum(each.size for each in files if each.path.endswith(".parquet")) != writing.bytes:
                    raise ValueError(f"files of {writing.folder} are missing or damaged")
        except Exception as error:
            slices = ", ".join(str(each.slice) for each in writings)
            raise PenstockError(
                f"slices {slices} went to {writings[0].location} since this history was made, and a task cannot read "
                f"them from {self._root} ({str(error)[:200]}); call ps.history again"
            ) from None
        return system, root


def _build_filter(part: RangeInterval, row_filter: RowFilter) -> ds.Expression:
    found = (ds.field("id") >= part.low * RANGE) & (ds.field("id") < part.high * RANGE)
    for name in ("queue", "task", "outcome"):
        value = getattr(row_filter, name)
        if value is not None:
            found &= ds.field(name) == value
    if isinstance(row_filter.key, bytes):
        found &= ds.field("key_bytes") == row_filter.key
    elif row_filter.key is not None:
        found &= (ds.field("key") == row_filter.key) & ds.field("key_bytes").is_null()
    if row_filter.since is not None:
        found &= ds.field("finished_at") >= pa.scalar(row_filter.since, pa.timestamp("us", tz="UTC"))
    if row_filter.until is not None:
        found &= ds.field("finished_at") < pa.scalar(row_filter.until, pa.timestamp("us", tz="UTC"))
    return found
