"""What stands outside of /api/v1: the metrics of the whole system, and what probes ask.

Metrics take a token that may read everything; probes take none, and are told nothing but whether the server is ready.
"""

from __future__ import annotations

from starlette.responses import Response

from penstock.app import App
from penstock.metrics import CONTENT_TYPE, CachedMetrics, Health, ServerHealth
from penstock.model.token import Role
from penstock.server.caller import Caller
from penstock.server.problem import ProblemError

__all__ = ["METRICS", "PROBES", "Outside"]

METRICS = (b"metrics",)
PROBES = ((b"health", b"live"), (b"health", b"ready"))


class Outside:
    """One for each server; used in threads, as it may ask the databases."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._metrics: CachedMetrics | None = None
        self._health: ServerHealth | None = None

    def metrics(self, caller: Caller) -> Response:
        """The text that Prometheus scrapes."""
        if caller.role not in (Role.ADMIN, Role.READ) or caller.is_narrow:
            raise ProblemError("forbidden", "metrics are about everything: a token with role read, for all queues, may")
        if self._metrics is None:
            self._metrics = CachedMetrics(self._app.databases)
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    def health(self, path: tuple[bytes, ...]) -> Response:
        """200 or 503, with a word."""
        if path == PROBES[0]:
            return _told(Health(True, "live"))
        if self._health is None:
            self._health = ServerHealth(self._app.databases)
        return _told(self._health.ready())


def _told(health: Health) -> Response:
    # Why not is for the log and for /metrics: whoever asks here has shown no token.
    return Response("ok\n" if health.status == 200 else "not ready\n", health.status, media_type="text/plain")
