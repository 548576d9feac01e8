"""Jobs on their way from rows to a stage, column by column, and the rows that cannot be jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

__all__ = ["BadRow", "JobColumns"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be a job: its number within the Spark partition or the body, from 0, and what is wrong."""

    row: int
    field: str
    problem: str
    data: dict[str, Any]

    def shown(self) -> str:
        """What it holds, as far as it may stand in a message."""
        return f"{', '.join(f'{name}={value!r:.60}' for name, value in self.data.items()):.300}"


@dataclass(slots=True)
class JobColumns:
    """Jobs in the order of their rows; `bad` are the rows that were left out."""

    task: pa.Array
    key: pa.Array
    args: pa.Array
    priority: pa.Array
    run_at: pa.Array
    attributes: pa.Array
    idempotency_key: pa.Array
    bad: list[BadRow] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.task)

    def without(self, is_good: pa.Array, bad: list[BadRow]) -> JobColumns:
        """The jobs of the good rows, with the bad ones beside them."""
        columns = {name: getattr(self, name).filter(is_good) for name in _NAMES}
        return JobColumns(**columns, bad=bad)

    @staticmethod
    def combine(several: Sequence[JobColumns]) -> pa.Table:
        """All of these jobs in one table."""
        columns = {name: pa.chunked_array([getattr(each, name) for each in several]) for name in _NAMES}
        return pa.table(columns).combine_chunks()


_NAMES = tuple(each.name for each in fields(JobColumns) if each.name != "bad")
