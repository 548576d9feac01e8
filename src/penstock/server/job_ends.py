"""Waiting for jobs to end: one look a few times a second for all who wait at this server, however many they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from penstock.errors import PenstockError
from penstock.server.problem import ProblemError
from penstock.server.threads import CallThreads

__all__ = ["JobEnds"]

log = logging.getLogger("penstock")

LOOK_SECONDS = 0.2
MOST_WAITING = 10_000
MOST_AT_ONCE = 8


class JobEnds:
    """One of a server; used on the event loop. `which_ended` says which of some jobs have ended, and blocks."""

    def __init__(
        self, which_ended: Callable[[Collection[int]], set[int]], threads: CallThreads, stopping: asyncio.Event
    ) -> None:
        self._which_ended = which_ended
        self._threads = threads
        self._stopping = stopping
        # Who waited looks at its job in turn: many may end at once, and all are to be answered.
        self.turn = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._looking: asyncio.Task[None] | None = None

    def check_room(self, count: int) -> None:
        """Refuse more who wait than there is room for."""
        if self._count + count > MOST_WAITING:
            raise ProblemError(
                "too-many-requests", f"{MOST_WAITING} ends of jobs are waited for here; ask without waiting, or later"
            )

    async def wait(self, job_id: int, seconds: float | None) -> None:
        """Until a job seems to have ended, so many seconds are over, or the server stops. Then look at it."""
        self.check_room(1)
        if self._stopping.is_set():
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(over)
        self._count += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait((over,), timeout=seconds)
        finally:
            self._count -= 1
            waiting = self._waiting.get(job_id, set())
            waiting.discard(over)
            if not waiting:
                self._waiting.pop(job_id, None)

    async def _look(self) -> None:
        try:
            while self._waiting and not self._stopping.is_set():
                ids = list(self._waiting)
                try:
                    self._tell(await self._threads.run(lambda: self._which_ended(ids)))  # noqa: B023
                except PenstockError as error:
                    log.warning("whether jobs have ended could not be asked: %s", error)
                await wait_at_most(self._stopping, LOOK_SECONDS)
        finally:
            # Whoever still waits looks by itself, and comes again.
            self._looking = None
            self._tell(list(self._waiting))

    def _tell(self, ids: Collection[int]) -> None:
        for id_ in ids:
            for over in self._waiting.get(id_, ()):
                if not over.done():
                    over.set_result(None)


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Until it is set, or so many seconds are over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
