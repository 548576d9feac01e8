"""Whether the columns of a load are what a task takes, by the app's declarations: asked before anything is read.

Names have to be those of the handler's parameters, and a column has to be of a type of which the worker can make what
the parameter's annotation asks for, be it of some values only. What the app does not declare is not known to be wrong:
an app without tasks of the queue loads what it is told to.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Union, get_args, get_origin, is_typeddict
from uuid import UUID

import pyarrow as pa
from pyarrow import types as t

from penstock.errors import InvalidInput, UnknownTask
from penstock.loading.column_types import is_text, type_name
from penstock.loading.columns import Problem, argument_names, join_names
from penstock.task.conversion import Fit, Misfit
from penstock.task.definition import TaskDefinition

__all__ = ["check_tasks", "find_declared_key", "find_key_problem", "find_problems", "raise_for_columns"]

_TEXTS = ["", "0", str(UUID(int=0)), "2026-01-31", "2026-01-31T12:00:00Z", "12:00:00", "PT1S"]
# How the values of each type look as JSON. Text may be any, so there are examples of every form that is told apart.
_EXAMPLES: list[tuple[Callable[[pa.DataType], bool], list[Any]]] = [
    (is_text, _TEXTS),
    (t.is_integer, [0]),
    (t.is_floating, [0.5]),
    (t.is_boolean, [True]),
    (t.is_decimal, ["0.5"]),
    (t.is_date, ["2026-01-31"]),
    (lambda kind: t.is_timestamp(kind) and kind.tz is not None, ["2026-01-31T12:00:00Z"]),
    (t.is_timestamp, ["2026-01-31T12:00:00"]),
    (t.is_time, ["12:00:00"]),
    (t.is_duration, ["PT1S"]),
    (t.is_binary, ["AAAA"]),
    (t.is_null, [None]),
    (t.is_list, [[]]),
    (t.is_map, [{}]),
    (lambda kind: t.is_struct(kind) and type_name(kind) != "variant", [{}]),
]
# What an example tells about; anything else may ask more of a value than its form.
_PLAIN = (
    *(str, int, float, bool, types.NoneType, None, dict, list, bytes),
    *(UUID, datetime, date, time, timedelta, Decimal),
)
_PLAIN_ORIGINS = (dict, list, set, frozenset)
_UNIONS = (Union, types.UnionType)


def check_tasks(declared: Mapping[str, TaskDefinition], queue: str, names: Sequence[str]) -> None:
    """Refuse a task that the app does not know, where it has tasks of that queue."""
    for name in names:
        if declared and name not in declared:
            raise UnknownTask(_say_unknown(declared, queue, name))


def find_declared_key(declared: Mapping[str, TaskDefinition], task: str | None, names: Sequence[str]) -> str | None:
    """The argument that is the key of a task this app declares, if there is a column of that name and none `key`."""
    key = declared[task].key if task is not None and task in declared and "key" not in names else None
    return key if isinstance(key, str) and key in names else None


def raise_for_columns(task: TaskDefinition, schema: pa.Schema, key: str | None) -> None:
    """Refuse columns that do not fit a task."""
    problem = _find_problem(task, schema, key)
    if problem is not None:
        raise InvalidInput(*problem)


def find_problems(
    declared: Mapping[str, TaskDefinition], schema: pa.Schema, key: str | None
) -> dict[str, Problem | None]:
    """For a load whose rows name their tasks: by task, why these columns do not fit it, or None where they do.

    Where they fit none, the load is refused.
    """
    problems = {name: _find_problem(task, schema, key) for name, task in declared.items()}
    for problem in problems.values():
        if problem is not None and all(problems.values()):
            raise InvalidInput(*problem)
    return problems


def find_key_problem(task: TaskDefinition, names: Sequence[str], key: str | None) -> Problem | None:
    """What is wrong where a task has a key and none of these columns is it."""
    if task.key is None or key is not None or "key" in names:
        return None
    what = f"argument {task.key!r}" if isinstance(task.key, str) else "a function of its arguments"
    return "key", (
        f"the key of task {task.name!r} is {what}, and no column is; there are {join_names(names)}: "
        "give key=..., or a column 'key'"
    )


def _say_unknown(declared: Mapping[str, TaskDefinition], queue: str, name: str) -> str:
    return f"the app declares no task {name!r} of queue {queue!r}; it has {', '.join(sorted(declared))}"


def _find_problem(task: TaskDefinition, schema: pa.Schema, key: str | None) -> Problem | None:
    if problem := find_key_problem(task, schema.names, key):
        return problem
    columns = {field.name: field.type for field in schema}
    args = columns.get("args") if key != "args" else None
    if args is None:
        given: Mapping[str, pa.DataType] = {name: columns[name] for name in argument_names(columns, key)}
    elif t.is_struct(args):
        given = {field.name: field.type for field in args.fields}
    else:
        return None  # A text or a map: what it holds is not known before it is read.
    try:
        task.arguments.check_names(given)
    except InvalidInput as error:
        return error.field, f"{error.problem}; the columns are {', '.join(given)}"
    for name, kind in given.items():
        fit = task.arguments.fit_of(name)
        if fit is not None and not _can_fit(fit, kind):
            return name, f"the column is {type_name(kind)}, and task {task.name!r} wants {fit.name}; cast it"
    return None


def _can_fit(fit: Fit, kind: pa.DataType) -> bool:
    """Whether the worker can make of some values of a column what an annotation asks for."""
    examples = next((given for is_kind, given in _EXAMPLES if is_kind(kind)), None)
    is_object = t.is_map(kind) or t.is_struct(kind)
    if examples is None or not _is_told_by_form(fit.annotation, is_object=is_object):
        return True
    for example in examples:
        try:
            fit.build(example)
        except Misfit:
            continue
        return True
    return False


def _is_told_by_form(annotation: Any, *, is_object: bool) -> bool:
    """Whether values of one form all fit an annotation, or none does."""
    if get_origin(annotation) in _UNIONS:
        return all(_is_told_by_form(part, is_object=is_object) for part in get_args(annotation))
    if dataclasses.is_dataclass(annotation) or is_typeddict(annotation):
        return not is_object
    return any(annotation is each for each in _PLAIN) or get_origin(annotation) in _PLAIN_ORIGINS
