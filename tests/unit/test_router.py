"""The router: published examples, and what must hold of any."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.key_hash import home_of, partition_of
from penstock.routing.router import ANYWHERE, KeyMap, Route, route

ROUTES: list[dict[str, Any]] = json.loads(
    files("penstock.routing").joinpath("routes.json").read_text(encoding="utf-8")
)["routes"]

_SHARDS = st.lists(st.integers(min_value=1, max_value=3), min_size=1, max_size=8)
_KEYS = st.none() | st.binary(max_size=20)
_IDEMPOTENCY_KEYS = st.none() | st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())


@pytest.mark.parametrize("number", range(len(ROUTES)))
def test_the_published_routes_hold(number: int) -> None:
    given = ROUTES[number]
    key = None if given["key"] is None else given["key"].encode()
    found = route(KeyMap(given["shards"], given["homes"], given["is_owned"]), key, given["idempotency_key"])
    assert found == Route(given["partition"], given["shard"])


@given(_SHARDS, _KEYS, _IDEMPOTENCY_KEYS, st.booleans())
def test_a_partition_is_on_the_shard_that_is_named(
    shards: list[int], key: bytes | None, idempotency_key: str | None, is_owned: bool
) -> None:
    homes = sorted(set(shards))
    found = route(KeyMap(shards, homes, is_owned), key, idempotency_key)
    if key is None and idempotency_key is None:
        assert found == ANYWHERE
    elif found.partition is None:
        assert key is None
        assert found.shard in homes
    else:
        assert shards[found.partition] == found.shard


@given(_SHARDS, st.binary(max_size=20), _IDEMPOTENCY_KEYS)
def test_where_a_queue_has_an_owner_an_idempotency_key_never_parts_a_key(
    shards: list[int], key: bytes, idempotency_key: str | None
) -> None:
    found = route(KeyMap(shards, sorted(set(shards)), is_owned=True), key, idempotency_key)
    assert found.partition == partition_of(key, len(shards))


@given(_SHARDS, _KEYS, st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))
def test_without_an_owner_an_idempotency_key_is_always_at_its_home(
    shards: list[int], key: bytes | None, idempotency_key: str
) -> None:
    homes = sorted(set(shards))
    assert route(KeyMap(shards, homes, is_owned=False), key, idempotency_key).shard == home_of(idempotency_key, homes)


def test_a_home_without_a_partition_is_named_alone() -> None:
    assert route(KeyMap([1, 1], [2], is_owned=False), b"c-42", "order-1") == Route(None, 2)
