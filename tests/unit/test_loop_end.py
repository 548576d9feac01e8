"""What waits for a worker's event loop when that ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, wait
from typing import Any

import pytest

from penstock.worker.event_loop import EventLoop
from penstock.worker.hooks import Hooks
from penstock.worker.slot_pool import SlotPool
from penstock.worker.worker import Worker


def test_what_is_submitted_while_the_loop_ends_is_waited_for_by_nobody() -> None:
    loop = EventLoop(Hooks())
    pool = SlotPool(1, loop.wake)
    late: list[Future[Any]] = []
    is_up: Future[None] = Future()

    async def submit_when_cancelled() -> None:
        is_up.set_result(None)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            late.append(await asyncio.to_thread(loop.submit, pool, never()))

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    first = loop.submit(pool, submit_when_cancelled())
    is_up.result()
    pool.close()

    wait([first])
    with pytest.raises(RuntimeError, match="the event loop ended"):
        late[0].result()


def test_the_loop_is_left_by_hooks_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks()
    worker = Worker(
        lambda _: [],
        concurrency=1,
        lease_seconds=1.0,
        grace_seconds=1.0,
        version="",
        hooks=hooks,
        make_upkeep=lambda _: pytest.fail("there is no database"),
    )
    left = []
    monkeypatch.setattr(SlotPool, "close", lambda _: left.append(not hooks._loops))

    worker.run(until_idle=True)

    assert left == [True]


def test_a_forked_child_knows_none_of_its_parent_s_loops() -> None:
    hooks = Hooks()
    with hooks.awaited_on(lambda _: pytest.fail("it is the parent's")):
        hooks._dropped = 3
        hooks._renew_after_fork()
        assert not hooks._loops
        assert not hooks._dropped
