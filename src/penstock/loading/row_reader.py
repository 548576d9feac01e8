"""From a batch of rows to columns of jobs, and the rows that cannot be jobs, each with its reason.

Whole columns are looked at where Arrow can; single values become Python objects only to be written as JSON, or where
one of them has to be named. What is accepted and how it is written are the rules of `enqueue`. Where the tasks
themselves are at hand, each row is also checked by what its task takes, as `enqueue` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.loading.column_types import Convert, argument_converter, is_text
from penstock.loading.columns import LoadColumns
from penstock.loading.job_columns import BadRow, JobColumns
from penstock.loading.row_values import check_object, encode_row, show_row, to_python
from penstock.model.checks import (
    DEFAULT_PRIORITY,
    checked_idempotency_key,
    checked_name,
    checked_priority,
    key_to_bytes,
)
from penstock.model.encoding import encode_many_scalars
from penstock.task.definition import TaskDefinition

__all__ = ["RowReader"]

# What `run_at` may be, in microseconds since 1970.
_FIRST_US = -2_208_988_800_000_000  # 1900-01-01
_LAST_US = 253_370_764_800_000_000  # 9999-01-01


class RowReader:
    """Reads the batches of one task of Spark, or of one body, in order.

    `read_variant` makes one of Spark's variants a value; `tasks` are those that the app declares for the queue.
    """

    def __init__(
        self,
        columns: LoadColumns,
        read_variant: Convert | None = None,
        tasks: Mapping[str, TaskDefinition] | None = None,
    ) -> None:
        self._columns = columns
        self._arguments = columns.arguments
        self._converters = {each.name: argument_converter(each.type, read_variant) for each in columns.schema}
        self._tasks = tasks or {}
        self._row = 0
        # By row of the batch that is being read: the first thing that is wrong with it.
        self._problems: dict[int, InvalidInput] = {}

    def read(self, batch: pa.RecordBatch) -> JobColumns:
        """The jobs of a batch."""
        return self._read(batch, self._read_args, lambda row: show_row(batch.slice(row, 1).to_struct_array()[0]))

    def read_objects(
        self, options: pa.RecordBatch, arguments: Sequence[dict[str, Any] | None], rows: Sequence[dict[str, Any]]
    ) -> JobColumns:
        """The jobs of rows whose arguments are objects already; `options` are the columns that set options of jobs."""
        return self._read(options, lambda _, tasks: self._encode_rows(arguments, tasks), lambda row: rows[row])

    def _read(
        self,
        batch: pa.RecordBatch,
        read_args: Callable[[pa.RecordBatch, pa.Array], pa.Array],
        show: Callable[[int], dict[str, Any]],
    ) -> JobColumns:
        self._problems = {}
        n = batch.num_rows
        task = self._read_text(batch, "task", self._check_task, needed=True)
        if task is None:
            task = pa.repeat(pa.scalar(self._columns.task, pa.string()), n)
        columns = JobColumns(
            task=task,
            key=self._read_keys(batch),
            args=read_args(batch, task),
            priority=self._read_priority(batch),
            run_at=self._read_run_at(batch),
            attributes=self._read_attributes(batch),
            idempotency_key=self._read_idempotency_keys(batch),
        )
        if self._problems:
            columns = self._drop_bad_rows(columns, show)
        self._row += n
        return columns

    def _check_task(self, name: str) -> None:
        """Refuse a task that the app does not declare, or that does not take these columns."""
        checked_name("task", name)
        declared = self._columns.declared
        if declared is None:
            return
        if name not in declared:
            raise InvalidInput("task", f"the app declares no task {name!r}; it has {', '.join(sorted(declared))}")
        problem = declared[name]
        if problem is not None:
            raise InvalidInput(*problem)

    def _drop_bad_rows(self, columns: JobColumns, show: Callable[[int], dict[str, Any]]) -> JobColumns:
        good = np.ones(len(columns), bool)
        good[list(self._problems)] = False
        bad = [
            BadRow(self._row + index, error.field, error.problem, show(index))
            for index, error in sorted(self._problems.items())
        ]
        return columns.without(pa.array(good), bad)

    def _check(self, index: int, act: Callable[[], Any]) -> Any:
        """Call `act`: its value, or None where it raises `InvalidInput`, which then is the problem of the row."""
        try:
            return act()
        except InvalidInput as error:
            self._problems.setdefault(index, error)
            return None

    def _read_keys(self, batch: pa.RecordBatch) -> pa.Array:
        name = self._columns.key or "key"
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.binary())
        column = batch.column(name)
        if pa.types.is_null(column.type) or pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        keys = column.cast(pa.binary())
        if self._columns.key is not None and keys.null_count:
            for index in np.flatnonzero(np.asarray(keys.is_null())).tolist():
                self._problems.setdefault(index, InvalidInput(name, "the key is null; give every row one"))
        longest = pc.max(pc.binary_length(keys)).as_py() or 0
        if longest > 512:
            for row, key in enumerate(keys.to_pylist()):
                self._check(row, lambda key=key: None if key is None else key_to_bytes(key))  # type: ignore[misc]
        return keys

    def _read_args(self, batch: pa.RecordBatch, tasks: pa.Array) -> pa.Array:
        if "args" not in batch.schema.names or self._columns.key == "args":
            return self._encode_rows(self._build_arguments(batch), tasks)
        column = batch.column("args")
        if not is_text(column.type):
            convert = self._converters["args"] or (lambda value: value)
            return self._encode_rows([convert(value) for value in self._read_values(batch, "args")], tasks)
        texts = self._read_values(batch, "args")
        for index, text in enumerate(texts):
            self._check(index, lambda text=text: check_object(text))  # type: ignore[misc]
        return column.cast(pa.string()) if not self._problems else pa.array(texts, pa.string())

    def _encode_rows(self, rows: Sequence[dict[str, Any] | None], tasks: pa.Array) -> pa.Array:
        """The arguments of each row as JSON."""
        encoded = self._encode_at_once(rows)
        if encoded is None:
            names = tasks.to_pylist() if self._tasks else ()
            encoded = [
                self._check(index, lambda row=row, index=index: self._encode_one(row, names, index)) or b"{}"  # type: ignore[misc]
                for index, row in enumerate(rows)
            ]
        return pa.array(encoded, pa.binary()).cast(pa.string())

    def _encode_at_once(self, rows: Sequence[dict[str, Any] | None]) -> list[bytes] | None:
        """The same, where the rows are alike; None where each needs a look of its own."""
        given = [row for row in rows if row]
        if not given or len(given) < len(rows):
            return None
        if not self._tasks:
            return encode_many_scalars(given, frozenset(given[0]))
        task = self._tasks.get(self._columns.task or "")
        try:
            return None if task is None else task.arguments.encode_many(given)
        except InvalidInput:
            return None

    def _encode_one(self, row: dict[str, Any] | None, tasks: Sequence[str | None], index: int) -> bytes:
        task = self._tasks.get(tasks[index] or "") if tasks else None
        # A task that is not declared is the problem of its row already.
        return encode_row(row) if row is None or task is None else task.arguments.encode(row)

    def _build_arguments(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The arguments of each row."""
        names = self._arguments
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
        if "priority" not in batch.schema.names or self._columns.key == "priority":
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
        if "run_at" not in batch.schema.names or self._columns.key == "run_at":
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
        if "idempotency_key" not in batch.schema.names or self._columns.key == "idempotency_key":
            return pa.nulls(batch.num_rows, pa.string())
        return batch.column("idempotency_key").cast(pa.string())

    def _read_text(
        self, batch: pa.RecordBatch, name: str, check: Callable[[str], object], *, needed: bool = False
    ) -> pa.Array | None:
        """A reserved column of text, each distinct value checked once."""
        if name not in batch.schema.names or self._columns.key == name:
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
