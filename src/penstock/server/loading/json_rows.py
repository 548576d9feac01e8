"""NDJSON: each line an object, whose fields are the columns of its row.

What a column is named may differ from line to line; what is not there is not there, as in a call of `enqueue`. The
arguments are written anew rather than passed on as they came: so they are byte for byte what every other way to enqueue
stores, and no field is in them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.loading.column_types import RESERVED_MEANINGS
from penstock.loading.columns import RESERVED, LoadColumns, check_names, join_names
from penstock.loading.declared_tasks import find_declared_key, find_key_problem
from penstock.loading.job_columns import BadRow, JobColumns
from penstock.loading.row_reader import RowReader
from penstock.model.checks import checked_priority, checked_run_at, shown
from penstock.server.loading.blocks import cut_blocks
from penstock.server.loading.load_request import LoadLimits, LoadRequest
from penstock.server.loading.refusing import refuse_row
from penstock.server.loading.row_order import RowOrder
from penstock.task.definition import TaskDefinition

__all__ = ["read_json"]

Row = dict[str, Any]
_decoder = msgspec.json.Decoder(Row)
_KINDS = {str: "text", int: "a number", float: "a number", bool: "a boolean", list: "an array", dict: "an object"}
_TEXT = frozenset({str, type(None)})
# Names of fields that were seen to be right, and need no second look.
_MOST_SHAPES = 10_000


def read_json(
    request: LoadRequest, tasks: Mapping[str, TaskDefinition], chunks: Iterable[bytes], limits: LoadLimits
) -> Generator[JobColumns, None, None]:
    """The jobs of a body of lines."""
    lines = _Lines(limits)
    reader: _ObjectReader | None = None
    for rows in lines.read(chunks):
        if reader is None:
            reader = _ObjectReader(request, tasks, rows[0])
        yield from reader.read(rows)


class _Lines:
    """Where a body is being read; lines are counted from 1, as editors do it."""

    def __init__(self, limits: LoadLimits) -> None:
        self._limits = limits
        self._line = 1

    def read(self, chunks: Iterable[bytes]) -> Iterator[list[Row]]:
        """The objects of each block."""
        for block in cut_blocks(chunks, _find_end, lambda: self._too_long(self._line), self._limits.row_bytes):
            lines = block.split(b"\n")
            if max(map(len, lines)) > self._limits.row_bytes:
                longest = next(n for n, line in enumerate(lines) if len(line) > self._limits.row_bytes)
                raise self._too_long(self._line + longest)
            try:
                rows = _decoder.decode_lines(block)
            except Exception:  # Which line it is, is looked for one by one.
                self._raise_for_line(lines)
                raise
            if len(rows) + sum(not line or line.isspace() for line in lines) != len(lines):
                # An object over several lines, say, which would be torn apart where a block ends.
                self._raise_for_line(lines)
            if rows:
                yield rows
            self._line += len(lines) - 1

    def _raise_for_line(self, lines: Sequence[bytes]) -> None:
        for number, line in enumerate(lines, self._line):
            try:
                if line.strip():
                    _decoder.decode(line)
            except UnicodeDecodeError:
                raise InvalidInput("body", f"line {number} is not UTF-8. Nothing was enqueued; mend it") from None
            except RecursionError:
                raise InvalidInput("body", f"line {number} is nested too deeply. Nothing was enqueued") from None
            except msgspec.MsgspecError as error:
                raise InvalidInput(
                    "body",
                    f"line {number} is no JSON object: {error} ({shown(line[:60])}). Nothing was enqueued; mend it",
                ) from None

    def _too_long(self, line: int) -> InvalidInput:
        return InvalidInput(
            "body",
            f"line {line} is longer than {self._limits.row_bytes} bytes. Nothing was enqueued; store what is so long "
            "and pass where",
        )


def _find_end(block: bytes) -> int:
    return block.rfind(b"\n") + 1


class _ObjectReader:
    """Makes jobs of objects; rows are counted from 0."""

    def __init__(self, request: LoadRequest, tasks: Mapping[str, TaskDefinition], first: Row) -> None:
        self._request = request
        self._tasks = tasks
        self._key = request.key or find_declared_key(tasks, request.task, list(first))
        # Rows are checked by what their tasks take, one by one: of columns nothing is known.
        known = dict.fromkeys(tasks) if tasks else None
        self._reader = RowReader(LoadColumns(pa.schema([]), request.task, self._key, known), tasks=tasks)
        self._order = None if request.order_by is None else RowOrder(request.order_by)
        self._may_name_tasks = bool(tasks) and request.task is None
        self._shapes: set[tuple[str, ...]] = set()
        self._row = 0

    def read(self, rows: list[Row]) -> Iterator[JobColumns]:
        """The jobs of the next rows."""
        names = self._check_shapes(rows)
        if self._order is not None:
            self._order.check([row.get(self._order.column) for row in rows])
        if "args" not in names:
            yield self._read_alike(rows, names)
            return
        for _, alike in groupby(rows, lambda row: type(row.get("args")) is str):
            yield self._read_alike(list(alike), names)

    def _check_shapes(self, rows: Sequence[Row]) -> set[str]:
        """Refuse fields that do not make a job, or not one of their task; the options among these fields."""
        shapes = dict.fromkeys(map(self._shape_of, rows) if self._may_name_tasks else map(tuple, rows))
        for shape in shapes:
            if shape in self._shapes:
                continue
            names, task = (shape[1:], shape[0]) if self._may_name_tasks else (shape, self._request.task)
            try:
                self._check_shape(names, task)
            except InvalidInput as error:
                index = next(n for n, row in enumerate(rows) if tuple(row) == names)
                raise self._refuse(index, rows[index], error) from None
        if len(self._shapes) > _MOST_SHAPES:
            self._shapes.clear()
        self._shapes.update(shapes)
        fields = (shape[1:] if self._may_name_tasks else shape for shape in shapes)
        return {name for names in fields for name in names if name in RESERVED and name != self._key}

    @staticmethod
    def _shape_of(row: Row) -> tuple[str, ...]:
        """Where rows name their tasks: that of a row, and its fields."""
        task = row.get("task")
        return (task if type(task) is str else "", *row)

    def _check_shape(self, names: Sequence[str], task: str | None) -> None:
        check_names(names, self._request.task, self._key)
        if self._order is not None and self._order.column not in names:
            raise InvalidInput("order_by", f"there is no column {self._order.column!r}; there are {join_names(names)}")
        definition = self._tasks.get(task or "")
        if definition is not None and (problem := find_key_problem(definition, names, self._key)):
            raise InvalidInput(*problem)

    def _read_alike(self, rows: list[Row], names: set[str]) -> JobColumns:
        """The jobs of rows that have their arguments in the same place: fields, an object, or text."""
        options: dict[str, pa.Array] = {}
        if self._key is not None:
            options[self._key] = self._read_keys(rows, self._key)
        for name in names:
            if name != "args":
                options[name] = self._read_keys(rows, name) if name == "key" else self._read_option(rows, name)
        arguments: list[Row] = rows
        if "args" in names:
            kinds = set(map(type, map(_get_args, rows)))
            if kinds == {str}:
                options["args"] = pa.array(map(_get_args, rows), pa.string())
            elif not kinds <= {dict, type(None)}:
                self._refuse_kind(rows, "args", lambda value: type(value) not in (dict, str, type(None)))
            arguments = [_arguments_of(row, names) for row in rows] if "args" not in options else rows
        elif names:
            arguments = [_arguments_of(row, names) for row in rows]
        # An option that nobody knows tells how many rows there are where there is none.
        batch = pa.RecordBatch.from_pydict(options or {"": pa.nulls(len(rows))})
        jobs = self._reader.read(batch) if "args" in options else self._reader.read_objects(batch, arguments, rows)
        self._row += len(rows)
        return jobs

    def _read_keys(self, rows: Sequence[Row], name: str) -> pa.Array:
        values = [row.get(name) for row in rows]
        kinds = set(map(type, values))
        if not kinds <= {str, int, type(None)}:
            self._refuse_kind(rows, name, lambda value: type(value) not in (str, int, type(None)))
        if int in kinds:
            values = [str(value) if type(value) is int else value for value in values]
        return pa.array(values, pa.string())

    def _read_option(self, rows: Sequence[Row], name: str) -> pa.Array:
        values = [row.get(name) for row in rows]
        if name == "priority":
            return self._convert(rows, name, values, int, checked_priority, pa.int16())
        if name == "run_at":
            return self._convert(rows, name, values, str, _to_instant, pa.timestamp("us", tz="UTC"))
        if not _TEXT.issuperset(map(type, values)):
            self._refuse_kind(rows, name, lambda value: type(value) not in _TEXT)
        return pa.array(values, pa.string())

    def _convert(
        self,
        rows: Sequence[Row],
        name: str,
        values: Sequence[Any],
        kind: type,
        convert: Callable[[Any], Any],
        arrow: pa.DataType,
    ) -> pa.Array:
        """Values of one kind as the type they have in a job."""
        converted = []
        for index, value in enumerate(values):
            if value is not None and type(value) is not kind:
                self._refuse_kind(rows, name, lambda value: value is not None and type(value) is not kind)
            try:
                converted.append(None if value is None else convert(value))
            except InvalidInput as error:
                raise self._refuse(index, rows[index], error) from None
        return pa.array(converted, arrow)

    def _refuse_kind(self, rows: Sequence[Row], name: str, is_wrong: Callable[[Any], bool]) -> None:
        index = next(index for index, row in enumerate(rows) if is_wrong(row.get(name)))
        kind = _KINDS.get(type(rows[index][name]), "null")
        field = "key" if name == self._key else name
        problem = f"{name!r} is {kind}; it must be {RESERVED_MEANINGS[field]}"
        raise self._refuse(index, rows[index], InvalidInput(field, problem))

    def _refuse(self, index: int, row: Row, error: InvalidInput) -> InvalidInput:
        return refuse_row(BadRow(self._row + index, error.field, error.problem, row))


_get_args: Callable[[Row], Any] = lambda row: row.get("args")  # noqa: E731


def _arguments_of(row: Row, names: set[str]) -> Row:
    """What of a row is no option; with a field `args`, what that holds."""
    if "args" in names and "args" in row:
        return row["args"]  # type: ignore[no-any-return]
    return {name: value for name, value in row.items() if name not in names}


def _to_instant(text: str) -> datetime:
    try:
        return checked_run_at(msgspec.convert(text, datetime))
    except msgspec.ValidationError:
        raise InvalidInput("run_at", f"{shown(text)} is no time; write it as 2026-11-15T10:00:00Z") from None
