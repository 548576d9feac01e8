"""Reading in bulk: history, waiting jobs and failures as Arrow batches, in intervals that are read side by side.

An interval of range numbers is read by one statement. A job moves from table to table, but stays in its range: read in
one snapshot it is met once, whatever happens meanwhile. The statements call functions
(`schema/functions/73_read_in_bulk.sql`) that are inlined: a column nobody asks for costs nothing, and conditions are
met before arguments are looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from penstock.errors import PartitionUnavailable, PenstockError
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import fill, query
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.connection.urls import utf8_conninfo
from penstock.storage.history.conditions import Condition, compose_conditions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangeInterval", "SlicesGone", "read", "split_interval"]

Table = Literal["finished", "jobs", "failures"]

_READS = {"finished": "read_history_between", "jobs": "read_waiting_between", "failures": "read_failures_between"}
_BOUNDS = {"finished": "history_bounds", "jobs": "waiting_bounds", "failures": "failure_bounds"}
_BATCH_BYTES = 4 * 1024 * 1024
# Above every range number; times 1,024 it is still a bigint.
_BEYOND_ALL = 2**53 - 1
_GONE = re.compile(r"slices of history are gone: ([\d,]+);")
_DROPPED = re.compile(r'"\w+\.finished_\d+"')


class SlicesGone(PenstockError):
    """Slices of history that were counted on are no longer in the database: archived, or pruned."""

    def __init__(self, slices: Sequence[int]) -> None:
        super().__init__(
            f"slices {', '.join(map(str, slices))} of history have left the database since this was planned"
        )
        self.slices = tuple(slices)


@dataclass(frozen=True, slots=True)
class RangeInterval:
    """An interval of ranges [low, high) of one table.

    Of history: slice `only`, or all slices without those of `cold`; those of `hot`, and all that came after, must be
    among them.
    """

    table: Table
    low: int
    high: int
    only: int | None = None
    hot: tuple[int, ...] = ()
    cold: tuple[int, ...] = ()

    def without(self, slices: Sequence[int]) -> RangeInterval:
        """The same, not counting on these slices."""
        return replace(self, cold=(*self.cold, *slices))

    def statement(self, columns: Sequence[str], conditions: Sequence[Condition], schema: str = SCHEMA) -> str:
        """What reads it. The values are written into it: a COPY, which is the fastest way out, takes no parameters."""
        parts = {
            "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
            "low": self.low,
            "high": self.high,
            "conditions": compose_conditions(conditions),
        }
        if self.table == "finished":
            parts |= {"only": self.only, "hot": list(self.hot), "cold": list(self.cold)}
        return fill(_READS[self.table], schema, **parts).as_string(None)


def split_interval(connection: Connection, interval: RangeInterval, count: int | None) -> list[RangeInterval]:
    """An interval cut into about `count` of the same size, or into as many as its size suggests."""
    parameters = {"parts": count, "only": interval.only, "cold": list(interval.cold)}
    row = connection.execute(query(_BOUNDS[interval.table]), parameters, prepare=False).fetchone()
    bounds = row[0] if row is not None and row[0] is not None else []
    lows = [0, *bounds]
    return [replace(interval, low=low, high=high) for low, high in zip(lows, [*bounds, _BEYOND_ALL], strict=True)]


def read(url: str, statement: str, name: str = "the database") -> Iterator[pa.RecordBatch]:
    """The rows of a statement, batch by batch, through Arrow's own driver, in a connection of its own.

    `name` is what the database is called where it does not answer.
    """
    import adbc_driver_postgresql.dbapi as driver
    import pyarrow as pa

    is_new = True
    while True:
        try:
            opened = closing(driver.connect(utf8_conninfo(url), autocommit=True))
            with opened as connection, closing(connection.cursor()) as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(statement)
                for batch in cursor.fetch_record_batch():
                    if batch.num_rows:
                        is_new = False
                        yield batch
            return
        except (driver.Error, OSError, pa.ArrowException) as error:
            # An error after the first batch is raised by Arrow, and has no SQLSTATE.
            said = str(error).strip()
            if gone := _GONE.search(said):
                raise SlicesGone([int(number) for number in gone[1].split(",")]) from None
            # A slice was dropped after this statement's snapshot was taken: the next snapshot does not have it.
            if is_new and _DROPPED.search(said):
                continue
            first = said.splitlines()[0][:500] if said else type(error).__name__
            if getattr(error, "sqlstate", None) is None and "ERROR:" not in said:
                raise PartitionUnavailable(f"{name} does not answer: {first}") from None
            raise PenstockError(f"{name} refused to read: {first}") from None
