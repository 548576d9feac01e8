"""Slices that left the database while a query ran, read from the lake by the task that missed them.

Spark has planned that task to read PostgreSQL, so it reads files here by Arrow alone: those of the slices that the
manifest lists by now. A slice that is in neither place has been pruned, and its rows are gone by intent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import PenstockError
from penstock.spark.choice import Choice
from penstock.spark.lake import FOLDERS, MANIFEST, Entry
from penstock.storage.enqueue import RANGE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.storage.bulk import Part

__all__ = ["ColdLake"]

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class ColdLake:
    """A lake as a task sees it."""

    def __init__(self, root: str, identity: str, format_: str) -> None:
        self._root = root
        self._identity = identity
        self._format = format_

    def read(self, slices: Sequence[int], part: Part, schema: StructType, choice: Choice) -> Iterator[pa.RecordBatch]:
        """The rows of these slices that a part would have had."""
        system, root = self._opened(slices)
        wanted = to_arrow_schema(schema, timezone="UTC")
        for number in slices:
            folder = self._folder(system, root, number)
            if folder is None:
                continue
            told = pa.schema([(name, pa.string()) for name in ("slice", *FOLDERS)])
            files = ds.dataset(
                f"{root}/{folder}",
                filesystem=system,
                format="parquet",
                partitioning=ds.partitioning(told, flavor="hive"),
                partition_base_dir=f"{root}/{folder.rpartition('/')[0]}",
            )
            for batch in files.to_batches(columns=wanted.names, filter=_condition(part, choice)):
                if batch.num_rows:
                    columns = [batch.column(field.name).cast(field.type) for field in wanted]
                    yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _opened(self, slices: Sequence[int]) -> tuple[fs.FileSystem, str]:
        scheme, separator, rest = self._root.partition(":")
        try:
            if self._format != "parquet":
                raise ValueError(f"a task cannot read {self._format}")
            system, root = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}")
            if root and not system.get_file_info(root).type:
                raise ValueError("it is not there")
        except Exception as error:
            raise PenstockError(
                f"slices {', '.join(map(str, slices))} went to {self._root} since this history was made, and a task "
                f"cannot read them from there ({str(error)[:200]}); call ps.history again"
            ) from None
        return system, root

    def _folder(self, system: fs.FileSystem, root: str, number: int) -> str | None:
        path = f"{root}/{MANIFEST}/{self._identity}/slice-{number:06}.json"
        if system.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with system.open_input_stream(path) as stream:
            return msgspec.json.decode(stream.read(), type=Entry).folder


def _condition(part: Part, choice: Choice) -> ds.Expression:
    found = (ds.field("id") >= part.low * RANGE) & (ds.field("id") < part.high * RANGE)
    for name in ("queue", "task", "outcome", "key"):
        value = getattr(choice, name)
        if value is not None:
            found &= ds.field(name) == value
    if choice.since is not None:
        found &= ds.field("finished_at") >= pa.scalar(choice.since, pa.timestamp("us", tz="UTC"))
    if choice.until is not None:
        found &= ds.field("finished_at") < pa.scalar(choice.until, pa.timestamp("us", tz="UTC"))
    return found
