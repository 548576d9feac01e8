"""`penstock up`: everything on this machine, for as long as it is watched."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from penstock.app import App
from penstock.cli.app_target import check_tasks, ensure_answering, find_app
from penstock.cli.dashboard_options import Report, report_file
from penstock.cli.probing import HealthPort, MetricsPort, open_probes
from penstock.cli.serve import Host, RequireToken
from penstock.cli.shared_options import AsJson, Grace, LogJson, LogLevel
from penstock.cli.terminal import say, show_json_line
from penstock.cli.work import begin_log
from penstock.embedded import find_nearest
from penstock.model.checks import checked_concurrency, checked_seconds

__all__ = ["up"]

log = logging.getLogger("penstock")


def up(
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="The app to work for; without one only servers run.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", help="So many embedded servers; one, or what is there.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="How many jobs at once.")] = 16,
    grace: Grace = 30.0,
    metrics_port: MetricsPort = None,
    health_port: HealthPort = None,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", help="At which port the HTTP API is; 8080, or a free one where that is taken."),
    ] = None,
    require_token: RequireToken = False,
    report: Report = None,
    log_level: LogLevel = None,
    log_json: LogJson = False,
    as_json: AsJson = False,
) -> None:
    """Run embedded servers, the HTTP API and an app's jobs, until Ctrl-C."""
    checked_concurrency(concurrency)
    checked_seconds("grace", grace)
    app = None if target is None else find_app(target)
    if app is not None and not app.is_embedded and shards is not None:
        raise typer.BadParameter("the app names its databases itself: leave --shards out")
    if app is None and (metrics_port or health_port):
        raise typer.BadParameter(
            "without an app no worker runs that could answer: leave --metrics-port and --health-port out"
        )
    if app is not None:
        check_tasks(app, list(app.tasks))
    begin_log(log_level, log_json)
    with ExitStack() as stack:
        if app is None or app.is_embedded:
            servers = stack.enter_context(App(embedded_shards=1 if shards is None else shards))
            servers.migrate()
            _tell(servers, as_json)
        if app is None:
            stack.enter_context(_serving(servers, host, port, report, requires_token=require_token))
            _wait()
            return
        stack.enter_context(open_probes(app, metrics_port, health_port))
        stack.enter_context(app)
        ensure_answering(app, creates=True)
        if not app.is_embedded:
            _tell(app, as_json)
        stack.enter_context(_serving(app, host, port, report, requires_token=require_token))
        app.work(concurrency=concurrency, grace=grace)


@contextmanager
def _serving(app: App, host: str, port: int | None, report: str | None, *, requires_token: bool) -> Iterator[None]:
    """The HTTP API beside all else, where the extra is installed."""
    if find_spec("uvicorn") is None:
        log.warning("no HTTP API: install it with pip install 'penstock-queue[serve]'")
        yield
        return
    from penstock.server import Application
    from penstock.server.beside import serving_beside
    from penstock.server.machine_token import machine_token
    from penstock.server.serving import address_of, bind, bind_free

    file = report_file(report)
    listener = bind_free(host) if port is None else bind(host, port)
    is_local = address_of(listener).is_loopback and not requires_token
    home = find_nearest(Path.cwd()) if app.is_embedded else None
    with ExitStack() as stack:
        token = None if home is None else stack.enter_context(machine_token(home))
        application = Application(app, is_local=is_local, machine_token=token, report=file)
        url = stack.enter_context(serving_beside(application, listener))
        log.info("the dashboard is at %s/, the HTTP API at %s/api/v1/openapi.json", url, url)
        yield


def _tell(app: App, as_json: bool) -> None:
    urls = [shard.url for shard in app.shards]
    if as_json:
        show_json_line({"urls": urls})
    else:
        # They hold passwords, and what is not a terminal may be a log that others read.
        if sys.stdout.isatty():
            say(f"PENSTOCK_URL='{' '.join(urls)}'")
        say(f"{len(urls)} shard{'s run' if len(urls) > 1 else ' runs'} until Ctrl-C", "dim")


def _wait() -> None:
    """Until SIGTERM or SIGINT."""
    is_over = threading.Event()
    before = {number: signal.signal(number, lambda *_: is_over.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not is_over.wait(0.5):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
