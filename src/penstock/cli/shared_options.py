"""Arguments and options that several commands take, so that each is named and explained in one way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

__all__ = [
    "AppOption",
    "AsJson",
    "CreatedBy",
    "Filters",
    "Grace",
    "JobId",
    "Key",
    "Load",
    "LogJson",
    "LogLevel",
    "PartitionOption",
    "Preview",
    "QueueName",
    "QueueOption",
    "Reason",
    "StateOption",
    "Tag",
]
__all__ += ["Target", "TaskOption", "Tenant", "Url", "chosen", "takes_filters"]

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
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]

QueueOption = Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")]
StateOption = Annotated[
    str | None, typer.Option("--state", help="Only jobs in this state: ready, running, scheduled, failed, ...")
]
TaskOption = Annotated[str | None, typer.Option("--task", help="Only jobs of this task.")]
Key = Annotated[str | None, typer.Option("--key", help="Only jobs with this key.")]
Load = Annotated[str | None, typer.Option("--load", help="Only jobs of this load.")]
Tag = Annotated[str | None, typer.Option("--tag", help="Only jobs with this tag.")]
PartitionOption = Annotated[
    str | None, typer.Option("--partition", help="Only jobs of this partition: its name, or with --queue its number.")
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only jobs of this tenant.")]
CreatedBy = Annotated[str | None, typer.Option("--created-by", help="Only jobs that this one wanted.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept as the error of the jobs.")]

Filters = dict[str, Any]
# By what jobs are chosen: an option for each field of JobFilters.
FILTER_OPTIONS: dict[str, Any] = {
    "queue": QueueOption,
    "partition": PartitionOption,
    "state": StateOption,
    "task": TaskOption,
    "key": Key,
    "load": Load,
    "tag": Tag,
    "tenant": Tenant,
    "created_by": CreatedBy,
}


def takes_filters(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose `filters` stands for the options by which jobs are chosen, but for those that it has itself: it
    gets those that were given.
    """
    own = inspect.signature(function, eval_str=True)
    options = {name: option for name, option in FILTER_OPTIONS.items() if name not in own.parameters}
    parameters: list[inspect.Parameter] = []
    for each in own.parameters.values():
        if each.name == "filters":
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters += [
                inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()
            ]
        else:
            parameters.append(each)

    def command(**given: Any) -> None:
        filters = chosen(**{name: given.pop(name) for name in options})
        if str(filters.get("partition", "")).isdecimal():
            filters["partition"] = int(filters["partition"])
        function(**given, filters=filters)

    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def chosen(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}
