"""A task that nobody here declares: it is known by its name alone, takes any arguments, and is run by who has it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from penstock.task.definition import TaskDefinition, define

__all__ = ["undeclared"]


def _any_arguments(**args: Any) -> None: ...


@lru_cache(maxsize=10_000)
def undeclared(queue: str, task: str) -> TaskDefinition:
    """The definition of a task that is known by its name."""
    return define(queue, _any_arguments, name=task)
