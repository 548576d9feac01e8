"""How many calls a second each caller may make: one that runs wild must not take the server from the others."""

from __future__ import annotations

from penstock.clock import system
from penstock.server.caller import Caller
from penstock.server.problem import ProblemError

__all__ = ["CALLS_A_SECOND", "CallRates"]

# Of one token, at one process; as many may come at once.
CALLS_A_SECOND = 2_000
MOST_CALLERS = 10_000


class CallRates:
    """Used on the event loop. A caller's bucket fills by itself; it is told by when it would be full."""

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}

    def count(self, caller: Caller) -> None:
        """Take a call in, or refuse it."""
        now = system.monotonic()
        if len(self._full_at) > MOST_CALLERS:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        full_at = max(self._full_at.get(caller.name, now), now) + 1 / CALLS_A_SECOND
        if full_at - now > 1.0:
            raise ProblemError(
                "too-many-requests", f"{caller.name} may make {CALLS_A_SECOND} calls a second; make fewer"
            )
        self._full_at[caller.name] = full_at
