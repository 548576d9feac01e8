"""A call of a coroutine: made in a thread, while its time counts from here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.deadline import within
from penstock.errors import RequestTimeout

__all__ = ["call_in_thread"]

T = TypeVar("T")


async def call_in_thread(call: Callable[[], T], seconds: float) -> T:
    """Make a call in a thread and wait for it; where no thread is free in time it is not made at all."""
    is_begun = False

    def run() -> T:
        nonlocal is_begun
        is_begun = True
        return call()

    with within(seconds) as deadline:
        # A task of its own, so that it has this block's deadline.
        thread = asyncio.ensure_future(asyncio.to_thread(run))
        try:
            done, _ = await asyncio.wait([thread], timeout=max(deadline.left(), 0.0))
            if not done and not is_begun:
                thread.cancel()
                raise RequestTimeout(
                    f"no thread was free within {seconds:g} s to make the call, and nothing was written: give the "
                    "event loop more of them (loop.set_default_executor), then call again",
                    outcome="not written",
                )
            # One that has begun ends by itself when its time is up.
            return await thread
        except asyncio.CancelledError:
            thread.cancel()
            raise
