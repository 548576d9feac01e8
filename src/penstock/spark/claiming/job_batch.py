"""Jobs as an Arrow batch: what a handler on an executor is given, and what a stream of jobs reads.

id        the job
task      its name
key       its ordering key; one that is no text as PostgreSQL writes bytes, \\x00ff
args      its arguments, a JSON object as text
attempt   1 for the first
tenant    whose it is, where it was enqueued for a tenant
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

__all__ = ["JOB_COLUMNS", "build_job_batch"]

JOB_COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("task", pa.string()),
        pa.field("key", pa.string()),
        pa.field("args", pa.string()),
        pa.field("attempt", pa.int32()),
        pa.field("tenant", pa.string()),
    ]
)

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def build_job_batch(stored: Sequence[tuple[Any, ...]], tasks: Sequence[str], attempts: Sequence[int]) -> pa.RecordBatch:
    """A batch of jobs as they are stored: id, arguments, key, attributes; with the task and attempt of each."""
    columns: Sequence[Sequence[Any]] = list(zip(*(row[:4] for row in stored), strict=True)) or [(), (), (), ()]
    ids, args, keys, attributes = columns
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids, pa.int64()),
            pa.array(tasks, pa.string()),
            pa.array([None if key is None else _key_text(key) for key in keys], pa.string()),
            pa.array(args, pa.string()),
            pa.array(attempts, pa.int32()),
            pa.array([None if each is None else _decode(each).get("tenant") for each in attributes], pa.string()),
        ],
        schema=JOB_COLUMNS,
    )


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "\\x" + key.hex()
