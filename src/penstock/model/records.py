"""What is read back, as JSON carries it: a record for each kind of value, made from the fields that the value has.

Ids are text, because they pass what JavaScript's numbers hold; a key that is no text is {"base64": "…"}; the URL of a
shard is left out, because it holds a password. The command line prints records with `--json`; the HTTP API answers with
them, and describes their types.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, defstruct

from penstock.model.attention import Attention
from penstock.model.audit_entry import AuditEntry
from penstock.model.blocked_key import BlockedKey
from penstock.model.cause import Cause, FailuresOfCause
from penstock.model.cron import Cron
from penstock.model.dead_letter import DeadLetter
from penstock.model.explanation import Explanation
from penstock.model.job import Edit, Failure, Job, JobDetail
from penstock.model.job_act import JobAct
from penstock.model.job_page import JobPage
from penstock.model.resize import Resize
from penstock.model.search_hit import SearchHit
from penstock.model.shard import Shard
from penstock.model.worker import RunningJob, WorkerInfo

__all__ = ["Base64", "record", "record_type"]


class Base64(Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are no text: {"base64": "…"}."""

    base64: str


class Draining(Struct, frozen=True):
    """A partition in which jobs are left, and how many."""

    partition: str
    jobs: int


class _Form(NamedTuple):
    """How a value stands in a record: its type there, and what makes it of the value; None: it is the value itself."""

    type: Any
    make: Callable[[Any], Any] | None = None


def record(value: Any) -> Any:
    """A value of the model as its record, or a list of them; anything else is what it is."""
    if isinstance(value, list):
        return [record(each) for each in value]
    kind: Any = type(value)
    is_of_model = is_dataclass(kind)
    make = _form(kind).make if is_of_model else None
    return value if make is None else make(value)


def record_type(kind: Any) -> Any:
    """The type of what `record` makes of a value of that type."""
    return _form(kind).type


@cache
def _form(kind: Any) -> _Form:
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _form_of_fields(kind)
    if origin is list:
        inner = _form(parts[0])
        return _Form(list[inner.type], inner.make and _make_list(inner.make))  # type: ignore[name-defined]
    if origin in (Union, UnionType):
        return _form_of_union([_form(each) for each in parts])
    return _PLAIN.get(kind) or _Form(kind)


def _form_of_union(parts: Sequence[_Form]) -> _Form:
    joined: Any = Union[tuple(each.type for each in parts)]  # noqa: UP007
    made = [each.make for each in parts if each.make is not None]
    return _Form(joined, _make_if_any(made[0]) if made else None)


def _form_of_fields(kind: type) -> _Form:
    hints = get_type_hints(kind)
    forms = {
        each.name: form
        for each in fields(kind)
        if (form := _particular(kind, each.name) or _form(hints[each.name])) is not _LEFT_OUT
    }
    made = defstruct(
        kind.__name__,
        [(name, form.type) for name, form in forms.items()],
        frozen=True,
        module=__name__,
        namespace={"__doc__": inspect.getdoc(kind)},
    )
    makes = [(name, form.make) for name, form in forms.items()]

    def make(value: Any) -> Struct:
        given = ((getattr(value, name), each) for name, each in makes)
        return made(*[each if form is None else form(each) for each, form in given])

    return _Form(made, make)


def _make_list(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [make(each) for each in values]


def _make_if_any(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else make(value)


def _base64(value: str | bytes) -> str | Base64:
    return Base64(base64.b64encode(value).decode()) if isinstance(value, bytes) else value


def _draining(given: Sequence[tuple[str, int]]) -> list[Draining]:
    return [Draining(partition, jobs) for partition, jobs in given]


# Of what JSON has no word for; a time says that it has a zone.
_PLAIN = {bytes: _Form(Base64, _base64), datetime: _Form(Annotated[datetime, Meta(tz=True)])}
# By these names an explanation tells of jobs, where it does not tell how many there are.
_JOBS_OF_EXPLANATIONS = frozenset({"batch", "dead", "head", "held_by", "parents", "running"})
_JOBS_OF_ATTENTION = frozenset({"job_id", "jobs"})


def _detail(given: Mapping[str, Any]) -> dict[str, Any]:
    detail = dict(given)
    for name in _JOBS_OF_EXPLANATIONS & detail.keys():
        value = detail[name]
        if isinstance(value, (list, tuple)):
            detail[name] = [str(each) for each in value]
        elif name == "head" and value is not None:
            detail[name] = str(value)
    return detail


def _attention_detail(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _as_text(value) if name in _JOBS_OF_ATTENTION else value for name, value in given.items()}


def _as_text(value: Any) -> Any:
    return [str(each) for each in value] if isinstance(value, list) else str(value)


_LEFT_OUT = _Form(None)
_ID = _Form(str, str)
_IDS = _Form(list[str], _make_list(str))
# As text where SQL wrote what Python cannot read; null where whoever looks may not see arguments.
_ARGS = _Form(dict[str, Any] | str | None)
_PARTICULAR: Mapping[tuple[type, str], _Form] = {
    (Attention, "detail"): _Form(dict[str, Any], _attention_detail),
    (AuditEntry, "id"): _ID,
    (Job, "id"): _ID,
    (Job, "after"): _IDS,
    (Job, "args"): _ARGS,
    (JobDetail, "children"): _IDS,
    (JobAct, "job_id"): _ID,
    (JobPage, "next"): _Form(str | None, _make_if_any(str)),
    (Failure, "error"): _Form(str | None),
    (Cause, "shape"): _Form(str | None),
    (Cause, "job_id"): _ID,
    (FailuresOfCause, "shape"): _Form(str | None),
    (Edit, "args"): _ARGS,
    (DeadLetter, "job_id"): _ID,
    (RunningJob, "id"): _ID,
    (WorkerInfo, "id"): _ID,
    (Cron, "args"): _ARGS,
    (Cron, "last_job_id"): _Form(str | None, _make_if_any(str)),
    (BlockedKey, "job_id"): _ID,
    (Explanation, "job_id"): _ID,
    (Explanation, "detail"): _Form(dict[str, Any], _detail),
    (Resize, "draining"): _Form(list[Draining], _draining),
    (SearchHit, "id"): _Form(str | None, _make_if_any(str)),
    (Shard, "url"): _LEFT_OUT,
}


def _particular(kind: type, name: str) -> _Form | None:
    return next((_PARTICULAR[base, name] for base in kind.__mro__ if (base, name) in _PARTICULAR), None)
