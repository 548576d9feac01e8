"""What the log of a worker says of its jobs, and how it is written."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.cli_runs import CommandLine

from penstock import App, Discard, JobFilter

FIELDS = ("job_id", "queue", "task", "attempt")
OWN = logging.getLogger("shop")


class Kept(logging.Handler):
    """Keeps records with their fields."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(JobFilter())
        self.seen: list[tuple[Any, ...]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.getMessage(), *(getattr(record, name) for name in FIELDS)))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, level = Kept(), OWN.level
    OWN.addHandler(handler)
    OWN.setLevel(logging.INFO)
    yield handler
    OWN.removeHandler(handler)
    OWN.setLevel(level)


def test_starts_ends_retries_and_dead_letters_are_told_at_their_levels(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.queue("q").task(max_attempts=2, backoff=0)
    def work(name: str) -> None:
        if name == "bad":
            raise ValueError("no")
        if name == "unwanted":
            raise Discard("nobody wants it")

    good, bad, unwanted = (work.enqueue(name=name) for name in ("good", "bad", "unwanted"))
    with caplog.at_level(logging.DEBUG, "penstock"):
        app.work(until_idle=True, concurrency=1)

    def told(job: int) -> list[tuple[str, str, int]]:
        found = [record for record in caplog.records if getattr(record, "job_id", None) == job]
        assert {(record.queue, record.task) for record in found} == {("q", "work")}  # type: ignore[attr-defined]
        return [
            (record.levelname, record.getMessage().replace(str(job), "J").split(" after ")[0], record.attempt)  # type: ignore[attr-defined]
            for record in found
        ]

    assert told(good) == [("DEBUG", "job J (q/work) starts, attempt 1", 1), ("DEBUG", "job J (q/work) succeeded", 1)]
    assert sorted(told(bad)) == sorted([
        ("DEBUG", "job J (q/work) starts, attempt 1", 1),
        ("DEBUG", "job J (q/work) failed, and is repeated", 1),
        ("WARNING", "attempts that failed and are repeated: 1, the first is job J (q/work), attempt 1 of 2, "
         "again in 0 s: ValueError: no", 1),
        ("DEBUG", "job J (q/work) starts, attempt 2", 2),
        ("DEBUG", "job J (q/work) is a dead letter", 2),
        ("ERROR", "dead letters: 1, the first is job J (q/work), attempt 2 of 2: ValueError: no", 2),
    ])  # fmt: skip
    assert ("INFO", "discarded: 1, the first is job J (q/work), attempt 1 of 2: nobody wants it", 1) in told(unwanted)
    assert [level for level, _, _ in told(unwanted) if level != "DEBUG"] == ["INFO"]
    said = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert said[0].startswith("working on q, 1 at a time, database ")
    assert "1 succeeded, 1 retried, 1 failed, 0 rescued" in said[-1]


def test_records_of_an_applications_own_loggers_have_the_job_of_the_handler_that_made_them(
    app: App, kept: Kept
) -> None:
    queue = app.queue("q")

    @queue.task
    def plain(name: str) -> None:
        OWN.info("%s", name)

    @queue.task
    async def coroutine(name: str) -> None:
        OWN.info("%s", name)
        await asyncio.gather(asyncio.to_thread(OWN.info, "%s in a thread", name), asyncio.sleep(0))

    jobs = {
        name: task.enqueue(name=name) for task in (plain, coroutine) for name in (f"{task.name} {n}" for n in (1, 2))
    }
    app.work(until_idle=True)
    OWN.info("outside")
    names = [*jobs, *(f"{name} in a thread" for name in jobs if name.startswith("c")), "outside"]
    expected = [
        (name, None, None, None, None)
        if name == "outside"
        else (name, jobs[name.removesuffix(" in a thread")], "q", name.split()[0], 1)
        for name in names
    ]
    assert sorted(kept.seen, key=str) == sorted(expected, key=str)


def test_the_log_tells_of_a_batch_in_one_line(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.queue("q", partitions=1).task(batch=10, max_attempts=1)
    def work(items: list[dict[str, int]]) -> list[Any]:
        OWN.info("at work")
        return [ValueError(item["n"]) for item in items]

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    caplog.handler.addFilter(JobFilter())
    with caplog.at_level(logging.DEBUG):
        app.work(until_idle=True)
    (began,) = [each for each in caplog.records if "starts" in each.getMessage()]
    assert began.getMessage() == f"batch of 3 (q/work), the first is job {ids[0]}, starts, attempt 1"
    assert (began.job_id, began.jobs) == (ids[0], 3)  # type: ignore[attr-defined]
    (mine,) = [each for each in caplog.records if each.name == "shop"]
    assert (mine.job_id, mine.task, mine.attempt) == (ids[0], "work", 1)  # type: ignore[attr-defined]
    (dead,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert dead.getMessage().startswith(
        f"dead letters: 3, the first is job {ids[0]} (q/work), attempt 1 of 1: ValueErr"
    )


TASKS = """
import logging
from penstock import App

SETUP
app = App()

@app.queue("q").task(max_attempts=1)
def work(name):
    logging.getLogger("shop").info("at work for %s", name)
    if name == "bad":
        raise ValueError("no")

@app.queue("q").task(executor="process")
def apart(name):
    logging.getLogger("shop").info("apart for %s", name)
"""


@pytest.fixture
def penstock(tmp_path: Path, urls: list[str]) -> CommandLine:
    (tmp_path / "tasks.py").write_text(TASKS.replace("SETUP", ""), encoding="utf-8")
    return CommandLine(tmp_path, " ".join(urls))


def test_the_command_line_writes_the_log_as_it_is_told(penstock: CommandLine) -> None:
    job = penstock.done("enqueue", "tasks:app", "work", "name=bad").out.strip()
    apart = penstock.done("enqueue", "tasks:app", "apart", "name=good").out.strip()
    run = penstock("work", "tasks:app", "--until-idle", "--log-json", "--log-level", "info")
    assert run.code == 0
    entries = [json.loads(line) for line in run.err.splitlines()]
    about = {entry["message"].partition(":")[0]: entry for entry in entries}
    assert {name: about["at work for bad"][name] for name in FIELDS} == {
        "job_id": job, "queue": "q", "task": "work", "attempt": 1,
    }  # fmt: skip
    assert (about["apart for good"]["job_id"], about["apart for good"]["task"]) == (apart, "apart")
    assert (about["dead letters"]["level"], about["dead letters"]["job_id"]) == ("error", job)

    job = penstock.done("enqueue", "tasks:app", "work", "name=good").out.strip()
    lines = penstock("work", "tasks:app", "--until-idle").err
    assert f"INFO [job {job} q/work] at work for good" in lines
    assert "starts" not in lines
    penstock.done("enqueue", "tasks:app", "work", "name=good")
    assert penstock("work", "tasks:app", "--until-idle", "--log-level", "ERROR").err == ""
    assert "--log-level" in penstock.wrong("work", "tasks:app", "--log-level", "loud")


def test_logging_that_an_app_sets_up_itself_is_left_alone(penstock: CommandLine) -> None:
    own = "logging.basicConfig(format='own %(message)s', level='INFO')"
    (penstock.folder / "tasks.py").write_text(TASKS.replace("SETUP", own), encoding="utf-8")
    penstock.done("enqueue", "tasks:app", "work", "name=good")
    lines = penstock("work", "tasks:app", "--until-idle").err.splitlines()
    assert "own at work for good" in lines
    assert all(line.startswith("own ") for line in lines)
    assert "sets up logging itself" in penstock.wrong("work", "tasks:app", "--log-json")
