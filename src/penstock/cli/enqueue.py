"""`penstock enqueue`: one job of a task that an app defines."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.app import App
from penstock.cli.app_target import ensure_answering, find_app
from penstock.cli.shared_options import AsJson, Target
from penstock.cli.task_arguments import parse_arguments
from penstock.cli.terminal import say, show_json
from penstock.cli.times import parse_wait, parse_when
from penstock.client import Bound
from penstock.client.options import Options
from penstock.errors import InvalidInput, UnknownTask
from penstock.task.definition import TaskDefinition

__all__ = ["enqueue"]


def enqueue(
    target: Target,
    task: Annotated[
        str, typer.Argument(metavar="[QUEUE/]TASK", help="The task; its queue where two have one so named.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments: JSON, or else text.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="0 goes first, 9 last.")] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Run no sooner than this: 90s, 15m, 2h, 1d.")] = None,
    run_at: Annotated[str | None, typer.Option("--run-at", help="Run no sooner than this: 2030-01-31T09:00Z.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The key that chooses its partition.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="Enqueue it once, however often this is repeated.")
    ] = None,
    unique: Annotated[
        str | None, typer.Option("--unique", help="waiting: print the id of the same job where one waits already.")
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option("--unique-key", help="What makes it the same, instead of task and arguments.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag to find it by; may be repeated.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="For whom it is done.")] = None,
    created_by: Annotated[str | None, typer.Option("--created-by", help="Who wanted it done.")] = None,
    after: Annotated[
        list[str] | None, typer.Option("--after", metavar="ID", help="Run after this job; may be repeated.")
    ] = None,
    on_parent_failure: Annotated[
        str, typer.Option("--on-parent-failure", help="What it does if such a job fails: cancel, run or wait.")
    ] = "cancel",
    as_json: AsJson = False,
) -> None:
    """Enqueue a job, durably, and print its id."""
    if unique_key is not None and unique is None:
        raise typer.BadParameter("--unique-key is for a job that is unique: add --unique waiting")
    if unique is not None and idempotency_key is not None:
        raise typer.BadParameter("give --unique or --idempotency-key, not both")
    if delay is not None and run_at is not None:
        raise typer.BadParameter("give --delay or --run-at, not both")
    app = find_app(target)
    with app:
        definition = _task(app, task)
        named = parse_arguments(definition, arguments or [])
        options = Options.checked(
            priority=priority,
            delay=None if delay is None else parse_wait("delay", delay),
            run_at=None if run_at is None else parse_when("run_at", run_at),
            key=key,
            idempotency_key=idempotency_key,
            unique=unique,
            unique_key=unique_key,
            tags=tag,
            tenant=tenant,
            created_by=created_by,
            after=after,
            on_parent_failure=on_parent_failure,
        )
        ensure_answering(app, creates=True)
        job_id = Bound(definition, app.sender, options).enqueue(**named)
    if as_json:
        show_json({"id": str(job_id)})
    else:
        say(str(job_id))


def _task(app: App, given: str) -> TaskDefinition:
    every = [task for tasks in app.tasks.values() for task in tasks.values()]
    found = [task for task in every if f"{task.queue}/{task.name}" == given]
    found = found or [task for task in every if task.name == given]
    names = sorted(f"{task.queue}/{task.name}" for task in found or every)
    if not found:
        known = f"it has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}" if names else "it has none"
        raise UnknownTask(f"the app defines no task {given!a:.200}; {known}")
    if len(found) > 1:
        raise InvalidInput("task", f"{given!a:.200} is a task of several queues; write {' or '.join(names)}")
    return found[0]
