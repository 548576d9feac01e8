"""Batches whose worker, process or answer is lost: nothing runs twice at once, and the one that kills is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from tests.judge.snapshot import read_snapshot
from tests.system import in_processes
from tests.system.conftest import Execute, MakeApp
from tests.system.orders import Order

from penstock import App
from penstock.engine import conversation
from penstock.storage.work.exchange import Turn

WORKER = """
import os, signal, sys
from penstock import App

app = App(shards=sys.argv[1:], lease=1.0)
queue = app.queue("q", partitions=len(sys.argv[1:]), order="key")

@queue.task(key="customer", batch=10, max_attempts=2, backoff=0)
def book(orders: list[dict]) -> list:
    numbers = [order["n"] for order in orders]
    os.write(1, (" ".join(map(str, numbers)) + "\\n").encode())
    if 7 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers

app.work(concurrency=4, until_idle=True)
"""


def test_after_a_crash_the_jobs_of_a_batch_run_alone_and_no_attempt_was_charged(
    urls: list[str], tmp_path: Path, execute: Execute
) -> None:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    with App(shards=urls) as app:

        @app.queue("q", partitions=len(urls), order="key").task(key="customer", batch=10, max_attempts=2)
        def book(orders: list[dict[str, Any]]) -> None: ...

        ids = book.enqueue_many([{"customer": "a", "n": n} for n in range(10)])
        calls: list[str] = []
        died = 0
        while not read_snapshot(*urls).is_drained:
            command = [sys.executable, str(program), *urls]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=dict(os.environ))
            assert ran.returncode in (0, -signal.SIGKILL)
            died += ran.returncode != 0
            calls += ran.stdout.splitlines()
        assert calls[0] == "0 1 2 3 4 5 6 7 8 9"
        # In order, and alone: the one that kills its worker is found, and dies of its own two attempts.
        assert calls[1:] == [*"01234567", *"789"]
        assert died == 3
        assert str(app.job(ids[7]).state) == "failed"
        for n, job in enumerate(ids):
            assert n == 7 or (app.job(job).state, app.job(job).attempt, app.job(job).failures) == ("succeeded", 1, [])
        assert len(app.job(ids[7]).failures) == 2


@pytest.mark.parametrize("order", [None, "key"])
def test_a_process_that_dies_charges_no_job_of_its_batch_and_they_run_alone(
    app: App, order: Literal["key"] | None
) -> None:
    queue = app.queue("q", partitions=1, order=order)
    work = queue.task(batch=10, executor="process", max_attempts=2, backoff=0, key=None if order is None else "key")(
        in_processes.die_of_three
    )
    ids = work.enqueue_many([{"n": n, "key": "k"} for n in range(6)])
    app.work(until_idle=True, concurrency=2)
    ended = [app.job(job) for job in ids]
    assert [job.state for job in ended] == ["failed" if n == 3 else "succeeded" for n in range(6)]
    assert [job.attempt for job in ended] == [2 if n == 3 else 1 for n in range(6)]
    assert [len(job.failures) for job in ended] == [2 if n == 3 else 0 for n in range(6)]


@pytest.mark.parametrize("order", [None, "key"])
def test_a_batch_whose_claim_was_not_heard_of_is_still_one_and_in_order(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    app = make_app()
    calls: list[list[int]] = []
    exchange = conversation.exchange  # type: ignore[attr-defined]
    lost: list[int] = []

    def lose_answer(connection: Any, *args: Any, **named: Any) -> Turn:
        turn = exchange(connection, *args, **named)
        if (turn.leases or turn.chosen) and not lost:
            lost.append(len(turn.leases or turn.chosen))
            connection.close()
            raise psycopg.OperationalError("the answer was lost")
        return turn

    monkeypatch.setattr(conversation, "exchange", lose_answer)

    @app.queue("q", partitions=1, order=order).task(key="customer", batch=10)
    def work(orders: list[Order]) -> None:
        calls.append([order.n for order in orders])

    for n in range(5):
        work.enqueue(Order("a", n))
    app.work(until_idle=True)
    assert lost == [5]
    assert calls == [[0, 1, 2, 3, 4]]
