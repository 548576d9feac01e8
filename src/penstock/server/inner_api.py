"""The API as the dashboard calls it: the same operations, with the same checks, without a socket between.

A page can do what the token of whoever looks may do over HTTP, and nothing else: there is no other way from a page to
the app. What is called is found by its path, refused by the same guard of roles, queues and tenants, and its query and
body are read as those of a request are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message

from penstock.errors import PenstockError
from penstock.model.records import record
from penstock.server.call import Call, Services
from penstock.server.caller import Caller, check_may
from penstock.server.operation import Answer, Operation
from penstock.server.problem import ProblemError
from penstock.server.router import Router
from penstock.server.values import decode_body, parse_query

__all__ = ["InnerApi", "Reads"]

# By what was asked, the answer or the refusal: for a round in which many pages are drawn at once.
Reads = dict[tuple[object, ...], Callable[[], Any]]


class InnerApi:
    """What one caller may ask and do; used in a thread, while the server's event loop runs."""

    def __init__(
        self,
        services: Services,
        router: Router[Operation],
        loop: asyncio.AbstractEventLoop,
        caller: Caller,
        reads: Reads | None = None,
    ) -> None:
        self._services = services
        self._router = router
        self._loop = loop
        self._caller = caller
        self._reads = reads

    def may(self, method: str, *parts: str) -> bool:
        """Whether the caller may call the operation of that path."""
        try:
            self._find(method, parts)
        except PenstockError:
            return False
        return True

    def check_may(self, method: str, *parts: str) -> None:
        """Refuse the caller who may not call it, as the call would."""
        self._find(method, parts)

    def get(self, *parts: str, **query: Any) -> Any:
        """What `GET` of that path answers. Options that are None are left out, lists are given one by one."""
        asked = urlencode([(name, each) for name, value in query.items() for each in _texts(value)])
        if self._reads is None:
            return self._call("GET", parts, asked, None)
        key = (self._caller.role, self._caller.queues, self._caller.tenant, self._caller.hides_args, parts, asked)
        if key not in self._reads:
            self._reads[key] = self._read(parts, asked)
        return self._reads[key]()

    def get_if_allowed(self, *parts: str, **query: Any) -> Any:
        """The same, or None to a caller who may not ask it."""
        return self.get(*parts, **query) if self.may("GET", *parts) else None

    def send(self, method: str, *parts: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """What another method of that path answers; a body is given as its fields."""
        asked = urlencode([(name, each) for name, value in query.items() for each in _texts(value)])
        return self._call(method, parts, asked, body)

    def _read(self, parts: tuple[str, ...], asked: str) -> Callable[[], Any]:
        try:
            answer = self._call("GET", parts, asked, None)
        except PenstockError as error:
            refusal = error

            def refuse() -> Any:
                raise refusal

            return refuse
        return lambda: answer

    def _find(self, method: str, parts: tuple[str, ...]) -> tuple[Operation, Mapping[str, str]]:
        found = self._router.find(method, tuple(quote(part, safe="").encode() for part in parts))
        if found.entry is None:
            raise ProblemError("not-found", f"there is no {method} /{'/'.join(parts)} in the API")
        check_may(self._caller, found.entry, found.named)
        return found.entry, found.named

    def _call(self, method: str, parts: tuple[str, ...], query: str, body: Mapping[str, Any] | None) -> Any:
        operation, named = self._find(method, parts)
        values: dict[str, Any] = dict(named)
        if operation.query is not None:
            values["query"] = parse_query(query.encode(), operation.query)
        if operation.body is not None:
            raw = msgspec.json.encode(body or {})
            # One that reads its body itself gets it as it would have come.
            values["body"] = raw if operation.body is bytes else decode_body(raw, operation.body)
        values["call"] = Call(self._services, self._caller, Headers(), _nothing_more)
        taken = {name: value for name, value in values.items() if name in operation.takes}
        answer = operation.handler(**taken)
        if operation.is_async:
            answer = asyncio.run_coroutine_threadsafe(answer, self._loop).result()
        return record(answer.value if isinstance(answer, Answer) else answer)


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [text for each in value for text in _texts(each)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [str(value)]


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}
