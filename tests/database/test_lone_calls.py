"""A call of one job: what it sends without the driver's cursor arrives as it was, and what it costs in the log."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import psycopg
import pytest
from tests.database.conftest import Scene

from penstock import App
from penstock.storage.connection.bare_statements import execute_bare
from penstock.storage.connection.flow import Flow
from penstock.storage.connection.queries import query

# About as much as an ordinary job has.
ARGUMENTS: dict[str, Any] = {
    "customer_id": "customer-000001",
    "amount": 1.37,
    "currency": "EUR",
    "reference": "2026-000001",
    "is_express": False,
}
MOST_LOGGED_BYTES = 664


@pytest.fixture
def flow(database_url: str) -> Iterator[Flow]:
    with Flow.connect(database_url, autocommit=True) as connection:
        yield connection


def values(scene: Scene, **others: Any) -> dict[str, Any]:
    return {
        "queue": scene.queue.id, "partition": scene.queue.partition_ids[0], "priority": 5, "task": "t", "key": None,
        "args": "{}", "attributes": None, "token": None, "kept_seconds": None, **others,
    }  # fmt: skip


def test_each_kind_of_value_arrives_as_it_was(scene: Scene, flow: Flow) -> None:
    sent = values(
        scene, task="täsk %s $1", key=b"\x00k\xff\\", args='{"a": "ü\\u0000 \'%"}', attributes='{"tenant": "é"}'
    )
    for _ in range(2):
        first_id = execute_bare(flow, "enqueue_one", sent)
        assert first_id is not None
        row = scene.connection.execute(
            "select priority, task, key, args::text, attributes::text from penstock.job where id = %s", [int(first_id)]
        ).fetchone()
        assert row == (5, sent["task"], sent["key"], sent["args"], sent["attributes"])


def test_a_refusal_is_the_server_s_and_the_session_goes_on(scene: Scene, flow: Flow) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation) as refused:
        execute_bare(flow, "enqueue_one", values(scene, args="{"))
    assert refused.value.diag.severity_nonlocalized == "ERROR"
    assert execute_bare(flow, "enqueue_one", values(scene)) is not None
    assert scene.one("select count(*) from penstock.job") == 1


def test_a_rollback_that_makes_the_session_forget_its_statements_costs_no_session(scene: Scene, flow: Flow) -> None:
    execute_bare(flow, "enqueue_one", values(scene))
    flow.execute("select 1", prepare=True)
    with flow.transaction(force_rollback=True):
        flow.execute("select 2")
    assert flow.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
    assert execute_bare(flow, "enqueue_one", values(scene)) is not None
    assert not flow.closed


def test_what_the_cursor_sends_is_the_same(scene: Scene, flow: Flow) -> None:
    flow.execute(query("enqueue_one"), values(scene))
    execute_bare(flow, "enqueue_one", values(scene))
    written = "select distinct partition_id, priority, task, key, args::text, attributes from penstock.job"
    assert len(scene.connection.execute(written).fetchall()) == 1
    assert scene.one("select enqueued from penstock.depth") == scene.one("select count(*) from penstock.job") == 2


def test_the_log_of_a_lone_call_is_short(database_url: str) -> None:
    with App(database_url) as app, psycopg.connect(database_url, autocommit=True) as connection:

        @app.queue("plain").task
        def handle(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None: ...

        def position() -> int:
            row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
            assert row is not None
            return int(row[0])

        logged = []
        for _ in range(100):
            before = position()
            handle.enqueue(**ARGUMENTS)
            logged.append(position() - before)
        # The median: full-page images and new pages are in a few of them.
        assert median(logged) <= MOST_LOGGED_BYTES
