"""An app on two shards, the second of which can be made to vanish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fault.proxy import Proxy
from tests.shards.drained_world import World
from tests.shards.place import Place

from penstock import App


@pytest.fixture
def second(shard_urls: list[str]) -> Iterator[Proxy]:
    """What stands before the second shard."""
    proxy = Proxy(shard_urls[1])
    yield proxy
    proxy.close()


@pytest.fixture
def place(shard_urls: list[str], second: Proxy) -> Iterator[Place]:
    """A queue `q` with two partitions, one on each shard, and a task `t`. Whoever waits for a dead shard waits long."""
    with App(shards=[shard_urls[0], second.url], request_timeout=3600.0) as app:
        queue = app.queue("q", partitions=2)

        @queue.task
        def t(n: int = 0) -> None: ...

        assert [each.shard for each in app.stats("q").partitions] == ["1", "2"]
        yield Place(app, shard_urls)


@pytest.fixture
def world(shard_urls: list[str]) -> Iterator[World]:
    world = World(shard_urls)
    yield world
    world.app.close()
