"""From jobs that are not written yet to groups of one destination, as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.client.options import Options
from penstock.client.pending import PendingJob, PendingRows
from penstock.errors import InvalidInput
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.enqueue.job_group import Destination, EarlierJob, IdempotencyKeys, JobGroup, Parents

__all__ = ["group_jobs", "group_rows"]


def group_rows(entry: QueueEntry, number: int, rows: PendingRows, indexes: Sequence[int]) -> JobGroup:
    """Those of many rows that go to one partition."""
    task, options, args, keys = rows
    count = len(indexes)
    if count < len(args):
        args = [args[index] for index in indexes]
        keys = None if keys is None else [keys[index] for index in indexes]
    group = JobGroup(
        Destination(
            entry.id,
            entry.partition_ids[number],
            task.priority if options.priority is None else options.priority,
            "" if entry.is_owned else task.name,
            options.run_at,
            options.delay,
            entry.epoch if entry.is_owned else None,
        ),
        indexes,
        args,
        keys,
        [options.attributes] * count if options.attributes else None,
        [task.name] * count if entry.is_owned else None,
    )
    if options.after:
        group.parents = dict.fromkeys(range(count), _find_parents(options, {}))
    return group


def group_jobs(
    destination: Destination,
    indexes: Sequence[int],
    all_jobs: Sequence[PendingJob],
    entry: QueueEntry,
    index_of: Mapping[int, int],
) -> JobGroup:
    """Jobs of a call that have one destination; a column of which none of them has anything stays None."""
    jobs = [all_jobs[index] for index in indexes]
    group = JobGroup(destination, indexes, [job.args_json for job in jobs])
    if any(job.key is not None for job in jobs):
        group.keys = [job.key for job in jobs]
    if any(job.options.attributes for job in jobs):
        group.attributes = [job.options.attributes for job in jobs]
    if any(job.options.idempotency_key is not None for job in jobs):
        unique = frozenset(job.options.idempotency_key for job in jobs if job.options.unique is not None)
        group.idempotency_keys = IdempotencyKeys([job.options.idempotency_key for job in jobs], entry.epoch, unique)
    if entry.is_owned:
        group.tasks = [job.task.name for job in jobs]
    if any(job.options.after for job in jobs):
        group.parents = {
            row: _find_parents(job.options, index_of, indexes[row]) for row, job in enumerate(jobs) if job.options.after
        }
    return group


def _find_parents(options: Options, index_of: Mapping[int, int], index: int = 0) -> Parents:
    """The parents of the job at an index; `index_of` has the indexes of the call's jobs, by object."""
    parents: list[int | EarlierJob] = []
    for parent in options.after:
        if isinstance(parent, int):
            parents.append(parent)
        elif (found := index_of.get(id(parent))) is None or found >= index:
            raise InvalidInput("after", "a job(...) given as parent must come earlier in the same call")
        else:
            parents.append(EarlierJob(found))
    return Parents(parents, options.on_parent_failure)
