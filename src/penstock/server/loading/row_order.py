"""`order_by` of a load over HTTP: nothing is sorted, the rows have to arrive in that order. Nulls come last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.checks import shown

__all__ = ["RowOrder"]


class RowOrder:
    """Looks at the values of one column, in the order of their rows."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._row = 0
        self._has_null = False
        self._last: Any = None

    def check(self, values: Sequence[Any]) -> None:
        """Take the next values; InvalidInput for the first that is lower than the one before it."""
        try:
            if None not in values and not self._has_null:
                before = values if self._last is None else [self._last, *values]
                if all(map(_is_in_order, before, before[1:])):
                    self._last = before[-1] if before else None
                    self._row += len(values)
                    return
        except TypeError:
            pass  # Looked at one by one, the row is named.
        for value in values:
            self._check_one(value)
            self._row += 1

    def _check_one(self, value: Any) -> None:
        if value is None:
            self._has_null = True
            return
        try:
            is_lower = self._has_null or (self._last is not None and not _is_in_order(self._last, value))
        except TypeError:
            raise InvalidInput(
                "order_by",
                f"row {self._row} has {shown(value)} in {self.column!r}, which cannot be compared with "
                f"{shown(self._last)} before it; give values of one kind, or leave order_by out",
            ) from None
        if is_lower:
            before = "null" if self._has_null else shown(self._last)
            raise InvalidInput(
                "order_by",
                f"row {self._row} has {shown(value)} in {self.column!r}, after {before}: rows are taken in the order "
                "in which they arrive; sort them first",
            )
        self._last = value


def _is_in_order(earlier: Any, later: Any) -> bool:
    return bool(earlier <= later)
