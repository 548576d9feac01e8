"""A stage for each fault; where one fails, what the workers said is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fault.stage import MakeStage, OwnServer, Stage
from tests.servers import started_server

from penstock.storage.migrate import migrate


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.fault)


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    """Makes a stage on a database, with orders for its workers; everybody on it is gone after the test."""
    stages: list[Stage] = []

    def make(url: str, **orders: Any) -> Stage:
        stages.append(Stage(url, tmp_path, **orders))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()
    print((tmp_path / "workers.log").read_text()[-8000:])  # noqa: T201


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """A server for this test alone."""
    with started_server({"max_connections": "30"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
        yield OwnServer(server)


@pytest.fixture
def stage(make_stage: MakeStage, database_url: str) -> Stage:
    """A stage on a fresh database of the run's server."""
    return make_stage(database_url)
