"""A worker's own metrics, from its memory: whoever scrapes them asks no database."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metrics import definitions as metrics
from penstock.metrics.exposition import Exposition, labelled
from penstock.metrics.health import workers_live, workers_ready
from penstock.worker import BOUNDS, TaskFigures, WorkerSnapshot

__all__ = ["worker_metrics"]


def worker_metrics(workers: Sequence[WorkerSnapshot]) -> bytes:
    """The text that Prometheus scrapes, of the workers of this process: one, or none before it begins."""
    text = Exposition()
    databases = [database for worker in workers for database in worker.databases]
    _add_tasks(text, [figures for database in databases for figures in database.figures])
    shards = [(labelled(shard=str(database.number)), database) for database in databases]
    text.add(metrics.LEASES_LOST, [(label, each.leases_lost) for label, each in shards])
    text.add(metrics.RESCUED, [("", sum(each.rescued for each in workers))])
    text.add(metrics.SLOTS, [("", sum(each.slots for each in workers))])
    text.add(metrics.SLOTS_USED, [("", sum(each.slots_used for each in workers))])
    text.add(metrics.LEFT_BEHIND, [("", sum(each.left_behind for each in workers))])
    text.add(metrics.LOOP_BLOCKED, [("", int(any(each.is_loop_blocked for each in workers)))])
    text.add(metrics.PROCESSES, [("", sum(each.processes for each in workers))])
    text.add(metrics.BACKLOG, [(label, each.backlog) for label, each in shards])
    text.add(metrics.DATABASE_READY, [(label, int(each.unready is None)) for label, each in shards])
    text.add(metrics.WORKER_READY, [("", int(workers_ready(workers).is_ok))])
    text.add(metrics.WORKER_LIVE, [("", int(workers_live(workers).is_ok))])
    return text.text()


def _add_tasks(text: Exposition, given: Sequence[TaskFigures]) -> None:
    """What ended, by task; of several databases together."""
    by_task: dict[tuple[str, str], list[TaskFigures]] = {}
    for each in given:
        by_task.setdefault((each.queue, each.task), []).append(each)
    if not by_task:
        return
    tasks = [({"queue": queue, "task": task}, members) for (queue, task), members in by_task.items()]
    for metric, name in ((metrics.WAIT_SECONDS, "wait"), (metrics.RUN_SECONDS, "run")):
        series = []
        for labels, members in tasks:
            histograms = [getattr(each, name) for each in members]
            counts = [sum(of_bucket) for of_bucket in zip(*(each.counts for each in histograms), strict=True)]
            series.append((labels, counts, sum(each.total for each in histograms) / 1e6))
        text.add_histogram(metric, BOUNDS, series)
    labelled_tasks = [(labelled(**labels), members) for labels, members in tasks]
    for end, metric in metrics.ENDS.items():
        text.add(metric, [(label, sum(each.ends[end] for each in members)) for label, members in labelled_tasks])
    text.add(metrics.WORKER_LATE, [(label, sum(each.late for each in members)) for label, members in labelled_tasks])
