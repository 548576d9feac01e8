"""An app on a fresh database or on two shards, worked in the test's own process, and facts to wait for.

What the engine promises does not depend on how many databases there are: what uses these fixtures runs once on one
database and once on two shards, where a queue has a partition on each unless the test says how many. `make test` runs
on two shards only what is most about them; `make fault` runs all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.servers import created_database

from penstock import App
from penstock.client.task import Queue

MakeApp = Callable[..., App]
Working = Callable[..., Any]
Execute = Callable[..., list[tuple[Any, ...]]]


ON_SHARDS_IN_EVERY_RUN = {
    "test_deleting", "test_ends", "test_limits", "test_metrics", "test_once", "test_order", "test_total_limits",
    "test_total_rates", "test_working",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            Path(__file__).parent in item.path.parents
            and "two shards" in item.name
            and item.path.stem not in ON_SHARDS_IN_EVERY_RUN
        ):
            item.add_marker(pytest.mark.long_run)


class SpreadApp(App):
    """Its queues have a partition on each shard."""

    def __init__(self, urls: list[str], **options: Any) -> None:
        super().__init__(shards=urls, **options)
        self._spread = len(urls)

    def queue(self, name: str, **options: Any) -> Queue:
        return super().queue(name, **{"partitions": self._spread, **options})


@pytest.fixture(params=[1, 2], ids=["one database", "two shards"])
def urls(request: pytest.FixtureRequest, server_url: str, template_database: str) -> Iterator[list[str]]:
    """Fresh databases with the schema, gone after the test."""
    with ExitStack() as stack:
        yield [stack.enter_context(created_database(server_url, template_database)) for _ in range(request.param)]


@pytest.fixture
def execute(urls: list[str]) -> Execute:
    """Executes a statement on every database; the rows of all."""

    def run(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for url in urls:
            with psycopg.connect(url, autocommit=True) as connection:
                cursor = connection.execute(statement.encode(), parameters)
                rows += cursor.fetchall() if cursor.description else []
        return rows

    return run


@pytest.fixture
def make_app(urls: list[str]) -> Iterator[MakeApp]:
    """Makes apps on the same fresh databases; closed after the test."""
    apps: list[App] = []

    def make(*other_urls: str, **options: Any) -> App:
        apps.append(SpreadApp(list(other_urls) or urls, **{"lease": 60.0, **options}))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(make_app: MakeApp) -> App:
    """An app on fresh databases."""
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
