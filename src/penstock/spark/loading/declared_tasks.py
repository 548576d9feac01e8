"""Whether the columns of a load are what a task takes, by the app's declarations: asked before Spark starts.

Names have to be those of the handler's parameters, and a column has to be of a type of which the worker can make what
the parameter's annotation asks for, be it of some values only. What the app does not declare is not known to be wrong:
an app without tasks of the queue loads what it is told to.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Union, get_args, get_origin, is_typeddict
from uuid import UUID

from pyspark.sql import types as t

from penstock.errors import InvalidInput, UnknownTask
from penstock.task.conversion import Fit, Misfit
from penstock.task.definition import TaskDefinition

__all__ = ["check_tasks", "find_problems", "raise_for_columns"]

Problem = tuple[str, str]

_TEXTS = ["", "0", str(UUID(int=0)), "2026-01-31", "2026-01-31T12:00:00Z", "12:00:00", "PT1S"]
# How the values of each type look as JSON. Text may be any, so there are examples of every form that is told apart.
_EXAMPLES: dict[type[t.DataType], list[Any]] = {
    **dict.fromkeys((t.StringType, t.CharType, t.VarcharType), _TEXTS),
    **{kind: [0] for kind in (t.ByteType, t.ShortType, t.IntegerType, t.LongType)},
    **{kind: [0.5] for kind in (t.FloatType, t.DoubleType)},
    t.BooleanType: [True],
    t.DecimalType: ["0.5"],
    t.DateType: ["2026-01-31"],
    t.TimestampType: ["2026-01-31T12:00:00Z"],
    t.TimestampNTZType: ["2026-01-31T12:00:00"],
    t.DayTimeIntervalType: ["PT1S"],
    t.BinaryType: ["AAAA"],
    t.NullType: [None],
    t.ArrayType: [[]],
    t.MapType: [{}],
    t.StructType: [{}],
    **({t.TimeType: ["12:00:00"]} if hasattr(t, "TimeType") else {}),
}
_OBJECTS = (t.MapType, t.StructType)
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


def raise_for_columns(task: TaskDefinition, schema: t.StructType, key: str | None, arguments: Sequence[str]) -> None:
    """Refuse columns that do not fit a task; `arguments` are those of them that are not reserved."""
    problem = _find_problem(task, schema, key, arguments)
    if problem is not None:
        raise InvalidInput(*problem)


def find_problems(
    declared: Mapping[str, TaskDefinition], schema: t.StructType, key: str | None, arguments: Sequence[str]
) -> dict[str, Problem | None]:
    """For a load whose rows name their tasks: by task, why these columns do not fit it, or None where they do.

    Where they fit none, the load is refused.
    """
    problems = {name: _find_problem(task, schema, key, arguments) for name, task in declared.items()}
    for problem in problems.values():
        if problem is not None and all(problems.values()):
            raise InvalidInput(*problem)
    return problems


def _say_unknown(declared: Mapping[str, TaskDefinition], queue: str, name: str) -> str:
    return f"the app declares no task {name!r} of queue {queue!r}; it has {', '.join(sorted(declared))}"


def _find_problem(
    task: TaskDefinition, schema: t.StructType, key: str | None, arguments: Sequence[str]
) -> Problem | None:
    columns = {field.name: field.dataType for field in schema.fields}
    if task.key is not None and key is None and "key" not in columns:
        what = f"argument {task.key!r}" if isinstance(task.key, str) else "a function of its arguments"
        return "key", f"the key of task {task.name!r} is {what}, and no column is; give key=..., or a column 'key'"
    args = columns.get("args") if key != "args" else None
    if args is None:
        given: Mapping[str, t.DataType] = {name: columns[name] for name in arguments}
    elif isinstance(args, t.StructType):
        given = {field.name: field.dataType for field in args.fields}
    else:
        return None  # A text or a map: what it holds is not known before it is read.
    try:
        task.arguments.check_names(given)
    except InvalidInput as error:
        return error.field, f"{error.problem}; the columns are {', '.join(given)}"
    for name, kind in given.items():
        fit = task.arguments.fit_of(name)
        if fit is not None and not _can_fit(fit, kind):
            return name, f"the column is {kind.simpleString()}, and task {task.name!r} wants {fit.name}; cast it"
    return None


def _can_fit(fit: Fit, kind: t.DataType) -> bool:
    """Whether the worker can make of some values of a column what an annotation asks for."""
    examples = _EXAMPLES.get(type(kind))
    if examples is None or not _is_told_by_form(fit.annotation, is_object=isinstance(kind, _OBJECTS)):
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
