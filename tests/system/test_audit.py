"""The audit: who did what, on what, from where and with which outcome, entered before it is done."""

from __future__ import annotations

import asyncio
import inspect
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.servers import created_database
from tests.system.cli_runs import CommandLine
from tests.system.conftest import Execute, MakeApp

from penstock import App, AuditEntry, InvalidInput, NotFound, PenstockError, Task
from penstock.acting import Actor, acting_as, current_actor
from penstock.storage import Database
from penstock.storage.repair.audit import forget

LATER = datetime.now(UTC) + timedelta(days=1)
# A public method of the app that is an act.
ACT = re.compile(r"@change(?:_in_steps)?\n    def (\w+)\(")


class Stage(NamedTuple):
    """An app whose declarations are written, and its tasks."""

    app: App
    t: Task[..., Any]
    follow: Task[..., Any]

    def entered(self, do: Callable[[], object]) -> list[AuditEntry]:
        """What doing something enters, the newest first."""
        newest = max((entry.id for entry in self.app.audit()), default=0)
        do()
        return [entry for entry in self.app.audit() if entry.id > newest]

    def fail(self, task: Task[..., Any], count: int = 1) -> list[int]:
        """Dead letters."""
        ids = task.enqueue_many([{"n": -1}] * count)
        self.app.work(until_idle=True)
        return ids


def stage_of(app: App) -> Stage:
    @app.queue("q", partitions=2).task(max_attempts=1)
    def t(n: int = 0) -> None:
        if n < 0:
            raise ValueError(n)

    @app.queue("ordered", partitions=2, order="key", on_dead="halt").task(key="n", max_attempts=1)
    def follow(n: int) -> None:
        raise ValueError(n)

    app.cron("nightly", "0 3 * * *", t)
    app.stats("q")
    return Stage(app, t, follow)


@pytest.fixture
def stage(make_app: MakeApp) -> Stage:
    return stage_of(make_app())


def told(entry: AuditEntry) -> tuple[Any, ...]:
    return entry.act, entry.target, entry.count, entry.outcome


def test_every_act_is_entered_with_what_it_was_about_and_how_many(
    stage: Stage, execute: Execute, server_url: str, template_database: str
) -> None:
    app, t = stage.app, stage.t
    (dead,) = stage.fail(t)
    stage.fail(stage.follow)
    waiting, moved = t.enqueue_many([{}, {}])
    with ExitStack() as stack:
        further = stack.enter_context(created_database(server_url, template_database))
        stack.enter_context(app)
        expected: list[tuple[Callable[[], object], tuple[Any, ...], dict[str, Any]]] = [
            (lambda: app.cancel(waiting, reason="r"), ("cancel", str(waiting), None),
             {"reason": "r", "state": "cancelled"}),
            (lambda: app.retry(str(dead)), ("retry", str(dead), None), {"state": "ready"}),
            (lambda: app.reschedule(moved, LATER), ("reschedule", str(moved), None),
             {"run_at": LATER.isoformat(), "state": "scheduled"}),
            (lambda: app.retry(queue="q", state="scheduled"), ("retry", "q", 1), {"state": "scheduled"}),
            (lambda: app.cancel(tag="x"), ("cancel", None, 0), {"tag": "x"}),
            (lambda: app.pause("q"), ("pause", "q", None), {}),
            (lambda: app.resume(app.queue("q", partitions=2)), ("resume", "q", None), {}),
            (lambda: app.purge("q", state="ready"), ("purge", "q", 2), {"state": "ready"}),
            (lambda: app.limit("q", limit=5, rate=None), ("limit", "q", None), {"limit": 5, "rate": None}),
            (lambda: app.set_queue("q", max_wait=60, rate=None), ("set_queue", "q", None),
             {"max_wait": 60, "rate": None}),
            (lambda: app.set_queue("set", limit=2), ("set_queue", "set", None), {"limit": 2}),
            (lambda: app.set_cron("weekly", "0 3 * * 0", "q", "t", args={"n": 1}), ("set_cron", "weekly", None),
             {"expression": "0 3 * * 0", "queue": "q", "task": "t", "args": "given"}),
            (lambda: app.release("ordered", -1), ("release", "ordered", None), {"key": -1}),
            (lambda: app.pause_load("l"), ("pause_load", "l", None), {}),
            (lambda: app.resume_load("l"), ("resume_load", "l", None), {}),
            (lambda: app.cancel_load("l"), ("cancel_load", "l", 0), {}),
            (lambda: app.pause_cron("nightly"), ("pause_cron", "nightly", None), {}),
            (lambda: app.resume_cron("nightly"), ("resume_cron", "nightly", None), {}),
            (lambda: app.run_cron("nightly"), ("run_cron", "nightly", 1), {"job_id": "…"}),
            (lambda: app.remove_cron("nightly"), ("remove_cron", "nightly", None), {}),
            (lambda: app.resize("q", partitions=4), ("resize", "q", None), {"partitions": 4}),
            (lambda: app.add_shard(further), ("add_shard", "…", None), {"shard": "…"}),
            (lambda: app.move_partition("q", 0, "1"), ("move_partition", "q", None), {"partition": 0, "shard": "1"}),
            (lambda: app.create_token("n", role="read", queues=["q"], expires=60), ("create_token", "n", None),
             {"role": "read", "queues": ["q"], "expires": 60}),
            (lambda: app.revoke_token("n"), ("revoke_token", "n", None), {}),
            (lambda: app.cancel_jobs([moved, dead], reason="r"), ("cancel_jobs", None, 0),
             {"ids": [moved, dead], "reason": "r"}),
            (lambda: app.retry_jobs([str(moved)]), ("retry_jobs", None, 0), {"ids": [str(moved)]}),
            (lambda: app.stop_worker(77), ("stop_worker", "77", None), {}),
            (lambda: app.delete_queue("q", force=True), ("delete_queue", "q", 1), {"force": True}),
            (lambda: app.drain_shard(further), ("drain_shard", "…", None), {}),
        ]  # fmt: skip
        with psycopg.connect(app.url, autocommit=True) as connection:
            connection.execute(
                "with l as (insert into penstock.load (name, queue_id, is_stream) select 'l', id, false"
                " from penstock.queue where name = 'q' returning id) insert into penstock.load_batch"
                " (load_id, batch, rows, duplicates, bad_rows) select id, 0, 0, 0, 0 from l"
            )
            connection.execute(
                "insert into penstock.worker (id, name, host, pid, version, concurrency, lease_seconds)"
                " values (77, 'w', 'h', 1, '0', 1, 3600)"
            )
        for do, what, detail in expected:
            (entry,) = stage.entered(do)
            target = "…" if what[1] == "…" else entry.target
            assert (entry.act, target, entry.count) == what
            assert entry.outcome == "done"
            assert {name: "…" if detail.get(name) == "…" else value for name, value in entry.detail.items()} == detail
            password = psycopg.conninfo.conninfo_to_dict(further).get("password")
            assert password
            assert str(password) not in str(entry)
        assert {what[0] for _, what, _ in expected} == set(ACT.findall(inspect.getsource(App)))


def test_what_is_no_act_leaves_no_trace(stage: Stage) -> None:
    app = stage.app

    def look_and_enqueue() -> None:
        job_id = stage.t.enqueue()
        stage.t.enqueue_many([{}] * 200)
        app.work(until_idle=True)
        app.job(job_id), app.jobs(), app.stats("q"), app.explain(job_id), app.queues(), app.tokens(), app.audit()
        (
            app.cancel(queue="q", preview=True),
            app.purge("q", preview=True),
            app.delete_queue("q", force=True, preview=True),
        )
        # The same declarations again.
        with App(shards=[database.url for database in app.databases]) as again:
            stage_of(again)
        # What is refused before a database is asked.
        for wrong in (lambda: app.limit("q"), lambda: app.create_token("x", role="boss")):  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                wrong()

    assert stage.entered(look_and_enqueue) == []


def test_declarations_are_entered_where_they_add_or_change_something(stage: Stage) -> None:
    first = stage.app.audit()
    assert [told(entry)[:2] for entry in reversed(first)] == [("queue", "q"), ("queue", "ordered"), ("cron", "nightly")]
    rules = {"order": "key", "per_key": 1, "run": 1, "on_retry": "hold", "on_dead": "halt"}
    assert first[1].detail == {"partitions": 2, **rules}
    with App(shards=[database.url for database in stage.app.databases]) as other:
        task = other.queue("new", limit=3).task(name="t")(lambda: None)
        other.cron("nightly", "0 4 * * *", task, args={})
        entries = stage.entered(lambda: task.enqueue())
    assert [told(entry) for entry in entries] == [("cron", "nightly", None, "done"), ("queue", "new", None, "done")]
    assert entries[0].detail == {"expression": "0 4 * * *", "timezone": "UTC", "queue": "new", "task": "t"}
    assert entries[1].detail == {"partitions": 1, "limit": 3}


def test_an_act_that_cannot_be_entered_is_not_done(stage: Stage, execute: Execute) -> None:
    job_id = stage.t.enqueue()
    execute("alter table penstock.audit add constraint closed check (false) not valid")
    acts: list[Callable[[], object]] = [
        lambda: stage.app.pause("q"),
        lambda: stage.app.cancel(job_id),
        lambda: stage.app.purge("q"),
        lambda: stage.app.limit("q", limit=1),
        lambda: stage.app.create_token("n", role="admin"),
    ]
    for do in acts:
        with pytest.raises(PenstockError):
            do()
    stats = stage.app.stats("q")
    assert (stats.paused, stats.rules.limit, stats.queue_length) == (False, None, 1)
    assert stage.app.tokens() == []
    # Nor is a queue made, but for those that are there.
    late = stage.app.queue("late").task(name="t")(lambda: None)
    with pytest.raises(PenstockError):
        late.enqueue()
    assert set(execute("select name from penstock.queue")) == {("ordered",), ("q",)}
    execute("alter table penstock.audit drop constraint closed")
    assert late.enqueue()


PROGRAM = """
import os, signal, sys
from penstock import App, admin

admin.pause = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with App(shards=sys.argv[1:]) as app:
    app.pause("q")
"""


def test_of_a_program_that_dies_in_an_act_the_entry_has_no_outcome(stage: Stage) -> None:
    urls = [database.url for database in stage.app.databases]

    def die() -> None:
        died = subprocess.run([sys.executable, "-c", PROGRAM, *urls], check=False)
        assert died.returncode == -signal.SIGKILL

    (entry,) = stage.entered(die)
    assert told(entry) == ("pause", "q", None, None)


def test_what_was_refused_is_told_as_not_done_and_by_which_error(stage: Stage) -> None:
    def refused() -> None:
        with pytest.raises(NotFound):
            stage.app.cancel(7)
        with pytest.raises(NotFound):
            stage.app.pause("nowhere")
        with pytest.raises(InvalidInput):
            stage.app.purge("q", state="running")

    purge, pause, cancel = stage.entered(refused)
    assert told(cancel) == ("cancel", "7", None, "not done")
    assert told(pause) == ("pause", "nowhere", None, "not done")
    assert told(purge) == ("purge", "q", None, "not done")
    assert [entry.detail["error"] for entry in (cancel, pause, purge)] == ["NotFound", "NotFound", "InvalidInput"]


def test_who_acts_is_the_user_of_the_process_unless_the_caller_says_otherwise(stage: Stage) -> None:
    app = stage.app
    (entry,) = stage.entered(lambda: app.pause("q"))
    user = current_actor()
    assert (entry.actor, entry.source, entry.address) == (user.name, "python", None)
    assert "@" in user.name
    with psycopg.connect(app.url) as connection:
        assert entry.database_role == connection.info.user

    with acting_as(Actor("shop", "http", "192.0.2.7:4711")):
        (entry,) = stage.entered(lambda: app.resume("q"))
        (dead,) = stage.fail(stage.t)
        (asynchronous, *_) = stage.entered(lambda: asyncio.run(app.aretry(dead, args={"n": 1})))
    assert (entry.actor, entry.source, entry.address) == ("shop", "http", "192.0.2.7:4711")
    assert (asynchronous.act, asynchronous.actor) == ("retry", "shop")
    assert app.job(dead).edits[0].edited_by.startswith("shop as ")
    assert current_actor() == user


def test_a_handler_acts_as_the_worker_does(stage: Stage) -> None:
    app = stage.app

    @app.queue("q", partitions=2).task
    def pause_others() -> None:
        app.pause("ordered")

    pause_others.enqueue()
    with acting_as(Actor("someone", "cli")):
        entries = stage.entered(lambda: app.work(until_idle=True))
    assert [(entry.act, entry.actor, entry.source) for entry in entries] == [("pause", current_actor().name, "python")]


def test_neither_arguments_of_jobs_nor_errors_with_them_are_entered(stage: Stage, execute: Execute) -> None:
    (dead,) = stage.fail(stage.t)
    with pytest.raises(InvalidInput, match="hunter2"):
        stage.app.retry(dead, args={"hunter2": 1})
    stage.app.retry(dead, args={"n": 424242})
    entered = str(execute("select a::text from penstock.audit as a"))
    assert "hunter2" not in entered
    assert "424242" not in entered
    assert stage.app.audit(act="retry")[0].detail == {"args": "given", "state": "ready"}


def test_entries_are_read_newest_first_page_by_page_and_by_who_what_and_on_what(stage: Stage) -> None:
    app = stage.app
    for name in ("ann", "ben"):
        with acting_as(Actor(name, "http")):
            for _ in range(3):
                app.pause("q")
                app.resume("q")
    every = app.audit()
    assert [entry.id for entry in every] == sorted((entry.id for entry in every), reverse=True)
    assert [entry.at for entry in every] == sorted((entry.at for entry in every), reverse=True)
    pages, before = [], None
    while page := app.audit(limit=4, before=before):
        pages += page
        before = str(page[-1].id)
    assert pages == every
    assert len(app.audit(actor="ann")) == 6
    assert [entry.act for entry in app.audit(actor="ben", act="pause")] == ["pause"] * 3
    assert {entry.act for entry in app.audit(target="nightly")} == {"cron"}
    assert app.audit(actor="nobody") == []
    assert app.audit(since=every[3].at) == every[:4]
    assert app.audit(since=every[0].at + timedelta(microseconds=1)) == []
    assert app.audit(since=datetime(1900, 1, 1, tzinfo=UTC), act="cron") == app.audit(act="cron")
    assert app.audit(since=datetime(9998, 1, 1, tzinfo=UTC)) == []


def test_what_is_older_than_its_retention_goes_and_what_is_of_today_stays(stage: Stage, execute: Execute) -> None:
    stage.app.pause("q")
    day = 86_400_000_000 * 1024
    execute(f"update penstock.audit set id = id - 31 * {day} where act <> 'pause'")
    old = [entry.act for entry in stage.app.audit()]
    assert len(old) == 4
    for url in (database.url for database in stage.app.databases):
        database = Database(url)
        assert database.run(lambda connection: forget(connection, 32)) == 0
        database.run(lambda connection: forget(connection, 30))
        # Nobody can have what was just done forgotten.
        assert database.run(lambda connection: forget(connection, 0.0)) == 0
        database.close()
    assert [entry.act for entry in stage.app.audit()] == ["pause"]


def test_hostile_words_are_entered_as_they_can_be_stored(stage: Stage) -> None:
    text = "'; drop table penstock.audit; -- \x00 \ud800 {} %s"
    with acting_as(Actor(text, "http", text)), pytest.raises(PenstockError):
        stage.app.cancel(tag="x" * 300, reason="r" * 10_000)
    with acting_as(Actor(text, "http", text)):
        stage.app.cancel(queue="q", key=b"\xff\x00", reason="it's\nme")
    entry = stage.app.audit()[0]
    assert entry.actor == entry.address == "'; drop table penstock.audit; -- \ufffd ? {} %s"
    assert entry.detail == {"key": "\\xff\ufffd", "reason": "it's\nme"}


def test_the_command_line_shows_what_was_done_and_says_that_it_was_asked_there(
    tmp_path: Path, stage: Stage, urls: list[str]
) -> None:
    penstock = CommandLine(tmp_path, " ".join(urls))
    penstock.done("pause", "q")
    penstock.done("token", "create", "shop", "--role", "read")
    made, paused = penstock.done("audit", "--limit", "2", "--json").json["entries"]
    assert (paused["act"], paused["source"], paused["outcome"], paused["target"]) == ("pause", "cli", "done", "q")
    assert paused["actor"] == current_actor().name
    assert (made["act"], made["target"], made["detail"]) == ("create_token", "shop", {"role": "read"})
    assert isinstance(made["id"], str)
    (before,) = penstock.done("audit", "--before", made["id"], "--json", "--limit", "1").json["entries"]
    assert before == paused
    assert re.search(r"cli +pause +q +done", penstock.done("audit", "--act", "pause").out)
    assert penstock.done("audit", "--target", "nobody").out == "nothing like that was done\n"
    assert "before: 'x' is not the id of an entry" in penstock.refused("audit", "--before", "x")
