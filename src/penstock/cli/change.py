"""Commands that change what is to be done, and who does it: cancel, retry, reschedule, pause, resume, purge, limit,
delete-queue, stop-worker.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer

from penstock.app import App
from penstock.cli.app_target import open_answering_app
from penstock.cli.shared_options import (
    AppOption,
    AsJson,
    CauseOption,
    CreatedBy,
    JobId,
    Key,
    Load,
    PartitionOption,
    Preview,
    QueueName,
    QueueOption,
    Reason,
    StateOption,
    Tag,
    TaskOption,
    Tenant,
    Url,
    chosen,
)
from penstock.cli.task_arguments import parse_arguments
from penstock.cli.terminal import say, show_json
from penstock.cli.times import instant, parse_wait, parse_when
from penstock.errors import PenstockError
from penstock.model import State
from penstock.model.job_state import FINAL

__all__ = ["cancel", "delete_queue", "limit", "pause", "purge", "reschedule", "resume", "retry", "stop_worker"]

NONE = "none"
OneOrMany = Annotated[str | None, typer.Argument(metavar="[ID]", help="One job; or give filters.")]


def cancel(
    job_id: OneOrMany = None,
    queue: QueueOption = None,
    partition: PartitionOption = None,
    state: StateOption = None,
    task: TaskOption = None,
    key: Key = None,
    load: Load = None,
    tag: Tag = None,
    tenant: Tenant = None,
    created_by: CreatedBy = None,
    cause: CauseOption = None,
    reason: Reason = None,
    preview: Preview = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel one job, or all that match and have not ended."""
    filters = chosen(
        queue=queue, partition=partition, state=state, task=task, key=key, load=load, tag=tag, tenant=tenant,
        created_by=created_by, cause=cause,
    )  # fmt: skip
    _refuse_wrong_use(job_id, filters, preview)
    why = "cancelled by penstock cancel" if reason is None else reason
    with open_answering_app(url) as app:
        if job_id is None:
            _tell_how_many(app.cancel(preview=preview, reason=why, **filters), "cancelled", preview, as_json)
            return
        done = app.cancel(job_id, reason=why)
        if done not in (State.RUNNING, State.CANCELLED):
            raise PenstockError(f"job {job_id} had already ended: {done}")
    if as_json:
        show_json({"job_id": job_id, "state": done})
    elif done == State.RUNNING:
        say(f"job {job_id} is running and has been asked to stop")
    else:
        say(f"job {job_id} is cancelled")


def retry(
    job_id: OneOrMany = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments from now on, all of them: JSON, or else text."),
    ] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="The same as one JSON object.")] = None,
    queue: QueueOption = None,
    partition: PartitionOption = None,
    state: StateOption = None,
    task: TaskOption = None,
    key: Key = None,
    load: Load = None,
    tag: Tag = None,
    tenant: Tenant = None,
    created_by: CreatedBy = None,
    cause: CauseOption = None,
    preview: Preview = False,
    target: AppOption = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again, one with other arguments, or now what waits."""
    filters = chosen(
        queue=queue, partition=partition, state=state, task=task, key=key, load=load, tag=tag, tenant=tenant,
        created_by=created_by, cause=cause,
    )  # fmt: skip
    if job_id is not None and "=" in job_id:
        raise typer.BadParameter(f"{job_id!a:.60} is an argument: give the id of the job before it")
    _refuse_wrong_use(job_id, filters, preview)
    if arguments and args is not None:
        raise typer.BadParameter("give the arguments as KEY=VALUE or as --args, not both")
    if args is not None and job_id is None:
        raise typer.BadParameter("arguments are changed of one job: give its id, and no filter")
    with open_answering_app(url, target) as app:
        if job_id is None:
            _tell_how_many(app.retry(preview=preview, **filters), "retried", preview, as_json)
            return
        done = app.retry(job_id, args=_edited(app, job_id, arguments, args))
        if done is not State.READY:
            raise PenstockError(
                f"job {job_id} is not retried: {app.explain(job_id).reason}; "
                "dead letters can be, and jobs that wait for a time"
            )
    _tell({"job_id": job_id, "state": done}, f"job {job_id} is {done}", as_json)


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
        done = app.reschedule(job_id, run_at)
        job = app.job(job_id)
        if done in FINAL or done is State.RUNNING:
            raise PenstockError(f"job {job_id} is {done}, and does not wait for a time: nothing was changed")
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
    partition: Annotated[
        str | None, typer.Option("--partition", help="Only jobs of this partition: its name or number.")
    ] = None,
    task: TaskOption = None,
    key: Key = None,
    load: Load = None,
    tag: Tag = None,
    tenant: Tenant = None,
    created_by: CreatedBy = None,
    cause: CauseOption = None,
    reason: Reason = None,
    preview: Preview = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel the waiting jobs of a queue, or clear its dead letters."""
    if not (preview or yes or (sys.stdin.isatty() and not as_json)):
        raise typer.BadParameter("purge asks first, and there is nobody to ask: add --yes, or --preview")
    filters = chosen(
        state=state, partition=partition, task=task, key=key, load=load, tag=tag, tenant=tenant, created_by=created_by,
        cause=cause,
    )  # fmt: skip
    why = "cancelled by penstock purge" if reason is None else reason
    with open_answering_app(url) as app:
        if not (preview or yes):
            count = app.purge(queue, preview=True, **filters)
            kind = state or ("waiting" if cause is None else "failed")
            if not typer.confirm(f"Purge {count:,} {kind} jobs of queue {queue!a}?"):
                raise PenstockError("nothing was purged")
        done = app.purge(queue, preview=preview, reason=why, **filters)
    _tell_how_many(done, "purged", preview, as_json)


def delete_queue(
    queue: QueueName,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also with jobs: cancel what waits, ask what runs to stop, remove its crons."),
    ] = False,
    preview: Preview = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first, with --force.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete a queue that is not used any more; its name is free at once."""
    asks = force and not (preview or yes)
    if asks and (as_json or not sys.stdin.isatty()):
        raise typer.BadParameter("delete-queue --force asks first, and there is nobody to ask: add --yes, or --preview")
    with open_answering_app(url) as app:
        if asks:
            count = app.delete_queue(queue, force=True, preview=True)
            if not typer.confirm(f"Delete queue {queue!a} with {count:,} jobs that have not ended?"):
                raise PenstockError("nothing was deleted")
        ended = app.delete_queue(queue, force=force, preview=preview)
    text = f"queue {queue!r} {'would be' if preview else 'is'} deleted"
    if ended:
        jobs = "1 job" if ended == 1 else f"{ended:,} jobs"
        verb = "would be" if preview else "was" if ended == 1 else "were"
        text += f": {jobs} {verb} ended or asked to stop"
    _tell({"queue": queue, "jobs": ended, "preview": preview}, text, as_json)


def limit(
    queue: QueueName,
    run: Annotated[
        str | None, typer.Option("--run", metavar="N", help="So many jobs of a key are taken in one go.")
    ] = None,
    most: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="At most so many run, per partition.")
    ] = None,
    total_limit: Annotated[
        str | None, typer.Option("--total-limit", metavar="N", help="At most so many run, in all partitions together.")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="So many start, per partition: 100/s, 30/m, 5/h.")] = None,
    total_rate: Annotated[
        str | None, typer.Option("--total-rate", help="So many start, in all partitions together: 100/s.")
    ] = None,
    per_key_rate: Annotated[str | None, typer.Option("--per-key-rate", help="So many of a key start: 1/s.")] = None,
    weights: Annotated[
        list[str] | None, typer.Option("--weight", metavar="TENANT=N", help="A tenant's share; one option each.")
    ] = None,
    max_length: Annotated[
        str | None, typer.Option("--max-length", metavar="N", help="Most ready jobs in a partition.")
    ] = None,
    max_wait: Annotated[
        str | None, typer.Option("--max-wait", metavar="WAIT", help="Longest wait: 90s, 15m, 2h, 1d.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a queue's limits while it runs; `none` takes one away."""
    given = chosen(
        run=_number("--run", run),
        limit=_number("--limit", most),
        total_limit=_number("--total-limit", total_limit),
        rate=rate,
        total_rate=total_rate,
        per_key_rate=per_key_rate,
        weights=_weights(weights),
        max_length=_number("--max-length", max_length),
        max_wait=max_wait if max_wait in (None, NONE) else parse_wait("max_wait", max_wait),
    )
    if not given:
        raise typer.BadParameter("give what to change, such as --limit 5, or --rate none")
    limits: dict[str, Any] = {name: None if value == NONE else value for name, value in given.items()}
    with open_answering_app(url) as app:
        app.limit(queue, **limits)
    said = ", ".join(f"{name} {value}" for name, value in given.items())
    _tell({"queue": queue, **limits}, f"queue {queue!r} has {said}", as_json)


def _edited(app: App, job_id: str, words: list[str] | None, text: str | None) -> dict[str, Any] | None:
    """A job's arguments from now on; None: as they are."""
    if text is not None:
        try:
            named = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise typer.BadParameter("--args takes a JSON object") from None
        if not isinstance(named, dict):
            raise typer.BadParameter("--args takes a JSON object")
        return named
    if not words:
        return None
    job = app.job(job_id)
    return parse_arguments(app.tasks.get(job.queue, {}).get(job.task), words)


def _number(option: str, text: str | None) -> int | str | None:
    if text is None or text == NONE:
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{option} takes a whole number, or {NONE}, not {text!a:.60}") from None


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


def _refuse_wrong_use(job_id: str | None, filters: dict[str, Any], preview: bool) -> None:
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


def stop_worker(
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="Its id, as penstock workers shows it.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask a worker to end gently: it ends what runs, and leaves."""
    with open_answering_app(url) as app:
        app.stop_worker(worker_id)
    _tell(
        {"worker": worker_id, "is_stopping": True}, f"worker {worker_id} takes no more jobs: what runs may end", as_json
    )
