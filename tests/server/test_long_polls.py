"""Very many polls that are open at once: they are held in bounded threads and sessions, and the others are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.server.programs import running

from penstock import App

OPENING_AT_ONCE = 16
# Threads and sessions of a server, however many wait.
MOST_THREADS, MOST_SESSIONS = 80, 60


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.migrate()
        yield app


class Connection:
    """One, on which calls are made one after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length: ")[2].split(b"\r\n")[0])
        return int(answer.split()[1]), json.loads(await reader.readexactly(length))

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with suppress(ConnectionError):
                await self._streams[1].wait_closed()


class Crowd:
    """Workers that want jobs, each on a connection of its own, with a poll that is always open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._opening = asyncio.Semaphore(OPENING_AT_ONCE)
        self.polling = 0
        self.given: list[str] = []
        self.statuses: set[int] = set()
        self.server_is_told_to_stop = False

    async def work(self) -> None:
        """Be one of them, until told to stop."""
        connection = Connection(self._port)
        try:
            await self._work_on(connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            # Whose poll was over just before calls again, and may find the connection closed.
            if not self.server_is_told_to_stop:
                raise
        finally:
            await connection.close()

    async def _work_on(self, connection: Connection) -> None:
        asked = {"name": "w", "queues": {"mail": {"send": {}}}, "concurrency": 1, "lease": 3_600}
        async with self._opening:
            _, registered = await connection.call("POST", "workers", asked)
        number, ends, stops = 0, list[dict[str, str]](), False
        self.polling += 1
        while not stops or ends:
            number += 1
            poll = {"number": number, "ends": ends, "want": 0 if stops else 1, "wait": 30}
            status, answer = await connection.call("POST", f"workers/{registered['worker']}/poll", poll)
            self.statuses.add(status)
            ends = [{"job": job["id"], "lease": job["lease"], "end": "succeeded"} for job in answer["jobs"]]
            self.given += [each["job"] for each in ends]
            stops = answer["stop"]


async def hold(port: int, count: int, end: Any) -> None:
    """Let so many polls be open, and others be served beside them; then let the server end."""
    crowd, other = Crowd(port), Connection(port)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(crowd.work())
        while crowd.polling < count:
            await asyncio.sleep(0.05)
            status, _ = await other.call("GET", "queues/mail/stats")
            assert status == 200
        enqueued: list[str] = []
        for _ in range(50):
            status, answer = await other.call("POST", "queues/mail/jobs", {"task": "send"})
            assert status == 201
            enqueued += answer["ids"]
        while len(crowd.given) < len(enqueued):  # noqa: ASYNC110  (what is waited for is what servers say)
            await asyncio.sleep(0.05)
        assert sorted(crowd.given) == sorted(enqueued)
        await other.close()
        crowd.server_is_told_to_stop = True
        end()
    assert crowd.statuses == {200}


def open_polls(app: App, url: str, folder: Path, count: int, descriptors: int | None = None) -> None:
    with running(folder, url, "serve", "--port", "0", descriptors=descriptors) as (server, address):
        port = int(address.split(":")[2].split("/")[0])

        def judge_and_end() -> None:
            status = Path(f"/proc/{server.pid}/status").read_text()
            threads = int(status.partition("Threads:")[2].split()[0])
            with psycopg.connect(url) as connection:
                sql = "select count(*) from pg_stat_activity where datname = current_database()"
                (row,) = connection.execute(sql).fetchall()
            assert (threads <= MOST_THREADS, row[0] <= MOST_SESSIONS) == (True, True), (threads, row[0])
            print(f"{status.partition('VmRSS:')[2].split()[0]} kB")  # noqa: T201
            server.terminate()

        asyncio.run(hold(port, count, judge_and_end))
        assert server.wait() == 0
    assert app.stats("mail").total_completed == 50


def test_hundreds_of_polls_are_open_and_the_others_are_served_also_with_few_descriptors(
    app: App, database_url: str, tmp_path: Path
) -> None:
    open_polls(app, database_url, tmp_path, 300, descriptors=200)


@pytest.mark.long_run
def test_ten_thousand_polls_are_open_and_the_others_are_served(app: App, database_url: str, tmp_path: Path) -> None:
    open_polls(app, database_url, tmp_path, 10_000)
