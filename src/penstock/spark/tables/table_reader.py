"""Reading Penstock's tables into Spark: what ended, what has not, and each failed attempt.

    spark.read.format("penstock").option("url", url).option("table", "finished").option("columns", "id,queue").load()

    finished   history: what ended, and the dead letters as failed
    jobs       what has not ended, with its state
    failures   each failed attempt of jobs that are in the database

Options: `columns` (by default those that most readers want), `partitions` (how many Spark tasks read; by default as
many as the size suggests), and which rows: see `row_filter`. All shards are read, each by tasks of its own.
`ps.history` gives further options, which say what it reads from the lake instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.errors import InvalidInput
from penstock.shards.databases import Databases
from penstock.shards.shard_urls import ShardUrls, find_shards
from penstock.spark.data_source.error_codes import encode_errors
from penstock.spark.data_source.options import refuse_unknown
from penstock.spark.tables.columns import read_table_name
from penstock.spark.tables.row_filter import KEY_HEX, RowFilter
from penstock.storage.connection.database import Database
from penstock.storage.connection.schema_name import split_schema
from penstock.storage.connection.urls import checked_urls
from penstock.storage.history.bulk import RangeInterval, SlicesGone, read, split_interval
from penstock.storage.history.lake_writings import writings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["TablePartition", "TableReader"]

# How long a database may take to say how a table is to be cut.
ASK_SECONDS = 10.0


@dataclass
class TablePartition(InputPartition):
    """The interval of a shard's table that one task reads. `name` is what errors call the shard."""

    part: RangeInterval
    shard: int
    url: str = field(repr=False)
    name: str


# Those of the second line are given by `ps.history` and `ps.archive` alone.
_OPTIONS = frozenset(
    (
        *("url", "table", "columns", "partitions", "queue", "task", "outcome", "state", "key", "since", "until"),
        *("shard", "slice", "hot_slices", "lake", "lake_format", KEY_HEX),
    )
)


class TableReader(DataSourceReader):
    """Reads one table in parts."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        with encode_errors():
            checked_urls(options.get("url"))
            self._options = options
            self._schema = schema
            self._count = _read_count(options.get("partitions"))
            table = read_table_name(options)
            refuse_unknown(options, _OPTIONS, "a table")
            self._filter = RowFilter.from_options(table, options)
            self._whole = RangeInterval(table, 0, 0, only=int(options["slice"]) if "slice" in options else None)
            # By shard: the slices that `ps.history` found in its database.
            self._hot_slices = msgspec.json.decode(options.get("hot_slices", "{}"), type=dict[int, tuple[int, ...]])

    def partitions(self) -> Sequence[InputPartition]:
        """Intervals of the ranges of each shard, so that each holds about as much as the others."""
        with encode_errors():
            urls = self._find_shards()
            with urls.open() as databases:
                partitions = databases.each_database(lambda database: self._cut_shard(databases, database)).all()
            return [partition for found in partitions for partition in found]

    def _find_shards(self) -> ShardUrls:
        if "shard" in self._options:
            number = int(self._options["shard"])
            return ShardUrls({number: self._options["url"]}, number)
        return find_shards(self._options["url"])

    def _cut_shard(self, databases: Databases, database: Database) -> list[TablePartition]:
        whole = replace(self._whole, hot=self._hot_slices.get(database.shard, ()))
        count = None if self._count is None else databases.share_of(self._count)
        # Where one of several shards is down it is not waited for: the error comes at once.
        found = databases.ask(
            database, lambda connection: split_interval(connection, whole, count), timeout=ASK_SECONDS
        )
        name = databases.named(database.shard, "shard {}") or "the database"
        return [TablePartition(part, database.shard, database.url, name) for part in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one interval, in Arrow batches."""
        assert isinstance(partition, TablePartition)  # noqa: S101
        with encode_errors():
            yield from self._read(partition)

    def _read(self, partition: TablePartition) -> Iterator[pa.RecordBatch]:
        from penstock.spark.tables.row_conversion import convert_rows

        part = partition.part
        names = list(dict.fromkeys("key" if name == "key_bytes" else name for name in self._schema.names))
        while True:
            try:
                statement = part.statement(
                    names, self._filter.conditions(part.table), split_schema(partition.url).schema
                )
                for batch in read(partition.url, statement, partition.name):
                    yield convert_rows(batch, self._schema)
                return
            except SlicesGone as gone:
                # The statement raises this before it sends a row. The slices it names have left the database: their
                # rows are read from the lake, and the next statement leaves them out.
                yield from self._read_archived(partition.url, gone.slices, part)
                part = part.without(gone.slices)

    def _read_archived(self, url: str, slices: Sequence[int], part: RangeInterval) -> Iterator[pa.RecordBatch]:
        if "lake" in self._options:
            from penstock.spark.lake.archived_slices import ArchivedSlices

            with closing(Database(url)) as database:
                writings = database.run(partial(writings_of, slices=slices), timeout=ASK_SECONDS)
            lake = ArchivedSlices(self._options["lake"], self._options["lake_format"])
            yield from lake.read(writings, part, self._schema, self._filter)


def _read_count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise InvalidInput("partitions", f"a whole number from 1 to 10000 is needed, not {text!r:.200}")
    return int(text)
