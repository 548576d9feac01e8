"""Workers far away and the servers they call, in one process: what a client says and is told, without HTTP between.

A server is closed as a server is that stops, or killed: then it says nothing more, and nobody is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.system.facts import eventually

from penstock import App
from penstock.server.remote import RemoteWorkers
from penstock.server.remote.messages import GivenJob, JobEnd, Poll, PollAnswer, Registration, RenewAnswer
from penstock.storage import Database

__all__ = ["Client", "World", "ends_of", "run", "soon"]

Queues = Mapping[str, Mapping[str, Mapping[str, Any]]]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Play it to its end."""
    asyncio.run(scenario)


async def soon(fact: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Wait for a fact; its value."""
    async with asyncio.timeout(60):
        while not (value := await fact()):  # noqa: ASYNC110  (facts of a database set no event)
            await asyncio.sleep(0.01)
    return value


def ends_of(jobs: Sequence[GivenJob], end: str = "succeeded", **more: Any) -> list[dict[str, Any]]:
    """How each of these ended."""
    return [{"job": job.id, "lease": job.lease, "end": end, **more} for job in jobs]


class Client:
    """A worker far away. It calls whichever server it is told to, and numbers its polls."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.number = 0

    async def poll(
        self,
        server: RemoteWorkers,
        ends: Sequence[Mapping[str, Any]] = (),
        want: int = 0,
        wait: float = 0.0,
        number: int | None = None,
    ) -> PollAnswer:
        """The next poll, or one of that number again."""
        if number is None:
            self.number += 1
        body = {"number": number or self.number, "ends": list(ends), "want": want, "wait": wait}
        # As it comes over HTTP.
        return await server.poll(self.worker, msgspec.json.decode(msgspec.json.encode(body), type=Poll))

    async def poll_again(self, server: RemoteWorkers, *args: Any, **named: Any) -> PollAnswer:
        """The last poll again."""
        return await self.poll(server, *args, **{**named, "number": self.number})

    async def renew(self, server: RemoteWorkers, progress: Mapping[str, Any] | None = None) -> RenewAnswer:
        return await server.renew(self.worker, progress or {})


class World:
    """A database or several, an app that declares and enqueues, and what is stored."""

    def __init__(self, *urls: str, **options: Any) -> None:
        self.app = App(shards=list(urls), **options) if len(urls) > 1 else App(urls[0], **options)

    def close(self) -> None:
        self.app.close()

    @asynccontextmanager
    async def server(self, lease: float = 15.0) -> AsyncIterator[RemoteWorkers]:
        """A server with connections of its own; it stops with the block."""
        app = App(shards=self.app_urls) if len(self.app_urls) > 1 else App(self.app_urls[0])
        server = RemoteWorkers(app.databases, lease_seconds=lease)
        try:
            yield server
        finally:
            await server.close()
            await asyncio.to_thread(app.close)

    @property
    def app_urls(self) -> list[str]:
        return [database.url for database in self.app.databases]

    @property
    def database(self) -> Database:
        return next(iter(self.app.databases))

    async def join(self, server: RemoteWorkers, queues: Queues, **options: Any) -> Client:
        """A worker that registers there."""
        body = {"name": "far", "queues": queues, "lease": 15.0, **options}
        return Client(await server.register(msgspec.convert(body, Registration)))

    def ask(self, question: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What the first database says."""
        with self.database.connect() as connection:
            return connection.execute(question.encode(), parameters).fetchall()

    def leases(self) -> list[tuple[Any, ...]]:
        """Jobs under leases: worker, job, whether it counts as not started."""
        return self.ask(
            "select worker_id, range * 1024 + unnest(penstock.positions(low, high, members)), is_ahead"
            " from penstock.lease order by 2"
        )

    def states(self, ids: Sequence[int]) -> list[str]:
        return [str(self.app.job(job).state) for job in ids]

    def declare_dead(self, client: Client) -> None:
        """Have a worker rescued that was not renewed for longer than its lease, before anybody renews it again."""
        for database in self.app.databases:
            with database.connect() as connection, connection.transaction():
                connection.execute(
                    "update penstock.worker set renewed_at = now() - interval '1 hour' where id ="
                    " (select worker_id from penstock.remote_worker where id = %s)",
                    [int(client.worker)],
                )
                connection.execute("select penstock.rescue()")

    def until(self, fact: Callable[[], Any], what: str) -> Any:
        return eventually(fact, what)


JobEnds = Sequence[JobEnd]
