"""The arguments of a task whose handler is given several jobs together: a list, with one element for each job.

A job's arguments are the fields of its element: a dataclass, a pydantic model, a msgspec Struct, a TypedDict, or a dict
with whatever names it has. So they are enqueued as the element itself, or by name; they are checked as those of any
other handler are, and by the element's own rules.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Required, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from penstock.errors import InvalidInput
from penstock.model.checks import shown
from penstock.model.encoding import encode_value
from penstock.task.arguments import Arguments
from penstock.task.context import BatchContext
from penstock.task.conversion import Fit, Misfit, find_fit, resolved

__all__ = ["BatchArguments", "find_breach"]

_LISTS = (list, Sequence, Iterable, Collection)
_ANYTHING = (inspect.Parameter.empty, Any, dict, Mapping)
_ADVICE = "write items: list[Order], where Order is a dataclass, a pydantic model, a TypedDict or a dict"


class BatchArguments(Arguments):
    """What a batch handler takes for each job."""

    def __init__(self, function: Callable[..., Any], task: str | None = None) -> None:
        super().__init__(function, task)
        if len(self._parameters) != 1 or self._any_name is not None:
            takes = ", ".join(self._parameters) or "none"
            raise InvalidInput(
                "batch",
                f"the handler of {self._task!r} takes one argument, a list of jobs, and not: {takes}; {_ADVICE}",
            )
        (self._items,) = self._parameters.values()
        self._item: Any = inspect.Parameter.empty
        self._item_fit: Fit | None = None
        self._has_own_rules = False
        self._learn_item()

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        if not positional:
            return named
        if len(positional) > 1 or named:
            raise InvalidInput(
                "args", f"a job of {self._task!r} is one item; pass that alone, or its fields by name, and nothing else"
            )
        return self.fields_of(positional[0])

    def fields_of(self, item: Any) -> dict[str, Any]:
        """The arguments of a job that is given as an item, or as a dict of its fields."""
        if isinstance(item, Mapping):
            return dict(item)
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            return {field.name: getattr(item, field.name) for field in dataclasses.fields(item) if field.init}
        fields = None
        if isinstance(item, msgspec.Struct) or hasattr(type(item), "model_dump_json"):
            fields = msgspec.json.decode(encode_value("args", item))
        if not isinstance(fields, dict):
            wanted = getattr(self._item, "__name__", "dict")
            raise InvalidInput(
                "args",
                f"a job of {self._task!r} is made of {wanted}, and {type(item).__name__} {shown(item)} is none; pass "
                "one, a dict of its fields, or these by name",
            )
        return fields

    def fields_of_many(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """The same of many; a refusal names the row too."""
        rows: list[dict[str, Any]] = []
        try:
            for item in items:
                rows.append(item if type(item) is dict else self.fields_of(item))  # noqa: PERF401  (its length names it)
        except InvalidInput as error:
            raise InvalidInput(error.field, f"in row {len(rows)}: {error.problem}") from error
        return rows

    def encode(self, named: Mapping[str, Any]) -> bytes:
        raw = super().encode(named)
        if self._has_own_rules:
            try:
                self.decode_item(raw)
            except InvalidInput as error:
                problem = error.problem.removesuffix("; enqueue the job again")
                raise InvalidInput(error.field, f"{problem}; pass what fits") from error
        return raw

    def encode_many(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
        if not self._has_own_rules:
            return super().encode_many(rows)
        encoded: list[bytes] = []
        try:
            for row in rows:
                encoded.append(self.encode(row))  # noqa: PERF401  (its length names the row)
        except InvalidInput as error:
            raise InvalidInput(error.field, f"in row {len(encoded)}: {error.problem}") from error
        return encoded

    def decode_item(self, raw: bytes | str) -> Any:
        """What the handler is given for a job."""
        named = self.decode(raw)
        fit = self._item_fit
        if fit is None:
            return named
        try:
            return fit.build(msgspec.json.decode(raw))
        except Misfit as error:
            name = self._item.__name__
            raise InvalidInput("args", f"they make no {name} ({error}); enqueue the job again") from error

    def named(self, items: list[Any], context: BatchContext) -> dict[str, Any]:
        """The handler's keyword arguments, the context among them if it wants one."""
        given: dict[str, Any] = {self._items.name: items}
        if self.context_parameter is not None:
            given[self.context_parameter] = context
        return given

    @property
    def takes_any_name(self) -> bool:
        """Whether its elements may have any fields, as far as is known."""
        return self._any_name is not None

    def _prepare(self) -> dict[str, Fit]:
        if self._any_name is not None:
            # Its type may have been defined since, further down in its module.
            self._learn_item()
        return super()._prepare()

    def _learn_item(self) -> None:
        """Find out what the list is of, and so which fields a job has."""
        annotation = resolved(self._items.annotation, self._function)
        origin, inner = get_origin(annotation), get_args(annotation)
        if annotation is inspect.Parameter.empty or annotation is list or annotation is Any:
            item: Any = dict
        elif origin in _LISTS and len(inner) == 1:
            item = inner[0]
        else:
            raise InvalidInput("batch", f"the handler of {self._task!r} is given a list; {_ADVICE}")
        self._parameters = {}
        self._any_name = None
        if any(item is each for each in _ANYTHING) or get_origin(item) in (dict, Mapping):
            values = get_args(item)[1] if get_args(item) else Any
            self._any_name = inspect.Parameter("fields", inspect.Parameter.VAR_KEYWORD, annotation=values)
        else:
            fields = _find_fields(item)
            if fields is None:
                raise InvalidInput(
                    "batch", f"an element of the list is one job, and {item!r:.60} has no fields; {_ADVICE}"
                )
            self._parameters = {each.name: each for each in fields}
            self._item, self._item_fit = item, find_fit(item)
            # Those of a TypedDict are all in its annotations.
            self._has_own_rules = hasattr(item, "model_fields") or hasattr(item, "__post_init__")
        self.names = frozenset(self._parameters)
        empty = inspect.Parameter.empty
        self.defaults = {name: each.default for name, each in self._parameters.items() if each.default is not empty}
        self._required = self.names - self.defaults.keys()
        self._positional = []


def find_breach(given: Any, jobs: int) -> str | None:
    """How what a handler gave for a batch of so many jobs breaks its contract; None: it does not."""
    if given is None or (isinstance(given, list) and len(given) == jobs):
        return None
    what = f"{len(given)} results" if isinstance(given, list) else type(given).__name__
    return (
        f"it gave {what} for a batch of {jobs} jobs; return None where all went well, or a list of one result or "
        "exception for each job, in their order"
    )


def _find_fields(item: Any) -> list[inspect.Parameter] | None:
    """The fields of a type, each with its annotation and its default; None where it has none."""
    found: list[tuple[str, Any, Any]]
    empty = inspect.Parameter.empty
    if (models := getattr(item, "model_fields", None)) is not None:
        found = [
            (each.alias or name, each.annotation, empty if each.is_required() else each.get_default())
            for name, each in models.items()
        ]
    elif is_typeddict(item):
        required = item.__required_keys__
        found = [(name, hint, empty if name in required else None) for name, hint in _hints(item).items()]
    elif dataclasses.is_dataclass(item):
        hints = _hints(item)
        found = [
            (each.name, hints.get(each.name, empty), _default(each)) for each in dataclasses.fields(item) if each.init
        ]
    elif isinstance(item, type) and issubclass(item, msgspec.Struct):
        found = [
            (each.encode_name, each.type, empty if each.required else None) for each in msgspec.structs.fields(item)
        ]
    else:
        return None
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)
        for name, hint, default in found
    ]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is dataclasses.MISSING else field.default_factory()


def _hints(item: Any) -> dict[str, Any]:
    try:
        hints = get_type_hints(item)
    except Exception:  # An annotation may be anything, and name what is not to be found.
        return dict.fromkeys(getattr(item, "__annotations__", {}), inspect.Parameter.empty)
    return {name: get_args(hint)[0] if get_origin(hint) is Required else hint for name, hint in hints.items()}
