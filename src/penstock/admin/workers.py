"""The workers: which there are, what each runs, and to stop one gently.

A worker has a row on each shard that it works on, with another number on each; what they have in common is its
instance. It is asked to stop by a mark in its rows, and hears of it with its next renewal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.admin.answers import ask_everywhere, refuse_missing
from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import HIGHEST_ID, checked_count, shown
from penstock.model.worker import RunningJob, WorkerInfo
from penstock.shards.databases import Databases
from penstock.storage.work import workers as storage

__all__ = ["stop_worker", "worker", "workers"]

MOST_JOBS = 100


def workers(databases: Databases, jobs: int = 0) -> list[WorkerInfo]:
    """Every worker not declared dead, with so many of its jobs; one that works on several shards is one."""
    checked_count("jobs", jobs, least=0, most=MOST_JOBS)
    found = _read(databases, None, jobs)
    return sorted(found.values(), key=lambda info: (info.started_at, info.name))


def worker(databases: Databases, worker_id: int | str) -> WorkerInfo:
    """One worker, with what it runs."""
    id_ = _checked_id(worker_id)
    instance, _ = _find(databases, id_)
    found = _read(databases, instance, MOST_JOBS).get(instance)
    if found is None:
        raise _unknown(id_)
    return found


def stop_worker(databases: Databases, worker_id: int | str) -> None:
    """Ask a worker to end gently, wherever it is registered."""
    id_ = _checked_id(worker_id)
    instance, runs_jobs = _find(databases, id_)
    if not runs_jobs:
        raise InvalidInput("worker_id", f"{id_} is no worker that runs jobs, but acts for others: stop its program")
    # One shard is enough for it to hear.
    answers = databases.each(lambda connection: storage.ask_to_stop(connection, instance))
    if not answers.given:
        refuse_missing(answers, f"asked worker {id_} to stop")


def _find(databases: Databases, id_: int) -> tuple[str, bool]:
    for found in ask_everywhere(databases, lambda connection: storage.find_worker(connection, id_)):
        if found is not None:
            return found
    raise _unknown(id_)


def _read(databases: Databases, instance: str | None, most_jobs: int) -> dict[str, WorkerInfo]:
    found: dict[str, WorkerInfo] = {}
    for each in ask_everywhere(databases, lambda c: storage.read_workers(c, instance, most_jobs)):
        for called, info in each:
            known = found.get(called)
            found[called] = info if known is None else _join_shards_of_worker(known, info, most_jobs)
    return found


def _join_shards_of_worker(one: WorkerInfo, other: WorkerInfo, most_jobs: int) -> WorkerInfo:
    tasks = {
        queue: sorted({*one.tasks.get(queue, ()), *other.tasks.get(queue, ())})
        for queue in sorted({*one.queues, *other.queues})
    }
    return replace(
        one,
        started_at=min(one.started_at, other.started_at),
        renewed_at=max(one.renewed_at, other.renewed_at),
        queues=list(tasks),
        tasks=tasks,
        running=one.running + other.running,
        ended_last_minute=_sum(one.ended_last_minute, other.ended_last_minute),
        failed_last_minute=_sum(one.failed_last_minute, other.failed_last_minute),
        is_stopping=one.is_stopping or other.is_stopping,
        jobs=_longest_first([*one.jobs, *other.jobs])[:most_jobs],
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


def _longest_first(jobs: Iterable[RunningJob]) -> list[RunningJob]:
    return sorted(jobs, key=lambda job: (job.started_at, job.id))


def _checked_id(given: object) -> int:
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) <= len(str(HIGHEST_ID)):
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= HIGHEST_ID:
        raise InvalidInput("worker_id", f"{shown(given)} is no id of a worker; give one that app.workers() tells")
    return given


def _unknown(id_: int) -> NotFound:
    return NotFound(f"there is no worker {id_}, or it has ended: see app.workers() or `penstock workers`")
