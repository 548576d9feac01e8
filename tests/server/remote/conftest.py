"""A world on the run's server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.remote.world import World


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """One database, with nothing in it."""
    world = World(database_url)
    yield world
    world.close()


@pytest.fixture
def wide_world(shard_urls: list[str]) -> Iterator[World]:
    """Two databases that are one system."""
    world = World(*shard_urls)
    yield world
    world.close()
