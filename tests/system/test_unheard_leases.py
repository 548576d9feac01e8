"""Settling in the handler's transaction: a job goes on whose handler ended before it heard of the job's lease."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.judge.snapshot import read_snapshot
from tests.system.conftest import Working
from tests.system.facts import eventually

import penstock
from penstock import App
from penstock.storage.work.settle import split_lease
from penstock.worker.watchdog import Watchdog

# The transactions are never begun: no handler here hears of its lease, and settles on nothing.
NO_CONNECTION = None


class Answer:
    """The first answer of the database to a job that asks for a lease of its own: given, and not heard."""

    def __init__(self) -> None:
        self.is_given = threading.Event()
        self.let_through = threading.Event()
        self.is_lost = False

    def split(self, *asked: Any) -> int | None:
        lease = split_lease(*asked)
        if not self.is_given.is_set():
            assert lease is not None
            self.is_given.set()
            if self.is_lost:
                raise penstock.PartitionUnavailable("the answer was lost, and the database did not come back in time")
            self.let_through.wait(60)
        return lease


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    answer = Answer()
    monkeypatch.setattr("penstock.worker.context.split_lease", answer.split)
    yield answer
    answer.let_through.set()


@pytest.mark.parametrize("order", [None, "key"])
def test_g2_a_handler_that_times_out_while_it_asks_for_a_lease_of_its_own_does_not_keep_its_job(
    app: App, urls: list[str], answer: Answer, order: Any
) -> None:
    # However often it is interrupted before it asks, on a busy machine.
    @app.queue("q", order=order).task(max_attempts=1000, backoff=0, timeout=0.2)
    async def work(context: penstock.Context, n: int) -> None:
        if n == 0 and not answer.is_given.is_set():
            await context.asettle(NO_CONNECTION)

    keyed = work.options(key="k") if order == "key" else work
    jobs = [keyed.enqueue(n=n) for n in range(2)]
    app.work(until_idle=True)
    assert answer.is_given.is_set()
    assert not answer.let_through.is_set()
    assert [app.job(job).state for job in jobs] == ["succeeded", "succeeded"]
    assert read_snapshot(*urls).states == {"succeeded": 2}


def test_g2_a_handler_that_is_cancelled_while_it_asks_for_a_lease_of_its_own_does_not_keep_its_job(
    app: App, working: Working, answer: Answer
) -> None:
    @app.queue("q").task(max_attempts=3, backoff=0)
    async def work(context: penstock.Context) -> None:
        await context.asettle(NO_CONNECTION)

    job = work.enqueue()
    with working(app):
        eventually(answer.is_given.is_set, "the lease was given")
        app.cancel(job)
        eventually(lambda: app.job(job).state == "cancelled", "it ended")
    assert not answer.let_through.is_set()


@pytest.mark.parametrize("ending", ["raises", "returns", "hangs"])
@pytest.mark.parametrize("order", [None, "key"])
def test_g2_a_plain_handler_that_was_given_a_lease_of_its_own_unheard_of_does_not_keep_its_job(
    app: App, urls: list[str], answer: Answer, order: Any, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer.is_lost = True
    attempts: list[int] = []
    due, hung = Watchdog._due, threading.Event()
    monkeypatch.setattr(Watchdog, "_due", lambda watchdog, job: due(watchdog, job) if hung.is_set() else None)

    @app.queue("q", order=order).task(max_attempts=1000, backoff=0, timeout=0.2)
    def work(context: penstock.Context, n: int) -> None:
        if n == 1:
            return
        attempts.append(context.attempt)
        if answer.is_given.is_set():
            return
        try:
            context.settle(NO_CONNECTION)
        except penstock.PartitionUnavailable:
            if ending == "raises":
                raise
            if ending == "hangs":
                hung.set()
                answer.let_through.wait(60)

    keyed = work.options(key="k") if order == "key" else work
    jobs = [keyed.enqueue(n=n) for n in range(2)]
    # One worker, once: another would rescue what this one leaves behind.
    app.work(until_idle=True)
    assert not answer.let_through.is_set()
    assert [app.job(job).state for job in jobs] == ["succeeded", "succeeded"]
    assert attempts[0] == 1
    assert len(attempts) > 1
    assert read_snapshot(*urls).states == {"succeeded": 2}


def test_g2_an_async_handler_that_was_given_a_lease_of_its_own_unheard_of_does_not_keep_its_job(
    app: App, urls: list[str], answer: Answer
) -> None:
    answer.is_lost = True

    @app.queue("q").task(max_attempts=3, backoff=0)
    async def work(context: penstock.Context) -> None:
        if not answer.is_given.is_set():
            await context.asettle(NO_CONNECTION)

    job = work.enqueue()
    app.work(until_idle=True)
    assert (app.job(job).state, app.job(job).attempt) == ("succeeded", 2)
    assert read_snapshot(*urls).states == {"succeeded": 1}
