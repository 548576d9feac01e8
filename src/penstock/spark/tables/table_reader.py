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
from penstock.spark.data_source.error_codes import coded
from penstock.spark.data_source.options import refuse_unknown
from penstock.spark.data_source.shard_urls import Reach, reached
from penstock.spark.tables.columns import chosen_table
from penstock.spark.tables.row_filter import KEY_HEX, Choice
from penstock.storage.bulk import Part, SlicesGone, parts, read
from penstock.storage.database import Database, checked_urls
from penstock.storage.schema_name import split_schema
from penstock.storage.writing import writings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Place", "TableReader"]

# To cut a table into parts.
ASK_SECONDS = 10.0


class Place(msgspec.Struct, frozen=True):
    """What a history knows of a shard: which slices are read there."""

    hot: tuple[int, ...] = ()


@dataclass
class _Piece(InputPartition):
    """What one task reads."""

    part: Part
    shard: int
    url: str = field(repr=False)
    name: str


# The last six are for history and archives alone.
_OPTIONS = frozenset(
    (
        *("url", "table", "columns", "partitions", "queue", "task", "outcome", "state", "key", "since", "until"),
        *("shard", "slice", "places", "lake", "lake_format", KEY_HEX),
    )
)


class TableReader(DataSourceReader):
    """Reads one table in parts."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        with coded():
            checked_urls(options.get("url"))
            self._options = options
            self._schema = schema
            self._count = _count(options.get("partitions"))
            table = chosen_table(options)
            refuse_unknown(options, _OPTIONS, "a table")
            self._choice = Choice.from_options(table, options)
            self._whole = Part(table, 0, 0, only=int(options["slice"]) if "slice" in options else None)
            self._places = msgspec.json.decode(options.get("places", "{}"), type=dict[int, Place])

    def partitions(self) -> Sequence[InputPartition]:
        """Intervals of the ranges of each shard, so that each holds about as much as the others."""
        with coded():
            reach = self._reach()
            with reach.shards() as shards:
                pieces = shards.each_database(lambda database: self._cut(database, len(reach.urls))).all()
            return [piece for found in pieces for piece in found]

    def _reach(self) -> Reach:
        if "shard" in self._options:
            number = int(self._options["shard"])
            return Reach({number: self._options["url"]}, number)
        return reached(self._options["url"])

    def _cut(self, database: Database, shards: int) -> list[_Piece]:
        place = self._places.get(database.shard, Place())
        whole = replace(self._whole, hot=place.hot)
        count = None if self._count is None else -(-self._count // shards)
        # One of several that is away is not waited for: what the others have would not be the whole.
        found = database.run(lambda connection: parts(connection, whole, count), waits=shards == 1, timeout=ASK_SECONDS)
        name = "the database" if shards == 1 else f"shard {database.shard}"
        return [_Piece(part, database.shard, database.url, name) for part in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one interval, in Arrow batches."""
        assert isinstance(partition, _Piece)  # noqa: S101
        with coded():
            yield from self._read(partition)

    def _read(self, piece: _Piece) -> Iterator[pa.RecordBatch]:
        from penstock.spark.tables.row_conversion import arriving

        part = piece.part
        names = list(dict.fromkeys("key" if name == "key_bytes" else name for name in self._schema.names))
        while True:
            try:
                statement = part.statement(names, self._choice.conditions(part.table), split_schema(piece.url).schema)
                for batch in read(piece.url, statement, piece.name):
                    yield arriving(batch, self._schema)
                return
            except SlicesGone as gone:
                # Said before any row was sent, and true for all that the next statement will not find.
                yield from self._read_cold(piece.url, gone.slices, part)
                part = part.without(gone.slices)

    def _read_cold(self, url: str, slices: Sequence[int], part: Part) -> Iterator[pa.RecordBatch]:
        if "lake" in self._options:
            from penstock.spark.lake.archived_slices import ColdLake

            with closing(Database(url)) as database:
                writings = database.run(partial(writings_of, slices=slices), timeout=ASK_SECONDS)
            lake = ColdLake(self._options["lake"], self._options["lake_format"])
            yield from lake.read(writings, part, self._schema, self._choice)


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise InvalidInput("partitions", f"a whole number from 1 to 10000 is needed, not {text!r:.200}")
    return int(text)
