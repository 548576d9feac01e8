"""An operation: one method of one path, as everything else reads it: the router, the guard, the OpenAPI document.

Its handler is a plain function. What stands in its signature is what it gets: parameters named as in the path, `query`,
of a struct whose fields are the query's, and `body`, of the type that the body is converted to; `bytes` gives it as it
came. One whose fields can all be left out can be left out itself. `call` says who calls. A plain function runs in a
thread, a coroutine function on the event loop. What it returns is answered as JSON; of the model's values, records.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from penstock.model.records import record_type
from penstock.model.token import Role
from penstock.server.values import make_ready

__all__ = ["EVENTS", "JSON", "NDJSON", "Answer", "BodyForms", "Operation", "Operations", "Pool"]

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
Handler = TypeVar("Handler", bound=Callable[..., Any])
# By media type: the types that a body of it may have.
BodyForms = Mapping[str, tuple[Any, ...]]
# Which threads a handler runs in: what is written must not wait behind what is looked at.
Pool = Literal["produce", "look"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers where the status or a header is not the operation's usual one."""

    value: Any
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One of them. `may` is the role of a token that may call it, beside those of administrators; `is_narrowed` says
    that the handler itself keeps to the queues and the tenant of a token that has some.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    may: Role
    is_narrowed: bool
    status: int
    # By status: what is answered; None is no body.
    answers: Mapping[int, Any]
    forms: BodyForms
    most_bytes: int
    pool: Pool
    query: Any
    body: Any
    takes: frozenset[str]

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of its path; a parameter is {name}."""
        return tuple(self.path.strip("/").split("/"))

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return inspect.iscoroutinefunction(self.handler)

    @property
    def needs_body(self) -> bool:
        """Whether there is no answer without a body."""
        is_struct = isinstance(self.body, type) and issubclass(self.body, msgspec.Struct)
        return not is_struct or any(each.required for each in msgspec.structs.fields(self.body))

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        return (inspect.getdoc(self.handler) or self.handler.__name__).split("\n")[0].rstrip(".")

    @property
    def name(self) -> str:
        """What it is called in the OpenAPI document."""
        return self.handler.__name__


class Operations(list[Operation]):
    """Operations as they are written down: `@jobs.add("GET", "/jobs/{job_id}", may="read")`."""

    def add(
        self,
        method: str,
        path: str,
        *,
        may: Literal["read", "produce", "work", "admin"],
        is_narrowed: bool = False,
        status: int = 200,
        answers: Mapping[int, Any] | None = None,
        forms: BodyForms | None = None,
        most_bytes: int = 1024 * 1024,
        pool: Pool = "look",
    ) -> Callable[[Handler], Handler]:
        """Take in a handler; what its signature says is what the operation takes and answers."""

        def take(handler: Handler) -> Handler:
            hints = get_type_hints(handler, include_extras=True)
            parameters = set(inspect.signature(handler).parameters)
            named = set(re.findall(r"\{(\w+)\}", path))
            if extra := parameters - named - {"call", "query", "body"}:
                raise TypeError(f"{handler.__name__}: {', '.join(sorted(extra))} is not in the path {path}")
            returned = hints.get("return")
            told = dict(answers or {})
            if returned is not Answer:
                told.setdefault(status, None if returned is type(None) else returned)
            told = {number: kind and record_type(kind) for number, kind in told.items()}
            body = hints.get("body")
            given = forms or ({} if body is None else {JSON: (body,)})
            for kind in (hints.get("query"), *chain.from_iterable(given.values())):
                make_ready(kind)
            self.append(
                Operation(
                    method=method,
                    path=path,
                    handler=handler,
                    may=Role(may),
                    is_narrowed=is_narrowed,
                    status=status,
                    answers=told,
                    forms=given,
                    most_bytes=most_bytes,
                    pool=pool,
                    query=hints.get("query"),
                    body=body,
                    takes=frozenset(parameters),
                )
            )
            return handler

        return take
