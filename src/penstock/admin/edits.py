"""Edits: the arguments of a dead letter are changed when it is retried.

They are checked as those of a new job are, by the annotations of its task, where the app declares it. The job keeps its
place among the jobs of its key, so it keeps its key: arguments that would give it another one are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.checks import key_to_bytes
from penstock.model.encoding import encode_arguments
from penstock.model.job import Job
from penstock.task.definition import TaskDefinition

__all__ = ["checked_edit"]


def checked_edit(job: Job, args: Mapping[str, Any], task: TaskDefinition | None) -> bytes:
    """A job's arguments from now on, as they are stored; `task` is its task, where the app declares it."""
    if not isinstance(args, Mapping):
        raise InvalidInput("args", f"a dict of arguments by name is needed, not {type(args).__name__}")
    named = dict(args)
    if task is not None:
        raw = task.arguments.encode(named)
        _refuse_another_key(job, named, task)
        return raw
    if job.key is not None:
        raise InvalidInput(
            "args",
            f"job {job.id} has a key, and only an app that declares task {job.task!r} of queue {job.queue!r} knows "
            "whether it stays the same: retry it with that app (penstock retry --app MODULE:APP)",
        )
    for name in named:
        if not isinstance(name, str):
            raise InvalidInput("args", f"the name {name!a:.60} of an argument is not text; pass str names")
    return encode_arguments(named)


def _refuse_another_key(job: Job, named: dict[str, Any], task: TaskDefinition) -> None:
    before = None if job.key is None else key_to_bytes(job.key)
    # A key that was given by options(key=...) has nothing to do with the arguments.
    if task.key is None or _key_of(task, job.args) != before:
        return
    if task.key_of(named) != before:
        raise InvalidInput(
            "args",
            f"they would give job {job.id} another key than {job.key!a:.200}, and its place is among the jobs of that "
            "one: cancel it by app.purge or leave it, and enqueue another job",
        )


def _key_of(task: TaskDefinition, args: Any) -> bytes | None:
    """The key of what is stored, which need not fit the task any more."""
    try:
        return task.key_of(task.arguments.decode(encode_arguments(args)))
    except InvalidInput:
        try:
            return task.key_of(dict(args))
        except (InvalidInput, TypeError, ValueError):
            return None
