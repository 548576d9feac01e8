"""Chains of jobs: one that is cancelled costs nobody else time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.system.conftest import Working
from tests.system.facts import eventually

from penstock import App
from penstock.storage import Connection
from penstock.storage.upkeep import sweep


def test_g13_a_chain_that_ends_with_its_head_keeps_no_other_job_waiting(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue("q")
    is_done, has_begun = threading.Event(), threading.Event()
    looks: Counter[str] = Counter()
    children_of = sweep.children_of

    def slow(connection: Connection, parents: Sequence[int]) -> list[int]:
        # A thread's first generation is as fast as ever, its further ones take until the other job is done.
        looks[threading.current_thread().name] += 1
        has_begun.set()
        if looks[threading.current_thread().name] > 1:
            assert is_done.wait(60)
        return children_of(connection, parents)

    monkeypatch.setattr(sweep, "children_of", slow)

    @queue.task(max_attempts=1)
    def head() -> None:
        raise ValueError("on purpose")

    @queue.task
    def link() -> None:
        raise AssertionError("it must not run")

    @queue.task
    def other() -> str:
        return "done"

    @queue.task
    def last() -> str:
        return "at last"

    jobs = [head.enqueue()]
    for _ in range(20):
        jobs.append(link.options(after=[jobs[-1]]).enqueue())
    end = last.options(after=[jobs[-1]], on_parent_failure="run").enqueue()
    with working(app):
        eventually(has_begun.is_set, "the chain is being cancelled")
        assert app.result(other.enqueue(), timeout=60) == "done"
        is_done.set()
        assert app.result(end, timeout=60) == "at last"
    assert [app.job(job).state for job in jobs] == ["failed"] + ["cancelled"] * 20


def test_a_worker_until_idle_is_not_done_before_the_last_of_a_chain(app: App) -> None:
    queue = app.queue("q")

    @queue.task(max_attempts=1)
    def head() -> None:
        raise ValueError("on purpose")

    @queue.task
    def last() -> str:
        return "at last"

    jobs = [head.enqueue()]
    for _ in range(30):
        jobs.append(last.options(after=[jobs[-1]]).enqueue())
    end = last.options(after=[jobs[-1]], on_parent_failure="run").enqueue()
    app.work(until_idle=True)
    assert app.result(end, timeout=0) == "at last"
