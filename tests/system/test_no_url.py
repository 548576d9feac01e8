"""Where no URL is given: who looks creates nothing, who creates says so, the nearest folder is found, and all of it can
be forbidden.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from tests.servers import wait_until_stopped
from tests.system.cli_runs import CommandLine

from penstock import App, embedded
from penstock.cli.program import program
from penstock.errors import InvalidInput, NotFound, PenstockError

TASKS = "from penstock import App\napp = App()\n@app.queue('q').task\ndef t(): ...\n"
ID = "1048576"
# Every command, and what it is given here; those that bring in work or workers come last.
NEED_ONE = [
    "top", "top --once", "watch x",
    "stats", "stats q", "jobs", f"job {ID}", f"explain {ID}", "workers", "crons", "blocked-keys q",
    "load some.csv --queue q", "loads", "pause-load x", "resume-load x", "cancel-load x", "report", "advise q",
    "archive lake", "replay lake --where 1=1 --load x", f"cancel {ID}", f"retry {ID}",
    f"reschedule {ID} 2100-01-01T00:00Z", "pause q", "resume q", "purge q --yes", "delete-queue q --yes",
    "limit q --limit 1", "release q k",
    "resize q 2", "grant reader somebody", "doctor", "shards", "shards add postgresql://nowhere/x",
    "shards move q 0 1", "shards drain 1", "crons pause x", "crons resume x", "crons run x", "crons remove x",
    "token create x --role read", "token list", "token revoke x", "audit", "causes",
    "stop-worker 1",
]  # fmt: skip
NEED_NONE = ["sql", "completion bash", "version"]
CREATE = ["up", "work", "serve", "enqueue", "migrate"]


@pytest.fixture
def penstock(folder: Path) -> CommandLine:
    (folder / "tasks.py").write_text(TASKS)
    run = CommandLine(folder, "")
    del run.environment["PENSTOCK_URL"]
    return run


def made(folder: Path) -> list[Path]:
    return list(folder.rglob(".penstock*"))


def announcements(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "creating a PostgreSQL" in each.getMessage()]


def test_every_command_but_those_that_bring_in_work_or_workers_creates_nothing(penstock: CommandLine) -> None:
    commands = typer.main.get_command(program).commands  # type: ignore[attr-defined]
    assert {line.split()[0] for line in (*NEED_ONE, *NEED_NONE, *CREATE)} == set(commands)
    for line in NEED_ONE:
        said = penstock.refused(*line.split())
        assert f"there is none in {penstock.folder}/.penstock or in a folder above; set PENSTOCK_URL" in said, line
        assert made(penstock.folder) == [], line
    for line in NEED_NONE:
        penstock.done(*line.split())
        assert made(penstock.folder) == [], line


LOOKS: dict[str, Callable[[App], Any]] = {
    "stats": lambda app: app.stats("q"),
    "queues": lambda app: app.queues(),
    "workers": lambda app: app.workers(),
    "crons": lambda app: app.crons(),
    "job": lambda app: app.job(ID),
    "jobs": lambda app: app.jobs(),
    "explain": lambda app: app.explain(ID),
    "blocked_keys": lambda app: app.blocked_keys("q"),
    "hot_keys": lambda app: app.hot_keys("q"),
    "loads": lambda app: app.loads(),
    "tokens": lambda app: app.tokens(),
    "audit": lambda app: app.audit(),
    "shards": lambda app: app.shards,
    "doctor": lambda app: app.doctor(),
    "result": lambda app: app.result(ID),
    "result in a time": lambda app: app.result(ID, timeout=1.0),
    "aresult": lambda app: asyncio.run(app.aresult(ID)),
    "astats": lambda app: asyncio.run(app.astats("q")),
    "preview of cancel": lambda app: app.cancel(queue="q", preview=True),
    "preview of retry": lambda app: app.retry(queue="q", preview=True),
    "preview of purge": lambda app: app.purge("q", preview=True),
    "unchecked_databases": lambda app: app.unchecked_databases,
    "databases": lambda app: app.databases,
}


def test_no_call_that_looks_creates_a_database(folder: Path) -> None:
    with App() as app, App(embedded_shards=2) as sharded:
        for each in (app, sharded):
            each.queue("q")
            for name, look in LOOKS.items():
                with pytest.raises(
                    PenstockError, match=rf"none in {folder}/\.penstock or in a folder above"
                ) as refused:
                    look(each)
                assert not isinstance(refused.value, (InvalidInput, NotFound)), name
                assert made(folder) == [], name


def test_an_enqueue_in_a_callers_transaction_neither_creates_one_beside_the_callers_nor_takes_it_for_its_own(
    folder: Path, database_url: str
) -> None:
    with App() as app, psycopg.connect(database_url) as connection:
        task = app.queue("q").task(name="t")(lambda: None)
        with pytest.raises(PenstockError, match="there is no database"):
            task.options(connection=connection).enqueue()

        async def enqueue() -> None:
            async with await psycopg.AsyncConnection.connect(database_url) as connection:
                await task.options(connection=connection).aenqueue()

        with pytest.raises(PenstockError, match="there is no database"):
            asyncio.run(enqueue())
        assert made(folder) == []
        app.migrate()
        with pytest.raises(InvalidInput, match=r"no shard of this app; .*; or give App the URL of that database"):
            task.options(connection=connection).enqueue()
        with psycopg.connect(app.url) as own:
            job = task.options(connection=own).enqueue()
        assert app.job(job).state == "ready"


def test_what_is_half_made_is_not_finished_by_who_looks_but_by_who_creates(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / ".penstock").mkdir(mode=0o711)
    with App() as app:
        with pytest.raises(PenstockError, match=rf"there is none in {folder}/\.penstock"):
            app.queues()
        assert not (folder / ".penstock" / "data").exists()
        assert app.migrate()
        assert app.queues() == []
    assert len(announcements(caplog)) == 1


def test_creating_says_so_once_with_the_folder_and_how_to_choose_another(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock")
    with App(embedded_shards=2) as app:
        task = app.queue("q", partitions=2).task(name="t")(lambda: None)
        task.enqueue()
    (said,) = announcements(caplog)
    assert f"creating a PostgreSQL in {folder}/.penstock, for programs that run in {folder} or below" in said
    assert all(remedy in said for remedy in ("PENSTOCK_URL", "PENSTOCK_EMBEDDED=0"))
    caplog.clear()
    with App() as app:
        assert app.stats("q").queue_length == 1
    assert not caplog.records


def test_a_folder_below_finds_it_says_which_and_makes_none_of_its_own(
    folder: Path, penstock: CommandLine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert "creating a PostgreSQL" in penstock("migrate").err
    below = folder / "one" / "two"
    below.mkdir(parents=True)
    penstock.folder = below
    penstock.done("doctor")
    monkeypatch.chdir(below)
    caplog.set_level(logging.INFO, logger="penstock")
    with App() as app:
        monkeypatch.chdir(folder.parent)
        job = app.queue("q").task(name="t")(lambda: None).enqueue()
        assert [each.getMessage() for each in caplog.records] == [
            f"using the PostgreSQL in {folder}/.penstock, the nearest above {below}"
        ]
        (below / "tasks.py").write_text(TASKS)
        assert penstock.done("job", str(job), "--json").json["state"] == "ready"
        penstock.done("enqueue", "tasks", "t")
        assert penstock.done("stats", "q", "--json").json["queue_length"] == 2
        assert f"using the PostgreSQL in {folder}/.penstock" in penstock("work", "tasks", "--until-idle").err
    assert not announcements(caplog)
    assert made(folder) == [folder / ".penstock"]


def test_what_is_not_safe_is_used_neither_to_look_nor_to_enqueue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".penstock").mkdir()
    (folder / ".penstock").chmod(0o777)
    (folder / "below").mkdir()
    for place in (folder, folder / "below"):
        monkeypatch.chdir(place)
        with App() as app:
            for call in (app.queues, app.queue("q").task(name="t")(lambda: None).enqueue, app.migrate):
                with pytest.raises(PenstockError, match=f"{folder}/.penstock may be written to by others"):
                    call()
    assert made(folder) == [folder / ".penstock"]
    assert list((folder / ".penstock").iterdir()) == []


def test_programs_that_create_it_at_the_same_moment_share_it_and_one_says_so(penstock: CommandLine) -> None:
    command = penstock.command("enqueue", "tasks", "t")
    runs = [
        subprocess.Popen(
            command,
            cwd=penstock.folder,
            env=penstock.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ends = [(*run.communicate(), run.returncode) for run in runs]
    assert [code for _, _, code in ends] == [0, 0, 0], ends
    assert len({out for out, _, _ in ends}) == 3
    assert sorted(err.count("creating a PostgreSQL") for _, err, _ in ends) == [0, 0, 1], ends
    assert penstock.done("stats", "q", "--json").json["queue_length"] == 3


def test_processes_of_a_fork_that_create_it_at_the_same_moment_share_it(folder: Path) -> None:
    program = """
import os, sys
from penstock import App
app = App()
@app.queue("q").task
def t(): ...
children = [os.fork() for _ in range(2) if os.getpid() == os.getpgrp()]
t.enqueue()
if children and all(children):
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    print(app.stats("q").queue_length)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, start_new_session=True)
    assert (run.returncode, run.stdout) == (0, "3\n"), run
    assert run.stderr.count("creating a PostgreSQL") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another account")
def test_roots_closed_folder_is_found_from_below_and_where_the_data_lies_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "closed" / "below").mkdir(parents=True)
    (folder / "closed").chmod(0o700)
    monkeypatch.chdir(folder / "closed")
    home = None
    try:
        with App() as app:
            app.queue("q").task(name="t")(lambda: None).enqueue()
            home = Path((folder / "closed" / ".penstock" / "location").read_text().strip())
        (said,) = announcements(caplog)
        assert f"in {folder}/closed/.penstock (its data in {home}), for programs" in said
        monkeypatch.chdir(folder / "closed" / "below")
        with App() as app:
            assert app.stats("q").queue_length == 1
    finally:
        if home is not None:
            wait_until_stopped(home)
            shutil.rmtree(home)


def test_it_is_forbidden_by_the_app_and_by_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    def refuse(app: App, by: str) -> None:
        assert not app.is_embedded
        task = app.queue("q").task(name="t")(lambda: None)
        for call in (*(lambda look=look: look(app) for look in LOOKS.values()), task.enqueue, app.migrate, app.work):
            with pytest.raises(
                InvalidInput, match=f"url: none was given, and {by} forbids .*set PENSTOCK_URL, or give"
            ):
                call()
        # Where no database is needed none is missed.
        with app.testing(inline=True):
            task.enqueue()
        app.close()

    refuse(App(embedded=False), "embedded=False")
    monkeypatch.setenv("PENSTOCK_EMBEDDED", "0")
    refuse(App(), "PENSTOCK_EMBEDDED=0")
    refuse(App(embedded_shards=2), "PENSTOCK_EMBEDDED=0")
    assert made(folder) == []
    with App(database_url, embedded=False) as app:
        assert app.queues() == []
    monkeypatch.setenv("PENSTOCK_EMBEDDED", "false")
    with pytest.raises(InvalidInput, match="PENSTOCK_EMBEDDED: must be 0"):
        App()
    for said in ("", "1"):
        monkeypatch.setenv("PENSTOCK_EMBEDDED", said)
        assert App().is_embedded


def test_commands_that_would_create_one_are_refused_where_it_is_forbidden(penstock: CommandLine) -> None:
    penstock.environment["PENSTOCK_EMBEDDED"] = "0"
    for line in ("enqueue tasks t", "work tasks", "up", "up tasks", "migrate", "stats", "doctor"):
        assert "PENSTOCK_EMBEDDED=0 forbids an embedded server" in penstock.refused(*line.split()), line
    penstock.done("sql")
    (penstock.folder / "tasks.py").write_text(TASKS.replace("App()", "App(embedded=False)"))
    del penstock.environment["PENSTOCK_EMBEDDED"]
    for line in ("enqueue tasks t", "work tasks", "up tasks"):
        assert "embedded=False forbids an embedded server" in penstock.refused(*line.split()), line
    assert made(penstock.folder) == []


def test_an_app_of_a_folder_that_is_gone_is_told_so_and_needs_none_with_a_url(
    folder: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    with App() as app, pytest.raises(PenstockError, match="the folder that this program runs in is gone"):
        app.migrate()
    with App(database_url) as app:
        assert app.queues() == []


def test_a_draft_of_a_shards_folder_is_no_shard(folder: Path) -> None:
    embedded.start(folder / ".penstock").close()
    (folder / ".penstock" / "shard-2.x7k").mkdir()
    with App() as app:
        assert len(app.shards) == 1
