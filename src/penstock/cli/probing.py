"""Where a worker tells its metrics and its health: `--metrics-port` and `--health-port`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.app import App
from penstock.metrics.probes import Address, Probes

__all__ = ["HealthPort", "MetricsPort", "open_probes"]

MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Answer /metrics there, for Prometheus; on every address, if no HOST is given. 0: any free port.",
    ),
]
HealthPort = Annotated[
    str | None,
    typer.Option(
        "--health-port",
        metavar="[HOST:]PORT",
        help="Answer /health/live and /health/ready there, for probes; it may be the same port.",
    ),
]


def open_probes(app: App, metrics_port: str | None, health_port: str | None) -> Probes:
    """What answers there for as long as the app's worker works; nothing, where neither was given."""
    metrics = _parse("--metrics-port", metrics_port)
    if metrics is not None:
        app.working.has_figures = True
    return Probes(app.working.snapshots, metrics=metrics, health=_parse("--health-port", health_port))


def _parse(option: str, given: str | None) -> Address | None:
    if given is None:
        return None
    host, _, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        raise typer.BadParameter(
            f"{option}: {given!a:.200} does not end in a port from 0 to 65535; write {option} 9464, or 127.0.0.1:9464"
        )
    return Address(option, host, int(port))
