"""Jobs that are not written yet: `task.job(...)`, to be enqueued together with others, and rows of one task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.client.options import Options
from penstock.model.unique_key import unique_text
from penstock.task.definition import TaskDefinition

__all__ = ["PLAIN", "PendingJob", "PendingRows", "encode", "is_bound", "prepare"]

PLAIN = Options()


@dataclass(slots=True, eq=False)
class PendingJob:
    """Checked, encoded and keyed; the only thing it lacks is an id."""

    task: TaskDefinition
    args_json: bytes
    key: bytes | None
    options: Options


class PendingRows(NamedTuple):
    """Many jobs of one task with the same options, without an object for each; they have no idempotency keys."""

    task: TaskDefinition
    options: Options
    args: list[bytes]
    keys: list[bytes | None] | None = None

    def to_jobs(self) -> list[PendingJob]:
        """The same as single jobs."""
        keys, options = self.keys, self.options
        return [
            PendingJob(
                self.task,
                each,
                keys[row] if keys else None,
                options if options.unique is None else identify(options, self.task, each),
            )
            for row, each in enumerate(self.args)
        ]


def encode(task: TaskDefinition, named: dict[str, Any], options: Options) -> tuple[bytes, bytes | None]:
    """A job's arguments as JSON, and its key."""
    args_json = task.arguments.encode(named)
    if options.key is not None or task.key is None:
        return args_json, options.key
    return args_json, task.key_of(named)


def prepare(task: TaskDefinition, named: dict[str, Any], options: Options) -> PendingJob:
    """Encode a job's arguments, and find its key."""
    args_json, key = encode(task, named, options)
    return PendingJob(task, args_json, key, options if options.unique is None else identify(options, task, args_json))


def identify(options: Options, task: TaskDefinition, args_json: bytes) -> Options:
    """The options of one job that is unique while it waits: what it has in common with others is kept, and the job
    routed by it, as an idempotency key is.
    """
    return replace(options, idempotency_key=unique_text(task.name, args_json, options.unique_key))


def is_bound(job: PendingJob) -> bool:
    """Whether a key or an idempotency key decides on which database a job is written."""
    return job.key is not None or job.options.idempotency_key is not None
