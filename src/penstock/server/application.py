"""The application: a request comes in, is admitted, found its operation, read, carried out and answered.

It is ASGI, so that any server can run it and any framework mount it. All state is in the databases: of several servers
beside each other none knows of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.acting import Actor, acting_as
from penstock.app import App
from penstock.errors import PenstockError
from penstock.model.records import record
from penstock.server.body import ClientGone, read_body
from penstock.server.call import Call, EventStream, Services
from penstock.server.call_rates import CallRates
from penstock.server.caller import Caller, check_may
from penstock.server.dashboard import Dashboard, ReportFile, TrustedProxy
from penstock.server.guard import Guard
from penstock.server.openapi import describe
from penstock.server.operation import EVENTS, JSON, Answer, Operation
from penstock.server.operations import OPERATIONS
from penstock.server.outside import METRICS, PROBES, Outside
from penstock.server.problem import ProblemError, problem_of, respond_with
from penstock.server.router import Router, path_parts
from penstock.server.standing_calls import StandingCalls
from penstock.server.values import decode_body, parse_query

__all__ = ["Application"]

log = logging.getLogger("penstock")

PREFIX = (b"api", b"v1")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Application:
    """An ASGI application. `is_local`: it is bound to loopback, and goes without tokens until there is one, unless a
    `trusted_proxy` signs users in to the dashboard; `machine_token` is taken beside those that were made. The dashboard
    shows the `report` that Spark made.
    """

    def __init__(
        self,
        app: App,
        *,
        is_local: bool,
        machine_token: str | None = None,
        trusted_proxy: TrustedProxy | None = None,
        report: ReportFile | None = None,
    ) -> None:
        # Whoever comes through a proxy comes from this machine, too, and is whom it says: nobody goes without a token.
        self._guard = Guard(app, is_local=is_local and trusted_proxy is None, machine_token=machine_token)
        self.services = Services(app, self._guard)
        self._rates = CallRates()
        self._standing = StandingCalls(self._admit)
        self._outside = Outside(app)
        self._router = Router(OPERATIONS)
        self._dashboard = Dashboard(self.services, self._guard, self._router, self._rates, trusted_proxy, report)
        self._document: tuple[str, bytes] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            response = await self._answer(scope, receive)
            if response is not None:
                await response(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})

    def begin_stop(self) -> None:
        """End what waits for something to happen: long polls and streams. On the event loop."""
        self.services.begin_stop()

    @asynccontextmanager
    async def lifespan(self, _outer: object = None) -> AsyncIterator[None]:
        """Its life within an application that it is mounted in, which frameworks tell nothing of the server's end: with
        it remote workers' partitions are given up, and what is under way is waited for. In Starlette and FastAPI the
        outer application takes it as `lifespan=`, or enters it in one of its own.
        """
        try:
            yield
        finally:
            self.begin_stop()
            await self.services.close()
            self._dashboard.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """The answer; none to a client that has gone."""
        headers = Headers(scope=scope)
        try:
            return await self._respond(scope, receive, headers)
        except PenstockError as error:
            problem = problem_of(error)
            extra = HEADERS | ({"WWW-Authenticate": "Bearer"} if problem.status == 401 else {})
            if isinstance(error, ProblemError) and error.ends_connection:
                extra["Connection"] = "close"
            return respond_with(problem, extra)
        except ClientGone:
            return None
        except asyncio.CancelledError:
            if not self.services.stopping.is_set():
                raise
            # It has waited for as long as it may, and ends.
            told = "the server has stopped, and what became of this call is not known; send it again"
            return respond_with(problem_of(ProblemError("stopping", told)), HEADERS)
        except Exception:
            # What it says may hold what nobody else should see: it stands in the log alone.
            log.exception("%s %s failed", scope["method"], scope["path"])
            return respond_with(problem_of(ProblemError("internal", "the server's log has the cause")), HEADERS)

    async def _respond(self, scope: Scope, receive: Receive, headers: Headers) -> Response:
        parts = path_parts(scope) or (b"",)
        if parts in PROBES and scope["method"] in ("GET", "HEAD"):
            return await self.services.admitting.run(lambda: self._outside.health(parts))
        if parts[:2] != PREFIX and parts != METRICS:
            if self._dashboard.has(scope["method"], parts) or "text/html" in headers.get("accept", ""):
                return await self._dashboard.answer(scope, receive, headers, parts)
            told = f"there is nothing at this path; the API is at {_mounted_at(scope)}/api/v1/openapi.json"
            raise ProblemError("not-found", told)
        caller = await self._admit(scope, headers)
        self._rates.count(caller)
        if parts == METRICS and scope["method"] == "GET":
            return await self.services.looking.run(lambda: self._outside.metrics(caller))
        parts = parts[2:]
        if parts == (b"openapi.json",) and scope["method"] == "GET":
            return self._describe(_mounted_at(scope))
        found = self._router.find(scope["method"], parts)
        if found.entry is None:
            return _refuse_path(found.methods, _mounted_at(scope))
        operation = found.entry
        check_may(caller, operation, found.named)
        values: dict[str, Any] = dict(found.named)
        if operation.query is not None:
            values["query"] = parse_query(scope.get("query_string", b""), operation.query)
        elif scope.get("query_string"):
            raise ProblemError("invalid-input", "there are no options here; leave the query out", field="query")
        if operation.body is not None:
            values["body"] = await _read_value(operation, receive, headers)
        values["call"] = Call(self.services, caller, headers, receive)
        with acting_as(Actor(caller.name, "http", caller.address)):
            if not operation.is_async:
                return await self._carry_out(operation, values)
            with self._standing.standing(scope, headers) as refused:
                response = await self._carry_out_standing(operation, values, receive, refused)
        if isinstance(response, EventResponse):
            response.standing = self._standing
        return response

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        if self._guard.is_fresh:
            return self._guard.admit(scope, headers)
        return await self.services.admitting.run(lambda: self._guard.admit(scope, headers))

    async def _carry_out(self, operation: Operation, values: dict[str, Any]) -> Response:
        values = {name: value for name, value in values.items() if name in operation.takes}
        threads = self.services.producing if operation.pool == "produce" else self.services.looking
        return await threads.run(lambda: _respond_with(operation, operation.handler(**values)))

    async def _carry_out_standing(
        self, operation: Operation, values: dict[str, Any], receive: Receive, refused: asyncio.Future[ProblemError]
    ) -> Response:
        values = {name: value for name, value in values.items() if name in operation.takes}
        if operation.body is None and "call" in operation.takes and operation.forms:
            # It reads the body itself, and may leave the rest of one that it refuses.
            try:
                return _respond_with(operation, await _unless(operation.handler(**values), refused))
            except PenstockError as error:
                return respond_with(problem_of(error), HEADERS | {"Connection": "close"})
        gone = asyncio.ensure_future(_wait_until_gone(receive))
        try:
            return _respond_with(operation, await _unless(operation.handler(**values), refused, gone))
        finally:
            gone.cancel()

    def _describe(self, mounted_at: str) -> Response:
        if self._document is None or self._document[0] != mounted_at:
            self._document = (mounted_at, msgspec.json.encode(describe(OPERATIONS, mounted_at)))
        return Response(self._document[1], media_type=JSON, headers=HEADERS)


def _mounted_at(scope: Scope) -> str:
    """The path that leads here, percent-encoded; empty where nothing is above."""
    return quote(scope.get("root_path", "").rstrip("/"))


async def _read_value(operation: Operation, receive: Receive, headers: Headers) -> Any:
    media = headers.get("content-type", JSON).split(";")[0].strip().lower()
    if media not in operation.forms:
        raise ProblemError(
            "unsupported-media-type",
            f"{media[:100]} is not taken; send {' or '.join(operation.forms)}",
            field="Content-Type",
        )
    raw = await read_body(receive, headers, operation.most_bytes)
    if operation.body is bytes:
        return raw
    return decode_body(raw or b"{}" if not operation.needs_body else raw, operation.body)


async def _unless(handler: Awaitable[Any], *ends: asyncio.Future[Any]) -> Any:
    """What the handler answers; where one of these is first, the handler is ended: the client is gone, or refused."""
    task = asyncio.ensure_future(handler)
    try:
        await asyncio.wait((task, *ends), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise next((end.result() for end in ends if end.done() and end.result() is not None), ClientGone())
    finally:
        task.cancel()


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventResponse(StreamingResponse):
    """An answer that goes on. What it took is given back when it ends, also where it never began."""

    def __init__(self, stream: EventStream, headers: dict[str, str]) -> None:
        super().__init__(stream.events, media_type=EVENTS, headers=headers)
        self._stream = stream
        self.standing: StandingCalls | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more, the client has gone, or may not have them any more."""
        try:
            if self.standing is None:
                await super().__call__(scope, receive, send)
                return
            with self.standing.standing(scope, Headers(scope=scope)) as refused:
                refused.add_done_callback(lambda _: self._stream.close())
                await super().__call__(scope, receive, send)
        finally:
            self._stream.close()


def _respond_with(operation: Operation, value: Any) -> Response:
    status, headers = operation.status, dict(HEADERS)
    if isinstance(value, EventStream):
        return EventResponse(value, headers | {"X-Accel-Buffering": "no"})
    if isinstance(value, Answer):
        status, headers, value = value.status, {**headers, **value.headers}, value.value
    if operation.answers.get(status, value) is None:
        return Response(status_code=status, headers=headers)
    return Response(msgspec.json.encode(record(value)), status, headers, JSON)


def _refuse_path(methods: tuple[str, ...], mounted_at: str) -> Response:
    if not methods:
        told = f"there is nothing at this path; {mounted_at}/api/v1/openapi.json lists what there is"
        raise ProblemError("not-found", told)
    problem = problem_of(ProblemError("method-not-allowed", f"this path has {', '.join(methods)}"))
    return respond_with(problem, HEADERS | {"Allow": ", ".join(methods)})
