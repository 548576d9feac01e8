"""Parquet is read in bounded memory: a file as its writers write it, and one of few bytes that stand for very many."""

from __future__ import annotations

import random
import sys
from typing import Any

import pyarrow as pa
import pytest
from tests.server.loading.bodies import PARQUET, parquet

from penstock import InvalidInput
from penstock.server.loading.load_request import LoadLimits, LoadRequest
from penstock.server.loading.parquet_rows import read_parquet

MB = 1024 * 1024
REQUEST = LoadRequest(queue="q", name="l", task="t", content_type=PARQUET)
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="no other kernel bounds the memory of a process")


def count(body: bytes, memory_bytes: int) -> int:
    limits = LoadLimits(parquet_memory_bytes=memory_bytes)
    return sum(len(jobs) for jobs in read_parquet(REQUEST, {}, iter([body]), limits))


@only_linux
def test_a_row_group_of_more_than_the_memory_is_read() -> None:
    texts = random.Random(1)
    column = [texts.randbytes(500).hex() for _ in range(100_000)]
    body = parquet(pa.table({"x": column}))
    assert len(body) > 50 * MB
    assert count(body, 40 * MB) == 100_000


@only_linux
@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
def test_a_value_that_is_in_every_row_is_not_in_memory_so_often(encoding: str) -> None:
    options: dict[str, Any] = {"use_dictionary": True}
    if encoding != "dictionary":
        options = {"use_dictionary": False, "column_encoding": encoding}
    body = parquet(pa.table({"x": ["y" * 100_000] * 2_000}), compression="zstd", **options)
    assert len(body) < 100_000
    assert count(body, 128 * MB) == 2_000


@only_linux
def test_a_file_that_needs_more_memory_is_refused() -> None:
    body = parquet(pa.table({"x": ["y" * 200_000_000]}), compression="zstd")
    assert len(body) < 100_000
    with pytest.raises(InvalidInput, match=r"needs more than 67108864 bytes .* smaller pages.*Nothing was enqueued"):
        count(body, 64 * MB)


def test_a_row_that_is_no_job_is_told_before_it_is_sent_on() -> None:
    body = parquet(pa.table({"x": ["y", "y" * 40_000_000]}))
    with pytest.raises(InvalidInput, match="the 2 rows from row 0 on have more than 33554432 bytes, which no jobs"):
        count(body, 512 * MB)


def test_a_dictionary_of_the_schema_is_plain() -> None:
    body = parquet(pa.table({"x": pa.array(["a", None, "a"]).dictionary_encode()}))
    assert count(body, 512 * MB) == 3
