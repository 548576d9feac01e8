"""`ps.process`: jobs run as Arrow batches on executors, each row ends as its outcome says, and nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock import App, InvalidInput, NotFound
from penstock.spark.processing.row_outcome import Outcome


def _rows(batch: pa.RecordBatch) -> list[tuple[dict[str, Any], int]]:
    attempts = batch.column("attempt").to_pylist()
    return [
        (json.loads(args), attempt) for args, attempt in zip(batch.column("args").to_pylist(), attempts, strict=True)
    ]


def _settled(url: str) -> tuple[int, int]:
    """How many ends were written, and of how many jobs."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*), count(distinct job_id) from penstock.finished_job").fetchone()
        assert row is not None
        return row[0], row[1]


def judge_by_amount(batch: pa.RecordBatch) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for args, attempt in _rows(batch):
        amount = args["amount"]
        if amount == 1:
            outcomes.append(ps.Dead("no such customer"))
        elif amount == 2 and attempt == 1:
            outcomes.append(ps.RetryAfter(0, "busy"))
        elif amount == 3:
            outcomes.append(ps.RetryAfter(0, "always busy"))
        elif amount == 4:
            outcomes.append(ps.Ok({1, 2}))
        else:
            outcomes.append(ps.Ok({"seen": amount}))
    return outcomes


def test_each_row_ends_as_its_outcome_says(spark: SparkSession, app: App) -> None:
    @app.queue("payments").task(max_attempts=2)
    def pay(amount: int) -> None: ...

    ids = pay.enqueue_many([{"amount": amount} for amount in range(2_000)])
    ids += [pay.options(tenant="acme", key=b"\xff\x00").enqueue(amount=2_000)]
    assert ps.process(spark, app, "payments", judge_by_amount) == (1_998, 2, 3, 0, 0)
    assert app.result(ids[0]) == {"seen": 0}
    assert app.result(ids[1_999]) == {"seen": 1_999}
    dead = {job.args["amount"]: job for job in app.jobs(queue="payments", state="failed")}
    assert sorted(dead) == [1, 3, 4]
    assert dead[1].error == "no such customer"
    assert dead[1].attempt == 1
    assert [failure.error for failure in dead[3].failures] == ["always busy", "always busy"]
    assert "set" in str(dead[4].error)
    again = app.job(ids[2])
    assert (again.state, again.attempt, [failure.error for failure in again.failures]) == ("succeeded", 2, ["busy"])
    assert str(again.worker).startswith("spark/")
    assert app.workers() == []
    stats = app.stats("payments")
    assert (stats.total_completed, stats.dead, stats.queue_length) == (1_998, 3, 0)


def complain(batch: pa.RecordBatch) -> list[Outcome]:
    raise ValueError("the batch is bad")


def test_a_handler_that_raises_ends_every_row_as_its_task_says(spark: SparkSession, app: App) -> None:
    queue = app.queue("imports")

    @queue.task(max_attempts=2, backoff=0)
    def read(name: str) -> None: ...
    @queue.task(discard_on=ValueError)
    def skip(name: str) -> None: ...

    jobs = [task.enqueue(name="a") for task in (read, skip) for _ in range(2)]
    # One at a time, so that no task's jobs share a batch with another's.
    done = ps.process(spark, app, "imports", complain, batch_size=1, slots=1)
    assert done == (0, 2, 2, 0, 0)
    first = str(app.job(jobs[0]).error)
    assert first.startswith("ValueError: the batch is bad")
    assert "test_process.py" in first
    assert "/penstock/spark/" not in first
    assert len(app.job(jobs[0]).failures) == 2
    assert app.job(jobs[2]).state == "discarded"


@pytest.mark.parametrize("until_idle", [True, False])
def test_a_handler_that_breaks_its_contract_ends_the_run_and_costs_no_attempt(
    spark: SparkSession, app: App, until_idle: bool
) -> None:
    @app.queue("imports").task(max_attempts=1)
    def read(number: int) -> None: ...

    ids = read.enqueue_many([{"number": number} for number in range(300)])

    def count(batch: pa.RecordBatch) -> int:
        return len(batch)

    with pytest.raises(InvalidInput, match=r"handler: it gave int for a batch of \d+ rows; return None where all went"):
        ps.process(spark, app, "imports", count, until_idle=until_idle)  # type: ignore[arg-type]
    stats = app.stats("imports")
    assert (stats.queue_length, stats.active_count, stats.total_completed, stats.dead) == (300, 0, 0, 0)
    assert [app.job(job).failures for job in ids[:50]] == [[]] * 50
    assert app.workers() == []
    assert ps.process(spark, app, "imports", lambda _: None) == (300, 0, 0, 0, 0)


@pytest.mark.parametrize("order", [None, "key"])
def test_g3_g5_jobs_of_a_killed_executor_run_again_in_order_and_end_once(
    spark: SparkSession, database_url: str, tmp_path: Path, order: Any
) -> None:
    kills = tmp_path / "kills"
    kills.mkdir()

    def tell_times(batch: pa.RecordBatch) -> list[Outcome]:
        began = time.monotonic_ns()
        keys = batch.column("key").to_pylist()
        assert order is None or len(set(keys)) == len(keys), "two jobs of a key in one batch"
        rows = _rows(batch)
        for number in (100, 1_000):
            if any(args["number"] == number for args, _ in rows) and not (kills / str(number)).exists():
                (kills / str(number)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        ended = time.monotonic_ns()
        return [
            ps.RetryAfter(0, "once more") if args["number"] % 50 == 7 and attempt == 1 else ps.Ok([began, ended])
            for args, attempt in rows
        ]

    with App(database_url, lease=1.0) as app:

        @app.queue("updates", partitions=2, order=order).task(key="customer")
        def update(customer: str, number: int) -> None: ...

        ids = update.enqueue_many([{"customer": f"c-{number % 20}", "number": number} for number in range(1_200)])
        done = ps.process(spark, app, "updates", tell_times)
        assert sorted(path.name for path in kills.iterdir()) == ["100", "1000"]
        assert done.rescued > 0
        assert done.failed == 0
        assert _settled(database_url) == (1_200, 1_200)
        assert app.stats("updates").total_completed == 1_200
        assert app.job(ids[100]).state == "succeeded"
        if order is not None:
            times = defaultdict(list)
            for number, job in enumerate(ids):
                times[number % 20].append(app.result(job))
            for runs in times.values():
                assert all(before[1] <= after[0] for before, after in pairwise(runs))


def test_a_job_that_kills_its_executor_becomes_a_dead_letter_and_takes_no_other_with_it(
    spark: SparkSession, database_url: str
) -> None:
    def die_of_one(batch: pa.RecordBatch) -> list[Outcome]:
        if any(args["number"] == 130 for args, _ in _rows(batch)):
            os.kill(os.getpid(), signal.SIGKILL)
        return [ps.Ok()] * batch.num_rows

    with App(database_url, lease=0.5) as app:

        @app.queue("updates").task(max_attempts=2)
        def update(number: int) -> None: ...

        ids = update.enqueue_many([{"number": number} for number in range(300)])
        done = ps.process(spark, app, "updates", die_of_one)
        assert done.failed == 0
        assert app.job(ids[130]).state == "failed"
        assert [failure.error[:10] for failure in app.job(ids[130]).failures] == ["WorkerDied"] * 2
        stats = app.stats("updates")
        assert (stats.total_completed, stats.dead, stats.queue_length) == (299, 1, 0)


def test_it_runs_until_it_is_told_to_stop_and_takes_tasks_that_nobody_announced(
    spark: SparkSession, app: App, database_url: str
) -> None:
    @app.queue("mails").task
    def send(to: str) -> None: ...

    send.enqueue(to="a@b.c")
    stop = threading.Event()
    done: list[Any] = []

    def say_task(batch: pa.RecordBatch) -> list[Outcome]:
        return [ps.Ok(task) for task in batch.column("task").to_pylist()]

    def run() -> None:
        done.append(ps.process(spark, app, "mails", say_task, until_idle=False, stop=stop, slots=1))

    thread = threading.Thread(target=run)
    thread.start()
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("select penstock.enqueue('mails', 'unheard-of', '{}')").fetchone()
    assert row is not None
    assert app.result(row[0], timeout=60) == "unheard-of"
    assert any("driver" in worker.name for worker in app.workers())
    stop.set()
    thread.join()
    assert done == [(2, 0, 0, 0, 0)]
    assert app.workers() == []

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.enqueue('mails', 'unheard-of', '{}')")
    job = send.enqueue(to="d@e.f")
    assert ps.process(spark, app, "mails", say_task, tasks=["send"], slots=1).succeeded == 1
    assert app.result(job) == "send"
    assert app.stats("mails").queue_length == 1


def test_what_cannot_be_is_refused_by_name(spark: SparkSession, app: App) -> None:
    app.queue("mails")

    async def complain_later(batch: pa.RecordBatch) -> list[Outcome]:
        return complain(batch)

    for options, field in (
        ({"handler": "send"}, "handler"),
        ({"handler": complain_later}, "handler"),
        ({"batch_size": 0}, "batch_size"),
        ({"slots": 0}, "slots"),
        ({"budget": 0}, "budget"),
        ({"tasks": "send"}, "tasks"),
        ({"tasks": [""]}, "tasks"),
    ):
        given: dict[str, Any] = {"handler": complain, **options}
        with pytest.raises(InvalidInput, match=field):
            ps.process(spark, app, "mails", **given)
    with pytest.raises(NotFound):
        ps.process(spark, app, "nowhere", complain)
    with pytest.raises(InvalidInput, match="seconds"):
        ps.RetryAfter(-1)
    with pytest.raises(InvalidInput, match="reason"):
        ps.Dead(None)  # type: ignore[arg-type]


def test_an_executor_loads_neither_worker_nor_app() -> None:
    script = (
        "import sys, penstock.spark.processing.executor_worker, penstock.spark.streaming.stream_reader; "
        "others = ('penstock.worker', 'penstock.app', 'penstock.client', 'penstock.admin'); "
        "print([name for name in sys.modules if name.startswith(others)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
