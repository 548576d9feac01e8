"""A process that is killed in the middle of a load: at a moment it says so, and goes no further."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from tests.server.loading.bodies import load, ndjson, staged
from tests.system.facts import eventually

from penstock import App
from penstock.server.loading import receive, staging
from penstock.shards import publishing
from penstock.shards.publishing import publish

__all__ = ["CHUNK_ROWS", "ROWS", "die_while_loading"]

# A few blocks, and more chunks: some of it is written long before the last row is read.
ROWS = [{"customer": f"c-{n % 50}", "n": n, "text": "x" * 500} for n in range(6_000)]
CHUNK_ROWS = 1_000


def die_while_loading(urls: list[str], moment: str) -> None:
    """Load `ROWS` under the name `l` in a process that is killed at a moment: body, staged, decided or published."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_load_until, args=(urls, moment, there))
    process.start()
    assert here.recv() == moment
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _load_until(urls: list[str], moment: str, pipe: Connection) -> None:
    def stop() -> Any:
        pipe.send(moment)
        threading.Event().wait()

    body = ndjson(ROWS)

    def chunks() -> Iterator[bytes]:
        yield body[:-100]
        if moment == "body":
            eventually(lambda: staged(app), "some of it is staged")
            stop()
        yield body[-100:]

    patch = pytest.MonkeyPatch()
    patch.setattr(staging, "CHUNK_ROWS", CHUNK_ROWS)
    if moment == "staged":
        patch.setattr(receive, "publish", lambda *_, **__: stop())
    elif moment == "published":
        patch.setattr(receive, "publish", lambda *given, **named: (publish(*given, **named), stop())[0])
    elif moment == "decided":
        patch.setattr(publishing, "publish_decided", lambda *_, **__: stop())
    with App(shards=urls) as app:
        load(app, chunks(), task="t", key="customer")
