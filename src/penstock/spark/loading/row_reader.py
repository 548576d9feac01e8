"""From a batch of Spark's rows to columns of jobs, and the rows that cannot be jobs, each with its reason.

Whole columns are looked at where Arrow can; single values become Python objects only to be written as JSON, or where
one of them has to be named. What is accepted and how it is written are the rules of `enqueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from penstock.errors import InvalidInput
from penstock.model.checks import (
    DEFAULT_PRIORITY,
    checked_idempotency_key,
    checked_name,
    checked_priority,
    key_to_bytes,
)
from penstock.model.encoding import encode_many_scalars
from penstock.spark.loading.column_types import argument_converter
from penstock.spark.loading.job_columns import BadRow, JobColumns
from penstock.spark.loading.load_plan import LoadPlan
from penstock.spark.loading.row_values import check_object, encode_row, show_row, to_python

__all__ = ["RowReader"]

# What `run_at` may be, in microseconds since 1970.
_FIRST_US = -2_208_988_800_000_000  # 1900-01-01
_LAST_US = 253_370_764_800_000_000  # 9999-01-01


class RowReader:
    """Reads the batches of one Spark partition, in order."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._types = {each.name: each.dataType for each in plan.schema.fields}
        self._converters = {name: argument_converter(kind) for name, kind in self._types.items()}
        self._names = frozenset(plan.arguments)
        self._row = 0
        # By row of the batch that is being read: the first thing that is wrong with it.
        self._problems: dict[int, InvalidInput] = {}

    def read(self, batch: pa.RecordBatch) -> JobColumns:
        """The jobs of a batch."""
        self._problems = {}
        n = batch.num_rows
        task = self._read_text(batch, "task", self._check_task, needed=True)
        columns = JobColumns(
            task=pa.repeat(pa.scalar(self._plan.task, pa.string()), n) if task is None else task,
            key=self._read_keys(batch),
            args=self._read_args(batch),
            priority=self._read_priority(batch),
            run_at=self._read_run_at(batch),
            attributes=self._read_attributes(batch),
            idempotency_key=self._read_idempotency_keys(batch),
        )
        if self._problems:
            columns = self._drop_bad_rows(batch, columns)
        self._row += n
        return columns

    def _check_task(self, name: str) -> None:
        """Refuse a task that the app does not declare, or that does not take these columns."""
        checked_name("task", name)
        declared = self._plan.declared
        if declared is None:
            return
        if name not in declared:
            raise InvalidInput("task", f"the app declares no task {name!r}; it has {', '.join(sorted(declared))}")
        problem = declared[name]
        if problem is not None:
            raise InvalidInput(*problem)

    def _drop_bad_rows(self, batch: pa.RecordBatch, columns: JobColumns) -> JobColumns:
        good = np.ones(batch.num_rows, bool)
        good[list(self._problems)] = False
        mask = pa.array(good)
        data = [show_row(row) for row in batch.filter(pa.array(~good)).to_struct_array()]
        bad = [
            BadRow(self._row + index, error.field, error.problem, row)
            for (index, error), row in zip(sorted(self._problems.items()), data, strict=True)
        ]
        return columns.without(mask, bad)

    def _check(self, index: int, act: Callable[[], Any]) -> Any:
        """Call `act`: its value, or None where it raises `InvalidInput`, which then is the problem of the row."""
        try:
            return act()
        except InvalidInput as error:
            self._problems.setdefault(index, error)
            return None

    def _read_keys(self, batch: pa.RecordBatch) -> pa.Array:
        name = self._plan.key or "key"
        if name not in self._types:
            return pa.nulls(batch.num_rows, pa.binary())
        column = batch.column(name)
        if isinstance(self._types[name], t.NullType) or pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        keys = column.cast(pa.binary())
        if self._plan.key is not None and keys.null_count:
            for index in np.flatnonzero(np.asarray(keys.is_null())).tolist():
                self._problems.setdefault(index, InvalidInput(name, "the key is null; give every row one"))
        longest = pc.max(pc.binary_length(keys)).as_py() or 0
        if longest > 512:
            for row, key in enumerate(keys.to_pylist()):
                self._check(row, lambda key=key: None if key is None else key_to_bytes(key))  # type: ignore[misc]
        return keys

    def _read_args(self, batch: pa.RecordBatch) -> pa.Array:
        if "args" in self._types and self._plan.key != "args":
            column = batch.column("args")
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                texts = self._read_values(batch, "args")
                for index, text in enumerate(texts):
                    self._check(index, lambda text=text: check_object(text))  # type: ignore[misc]
                return column.cast(pa.string()) if not self._problems else pa.array(texts, pa.string())
            convert = self._converters["args"] or (lambda value: value)
            rows = [convert(value) for value in self._read_values(batch, "args")]
        else:
            rows = self._build_arguments(batch)
            encoded = encode_many_scalars(rows, self._names) if self._names else None
            if encoded is not None:
                return pa.array(encoded, pa.binary()).cast(pa.string())
        encoded = [self._check(index, lambda row=row: encode_row(row)) or b"{}" for index, row in enumerate(rows)]  # type: ignore[misc]
        return pa.array(encoded, pa.binary()).cast(pa.string())

    def _build_arguments(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The arguments of each row."""
        names = self._plan.arguments
        if not names:
            return [{} for _ in range(batch.num_rows)]
        columns = []
        for name in names:
            values = self._read_values(batch, name)
            convert = self._converters[name]
            columns.append(values if convert is None else [convert(value) for value in values])
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _read_values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        """A column's values as Python objects; None, and a problem of the row, for one that Python cannot hold.

        Spark's dates may lie beyond the year 9999, and its text need not be UTF-8.
        """
        column = batch.column(name)
        try:
            return list(column.to_pylist())
        except (OverflowError, ValueError):
            return [
                self._check(index, lambda value=value: to_python(name, value))  # type: ignore[misc]
                for index, value in enumerate(column)
            ]

    def _read_priority(self, batch: pa.RecordBatch) -> pa.Array:
        if "priority" not in self._types or self._plan.key == "priority":
            return pa.repeat(pa.scalar(DEFAULT_PRIORITY, pa.int16()), batch.num_rows)
        column = batch.column("priority").cast(pa.int64()).fill_null(DEFAULT_PRIORITY)
        bounds = pc.min_max(column).as_py()
        if len(column) and not 0 <= bounds["min"] <= bounds["max"] <= 9:
            for index, value in enumerate(column.to_pylist()):
                self._check(index, lambda value=value: checked_priority(value))  # type: ignore[misc]
            column = pc.if_else(pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, 9)), column, 0)
        return column.cast(pa.int16())

    def _read_run_at(self, batch: pa.RecordBatch) -> pa.Array:
        kind = pa.timestamp("us", tz="UTC")
        if "run_at" not in self._types or self._plan.key == "run_at":
            return pa.nulls(batch.num_rows, kind)
        column = batch.column("run_at").cast(kind)
        bounds = pc.min_max(column.cast(pa.int64())).as_py()
        if bounds["min"] is not None and not _FIRST_US <= bounds["min"] <= bounds["max"] <= _LAST_US:
            for index, micros in enumerate(column.cast(pa.int64()).to_pylist()):
                if micros is not None and not _FIRST_US <= micros <= _LAST_US:
                    problem = "it is out of bounds; give a time in the years 1900 to 9998"
                    self._problems.setdefault(index, InvalidInput("run_at", problem))
        return column

    def _read_attributes(self, batch: pa.RecordBatch) -> pa.Array:
        tenant = self._read_text(batch, "tenant", lambda value: checked_name("tenant", value))
        idempotency_key = self._read_text(batch, "idempotency_key", checked_idempotency_key)
        if tenant is None and idempotency_key is None:
            return pa.nulls(batch.num_rows, pa.string())
        given = {"tenant": tenant, "idempotency_key": idempotency_key}
        values = {name: column.to_pylist() for name, column in given.items() if column is not None}
        rows = (
            {name: value for name, value in zip(values, row, strict=True) if value is not None}
            for row in zip(*values.values(), strict=True)
        )
        return pa.array([msgspec.json.encode(row).decode() if row else None for row in rows], pa.string())

    def _read_idempotency_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """The idempotency keys, which are checked with the attributes."""
        if "idempotency_key" not in self._types or self._plan.key == "idempotency_key":
            return pa.nulls(batch.num_rows, pa.string())
        return batch.column("idempotency_key").cast(pa.string())

    def _read_text(
        self, batch: pa.RecordBatch, name: str, check: Callable[[str], object], *, needed: bool = False
    ) -> pa.Array | None:
        """A reserved column of text, each distinct value checked once."""
        if name not in self._types or self._plan.key == name:
            return None
        column = batch.column(name).cast(pa.string())
        try:
            distinct = column.unique().to_pylist()
        except ValueError:
            column = pa.array(self._read_values(batch, name), pa.string())
            distinct = column.unique().to_pylist()
        problems: dict[str, InvalidInput] = {}
        for value in distinct:
            try:
                if value is not None:
                    check(value)
            except InvalidInput as error:
                problems[value] = error
        if problems or (needed and column.null_count):
            for index, value in enumerate(column.to_pylist()):
                if value is None and needed:
                    self._problems.setdefault(index, InvalidInput(name, "it is null; give every row one"))
                elif value in problems:
                    self._problems.setdefault(index, problems[value])
        return column
