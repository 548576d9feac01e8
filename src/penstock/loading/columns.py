"""What the columns of a load mean.

Columns of reserved names set a job's options; the column that `key` names is its key and an argument; every other
column is an argument. With a column `args` (a JSON object as text, a struct or a map) there are no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.loading.column_types import argument_problem, key_problem, reserved_problem

__all__ = ["RESERVED", "LoadColumns", "Problem", "argument_names", "check_columns", "check_names", "join_names"]

RESERVED = ("task", "args", "key", "priority", "run_at", "idempotency_key", "tenant")
# The field at fault and what is wrong with it.
Problem = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """The columns of a load; `task` is that of all its rows, `key` the column that is their key."""

    schema: pa.Schema
    task: str | None
    key: str | None
    # By task, for rows that name theirs: why these columns do not fit it, or None where they do. None where it is not
    # known.
    declared: Mapping[str, Problem | None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that are arguments, each by its own name."""
        return argument_names(self.schema.names, self.key)

    @property
    def has_key(self) -> bool:
        return self.key is not None or "key" in self.schema.names


def argument_names(names: Iterable[str], key: str | None) -> tuple[str, ...]:
    """Those of these columns that are arguments."""
    return tuple(name for name in names if name not in RESERVED or name == key)


def check_columns(schema: pa.Schema, task: str | None, key: str | None) -> None:
    """Refuse columns that do not make jobs."""
    check_names(schema.names, task, key)
    for field in schema:
        if problem := argument_problem(field.type):
            raise InvalidInput(field.name, f"{problem}; cast it to string")
        if field.name == (key or "key") and (problem := key_problem(field.type)):
            raise InvalidInput("key", f"column {field.name!r} {problem}")
        if field.name in RESERVED and field.name != key and (problem := reserved_problem(field.name, field.type)):
            raise InvalidInput(field.name, f"the column {problem}")


def check_names(names: Sequence[str], task: str | None, key: str | None) -> None:
    """Refuse names that do not make jobs, whatever the columns hold."""
    for name in names:
        if name not in RESERVED and name != key and name.lower() in RESERVED:
            raise InvalidInput(
                name, f"it differs from the reserved column {name.lower()!r} only by case; write it so, or rename it"
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidInput(twice, "two columns have this name; rename one")
    if task is None and "task" not in names:
        raise InvalidInput("task", "there is none; give task= (of a writer option('task', ...)), or a column 'task'")
    if task is not None and "task" in names:
        raise InvalidInput("task", "it is given as an option and as a column; drop one")
    if key is not None and key not in names:
        raise InvalidInput("key", f"there is no column {key!r}; there are {join_names(names)}")
    if key is not None and key != "key" and "key" in names:
        raise InvalidInput("key", f"it is given as a column and as the option {key!r}; drop one")
    others = [name for name in names if name not in RESERVED and name != key]
    if "args" in names and others:
        raise InvalidInput(others[0], f"with a column 'args' the others are {join_names(RESERVED)}; put it into 'args'")


def join_names(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(sorted(names))
