"""`penstock top`: the whole system at one look, live at a terminal, once for a pipe or a program."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.app import App
from penstock.cli.app_target import open_answering_app
from penstock.cli.live.looks import Look, Looks
from penstock.cli.live.page import Seen
from penstock.cli.live.reader import look_at
from penstock.cli.live.rows import COLUMNS, ORDERS
from penstock.cli.live.top import Top, seen, summary
from penstock.cli.shared_options import AsJson, QueueFilter, Url
from penstock.cli.terminal import can_be_drawn_on, say, show_json, show_table
from penstock.clock import system
from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import checked_choice, checked_seconds
from penstock.model.records import record

__all__ = ["top"]

LEAST_SECONDS = 0.2


def top(
    queue: QueueFilter = None,
    sort: Annotated[str, typer.Option("--sort", help=f"What comes first: {', '.join(ORDERS)}.")] = "attention",
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often it looks.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one table, and end; so without a terminal. Rates are of one second.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch queues, rates, workers and what needs attention, live."""
    checked_choice("sort", sort, tuple(ORDERS))
    if checked_seconds("every", every) < LEAST_SECONDS:
        raise InvalidInput("every", f"{every:g} seconds is too often; give at least {LEAST_SECONDS:g}")
    wanted = queue or []
    with open_answering_app(url) as app:
        unknown = set(wanted) - set(app.queue_names()) if wanted else set()
        if unknown:
            raise NotFound(f"there is no queue {', '.join(map(repr, sorted(unknown)))}; see penstock stats")
        if not (once or as_json) and can_be_drawn_on():
            Top(app, every, sort, wanted, ", ".join(each.address for each in app.unchecked_databases)).run()
            return
        looks = _look_twice(app)
    last = looks.last
    assert last is not None  # noqa: S101
    now = seen(last, looks.flows(), sort, wanted)
    if as_json:
        show_json(_as_record(last, now))
    else:
        _print(last, now)


def _look_twice(app: App) -> Looks:
    """A rate takes two looks."""
    looks = Looks()
    looks.add(look_at(app))
    system.sleep(1.0)
    looks.add(look_at(app))
    return looks


def _print(look: Look, now: Seen) -> None:
    say(summary(look.overview, now))
    for concern in now.concerns:
        say(f"! {concern.text}")
    if now.rows:
        say()
        show_table(COLUMNS, [row.cells() for row in now.rows])


def _as_record(look: Look, now: Seen) -> dict[str, Any]:
    queues = [
        _fields(row.queue) | {"in_per_second": row.flow.incoming, "out_per_second": row.flow.outgoing}
        for row in now.rows
    ]
    whole = _fields(look.overview)
    return {
        "at": look.at,
        "attention": [{"queue": each.queue, "text": each.text} for each in now.concerns],
        "queues": queues,
        **{name: value for name, value in whole.items() if name != "queues"},
    }


def _fields(value: Any) -> dict[str, Any]:
    made = record(value)
    return {name: getattr(made, name) for name in made.__struct_fields__}
