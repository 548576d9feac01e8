"""Rows whose columns have types, be they from CSV, Arrow or Parquet, as jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.loading.columns import LoadColumns, check_columns, join_names
from penstock.loading.declared_tasks import find_declared_key, find_problems, raise_for_columns
from penstock.loading.job_columns import JobColumns
from penstock.loading.row_reader import RowReader
from penstock.server.loading.load_request import LoadRequest
from penstock.server.loading.plain_types import plain_array
from penstock.server.loading.row_order import RowOrder
from penstock.task.definition import TaskDefinition

__all__ = ["read_typed"]

# So much of a batch is made into Python's objects at a time.
_SLICE_BYTES = 4 * 1024 * 1024
_SLICE_ROWS = 8_192


def read_typed(
    request: LoadRequest, tasks: Mapping[str, TaskDefinition], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[JobColumns]:
    """The jobs of batches, which become columns of these types."""
    columns = _check(request, tasks, schema)
    reader = RowReader(columns, tasks=tasks)
    order = None if request.order_by is None else RowOrder(request.order_by)
    row = 0
    for batch in batches:
        for part in _cut_batch(batch):
            arrays = [
                plain_array(field.name, column, field.type, row)
                for field, column in zip(schema, part.columns, strict=True)
            ]
            plain = pa.RecordBatch.from_arrays(arrays, schema=schema)
            if order is not None:
                order.check(plain.column(order.column).to_pylist())
            yield reader.read(plain)
            row += len(part)


def _cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch that are small whatever its values are."""
    width = batch.nbytes / max(1, batch.num_rows)
    rows = max(1, min(_SLICE_ROWS, int(_SLICE_BYTES / max(1.0, width))))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _check(request: LoadRequest, tasks: Mapping[str, TaskDefinition], schema: pa.Schema) -> LoadColumns:
    """What the columns mean; InvalidInput where they make no jobs, or none that their task takes."""
    key = request.key or find_declared_key(tasks, request.task, schema.names)
    check_columns(schema, request.task, key)
    if request.order_by is not None and request.order_by not in schema.names:
        raise InvalidInput("order_by", f"there is no column {request.order_by!r}; there are {join_names(schema.names)}")
    if not tasks:
        return LoadColumns(schema, request.task, key)
    if request.task is None:
        return LoadColumns(schema, None, key, find_problems(tasks, schema, key))
    raise_for_columns(tasks[request.task], schema, key)
    return LoadColumns(schema, request.task, key)
