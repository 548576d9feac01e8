"""A worker's cap on a queue that is on two shards: one for both, and one that is away keeps only what runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.shards.two_sites import TwoSites
from tests.system.facts import eventually

from penstock import App


@pytest.fixture
def distant(shard_urls: list[str]) -> Iterator[TwoSites]:
    sites = TwoSites(shard_urls, is_distant=True)
    yield sites
    sites.close()


@pytest.mark.parametrize("options", [{}, {"order": "key"}], ids=["plain", "ordered"])
def test_a_cap_is_one_for_all_shards_and_a_worker_ends_when_nothing_is_left(
    shard_urls: list[str], options: dict[str, Any]
) -> None:
    lock, running, most = threading.Lock(), [0], [0]
    both = threading.Barrier(2, timeout=60)
    with App(shards=shard_urls) as app:

        @app.queue("q", partitions=4, **options).task(key="n")
        def visit(n: int) -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            # They end in pairs: the cap is used, on whichever shard there is something to do.
            both.wait()
            with lock:
                running[0] -= 1

        visit.enqueue_many([{"n": n} for n in range(40)])
        assert app.work({"q": 2}, concurrency=8, until_idle=True).succeeded == 40
    assert most[0] == 2


def test_a_shard_that_is_away_does_not_use_up_a_cap(distant: TwoSites) -> None:
    may_end, started = threading.Event(), threading.Event()

    def visit(n: int, at: int) -> None:
        if at == 2:
            started.set()
            may_end.wait(60)

    distant.app.queue("q", partitions=2).task(name="t")(visit)
    distant.put(2)
    with distant.working(queues={"q": 2}, concurrency=8):
        assert started.wait(60)
        distant.proxy.stall()
        # Its handler ends, which nobody can be told, and what it asks for in the same breath is not answered.
        may_end.set()
        distant.put(1, 5)
        eventually(lambda: distant.left(1) == 0, "the other shard's jobs are done")
        distant.proxy.flow()
        eventually(lambda: distant.left(2) == 0, "so are its own, once it answers")
