"""Rows that could not become jobs: one file of JSON lines for each load, each with the field and the reason.

Written by the driver just before the load is published, over whatever a run that was killed there left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from pyarrow import fs

if TYPE_CHECKING:
    from penstock.loading.job_columns import BadRow

__all__ = ["write_bad_rows"]


def write_bad_rows(folder: str, name: str, rows: Sequence[tuple[int, BadRow]]) -> None:
    """Write the bad rows of a load, given with the Spark partition they came from."""
    filesystem, path = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    filesystem.create_dir(path, recursive=True)
    with filesystem.open_output_stream(f"{path}/{quote(name, safe=' -_.')}.jsonl") as file:
        for spark_partition, bad in rows:
            line = {
                "spark_partition": spark_partition,
                "row": bad.row,
                "field": bad.field,
                "reason": bad.problem,
                "data": bad.data,
            }
            file.write(_encode(line) + b"\n")


def _show(value: Any) -> Any:
    return repr(value)


_encode = msgspec.json.Encoder(enc_hook=_show).encode
