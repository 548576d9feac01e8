"""G1, G2, G3, G5, G10, G11: one of two shards is down, hangs, is slow or takes no writes, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought

from penstock.errors import PenstockError

FAULT = "one of two shards down, hanging, slow or read-only"


def kinds(*in_the_long_run: str) -> list[Any]:
    """What befalls a shard: it hangs, in every run; the others in the long one."""
    return ["hangs", *(pytest.param(kind, marks=pytest.mark.long_run) for kind in in_the_long_run)]


KINDS = kinds("down", "slow", "read-only")


@dataclass(slots=True)
class Trouble:
    """Two shards, each behind a proxy, and what can befall one of them."""

    stage: Stage
    proxies: list[Proxy]

    @contextmanager
    def befalls(self, shard: int, kind: str) -> Iterator[None]:
        proxy = self.proxies[shard - 1]
        url = self.stage.urls[shard - 1]
        if kind == "down":
            proxy.go_down()
        elif kind == "hangs":
            proxy.stall()
        elif kind == "slow":
            proxy.delay = 0.05
        else:
            _take_writes(url, "off")
        try:
            yield
        finally:
            proxy.come_up()
            proxy.flow()
            proxy.delay = 0.0
            if kind == "read-only":
                _take_writes(url, "on")


def _take_writes(url: str, answer: str) -> None:
    """Whether a shard takes writes, from every session that begins now; those that are there are ended."""
    name = urlsplit(url).path[1:]
    setting = "reset default_transaction_read_only" if answer == "on" else "set default_transaction_read_only = on"
    with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
        connection.execute(f"alter database {name} {setting}".encode())
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


@pytest.fixture
def trouble(shard_urls: list[str], make_stage: MakeStage, tmp_path: Path) -> Iterator[Trouble]:
    proxies = [Proxy(url) for url in shard_urls]
    stage = make_stage(
        shard_urls[0],
        urls=shard_urls,
        shards=[proxy.url for proxy in proxies],
        partitions=2,
        ordered=4,
        request_timeout=5.0,
        work_seconds=0.005,
    )
    yield Trouble(stage, proxies)
    for proxy in proxies:
        proxy.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_ordered", [False, True], ids=["plain", "ordered"])
def test_g11_one_shard_in_trouble_costs_only_its_own_partitions(trouble: Trouble, kind: str, is_ordered: bool) -> None:
    stage = trouble.stage
    for _ in range(2):
        stage.worker()
    with stage.producing_steps("ordered", keys=100) if is_ordered else stage.producing():
        for shard in (1, 2):
            eventually(lambda: stage.settles_on(shard), "jobs of both shards are settled")  # noqa: B023
        for n in range(times(2, 3)):
            lost, other = (1, 2) if n % 2 == 0 else (2, 1)
            # Keyed calls wait for their shard: what is there before keeps the other one at work.
            for _ in range(5):
                stage.enqueue_steps("ordered", 20, 100, failing=0) if is_ordered else stage.enqueue("plain", 60)
            with trouble.befalls(lost, kind):
                for _ in range(3):
                    before = stage.settles_on(other)
                    eventually(lambda: stage.settles_on(other) > before + 5, "the other shard goes on")  # noqa: B023
                    stage.breathe()
            before = stage.settles_on(lost)
            eventually(lambda: stage.settles_on(lost) > before, "the shard is back, and its jobs go on")  # noqa: B023
            brought(FAULT)
    stage.verdict().require("a settle")


@pytest.mark.parametrize("kind", kinds("down", "read-only"))
def test_g11_a_call_without_keys_is_written_whole_and_once_elsewhere(trouble: Trouble, kind: str) -> None:
    stage = trouble.stage
    for _ in range(10):
        stage.enqueue("plain", 3)
    for n in range(times(2, 3)):
        lost, other = (1, 2) if n % 2 == 0 else (2, 1)
        with trouble.befalls(lost, kind):
            # What was sent to it when it began to hang may arrive yet: that call cannot go elsewhere.
            eventually(lambda: shards_of(stage, 1) and is_known(stage, lost), "the shard is known to be away")  # noqa: B023
            for size in (1, 120, 3):
                assert {id_ >> 10 & 1023 for id_ in stage.enqueue("plain", size)} == {other}
        eventually(lambda: lost in shards_of(stage, 1), "calls go to the shard again")  # noqa: B023
        brought(FAULT)
    stage.verdict().require("a settle")


def is_known(stage: Stage, shard: int) -> bool:
    return not stage.app.databases.of(shard).breaker.is_writable


def shards_of(stage: Stage, size: int) -> set[int]:
    """Where a call was written; nowhere, where it was refused or nobody can know."""
    with suppress(PenstockError):
        return {id_ >> 10 & 1023 for id_ in stage.enqueue("plain", size)}
    return set()
