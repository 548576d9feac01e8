"""What is said of a row that cannot be a job: nothing of its load is enqueued."""

from __future__ import annotations

from penstock.errors import InvalidInput
from penstock.loading.job_columns import BadRow

__all__ = ["refuse_row"]


def refuse_row(bad: BadRow) -> InvalidInput:
    """The error of a row; rows are counted from 0, as everywhere."""
    return InvalidInput(
        bad.field, f"{bad.problem} (row {bad.row}: {bad.shown()}). Nothing was enqueued; mend it, and send all again"
    )
