"""`penstock work`: a worker in this process, its log on stderr, until SIGTERM, SIGINT or until nothing is left."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from penstock.cli.app_target import check_tasks, ensure_answering, find_app
from penstock.cli.shared_options import AsJson, Grace, Target
from penstock.cli.terminal import show_json
from penstock.clock import system
from penstock.model.checks import checked_concurrency, checked_seconds
from penstock.visible import visible

__all__ = ["log_to_stderr", "work"]

log = logging.getLogger("penstock")


def work(
    target: Target,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", help="Only this queue; may be repeated. Else every queue of the app.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="How many jobs at once.")] = 16,
    grace: Grace = 30.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when there is nothing left to do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an app's jobs, until SIGTERM or Ctrl-C."""
    checked_concurrency(concurrency)
    checked_seconds("grace", grace)
    app = find_app(target)
    names = list(dict.fromkeys(queue or app.tasks))
    check_tasks(app, names)
    log_to_stderr()
    with app:
        ensure_answering(app, creates=True)
        log.info(
            "working on %s, %d at a time, database %s",
            ", ".join(names),
            concurrency,
            " ".join(database.address for database in app.unchecked_databases),
        )
        started = system.monotonic()
        worked = app.work(names, concurrency, until_idle=until_idle, grace=grace)
        seconds = system.monotonic() - started
    counts = worked._asdict()
    log.info("stopped after %.1f s: %s", seconds, ", ".join(f"{count} {name}" for name, count in counts.items()))
    if as_json:
        show_json(counts | {"seconds": round(seconds, 3)})


class _Visible(logging.Formatter):
    """What other loggers say may quote a handler's error, too: none of it reaches the terminal as a command."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), keeps_lines=True)


def log_to_stderr() -> None:
    """Unless the app has set up logging itself."""
    if logging.getLogger().handlers or log.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    log.setLevel(logging.INFO)
