"""A stage for each fault; where one fails, what the workers said is shown."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.fault.own_server import OwnServer
from tests.fault.stage import MakeStage, Stage
from tests.fault.tally import tally
from tests.servers import created_database, started_server

from penstock.storage.schema import migrate

# What most faults are brought about on: every kind of queue, on one database or on two.
ONE_OR_TWO = [1, pytest.param(2, marks=pytest.mark.long_run)]
MIXED: dict[str, Any] = {"ordered": 4, "limit": 3, "work_seconds": 0.003, "lease": 1.0}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.fault)


@pytest.fixture(autouse=True)
def _empty_tally() -> None:
    tally.clear()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What the round chooses by: the long run gives each its own, the suite always the same."""
    given = os.environ.get("PENSTOCK_FAULT_SEED")
    return int(given) if given else zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def make_stage(tmp_path: Path, seed: int) -> Iterator[MakeStage]:
    """Makes a stage on a database, with orders for its workers; everybody on it is gone after the test."""
    stages: list[Stage] = []

    def make(url: str, **orders: Any) -> Stage:
        stages.append(Stage(url, tmp_path, seed=seed, **orders))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()
    print((tmp_path / "workers.log").read_text()[-8000:])  # noqa: T201


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """A server for this test alone."""
    with started_server({"max_connections": "80"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
        yield OwnServer(server)


@pytest.fixture
def stage(make_stage: MakeStage, database_url: str) -> Stage:
    """A stage on a fresh database of the run's server."""
    return make_stage(database_url)


@pytest.fixture(params=ONE_OR_TWO, ids=["one database", "two shards"])
def mixed_stage(
    request: pytest.FixtureRequest, make_stage: MakeStage, server_url: str, template_database: str, seed: int
) -> Iterator[Stage]:
    """A stage with plain, ordered and limited queues, on one database and on two shards."""
    with ExitStack() as stack:
        urls = [stack.enter_context(created_database(server_url, template_database)) for _ in range(request.param)]
        stage = make_stage(urls[0], **_placed(urls), **_mixed(seed))
        yield stage
        stage.close()


@pytest.fixture(params=ONE_OR_TWO, ids=["one database", "two shards"])
def killed_server_stage(
    request: pytest.FixtureRequest, make_stage: MakeStage, own_server: OwnServer, seed: int
) -> Stage:
    """The same on a server that may be killed."""
    urls = [own_server.url]
    for number in range(1, request.param):
        with psycopg.connect(own_server.url, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(f"shard_{number}")))
        urls.append(f"{own_server.url.rpartition('/')[0]}/shard_{number}")
        with psycopg.connect(urls[-1], autocommit=True) as connection:
            migrate(connection)
    return make_stage(urls[0], **_placed(urls), **_mixed(seed))


def _mixed(seed: int) -> dict[str, Any]:
    """Every kind of queue; in one round of two the jobs of a key are taken in runs."""
    return {**MIXED, "run": 1 + 15 * (seed % 2)}


def _placed(urls: list[str]) -> dict[str, Any]:
    return {"urls": urls, "shards": urls, "partitions": 2} if len(urls) > 1 else {}
