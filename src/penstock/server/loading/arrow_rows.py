"""An Arrow IPC stream, message by message: no more of it is in memory than a record batch.

What a message says of itself is not believed: a batch is checked before it is used, and one that is compressed or
encoded by a dictionary, where few bytes may stand for very many, is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.loading.job_columns import JobColumns
from penstock.server.loading.load_request import LoadLimits, LoadRequest
from penstock.server.loading.plain_types import plain_schema
from penstock.server.loading.typed_rows import read_typed
from penstock.task.definition import TaskDefinition

__all__ = ["read_arrow"]

# Of the tables `Message` and `RecordBatch` in Arrow's Message.fbs.
_HEADER, _COMPRESSION = 2, 3


def read_arrow(
    request: LoadRequest, tasks: Mapping[str, TaskDefinition], chunks: Iterable[bytes], limits: LoadLimits
) -> Generator[JobColumns, None, None]:
    """The jobs of a stream."""
    body = _Bytes(chunks, limits.batch_bytes)
    with pa.PythonFile(body, mode="r") as file:
        try:
            messages = pa.ipc.MessageReader.open_stream(file)
            schema = pa.ipc.read_schema(messages.read_next_message())
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise body.error or _broken(error) from None
        for field in schema:
            if _has_dictionary(field.type):
                raise InvalidInput(field.name, "it is encoded by a dictionary; cast it to its plain type")
        yield from read_typed(request, tasks, plain_schema(schema), _read_batches(messages, schema, body, limits))


def _read_batches(messages: Any, schema: pa.Schema, body: _Bytes, limits: LoadLimits) -> Iterator[pa.RecordBatch]:
    number = 0
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            body.check_end()
            return
        except (pa.ArrowException, OSError) as error:
            raise body.error or _broken(error) from None
        if _is_compressed(message.metadata.to_pybytes()):
            raise InvalidInput("body", f"record batch {number} is compressed; write it without compression")
        try:
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise _broken(error) from None
        if batch.num_rows > limits.batch_rows:
            raise InvalidInput(
                "body", f"record batch {number} has {batch.num_rows} rows; write batches of at most {limits.batch_rows}"
            )
        yield batch
        number += 1


def _broken(error: BaseException) -> InvalidInput:
    said = str(error).splitlines()[0] if str(error) else "it ends too early"
    return InvalidInput("body", f"it is no Arrow IPC stream ({said:.200}); write one, and send all of it")


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(
        _has_dictionary(kind.field(number).type) for number in range(kind.num_fields)
    )


def _is_compressed(metadata: bytes) -> bool:
    """Whether the header of a message is a record batch that names a compression."""
    try:
        message = struct.unpack_from("<I", metadata)[0]
        header = _field(metadata, message, _HEADER)
        if not header:
            return False
        return bool(_field(metadata, header + struct.unpack_from("<I", metadata, header)[0], _COMPRESSION))
    except struct.error:
        return True  # Nothing that Arrow could read.


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a FlatBuffers table is, or 0 where it is left out."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", metadata, vtable + place)[0] if place < size else 0
    return table + offset if offset else 0


class _Bytes:
    """The pieces of a body as a file that is read from its beginning to its end."""

    closed = False

    def __init__(self, chunks: Iterable[bytes], most: int) -> None:
        self._chunks = iter(chunks)
        self._rest = b""
        self._most = most
        self._came_short = False
        # What went wrong with the body itself, which is to be told and not what Arrow makes of it.
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return self._read(size)
        except BaseException as error:
            self.error = error
            raise

    def check_end(self) -> None:
        """Refuse a stream without the mark of its end, which is what Arrow takes the end of the body for, and more."""
        if self._came_short:
            raise InvalidInput(
                "body",
                "the Arrow IPC stream does not end with its end-of-stream mark: it was cut, or its writer was not "
                "closed. Nothing was enqueued; close the writer, and send all of it",
            )
        if self._read(1):
            raise InvalidInput(
                "body",
                "more follows the end of the Arrow IPC stream, which is not read. Nothing was enqueued; write all "
                "batches into one stream",
            )

    def _read(self, size: int) -> bytes:
        if size < 0 or size > self._most:
            raise InvalidInput(
                "body",
                f"it is no Arrow IPC stream, or has a record batch of more than {self._most} bytes; write smaller ones",
            )
        found = []
        wanted = size
        while wanted:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    self._came_short = True
                    break
            found.append(self._rest[:wanted])
            self._rest = self._rest[wanted:]
            wanted -= len(found[-1])
        return b"".join(found)

    def close(self) -> None:
        self.closed = True
