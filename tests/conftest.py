"""What every test that needs a database shares: one server a run, a fresh copy of the migrated schema a test.

The server is the embedded one, on the PostgreSQL that $PENSTOCK_POSTGRES_BIN names or the wheel's. Under pytest-xdist
each of its processes has a server of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.jvm import shorten_starts
from tests.servers import created_database, open_folder, started_server, wait_until_stopped
from xdist.scheduler import LoadScopeScheduling

from penstock.storage import Database
from penstock.storage.schema import migrate

TEMPLATE = "penstock_template"

# Of each of these one process has all: what they have in common (a JVM that is warm, a large backlog, a browser) takes
# longer to set up than most of them to run.
IN_ONE_PROCESS = (
    "tests/spark/",
    "tests/docs/test_spark_examples.py",
    "tests/database/test_plans.py",
    "tests/browser/",
)

shorten_starts()


class KeptTogether(LoadScopeScheduling):
    """Gives every process the next test, and one all that have something in common."""

    def _split_scope(self, nodeid: str) -> str:
        return next((tests for tests in IN_ONE_PROCESS if nodeid.startswith(tests)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> KeptTogether:
    return KeptTogether(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("PENSTOCK_FAULT") == "full":
        return
    left_out = [item for item in items if item.get_closest_marker("long_run")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long_run")]


class ToldAtOnce:
    """Shows what failed when it failed: a run that is cut off has said it."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\nFAILED {report.nodeid}\n{report.longreprtext}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ToldAtOnce(terminal))


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of a server that lives as long as the run; its own database holds nothing."""
    with started_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def template_database(server_url: str) -> str:
    """The name of a database with the newest schema, to be copied and never connected to."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
    with psycopg.connect(server_url, dbname=TEMPLATE, autocommit=True) as connection:
        migrate(connection)
    return TEMPLATE


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A database without the schema, gone after the test."""
    with created_database(server_url, "template1") as url:
        yield url


@pytest.fixture
def database_url(server_url: str, template_database: str) -> Iterator[str]:
    """A database with the schema and nothing in it, gone after the test."""
    with created_database(server_url, template_database) as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same as the storage sees it, closed after the test."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def shard_urls(server_url: str, template_database: str) -> Iterator[list[str]]:
    """Two databases with the schema and nothing in them: the shards of a system to be. Gone after the test."""
    with (
        created_database(server_url, template_database) as first,
        created_database(server_url, template_database) as second,
    ):
        yield [first, second]


@pytest.fixture
def four_shard_urls(server_url: str, template_database: str) -> Iterator[list[str]]:
    """The same, four of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(created_database(server_url, template_database)) for _ in range(4)]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that this program runs in, without a URL; no server runs there when the test is over."""
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_EMBEDDED", raising=False)
    with open_folder() as folder:
        monkeypatch.chdir(folder)
        yield folder
        for lock in folder.rglob("supervisor.lock"):
            wait_until_stopped(lock.parent)
