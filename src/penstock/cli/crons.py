"""Commands about cron entries: which there are, and to pause, resume, run or remove one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.help_page import Command, Group
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import Column, say, show_json, show_table
from penstock.cli.times import ago
from penstock.model.records import record

__all__ = ["crons"]

CronName = Annotated[str, typer.Argument(metavar="NAME", help="The entry's name.")]

crons = typer.Typer(name="crons", cls=Group, invoke_without_command=True)


@crons.callback()
def list_crons(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
    """List the cron entries; pause, resume, run or remove one."""
    if context.invoked_subcommand is not None:
        return
    with open_answering_app(url) as app:
        found = app.crons()
        missing = unavailable(app)
    if as_json:
        show_json({"crons": record(found), "unavailable": missing})
        return
    if not found:
        say("there is no cron entry: declare one with app.cron(...)")
        return
    columns = [
        Column("name", is_cut=True),
        Column("when"),
        Column("zone", is_spared=True),
        Column("queue/task", is_cut=True),
        Column("next"),
        Column("last", is_spared=True),
    ]
    show_table(
        columns,
        [
            [
                each.name,
                each.expression,
                each.timezone,
                f"{each.queue}/{each.task}",
                "paused" if each.is_paused else ago(each.next_at),
                ago(each.last_at),
            ]
            for each in found
        ],
    )


@crons.command(cls=Command)
def pause(name: CronName, url: Url = None, as_json: AsJson = False) -> None:
    """Fire an entry no more, until it is resumed; also by workers that start meanwhile."""
    with open_answering_app(url) as app:
        app.pause_cron(name)
    _tell({"name": name, "paused": True}, f"cron {name!r} is paused", as_json)


@crons.command(cls=Command)
def resume(name: CronName, url: Url = None, as_json: AsJson = False) -> None:
    """Fire a paused entry again, from its next instant on."""
    with open_answering_app(url) as app:
        app.resume_cron(name)
        next_at = next((each.next_at for each in app.crons() if each.name == name), None)
    _tell({"name": name, "paused": False, "next_at": next_at}, f"cron {name!r} fires next {ago(next_at)}", as_json)


@crons.command(cls=Command)
def run(name: CronName, url: Url = None, as_json: AsJson = False) -> None:
    """Enqueue an entry's job now, out of turn, also of a paused one; prints its id."""
    with open_answering_app(url) as app:
        job_id = app.run_cron(name)
    _tell({"name": name, "id": str(job_id)}, str(job_id), as_json)


@crons.command(cls=Command)
def remove(name: CronName, url: Url = None, as_json: AsJson = False) -> None:
    """Delete an entry; one that an app still declares comes back with its next start."""
    with open_answering_app(url) as app:
        app.remove_cron(name)
    _tell({"name": name, "removed": True}, f"cron {name!r} is removed", as_json)


def _tell(record: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        show_json(record)
    else:
        say(text)
