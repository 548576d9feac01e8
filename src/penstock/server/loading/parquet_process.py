"""The process that reads one Parquet file, its standard input, and writes it to its standard output as an Arrow stream.

A few bytes of Parquet may stand for gigabytes: a value of a dictionary is in every row, a page is as long as it says.
Nothing in the file can be believed about that, and Arrow allots before it looks. So the memory of this process has a
bound, which the kernel holds, and a file that needs more ends this process and no other. Few rows are taken at a time,
for a row that can be a job is short.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["main"]

# Of the longest rows that can be jobs, so many are half of a record batch.
_ROWS = 128
# What is written at a time is more, where the rows are short.
_BUFFER_BYTES = 1024 * 1024
_MESSAGE_ROWS, _MESSAGE_BYTES = 8_192, 4 * 1024 * 1024


def main(memory_bytes: int, batch_bytes: int) -> None:
    """Exit with 1 and a sentence, or die, where the file cannot be read."""
    _bound_memory(memory_bytes)
    try:
        _write(sys.stdin.buffer, batch_bytes)
    except MemoryError:
        sys.exit(
            f"it needs more than {memory_bytes} bytes of memory to be read: write it with smaller pages (pyarrow: "
            "write_batch_size=64), or send an Arrow stream"
        )
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else "it ends too early"
        sys.exit(f"it is no Parquet file that can be read ({said:.200}); write it again, and send all of it")


def _bound_memory(more: int) -> None:
    """From here on no more than so much; macOS has no such bound."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        bound = pages * os.sysconf("SC_PAGESIZE") + more
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def _write(file: BinaryIO, batch_bytes: int) -> None:
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    schema = pa.schema([
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in parquet.schema_arrow
    ])  # fmt: skip
    writer = pa.ipc.new_stream(sys.stdout.buffer, schema)
    for batch in _gather(_read(parquet, schema, batch_bytes)):
        writer.write_batch(batch)
    # Which writes the mark of the end: nothing that went wrong before comes here.
    writer.close()


def _read(parquet: pq.ParquetFile, schema: pa.Schema, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    row = 0
    for coded in parquet.iter_batches(_ROWS, use_threads=False):
        coded.validate(full=True)
        batch = coded.cast(schema)
        if batch.nbytes > batch_bytes // 2:
            sys.exit(
                f"the {len(batch)} rows from row {row} on have more than {batch_bytes // 2} bytes, which no jobs have; "
                "store what is so long, and pass where"
            )
        yield batch
        row += len(batch)


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Several of them as one."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= _MESSAGE_ROWS or size >= _MESSAGE_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
