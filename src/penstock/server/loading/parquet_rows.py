"""Parquet is read from its end: such a body first becomes a temporary file, without a name.

A process of its own reads it, with a bound to its memory, and what it writes is an Arrow stream, read as any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import IO, BinaryIO, cast

from penstock.errors import InvalidInput, PenstockError
from penstock.loading.job_columns import JobColumns
from penstock.server.loading import parquet_process
from penstock.server.loading.arrow_rows import read_arrow
from penstock.server.loading.load_request import LoadLimits, LoadRequest
from penstock.task.definition import TaskDefinition

__all__ = ["read_parquet"]

_PIECE = 1024 * 1024


def read_parquet(
    request: LoadRequest, tasks: Mapping[str, TaskDefinition], chunks: Iterable[bytes], limits: LoadLimits
) -> Generator[JobColumns, None, None]:
    """The jobs of a file."""
    with tempfile.TemporaryFile(prefix="penstock-load-") as file:
        _spool(chunks, file, limits.parquet_bytes)
        with _start_reader(file, limits) as reader:
            try:
                yield from read_arrow(request, tasks, _read_pieces(reader), limits)
            finally:
                reader.kill()


def _start_reader(file: BinaryIO, limits: LoadLimits) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", parquet_process.__file__, str(limits.parquet_memory_bytes), str(limits.batch_bytes)],
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # The allocator of the system takes no more than it is asked for, and gives it back at once.
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )


def _read_pieces(reader: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """What it writes; InvalidInput where it found that it cannot, or died of it."""
    output, errors = cast(IO[bytes], reader.stdout), cast(IO[bytes], reader.stderr)
    while piece := output.read(_PIECE):
        yield piece
    said = errors.read().decode(errors="replace").strip().splitlines()
    status = reader.wait()
    if status == 0:
        return
    if status != 1 or not said:
        said = [f"it is no Parquet file that can be read (its reader ended with {status}); write it again"]
    raise InvalidInput("body", f"{said[-1]:.500}. Nothing was enqueued")


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
