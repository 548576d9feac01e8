"""Commands that change what is to be done: cancel, retry, reschedule, pause, resume, purge, limit."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock.cli.app_target import open_answering_app
from penstock.cli.shared_options import (
    AsJson,
    Filters,
    JobId,
    Key,
    Load,
    Preview,
    QueueName,
    QueueOption,
    StateOption,
    Tag,
    TaskOption,
    Url,
    chosen,
)
from penstock.cli.terminal import say, show_json
from penstock.cli.times import instant, parse_when
from penstock.errors import PenstockError
from penstock.model import State
from penstock.model.job_state import FINAL

__all__ = ["cancel", "limit", "pause", "purge", "reschedule", "resume", "retry"]

NONE = "none"
OneOrMany = Annotated[str | None, typer.Argument(metavar="[ID]", help="One job; or give filters.")]


def cancel(
    job_id: OneOrMany = None,
    queue: QueueOption = None,
    state: StateOption = None,
    task: TaskOption = None,
    key: Key = None,
    load: Load = None,
    tag: Tag = None,
    preview: Preview = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel one job, or all that match and have not ended."""
    filters = chosen(queue=queue, state=state, task=task, key=key, load=load, tag=tag)
    _refuse_wrong_use(job_id, filters, preview)
    with open_answering_app(url) as app:
        if job_id is None:
            _tell_how_many(app.cancel(preview=preview, **filters), "cancelled", preview, as_json)
            return
        done = app.cancel(job_id)
    if as_json:
        show_json({"job_id": job_id, "state": done})
    elif done == State.RUNNING:
        say(f"job {job_id} is running and has been asked to stop")
    elif done == State.CANCELLED:
        say(f"job {job_id} is cancelled")
    else:
        say(f"job {job_id} had already ended: {done}")


def retry(
    job_id: OneOrMany = None,
    queue: QueueOption = None,
    state: StateOption = None,
    task: TaskOption = None,
    key: Key = None,
    load: Load = None,
    tag: Tag = None,
    preview: Preview = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again, or at once what waits for a time."""
    filters = chosen(queue=queue, state=state, task=task, key=key, load=load, tag=tag)
    _refuse_wrong_use(job_id, filters, preview)
    with open_answering_app(url) as app:
        if job_id is None:
            _tell_how_many(app.retry(preview=preview, **filters), "retried", preview, as_json)
            return
        done = app.retry(job_id)
    if as_json:
        show_json({"job_id": job_id, "state": done})
    elif done in FINAL:
        say(f"job {job_id} has ended as {done}: only failed jobs can be retried")
    else:
        say(f"job {job_id} is {done}")


def reschedule(
    job_id: JobId,
    when: Annotated[
        str, typer.Argument(metavar="WHEN", help="2030-01-31T09:00Z, or 90s, 15m, 2h, 1d from now, or now.")
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Move a waiting job to another time."""
    run_at = parse_when("run_at", when)
    with open_answering_app(url) as app:
        app.reschedule(job_id, run_at)
        job = app.job(job_id)
    if as_json:
        show_json({"job_id": str(job.id), "state": job.state, "run_at": job.run_at})
    elif job.state == State.SCHEDULED:
        say(f"job {job.id} is scheduled: {instant(job.run_at)}")
    else:
        say(f"job {job.id} is {job.state}")


def pause(queue: QueueName, url: Url = None, as_json: AsJson = False) -> None:
    """Give out none of a queue's jobs until it is resumed."""
    with open_answering_app(url) as app:
        app.pause(queue)
    _tell({"queue": queue, "paused": True}, f"queue {queue!r} is paused: what runs goes on", as_json)


def resume(queue: QueueName, url: Url = None, as_json: AsJson = False) -> None:
    """Give out a paused queue's jobs again."""
    with open_answering_app(url) as app:
        app.resume(queue)
    _tell({"queue": queue, "paused": False}, f"queue {queue!r} gives out jobs", as_json)


def purge(
    queue: QueueName,
    state: Annotated[
        str | None, typer.Option("--state", help="Only ready, scheduled or blocked jobs; or failed: the dead letters.")
    ] = None,
    preview: Preview = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel every waiting job of a queue, or clear its dead letters."""
    if not (preview or yes or (sys.stdin.isatty() and not as_json)):
        raise typer.BadParameter("purge asks first, and there is nobody to ask: add --yes, or --preview")
    with open_answering_app(url) as app:
        if not (preview or yes):
            count = app.purge(queue, state=state, preview=True)
            if not typer.confirm(f"Purge {count:,} {state or 'waiting'} jobs of queue {queue!a}?"):
                raise PenstockError("nothing was purged")
        done = app.purge(queue, state=state, preview=preview)
    _tell_how_many(done, "purged", preview, as_json)


def limit(
    queue: QueueName,
    most: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="At most so many run, per partition.")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="So many start, per partition: 100/s, 30/m, 5/h.")] = None,
    per_key_rate: Annotated[str | None, typer.Option("--per-key-rate", help="So many of a key start: 1/s.")] = None,
    weights: Annotated[
        list[str] | None, typer.Option("--weight", metavar="TENANT=N", help="A tenant's share; one option each.")
    ] = None,
    max_length: Annotated[
        str | None, typer.Option("--max-length", metavar="N", help="Most ready jobs in a partition.")
    ] = None,
    max_wait: Annotated[str | None, typer.Option("--max-wait", metavar="SECONDS", help="Longest wait.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a queue's limits while it runs; `none` takes one away."""
    given = chosen(
        limit=_number("--limit", most, int),
        rate=rate,
        per_key_rate=per_key_rate,
        weights=_weights(weights),
        max_length=_number("--max-length", max_length, int),
        max_wait=_number("--max-wait", max_wait, float),
    )
    if not given:
        raise typer.BadParameter("give what to change, such as --limit 5, or --rate none")
    limits: dict[str, Any] = {name: None if value == NONE else value for name, value in given.items()}
    with open_answering_app(url) as app:
        app.limit(queue, **limits)
    said = ", ".join(f"{name} {value}" for name, value in given.items())
    _tell({"queue": queue, **limits}, f"queue {queue!r} has {said}", as_json)


def _number(option: str, text: str | None, kind: type[int] | type[float]) -> int | float | str | None:
    if text is None or text == NONE:
        return text
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f"{option} takes a number, or {NONE}, not {text!a:.60}") from None


def _weights(given: list[str] | None) -> dict[str, float] | str | None:
    if not given:
        return None
    if given == [NONE]:
        return NONE
    weights: dict[str, float] = {}
    for each in given:
        tenant, _, weight = each.rpartition("=")
        try:
            weights[tenant] = float(weight)
        except ValueError:
            raise typer.BadParameter(f"--weight takes TENANT=NUMBER, or {NONE}, not {each!a:.60}") from None
    return weights


def _refuse_wrong_use(job_id: str | None, filters: Filters, preview: bool) -> None:
    if job_id is None and not filters:
        raise typer.BadParameter("give a job's id, or a filter such as --queue")
    if job_id is not None and (filters or preview):
        raise typer.BadParameter("give a job's id, or filters (with --preview), not both")


def _tell_how_many(count: int, done: str, preview: bool, as_json: bool) -> None:
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    _tell({"jobs": count, "preview": preview}, f"{jobs} would be {done}" if preview else f"{jobs} {done}", as_json)


def _tell(record: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        show_json(record)
    else:
        say(text)
