"""`penstock serve`: the HTTP API, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.app_target import ensure_answering, find_app, open_app
from penstock.cli.dashboard_options import (
    ProxyRole,
    ProxyUserHeader,
    Report,
    TrustedProxyAddress,
    report_file,
    trusted_proxy,
)
from penstock.cli.shared_options import AsJson, LogJson, LogLevel, Url
from penstock.cli.terminal import say, show_json
from penstock.cli.work import begin_log
from penstock.model.checks import checked_count

__all__ = ["Host", "Port", "RequireToken", "serve"]

Host = Annotated[str, typer.Option("--host", help="Where to listen; 0.0.0.0 is every network of this machine.")]
Port = Annotated[int, typer.Option("--port", help="At which port.")]
RequireToken = Annotated[
    bool, typer.Option("--require-token", help="Ask for a token on this machine too, before there is any.")
]
MOST_PROCESSES = 64
# A call has so long, as in programs.
PATIENCE_SECONDS = 30.0


def serve(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="The app whose databases and tasks it knows; else by --url."),
    ] = None,
    url: Url = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    workers: Annotated[int, typer.Option("--workers", help="How many processes answer.")] = 1,
    require_token: RequireToken = False,
    proxy_address: TrustedProxyAddress = None,
    proxy_role: ProxyRole = None,
    proxy_user_header: ProxyUserHeader = None,
    report: Report = None,
    log_level: LogLevel = None,
    log_json: LogJson = False,
    as_json: AsJson = False,
) -> None:
    """Serve the HTTP API for programs, and the dashboard for people."""
    checked_count("workers", workers, most=MOST_PROCESSES)
    if target is not None and url is not None:
        raise typer.BadParameter("the app that MODULE:APP names has its own database; leave --url out")
    # Here, since only this command needs what the extra installs.
    from penstock.server import Application
    from penstock.server.processes import inherited_listener, run_processes
    from penstock.server.serving import address_of, bind, serve, take_over

    proxy = trusted_proxy(proxy_address, proxy_role, proxy_user_header)
    file = report_file(report)
    begin_log(log_level, log_json)
    descriptor = inherited_listener()
    with find_app(target) if target is not None else open_app(url, PATIENCE_SECONDS) as app:
        ensure_answering(app, creates=True)
        listener = bind(host, port) if descriptor is None else take_over(descriptor)
        if descriptor is None:
            _tell(address_of(listener).url, as_json)
        if workers > 1 and descriptor is None:
            run_processes(workers, listener, sys.argv[1:])
        else:
            is_local = address_of(listener).is_loopback and not require_token
            serve(Application(app, is_local=is_local, trusted_proxy=proxy, report=file), listener)


def _tell(url: str, as_json: bool) -> None:
    if as_json:
        show_json({"dashboard": f"{url}/", "openapi": f"{url}/api/v1/openapi.json"})
    else:
        say(f"{url}/ is the dashboard")
        say(f"{url}/api/v1/openapi.json describes the HTTP API", "dim")
