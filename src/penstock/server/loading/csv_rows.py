"""CSV as RFC 4180 has it: comma, a header, quotes doubled within quotes, lines within quotes.

A value is text, unless the request's `types` or the annotation of the task's argument says number, integer or boolean.
A cell with nothing in it is null, and `""` is empty text, as Spark reads them.
"""

from __future__ import annotations

import csv
import types
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from penstock.errors import InvalidInput
from penstock.loading.columns import RESERVED, check_names, join_names
from penstock.loading.job_columns import JobColumns
from penstock.server.loading.blocks import cut_blocks
from penstock.server.loading.load_request import LoadLimits, LoadRequest
from penstock.server.loading.plain_types import plain_array
from penstock.server.loading.typed_rows import read_typed
from penstock.task.definition import TaskDefinition

__all__ = ["read_csv"]

_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_ANNOTATIONS = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_RESERVED_TYPES = {"priority": pa.int64(), "run_at": pa.timestamp("us", tz="UTC")}
_BESIDE_A_QUOTE = np.frombuffer(b',\r\n"', np.uint8)
# Where in a block something stands.
Places = np.ndarray[tuple[int], np.dtype[np.intp]]
_BOM = b"\xef\xbb\xbf"


def read_csv(
    request: LoadRequest, tasks: Mapping[str, TaskDefinition], chunks: Iterable[bytes], limits: LoadLimits
) -> Generator[JobColumns, None, None]:
    """The jobs of a CSV."""
    body = _Body(limits)
    blocks = body.blocks(chunks)
    first = next(blocks, b"")
    names, rest = body.read_header(first.removeprefix(_BOM))
    check_names(names, request.task, request.key)
    schema = pa.schema([pa.field(name, _type_of(name, request, tasks)) for name in names])
    for name in request.types or {}:
        if name not in names:
            raise InvalidInput("types", f"there is no column {name!r}; there are {join_names(names)}")
    yield from read_typed(request, tasks, schema, body.parse(chain((rest,), blocks), names))


def _type_of(name: str, request: LoadRequest, tasks: Mapping[str, TaskDefinition]) -> pa.DataType:
    if name in (request.types or {}):
        return _TYPES[request.types[name]]  # type: ignore[index]
    if name in RESERVED and name != request.key:
        return _RESERVED_TYPES.get(name, pa.string())
    task = tasks.get(request.task or "")
    fit = None if task is None else task.arguments.fit_of(name)
    return pa.string() if fit is None else _type_of_annotation(fit.annotation)


def _type_of_annotation(annotation: Any) -> pa.DataType:
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    meant = [part for part in parts if part is not types.NoneType]
    return _ANNOTATIONS.get(meant[0], pa.string()) if len(meant) == 1 else pa.string()


class _Body:
    """Where a CSV is being read; rows are counted without the header, from 0."""

    def __init__(self, limits: LoadLimits) -> None:
        self._limits = limits
        self._row = 0
        self._uneven: InvalidInput | None = None

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return cut_blocks(chunks, _find_end, self._too_long, self._limits.row_bytes)

    def read_header(self, block: bytes) -> tuple[list[str], bytes]:
        """The names of the columns, and what follows them."""
        end = _find_first_end(block)
        try:
            (names,) = csv.reader([block[:end].decode()], strict=True)
        except (UnicodeDecodeError, csv.Error, ValueError):
            raise InvalidInput(
                "columns", "the first row of the CSV does not name its columns; send a header in UTF-8"
            ) from None
        if not names:
            raise InvalidInput("columns", "there are none; send a header that names them")
        if "" in names:
            raise InvalidInput("columns", f"column {names.index('')} of the CSV has no name; name it, or leave it out")
        return names, block[end:]

    def parse(self, blocks: Iterable[bytes], names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of each block, as text."""
        bytes_ = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        for block in blocks:
            quotes = self._check_quotes(block)
            self._check_ends(block, quotes)
            if not block.strip(b"\r\n"):
                continue
            try:
                table = pa_csv.read_csv(
                    pa.BufferReader(block),
                    pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
                    pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=self._refuse_row),
                    bytes_,
                )
            except pa.ArrowInvalid as error:
                raise self._uneven or InvalidInput(
                    "body", f"after row {self._row} it is no CSV: {str(error).splitlines()[0]:.200}; mend it"
                ) from None
            for batch in table.combine_chunks().to_batches():
                texts = [
                    plain_array(name, column, pa.string(), self._row)
                    for name, column in zip(names, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(texts, names=names)
                self._row += len(batch)

    def _refuse_row(self, row: pa_csv.InvalidRow) -> str:
        # What is raised here is lost, so it is raised later. The rows of a block are counted from 1.
        number = self._row + (row.number or 1) - 1
        self._uneven = InvalidInput(
            "body",
            f"row {number} has {row.actual_columns} columns, and the header {row.expected_columns} ({row.text:.100}). "
            "Nothing was enqueued; mend it",
        )
        return "error"

    def _check_quotes(self, block: bytes) -> Places:
        """Where its quotes are; refuse those that do not enclose a whole value: rows could not be told apart."""
        if b'"' not in block:
            return np.empty(0, np.intp)
        around = np.frombuffer(b"\n" + block + b"\n", np.uint8)
        quotes = np.flatnonzero(around == ord('"'))
        # Every second one closes; a doubled one closes and opens again.
        beside = around[quotes + np.where(np.arange(len(quotes)) % 2, 1, -1)]
        wrong = np.flatnonzero(~np.isin(beside, _BESIDE_A_QUOTE))
        if not len(wrong) and len(quotes) % 2 == 0:
            return quotes - 1
        raise self._refuse_character(
            block, int(quotes[wrong[0] if len(wrong) else -1]) - 1, "a quote stands within a value, or one is missing"
        )

    def _check_ends(self, block: bytes, quotes: Places) -> None:
        """Refuse a carriage return alone, unless it is within quotes: Arrow takes it for the end of a row."""
        if block.count(b"\r") == block.count(b"\r\n"):
            return
        characters = np.frombuffer(block + b"\0", np.uint8)
        alone = np.flatnonzero((characters[:-1] == ord("\r")) & (characters[1:] != ord("\n")))
        outside = alone[np.searchsorted(quotes, alone) % 2 == 0]
        if len(outside):
            raise self._refuse_character(block, int(outside[0]), "a carriage return stands without a line feed")

    def _refuse_character(self, block: bytes, place: int, problem: str) -> InvalidInput:
        row = self._row + block.count(b"\n", 0, place)
        return InvalidInput(
            "body",
            f"at row {row} or shortly before, {problem}: put the value in quotes, and double those it holds. Nothing "
            "was enqueued",
        )

    def _too_long(self) -> InvalidInput:
        return InvalidInput(
            "body",
            f"row {self._row} has not ended after {self._limits.row_bytes} bytes: is a quote missing? Nothing was "
            "enqueued; mend it, or store what is so long and pass where",
        )


def _find_end(block: bytes) -> int:
    """Where its last whole row ends: at an end of line that is not within quotes."""
    quotes, end = block.count(b'"'), len(block)
    while True:
        last = block.rfind(b"\n", 0, end)
        if last < 0:
            return 0
        quotes -= block.count(b'"', last, end)
        if quotes % 2 == 0:
            return last + 1
        end = last


def _find_first_end(block: bytes) -> int:
    quotes = start = 0
    while (end := block.find(b"\n", start)) >= 0:
        quotes += block.count(b'"', start, end)
        if quotes % 2 == 0:
            return end + 1
        start = end + 1
    return len(block)
