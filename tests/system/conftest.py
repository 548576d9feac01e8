"""An app on a fresh database, worked in the test's own process, and facts to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import App

MakeApp = Callable[..., App]
Working = Callable[..., Any]


@pytest.fixture
def make_app(database_url: str) -> Iterator[MakeApp]:
    """Makes apps on one fresh database; closed after the test."""
    apps: list[App] = []

    def make(url: str | None = None, **options: Any) -> App:
        apps.append(App(url or database_url, **{"lease": 2.0, **options}))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(make_app: MakeApp) -> App:
    """An app on a fresh database."""
    return make_app()


@pytest.fixture
def working() -> Working:
    """Works beside the block, in a thread of this process, and ends gently after it."""

    @contextmanager
    def work(app: App, **options: Any) -> Iterator[threading.Thread]:
        problems: list[BaseException] = []

        def run() -> None:
            try:
                app.work(**options)
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield thread
        finally:
            while thread.is_alive():
                app.stop()
                thread.join(0.2)
        assert not problems, problems

    return work
