"""Parquet is read from its end: such a body first becomes a temporary file, without a name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InvalidInput, PenstockError
from penstock.loading.job_columns import JobColumns
from penstock.server.loading.load_request import LoadLimits, LoadRequest
from penstock.server.loading.plain_types import plain_schema
from penstock.server.loading.typed_rows import SLICE_BYTES, SLICE_ROWS, read_typed
from penstock.task.definition import TaskDefinition

__all__ = ["read_parquet"]

_BUFFER_BYTES = 1024 * 1024


def read_parquet(
    request: LoadRequest, tasks: Mapping[str, TaskDefinition], chunks: Iterable[bytes], limits: LoadLimits
) -> Iterator[JobColumns]:
    """The jobs of a file."""
    with tempfile.TemporaryFile(prefix="penstock-load-") as file:
        _spool(chunks, file, limits.parquet_bytes)
        try:
            schema = pq.read_schema(file)
            # Text that repeats stays a number in a dictionary until its row is looked at.
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            file.seek(0)
            parquet = pq.ParquetFile(file, read_dictionary=texts, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        except (pa.ArrowException, OSError) as error:
            raise _broken(error) from None
        yield from read_typed(request, tasks, plain_schema(schema), _read_batches(parquet))


def _spool(chunks: Iterable[bytes], file: BinaryIO, most: int) -> None:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise InvalidInput(
                "body",
                f"a Parquet file of more than {most} bytes is too long; give several, each as a load, or an Arrow "
                "stream, which may have any length",
            )
        try:
            file.write(chunk)
        except OSError as error:
            raise PenstockError(
                f"a Parquet file cannot be kept in {tempfile.gettempdir()} for now: {error.strerror or error}; "
                "make room there, or send an Arrow stream"
            ) from None
    file.seek(0)


def _read_batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        width = group.total_byte_size / max(1, group.num_rows)
        rows = max(1, min(SLICE_ROWS, int(SLICE_BYTES / max(1.0, width))))
        batches = file.iter_batches(rows, row_groups=[number], use_threads=False)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
            except (pa.ArrowException, OSError) as error:
                raise _broken(error) from None
            yield batch


def _broken(error: BaseException) -> InvalidInput:
    said = str(error).splitlines()[0] if str(error) else "it ends too early"
    return InvalidInput(
        "body", f"it is no Parquet file that can be read ({said:.200}); write it again, and send all of it"
    )
