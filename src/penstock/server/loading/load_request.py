"""What a load over HTTP is asked for, what it answers, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.model.checks import ARGS_BYTES, checked_count, checked_name, shown

__all__ = ["LoadLimits", "LoadReceipt", "LoadRequest", "read_types"]

_TYPES = ("string", "integer", "number", "boolean")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A load by name. `key` and `order_by` name columns; `types` are those of a CSV's columns, where they are not text;
    `rows` is how many the sender says there are.
    """

    queue: str
    name: str
    content_type: str
    content_encoding: str | None = None
    task: str | None = None
    key: str | None = None
    order_by: str | None = None
    types: Mapping[str, str] | None = None
    rows: int | None = None
    # What `trace_of_headers` gives of the request's: stored once, with the load.
    trace: Mapping[str, str] | None = None

    def check(self) -> None:
        """Refuse what can be refused before anything is read."""
        checked_name("queue", self.queue)
        checked_name("load", self.name)
        if self.task is not None:
            checked_name("task", self.task)
        if self.rows is not None:
            checked_count("rows", self.rows, least=0)
        for column, kind in (self.types or {}).items():
            if kind not in _TYPES:
                raise InvalidInput("types", f"{shown(kind)} is no type of column {column!r}; give {', '.join(_TYPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReceipt:
    """What was loaded under a name; `is_new` is False where it had been loaded before, and nothing was written."""

    name: str
    rows: int
    duplicates: int
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """How large the parts of a body may be. A body may have any length: no more of it than these is in memory."""

    # A row of NDJSON or CSV. Arguments may have ARGS_BYTES; what is escaped, and other columns, have room beside them.
    row_bytes: int = 4 * ARGS_BYTES
    # A record batch of an Arrow stream.
    batch_bytes: int = 64 * 1024 * 1024
    batch_rows: int = 1024 * 1024
    # A Parquet file, which is read from its end and so has to lie on this machine's disk first.
    parquet_bytes: int = 2 * 1024 * 1024 * 1024
    # What the process that reads it may take, beside what Python and Arrow do.
    parquet_memory_bytes: int = 512 * 1024 * 1024
    # All rows of a load: few bytes may stand for very many.
    rows: int = 100_000_000


def read_types(text: str) -> dict[str, str]:
    """The types of columns, as a URL has them: `amount:number,quantity:integer`."""
    pairs = [part.rpartition(":") for part in text.split(",") if part.strip()]
    for column, _, kind in pairs:
        if not column:
            raise InvalidInput("types", f"{shown(kind)} is no column and type; write column:number,column:integer")
    return {column.strip(): kind.strip() for column, _, kind in pairs}
