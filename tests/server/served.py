"""The HTTP API of an app, served on a port of this machine for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from penstock import App
from penstock.server import Application
from penstock.server.beside import serving_beside
from penstock.server.serving import bind

__all__ = ["serving"]


@contextmanager
def serving(app: App, *, is_local: bool = True, machine_token: str | None = None) -> Iterator[httpx.Client]:
    """A client whose paths begin below /api/v1."""
    application = Application(app, is_local=is_local, machine_token=machine_token)
    with (
        serving_beside(application, bind("127.0.0.1", 0)) as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=60, trust_env=False) as client,
    ):
        yield client
