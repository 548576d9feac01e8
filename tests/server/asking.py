"""A client of the API in this process: what it asks goes to the application itself, as a server would pass it on."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar

import httpx
from jsonschema_rs import Draft202012Validator
from tests.system.facts import PATIENCE_SECONDS

from penstock import App
from penstock.server import Application
from penstock.server.caller import Caller
from penstock.server.openapi import describe
from penstock.server.operations import OPERATIONS
from penstock.server.router import Router, path_parts

__all__ = ["BASE", "LOCAL", "Client", "Event", "Events", "asking", "asking_as", "check_described"]

T = TypeVar("T")
DOCUMENT = describe(OPERATIONS)
ROUTER = Router(OPERATIONS)
LOCAL = ("127.0.0.1", 50_000)
BASE = "http://localhost/api/v1/"


def check_described(response: httpx.Response) -> None:
    """Refuse an answer that openapi.json does not tell of, or tells of differently."""
    raw = response.request.url.raw_path.split(b"?")[0]
    # Of what cannot be decoded only how many parts there are matters.
    parts = path_parts({"raw_path": raw.replace(b"%", b"_"), "path": ""})[2:]
    operation = ROUTER.find(response.request.method, parts).entry
    assert operation is not None, raw
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"][str(response.status_code)]
    if "content" not in described:
        assert not response.content
        return
    ((media, content),) = described["content"].items()
    assert response.headers["content-type"] == media
    _validator(json.dumps(content["schema"])).validate(response.json())


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": DOCUMENT["components"]})


class Event(NamedTuple):
    """One of a stream."""

    name: str
    data: Any
    id: str | None


class Events:
    """A stream of events that is read."""

    def __init__(self, status: int, chunks: queue.Queue[bytes | None], leave: Any) -> None:
        self.status = status
        self.comments: list[str] = []
        self._chunks = chunks
        self._leave = leave

    def __iter__(self) -> Iterator[Event]:
        while (chunk := self._chunks.get(timeout=PATIENCE_SECONDS)) is not None:
            for block in chunk.decode().split("\n\n"):
                lines = dict(line.split(": ", 1) for line in block.split("\n") if line)
                if "data" in lines:
                    yield Event(lines["event"], json.loads(lines["data"]), lines.get("id"))
                elif lines:
                    self.comments += lines.values()

    def rest(self) -> str:
        """All that comes until it is over, whatever it is."""
        return b"".join(iter(lambda: self._chunks.get(timeout=PATIENCE_SECONDS), None)).decode()

    def next(self, name: str) -> Event:
        """The next of that name."""
        return next(event for event in self if event.name == name)

    def close(self) -> None:
        """Go, as a client that closes its connection."""
        self._leave()


class Client:
    """Asks an application, which runs on an event loop of its own."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        transport = httpx.ASGITransport(application, client=LOCAL)
        self._client = httpx.AsyncClient(transport=transport, base_url=BASE, timeout=None)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask, and wait for the answer, which must be one that the document describes."""
        response = self.run(self._client.request(method, path, **options))
        check_described(response)
        return response

    def get(self, path: str, **options: Any) -> Any:
        """What is there, as JSON; it must be there."""
        return self.done("GET", path, **options)

    def post(self, path: str, body: Any = None) -> Any:
        """What became of an act, as JSON; it must have been done."""
        return self.done("POST", path, **({} if body is None else {"json": body}))

    def done(self, method: str, path: str, **options: Any) -> Any:
        """The answer to what must have been done."""
        response = self.request(method, path, **options)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def refused(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Why something was refused that must be."""
        response = self.request(method, path, **options)
        assert response.headers.get("content-type") == "application/problem+json", response.text
        problem: dict[str, Any] = response.json()
        assert problem["status"] == response.status_code < 500, problem
        return problem

    def start(self, method: str, path: str, **options: Any) -> Any:
        """Ask, and do not wait: a future of the answer."""
        return asyncio.run_coroutine_threadsafe(self._client.request(method, path, **options), self._loop)

    @contextmanager
    def events(self, query: str, headers: Mapping[str, str] | None = None) -> Iterator[Events]:
        """A stream of events."""
        given = [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in (headers or {}).items())]
        scope = {
            "type": "http", "method": "GET", "path": "/api/v1/events", "raw_path": b"/api/v1/events", "root_path": "",
            "query_string": query.encode(), "headers": given, "client": LOCAL, "asgi": {"spec_version": "2.3"},
        }  # fmt: skip
        chunks: queue.Queue[Any] = queue.Queue()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                chunks.put(message["status"])
            elif body := message.get("body"):
                chunks.put(body)

        async def serve() -> None:
            try:
                await self.application(scope, receive, send)
            finally:
                chunks.put(None)

        served = asyncio.run_coroutine_threadsafe(serve(), self._loop)
        try:
            status = chunks.get(timeout=PATIENCE_SECONDS)
            yield Events(status, chunks, lambda: self._loop.call_soon_threadsafe(gone.set))
        finally:
            self._loop.call_soon_threadsafe(gone.set)
            served.result(PATIENCE_SECONDS)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop of the application."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def call(self, function: Any) -> None:
        """Call something there."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Stop the application as a server does."""

        async def stop() -> None:
            self.application.begin_stop()
            await self._client.aclose()
            await self.application.services.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), PATIENCE_SECONDS)

        self.run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def asking(app: App) -> Iterator[Client]:
    """A client of a server on this machine that needs no token."""
    client = Client(Application(app, is_local=True))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def asking_as(app: App, **caller: Any) -> Iterator[Client]:
    """A client that the server takes for the bearer of such a token."""
    with asking(app) as client:
        admitted = Caller(**{"bearer": "t", "role": "read", **caller})
        client.application._guard.admit = lambda scope, headers: admitted  # type: ignore[method-assign]
        yield client
