"""The key hash: published examples, and no correlation between two uses of it."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.checks import key_to_bytes
from penstock.routing import IDEMPOTENCY_DOMAIN, PARTITION_DOMAIN, h64, home_of, partition_of

PUBLISHED: dict[str, Any] = json.loads(files("penstock.routing").joinpath("vectors.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", PUBLISHED["vectors"], ids=lambda vector: vector["key_hex"][:24] or "empty")
def test_the_published_vectors_hold(vector: dict[str, Any]) -> None:
    key = bytes.fromhex(vector["key_hex"])
    assert PUBLISHED["domain"].encode() == PARTITION_DOMAIN
    assert h64(PARTITION_DOMAIN, key) == int(vector["h64"])
    assert {count: partition_of(key, int(count)) for count in vector["partition"]} == vector["partition"]
    if vector["text"] is not None:
        assert key_to_bytes(vector["text"]) == key


def test_the_hash_of_a_published_vector_was_computed_by_another_program() -> None:
    # printf 'penstock/partition/v1\0c-42' | sha256sum | cut -c1-16
    assert h64(PARTITION_DOMAIN, b"c-42") & 0xFFFF_FFFF_FFFF_FFFF == 0x5291_151D_5523_3173


def test_text_is_not_normalised() -> None:
    composed, decomposed = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"
    assert h64(PARTITION_DOMAIN, composed.encode()) != h64(PARTITION_DOMAIN, decomposed.encode())


@given(st.binary(max_size=512), st.integers(min_value=1, max_value=1024))
def test_every_key_has_a_partition_that_exists(key: bytes, partitions: int) -> None:
    assert -(2**63) <= h64(PARTITION_DOMAIN, key) < 2**63
    assert 0 <= partition_of(key, partitions) < partitions


def test_lesson_awa_a_second_reduction_of_the_key_in_another_domain_reaches_every_cell() -> None:
    keys = [f"customer-{number}".encode() for number in range(4_000)]
    cells = Counter((partition_of(key, 4), h64(b"penstock/lane/v1", key) % 4) for key in keys)
    assert len(cells) == 16
    assert min(cells.values()) > 4_000 / 16 / 2

    correlated = Counter((partition_of(key, 4), h64(PARTITION_DOMAIN, key) % 4) for key in keys)
    assert len(correlated) == 4, "the same domain twice is what goes wrong"


def test_keys_spread_evenly() -> None:
    counts = Counter(partition_of(str(number).encode(), 16) for number in range(16_000))
    assert len(counts) == 16
    assert max(counts.values()) < 1_200


HOMES = PUBLISHED["idempotency"]


@pytest.mark.parametrize("vector", HOMES["vectors"], ids=lambda vector: ascii(vector["key"])[1:25])
def test_the_published_homes_hold(vector: dict[str, Any]) -> None:
    assert HOMES["domain"].encode() == IDEMPOTENCY_DOMAIN
    assert h64(IDEMPOTENCY_DOMAIN, vector["key"].encode()) == int(vector["h64"])
    assert (int(vector["h64"]) & 0x7FFF_FFFF_FFFF_FFFF) % 1024 == vector["slot"]
    for count, home in vector["home"].items():
        shards = [100 + number for number in range(int(count))]
        assert home_of(vector["key"], shards) == 100 + home


def test_the_hash_of_a_published_home_was_computed_by_another_program() -> None:
    # printf 'penstock/idempotency/v1\0order-7' | sha256sum | cut -c1-16
    assert h64(IDEMPOTENCY_DOMAIN, b"order-7") & 0xFFFF_FFFF_FFFF_FFFF == 0xF58D_524F_F9F1_0C2B


def test_idempotency_keys_spread_evenly_and_apart_from_the_partitions_of_the_same_text() -> None:
    keys = [f"order-{number}" for number in range(4_000)]
    cells = Counter((home_of(key, range(4)), partition_of(key.encode(), 4)) for key in keys)
    assert len(cells) == 16
    assert min(cells.values()) > 4_000 / 16 / 2
