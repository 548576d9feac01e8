"""`penstock work`: a worker in this process, its log on stderr, until SIGTERM, SIGINT or until nothing is left."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Annotated

import typer

from penstock.cli.app_target import check_tasks, ensure_answering, find_app
from penstock.cli.probing import HealthPort, MetricsPort, open_probes
from penstock.cli.shared_options import AsJson, Grace, LogJson, LogLevel, Target
from penstock.cli.terminal import show_json
from penstock.clock import system
from penstock.log_records import LEVELS, LogSetting, write_log
from penstock.model.checks import MOST_CONCURRENCY, checked_concurrency, checked_seconds

__all__ = ["begin_log", "work"]

log = logging.getLogger("penstock")


def work(
    target: Target,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="QUEUE[=N]",
            help="Only this queue, at most N of its jobs at once; may be repeated. Else every queue of the app.",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="How many jobs at once.")] = 16,
    grace: Grace = 30.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when there is nothing left to do.")] = False,
    metrics_port: MetricsPort = None,
    health_port: HealthPort = None,
    log_level: LogLevel = None,
    log_json: LogJson = False,
    as_json: AsJson = False,
) -> None:
    """Run an app's jobs, until SIGTERM or Ctrl-C."""
    checked_concurrency(concurrency)
    checked_seconds("grace", grace)
    app = find_app(target)
    caps = _parse_queues(queue or list(app.tasks), app.tasks)
    names = list(caps)
    probes = open_probes(app, metrics_port, health_port)
    check_tasks(app, names)
    begin_log(log_level, log_json)
    with probes, app:
        ensure_answering(app, creates=True)
        started = system.monotonic()
        worked = app.work(caps, concurrency, until_idle=until_idle, grace=grace)
        seconds = system.monotonic() - started
    counts = worked._asdict()
    if as_json:
        show_json(counts | {"seconds": round(seconds, 3)})


def _parse_queues(given: Iterable[str], known: Container[str]) -> dict[str, int | None]:
    """The queues, and how many jobs of each the worker may have at once."""
    caps: dict[str, int | None] = {}
    for each in given:
        name, cap = _parse_queue(each, known)
        if name in caps:
            raise typer.BadParameter(f"--queue: {name!a:.200} is given twice; give it once, such as --queue mail=4")
        caps[name] = cap
    return caps


def _parse_queue(given: str, known: Container[str]) -> tuple[str, int | None]:
    """A queue and how many of its jobs the worker may have at once: mail=4."""
    name, equals, cap = given.rpartition("=")
    if not equals or given in known:
        return given, None
    # No number is so long that it could not be converted.
    number = int(cap) if cap.isascii() and cap.isdigit() and len(cap) < 10 else 0
    if not 1 <= number <= MOST_CONCURRENCY:
        raise typer.BadParameter(
            f"--queue: {given!a:.200} has no number from 1 to {MOST_CONCURRENCY:,} after '='; write --queue mail=4"
        )
    return name, number


def begin_log(level: str | None, as_json: bool) -> None:
    """Write the log as was asked for, unless the app has set up logging itself: then only its level is ours."""
    level = None if level is None else level.lower()
    if level is not None and level not in LEVELS:
        raise typer.BadParameter(f"--log-level {level!r:.60} is unknown; give {', '.join(LEVELS)}")
    if write_log(LogSetting(level or "info", as_json)):
        return
    if as_json:
        raise typer.BadParameter("the app sets up logging itself: leave --log-json out, and use penstock.JsonFormatter")
    if level is not None:
        log.setLevel(level.upper())
