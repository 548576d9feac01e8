"""To look, wait and listen through a real server: what waits ends when it is told to stop."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from tests.server.conftest import Shop
from tests.server.programs import running
from tests.system.facts import eventually


@contextmanager
def asked(folder: Path, url: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A server, and a client of it."""
    with (
        running(folder, url, "serve", "--port", "0") as (process, base),
        httpx.Client(base_url=base, timeout=60, trust_env=False) as client,
    ):
        yield process, client


def test_waits_and_streams_are_answered_by_a_server_until_it_stops(
    shop: Shop, database_url: str, tmp_path: Path
) -> None:
    waiting, never = shop.send.enqueue(to="ada"), shop.book.options(delay=3600).enqueue(customer="c")
    with asked(tmp_path, database_url) as (process, client):
        assert client.get("queues/mail/stats").json()["queue_length"] == 1
        told: dict[int, Any] = {}

        def wait(id_: int) -> None:
            told[id_] = client.get(f"jobs/{id_}?wait=30").json()["state"]

        lines: list[str] = []

        def listen() -> None:
            with client.stream("GET", f"events?queue=mail&job={waiting}&dead_letters=true") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                assert stream.headers["x-accel-buffering"] == "no"
                lines.extend(line for line in stream.iter_lines() if line.startswith("event: "))

        threads = [threading.Thread(target=wait, args=(id_,)) for id_ in (waiting, never)]
        threads.append(threading.Thread(target=listen))
        for thread in threads:
            thread.start()
        eventually(lambda: "event: stats" in lines, "the stream tells of the queue")
        shop.app.work(until_idle=True)
        eventually(lambda: told.get(waiting), "who waited is answered")
        dead = shop.send.enqueue(to="nobody")
        shop.app.work(until_idle=True)
        assert client.get(f"jobs/{dead}").json()["state"] == "failed"
        eventually(lambda: {"event: job", "event: dead_letter"} <= set(lines), "both are told")
        # Told to stop, it answers those who wait, and ends the streams.
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        assert told == {waiting: "succeeded", never: "scheduled"}


def test_a_client_that_goes_is_forgotten(shop: Shop, database_url: str, tmp_path: Path) -> None:
    shop.app.queues()
    with asked(tmp_path, database_url) as (_, client):
        for _ in range(3):
            with client.stream("GET", "events?queue=mail") as stream:
                assert next(stream.iter_lines()) == ": open"
        id_ = shop.send.enqueue()
        with suppress(httpx.ReadTimeout):
            client.get(f"jobs/{id_}?wait=30", timeout=0.5)
        assert client.get("queues/mail/stats").json()["queue_length"] == 1
