"""Calls that last: a poll, a stream of events, a body that is loaded. Who may not come in any more is ended.

Twice a second it is asked again for each of them whether it would be let in: a token that was revoked is soon good for
nothing, also not for what it had begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import Scope

from penstock.errors import PenstockError
from penstock.server.problem import ProblemError

__all__ = ["StandingCalls"]

LOOK_SECONDS = 0.5


class StandingCalls:
    """Those of one server; used on its event loop. `admit` says who a request is of, or raises."""

    def __init__(self, admit: Callable[[Scope, Headers], Awaitable[object]]) -> None:
        self._admit = admit
        self._calls: dict[asyncio.Future[ProblemError], tuple[Scope, Headers]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def standing(self, scope: Scope, headers: Headers) -> Iterator[asyncio.Future[ProblemError]]:
        """For as long as the block lasts: a future that is done when the call is to be ended, with why."""
        refused: asyncio.Future[ProblemError] = asyncio.get_running_loop().create_future()
        self._calls[refused] = (scope, headers)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield refused
        finally:
            del self._calls[refused]
            refused.cancel()
            if not self._calls and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for refused, (scope, headers) in list(self._calls.items()):
                try:
                    await self._admit(scope, headers)
                except ProblemError as problem:
                    if problem.code == "unauthorized" and not refused.done():
                        refused.set_result(problem)
                except PenstockError:
                    # No database says who may: what is under way goes on.
                    continue
