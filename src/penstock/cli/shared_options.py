"""Arguments and options that several commands take, so that each is named and explained in one way."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.completers import complete_loads, complete_queues, complete_states

__all__ = [
    "AppOption",
    "AsJson",
    "CauseOption",
    "CreatedBy",
    "Grace",
    "JobId",
    "Key",
    "Load",
    "LogJson",
    "LogLevel",
    "PartitionOption",
    "Preview",
    "QueueFilter",
    "QueueName",
    "QueueOption",
    "Reason",
    "StateOption",
    "Tag",
]
__all__ += ["Target", "TaskOption", "Tenant", "Url", "chosen"]

Url = Annotated[
    str | None,
    typer.Option("--url", help="The database, or several; else $PENSTOCK_URL, else embedded in the nearest .penstock."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Preview = Annotated[bool, typer.Option("--preview", help="Change nothing; say how many it would be.")]

Target = Annotated[
    str,
    typer.Argument(metavar="MODULE:APP", help="The app: a module of this folder or an installed one, and its name."),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", help="The app whose tasks they are: refuse what it does not take."),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace", metavar="SECONDS", help="How long handlers may go on once told to stop, or block the loop."
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level", metavar="LEVEL", help="From which level on: debug, info (the default), warning, error."
    ),
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Write each record of the log as a line of JSON.")]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=complete_queues)]

QueueFilter = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="QUEUE", help="Only this queue; may be repeated.", autocompletion=complete_queues),
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", help="Only jobs of this queue.", autocompletion=complete_queues)
]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state",
        help="Only jobs in this state: ready, running, scheduled, failed, ...",
        autocompletion=complete_states,
    ),
]
TaskOption = Annotated[str | None, typer.Option("--task", help="Only jobs of this task.")]
Key = Annotated[str | None, typer.Option("--key", help="Only jobs with this key.")]
Load = Annotated[str | None, typer.Option("--load", help="Only jobs of this load.", autocompletion=complete_loads)]
Tag = Annotated[str | None, typer.Option("--tag", help="Only jobs with this tag.")]
PartitionOption = Annotated[
    str | None, typer.Option("--partition", help="Only jobs of this partition: its name, or with --queue its number.")
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only jobs of this tenant.")]
CreatedBy = Annotated[str | None, typer.Option("--created-by", help="Only jobs that this one wanted.")]
CauseOption = Annotated[
    str | None, typer.Option("--cause", metavar="ID", help="Only dead letters of this cause: see penstock causes.")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept as the error of the jobs.")]


def chosen(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}
