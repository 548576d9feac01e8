"""Reading Penstock's tables into Spark: what ended, what has not, and each failed attempt.

    spark.read.format("penstock").option("url", url).option("table", "finished").option("columns", "id,queue").load()

    finished   history: what ended, and the dead letters as failed
    jobs       what has not ended, with its state
    failures   each failed attempt of jobs that are in the database

Options: `columns` (by default those that most readers want), `partitions` (how many Spark tasks read; by default as
many as the size suggests), and which rows: see `penstock.spark.choice`. `ps.history` gives further ones, which say
what it reads from the lake instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.errors import InvalidJob
from penstock.spark.choice import Choice
from penstock.spark.coded import coded
from penstock.spark.options import refuse_unknown
from penstock.spark.table_columns import chosen_table
from penstock.storage.bulk import Part, SlicesGone, parts, read
from penstock.storage.database import Database, checked_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["TableReader"]


@dataclass
class _Piece(InputPartition):
    """What one task reads."""

    part: Part


# The last six are for history alone.
_OPTIONS = frozenset(
    (
        *("url", "table", "columns", "partitions", "queue", "task", "outcome", "state", "key", "since", "until"),
        *("slice", "hot", "cold", "lake", "identity", "lake_format"),
    )
)


class TableReader(DataSourceReader):
    """Reads one table in parts."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        with coded():
            self._url = checked_url(options.get("url"))
            self._schema = schema
            self._count = _count(options.get("partitions"))
            table = chosen_table(options)
            refuse_unknown(options, _OPTIONS, "a table")
            self._choice = Choice.from_options(table, options)
            self._whole = Part(
                table,
                0,
                0,
                only=int(options["slice"]) if "slice" in options else None,
                hot=_numbers(options.get("hot")),
                cold=_numbers(options.get("cold")),
            )
            self._lake = {name: options[name] for name in ("lake", "identity", "lake_format") if name in options}

    def partitions(self) -> Sequence[InputPartition]:
        """Intervals of ranges, so that each holds about as much as the others."""
        database = Database(self._url)
        with coded(), closing(database), database.connect() as connection:
            return [_Piece(part) for part in parts(connection, self._whole, self._count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one interval, in Arrow batches."""
        assert isinstance(partition, _Piece)  # noqa: S101
        with coded():
            yield from self._read(partition.part)

    def _read(self, part: Part) -> Iterator[pa.RecordBatch]:
        from penstock.spark.arriving import arriving

        names = list(dict.fromkeys("key" if name == "key_bytes" else name for name in self._schema.names))
        while True:
            try:
                for batch in read(self._url, part.statement(names, self._choice.conditions(part.table))):
                    yield arriving(batch, self._schema)
                return
            except SlicesGone as gone:
                # Said before any row was sent, and true for all that the next statement will not find.
                yield from self._read_cold(gone.slices, part)
                part = part.without(gone.slices)

    def _read_cold(self, slices: Sequence[int], part: Part) -> Iterator[pa.RecordBatch]:
        if self._lake:
            from penstock.spark.cold import ColdLake

            lake = ColdLake(self._lake["lake"], self._lake["identity"], self._lake["lake_format"])
            yield from lake.read(slices, part, self._schema, self._choice)


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise InvalidJob("partitions", f"a whole number from 1 to 10000 is needed, not {text!r:.200}")
    return int(text)


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",")) if text else ()
