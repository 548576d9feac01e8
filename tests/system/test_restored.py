"""G2, G3, G4 and G14 for a worker that goes on while its database is replaced by an older copy of itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.servers import Backup, created_database
from tests.system.conftest import Working
from tests.system.facts import eventually

from penstock import App, Context
from penstock.client import committer
from penstock.errors import LeaseLost
from penstock.storage.enqueue import steps

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "gated": {"limit": 100}, "owned": {"order": "key"}}


@pytest.fixture
def url(server_url: str, template_database: str) -> Iterator[str]:
    with created_database(server_url, template_database) as url:
        yield url


def _run(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settles_itself", [False, True])
def test_g14_a_job_is_not_ended_with_the_result_of_one_that_had_its_id_and_lease(
    server_url: str,
    url: str,
    working: Working,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    settles_itself: bool,
) -> None:
    started = {name: threading.Event() for name in ("first", "second")}
    go_on = {name: threading.Event() for name in ("first", "second")}
    refused: list[str] = []
    app = App(url, lease=600.0)

    @app.queue("q", **KINDS[kind]).task(key="name" if kind == "owned" else None)
    def run(context: Context, name: str) -> str:
        started[name].set()
        assert go_on[name].wait(120)
        if settles_itself and name == "first":
            try:
                with psycopg.connect(url) as connection:
                    context.settle(connection, name)
            except LeaseLost:
                refused.append(name)
                raise
        return name

    app.migrate()
    with working(app, concurrency=2):
        eventually(lambda: len(app.workers()) == 1, "a worker lives")
        backup = Backup(server_url, url)
        first = run.enqueue(name="first")
        assert started["first"].wait(60)
        (lease,) = _run(url, "select id, range from penstock.lease")
        backup.restore()
        second = run.enqueue(name="second")
        assert second == first
        assert started["second"].wait(60)
        assert _run(url, "select id, range from penstock.lease") == [lease]
        with caplog.at_level(logging.WARNING, "penstock"):
            go_on["first"].set()
            if settles_itself:
                eventually(lambda: refused, "the handler is told that its lease is lost")
            eventually(lambda: "LeaseLost" in caplog.text, "the worker says that a lease was lost")
        assert app.job(second).state == "running"
        go_on["second"].set()
        assert app.result(second, timeout=60) == "second"
    assert _run(url, "select count(*) from penstock.finished_job") == [(1,)]
    assert _run(url, "select count(*) from penstock.failure") == [(0,)]
    app.close()


@pytest.mark.parametrize("kind", KINDS)
def test_g2_what_was_settled_and_is_leased_again_in_the_copy_runs_again(
    server_url: str, url: str, working: Working, kind: str
) -> None:
    """The worker lives, and does not know that the copy takes some of what it has settled for running."""
    started = threading.Semaphore(0)
    go_on = {name: threading.Event() for name in ("settled", "open")}
    ran: list[str] = []
    app = App(url, lease=600.0)

    @app.queue("q", **KINDS[kind]).task(key="name" if kind == "owned" else None)
    def run(name: str) -> str:
        started.release()
        assert go_on[name].wait(120)
        ran.append(name)
        return name

    app.migrate()
    settled, still_open = app.enqueue_many([run.job(name="settled"), run.job(name="open")])
    with working(app, concurrency=2):
        assert started.acquire(timeout=60)
        assert started.acquire(timeout=60)
        backup = Backup(server_url, url)
        go_on["settled"].set()
        assert app.result(settled, timeout=60) == "settled"
        backup.restore()
        # On the plain queue both are of one lease: what it names beyond what runs is given back when that has ended.
        go_on["open"].set()
        assert app.result(still_open, timeout=60) == "open"
        eventually(lambda: app.job(settled).state == "succeeded", "the copy hears of its end too")
    assert sorted(ran) == ["open", "settled", "settled"]
    assert _run(url, "select count(*) from penstock.lease") == [(0,)]
    app.close()


def test_g1_a_call_whose_answer_is_lost_is_written_once_by_who_knew_the_server_before(
    server_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, other = App(url), App(url)
    note = app.queue("q").task(name="note")(lambda name: None)
    of_other = other.queue("q").task(name="note")(lambda name: None)
    note.enqueue(name="before")
    backup = Backup(server_url, url)
    for _ in range(60):
        note.enqueue(name="gone")
    backup.restore()
    of_other.enqueue(name="another")
    drive = steps.drive
    lost: list[bool] = []

    def lose_answer(connection: psycopg.Connection[Any], steps: Any) -> Any:
        answer = drive(connection, steps)
        if not lost:
            lost.append(True)
            # So many that the ids of the server before are reached again.
            for _ in range(70):
                of_other.enqueue(name="another")
            connection.close()
            raise psycopg.OperationalError("the answer was lost")
        return answer

    monkeypatch.setattr(committer, "drive", lose_answer)
    job = note.enqueue(name="once")
    assert _run(url, "select id from penstock.job where args->>'name' = 'once'") == [(job,)]
    app.close()
    other.close()
