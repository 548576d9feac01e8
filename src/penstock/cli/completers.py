"""What may stand next on a line, as a shell is told at Tab: names of queues and loads, states of jobs.

Names are asked of the database, if it answers at once: who strikes Tab waits for nothing, sees no error and starts no
server. One that a shell would have to quote is not offered, for shells put what they are given into the line as it is.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import typer

from penstock.app import App
from penstock.cli.app_target import open_app, suppress_warnings
from penstock.deadline import within
from penstock.embedded import find_nearest, is_running
from penstock.errors import PenstockError
from penstock.model import State
from penstock.storage.connection.schema_name import is_schema_alone

__all__ = ["complete_loads", "complete_queues", "complete_states"]

# Who strikes Tab waits for this.
PATIENCE_SECONDS = 1.0
MOST_NAMES = 200
# What no shell reads as anything but itself, at any place of a word.
_PLAIN = re.compile(r"[\w./@%+,][\w./@%+,-]*")


def complete_states(incomplete: str) -> list[str]:
    """The states of jobs."""
    return [each.value for each in State if each.value.startswith(incomplete)]


def complete_queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of queues, if the database answers at once."""
    return _names(ctx, incomplete, lambda app: app.queue_names())


def complete_loads(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the newest loads, if the database answers at once."""
    return _names(ctx, incomplete, lambda app: [each.name for each in app.loads(limit=MOST_NAMES)])


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[App], list[str]]) -> list[str]:
    found: list[str] = []
    url = ctx.params.get("url")

    def look() -> None:
        # Nothing that goes wrong here is told: the line is still being written.
        with suppress(PenstockError, OSError), suppress_warnings():
            if not _is_there(url):
                return
            app = open_app(url, patience_seconds=PATIENCE_SECONDS)
            with within(PATIENCE_SECONDS):
                found.extend(ask(app))

    asking = threading.Thread(target=look, name="penstock-completion", daemon=True)
    asking.start()
    asking.join(PATIENCE_SECONDS)
    return [each for each in list(found) if each.startswith(incomplete) and _PLAIN.fullmatch(each)][:MOST_NAMES]


def _is_there(url: str | None) -> bool:
    """Whether there is a database that need not be started first."""
    given = os.environ.get("PENSTOCK_URL", "").strip() if url is None else url
    if given and not is_schema_alone(given):
        return True
    home = find_nearest(Path.cwd())
    return home is not None and is_running(home)
