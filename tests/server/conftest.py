"""An app on a database, and a client of the API before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.server.asking import Client, asking

from penstock import App, Task


@dataclass(frozen=True)
class Shop:
    """An app of a plain queue and an ordered one, on which a key halts."""

    app: App
    send: Task[..., Any]
    book: Task[..., Any]


def shop_of(app: App) -> Shop:
    """Its tasks fail where they are told to."""

    @app.queue("mail").task(max_attempts=2, backoff=0)
    def send(to: str = "ada") -> dict[str, str]:
        if to.startswith("nobody"):
            raise ValueError(f"there is no {to}")
        return {"sent": to}

    @app.queue("orders", partitions=2, order="key", on_dead="halt").task(key="customer", max_attempts=1)
    def book(customer: str, amount: int = 0) -> int:
        return 100 // amount

    return Shop(app, send, book)


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


@pytest.fixture
def shop(app: App) -> Shop:
    return shop_of(app)


@pytest.fixture
def client(app: App) -> Iterator[Client]:
    with asking(app) as client:
        yield client
