"""A job that is not written yet: what `task.job(...)` gives, to be enqueued together with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.client.options import Options
from penstock.task.definition import TaskDefinition

__all__ = ["PLAIN", "PendingJob", "pending_rows", "prepare"]

PLAIN = Options()


@dataclass(slots=True, eq=False)
class PendingJob:
    """Checked, encoded and keyed; the only thing it lacks is an id."""

    task: TaskDefinition
    args_json: bytes
    key: bytes | None
    options: Options


def prepare(task: TaskDefinition, named: dict[str, Any], options: Options) -> PendingJob:
    """Bind and encode a job's arguments, and find its key."""
    args_json = task.arguments.encode(named)
    key = options.key
    if key is None and task.key is not None:
        key = task.key_of(named)
    return PendingJob(task, args_json, key, options)


def pending_rows(
    task: TaskDefinition, options: Options, args: list[bytes], keys: list[bytes | None] | None
) -> list[PendingJob]:
    """Rows of one task as single jobs."""
    return [PendingJob(task, each, keys[i] if keys else None, options) for i, each in enumerate(args)]
