"""Commands that only look: figures, jobs, why one waits, workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.completers import complete_queues
from penstock.cli.shared_options import (
    AsJson,
    CauseOption,
    CreatedBy,
    JobId,
    Key,
    Load,
    PartitionOption,
    QueueOption,
    StateOption,
    Tag,
    TaskOption,
    Tenant,
    Url,
    chosen,
)
from penstock.cli.terminal import Column, is_terminal, say, show_facts, show_json, show_table
from penstock.cli.times import ago, instant
from penstock.model import Job, PartitionStats, QueueRules, State, Stats, WorkerInfo
from penstock.model.records import record

__all__ = ["explain", "job", "jobs", "stats", "workers"]

FIGURES = [
    Column("ready", "right"),
    Column("running", "right", is_spared=True),
    Column("scheduled", "right", is_spared=True),
    Column("blocked", "right", is_spared=True),
    Column("dead", "right"),
    Column("done", "right", is_spared=True),
    Column("oldest", is_spared=True),
    Column("cancelled", "right", is_spared=True),
    Column("discarded", "right", is_spared=True),
    Column("expired", "right", is_spared=True),
]


def stats(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="One queue, by partition.", autocompletion=complete_queues)
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the figures of every queue, or of one with its rules."""
    with open_answering_app(url) as app:
        if queue is not None:
            figures = app.stats(queue)
            if as_json:
                show_json(record(figures))
                return
            columns = [
                Column("partition", is_cut=True),
                *FIGURES,
                Column("shard", "right", is_spared=True),
                Column("limit"),
                Column("owner", is_cut=True),
            ]
            show_table(columns, [_partition_row(part, figures.unavailable) for part in figures.partitions])
            if rules := _rules(figures.rules):
                say(f"rules: {rules}")
            if figures.paused:
                say(f"queue {queue!r} is paused: penstock resume {queue}", "yellow")
            return
        every = app.queues()
    if as_json:
        show_json(record(every))
    elif not every:
        say("there is no queue yet: declare one with app.queue(...), then enqueue or work")
    else:
        columns = [Column("queue", is_cut=True), *FIGURES, Column("")]
        show_table(columns, [[*_figures(s.queue, s), "paused" if s.paused else ""] for s in every])


def _partition_row(part: PartitionStats, unavailable: Sequence[str]) -> list[str]:
    limit = "" if part.limit is None else f"{part.limit:,}"
    if part.shard in unavailable:
        return [part.name, *("?" for _ in FIGURES), f"{part.shard} (down)", limit, ""]
    return [*_figures(part.name, part), part.shard, limit, part.owner or ""]


def _rules(rules: QueueRules) -> str:
    """The rules that a queue has, in one line."""
    given = {name: value for name, value in asdict(rules).items() if value is not None and name != "paused"}
    if rules.weights is not None:
        given["weights"] = " ".join(f"{tenant}={weight:g}" for tenant, weight in rules.weights.items())
    return ", ".join(f"{name} {value}" for name, value in given.items())


def _figures(name: str, figures: Stats | PartitionStats) -> list[str]:
    counts = (
        figures.queue_length,
        figures.active_count,
        figures.scheduled,
        figures.blocked,
        figures.dead,
        figures.total_completed,
    )
    other_ends = (figures.total_cancelled, figures.total_discarded, figures.total_expired)
    return [
        name,
        *(f"{count:,}" for count in counts),
        ago(figures.oldest_enqueued_at),
        *(f"{count:,}" for count in other_ends),
    ]


def jobs(
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
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Only jobs older than this one.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    filters = chosen(
        queue=queue, partition=partition, state=state, task=task, key=key, load=load, tag=tag, tenant=tenant,
        created_by=created_by, cause=cause,
    )  # fmt: skip
    with open_answering_app(url) as app:
        found = app.jobs(limit=limit, before=before, **filters)
        missing = unavailable(app)
    if as_json:
        show_json({"jobs": record(found), "unavailable": missing})
        return
    if not found:
        say("no such jobs")
        return
    columns = [
        Column("id"),
        Column("state"),
        Column("queue/task", is_cut=True),
        Column("attempt", "right", is_spared=True),
        Column("enqueued", is_spared=True),
        Column("what", is_spared=True, is_cut=True),
    ]
    show_table(columns, [_row(each) for each in found])
    if len(found) == limit and is_terminal():
        say(f"older ones: add --before {found[-1].id}", "dim")


def _row(each: Job) -> list[object]:
    what = each.error.splitlines()[0] if each.error else _json(each.args)
    return [each.id, each.state, f"{each.queue}/{each.task}", each.attempt, ago(each.enqueued_at), what]


def job(job_id: JobId, url: Url = None, as_json: AsJson = False) -> None:
    """Show everything about one job."""
    with open_answering_app(url) as app:
        found = app.job(job_id)
    if as_json:
        show_json(record(found))
        return
    show_facts(
        {
            "id": found.id,
            "state": found.state.value,
            "queue": found.queue,
            "partition": found.partition if found.partition != found.queue else None,
            "task": found.task,
            "arguments": _json(found.args),
            "key": found.key,
            "priority": found.priority,
            "after": ", ".join(map(str, found.after)),
            "tags": ", ".join(found.tags),
            "tenant": found.tenant,
            "created by": found.created_by,
            "idempotency key": found.idempotency_key,
            "load": found.load,
            "trace": found.traceparent,
            "enqueued": instant(found.enqueued_at),
            "due": instant(found.run_at),
            "started": instant(found.started_at),
            "finished": instant(found.finished_at),
            "worker": found.worker,
            "attempts": found.attempt,
            "reason": found.error if found.state in (State.CANCELLED, State.DISCARDED, State.EXPIRED) else None,
            "cause": found.cause,
            "progress": None if found.progress is None else _json(found.progress),
            "result": None if found.result is None else _json(found.result),
        }
        | {f"failure {each.attempt}": f"{instant(each.at)}\n{_error(each.error)}" for each in found.failures}
        | {
            f"edit {number}": f"{instant(each.at)} by {each.edited_by}\nbefore: {_json(each.args)}"
            for number, each in enumerate(found.edits, 1)
        }
    )


def explain(job_id: JobId, url: Url = None, as_json: AsJson = False) -> None:
    """Say why a job is not running."""
    with open_answering_app(url) as app:
        found = app.explain(job_id)
    if as_json:
        show_json(record(found))
    else:
        say(f"job {found.job_id}: {found.reason}")


def _worker_row(worker: WorkerInfo) -> list[Any]:
    state = "stopping" if worker.is_stopping else ""
    since = [ago(worker.started_at), ago(worker.renewed_at)]
    slots, ended = [worker.running, worker.concurrency], [worker.ended_last_minute, worker.failed_last_minute or None]
    return [worker.name, worker.id, *slots, *ended, *since, state, ", ".join(worker.queues)]


def workers(url: Url = None, as_json: AsJson = False) -> None:
    """List the workers that are alive."""
    with open_answering_app(url) as app:
        found = app.workers()
        missing = unavailable(app)
    if as_json:
        show_json({"workers": record(found), "unavailable": missing})
        return
    if not found:
        say("no worker is alive: penstock work MODULE:APP starts one")
        return
    columns = [
        Column("worker"),
        Column("id"),
        Column("running", "right"),
        Column("at most", "right", is_spared=True),
        Column("a minute", "right", is_spared=True),
        Column("failed", "right", is_spared=True),
        Column("started", is_spared=True),
        Column("heard of", is_spared=True),
        Column(""),
        Column("queues", is_cut=True, is_spared=True),
    ]
    show_table(columns, [_worker_row(worker) for worker in found])


def _error(text: str) -> str:
    """An error without the lines of ^^^^ that Python draws under the code: they do not survive being wrapped."""
    return "\n".join(line for line in text.splitlines() if not line.strip() or line.strip(" ^~"))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
