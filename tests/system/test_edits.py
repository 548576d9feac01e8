"""A dead letter is retried with other arguments: which are taken, and who is told."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from tests.system.conftest import Working
from tests.system.facts import eventually

from penstock import App, InvalidInput


def fail(app: App) -> None:
    app.work(until_idle=True)


def test_a_dead_letter_runs_again_with_other_arguments(app: App, working: Working) -> None:
    queue = app.queue("q")
    got: list[Any] = []

    @queue.task(max_attempts=1)
    def book(day: date, item: UUID) -> str:
        got.append((day, item))
        if day.year < 2000:
            raise ValueError("long ago")
        return day.isoformat()

    item = UUID(int=1)
    id_ = book.enqueue(day=date(1999, 1, 1), item=item)
    child = book.options(after=[id_]).enqueue(day=date(2001, 1, 1), item=item)
    fail(app)
    with pytest.raises(InvalidInput, match="wants UUID"):
        app.retry(id_, args={"day": "2026-01-02", "item": "no"})
    with pytest.raises(InvalidInput, match="needs argument 'item'"):
        app.retry(id_, args={"day": "2026-01-02"})
    with pytest.raises(InvalidInput, match="has no argument 'x'"):
        app.retry(id_, args={"day": date(2026, 1, 2), "item": item, "x": 1})
    with pytest.raises(InvalidInput, match="a dict of arguments"):
        app.retry(id_, args=["day"])  # type: ignore[call-overload]
    assert app.job(id_).edits == []
    assert app.retry(id_, args={"day": date(2026, 1, 2), "item": str(item)}) == "ready"
    with working(app):
        # What was cancelled for it comes back with it.
        eventually(lambda: app.job(child).state == "succeeded", "its child has succeeded")
    assert app.result(id_) == "2026-01-02"
    assert got[-2:] == [(date(2026, 1, 2), item), (date(2001, 1, 1), item)]
    job = app.job(id_)
    assert job.args == {"day": "2026-01-02", "item": str(item)}
    (edit,) = job.edits
    assert (edit.args, "@" in edit.edited_by) == ({"day": "1999-01-01", "item": str(item)}, True)
    with pytest.raises(InvalidInput, match="is succeeded, and only a dead letter's"):
        app.retry(id_, args={"day": date(2026, 1, 3), "item": item})
    with pytest.raises(InvalidInput, match="is succeeded, and only a dead letter's"):
        app.retry(id_, args=job.args)


def test_arguments_are_changed_of_one_job(app: App) -> None:
    app.queue("q")
    with pytest.raises(InvalidInput, match="arguments are changed of one job"):
        app.retry(queue="q", args={})  # type: ignore[call-overload]


def test_the_key_of_a_job_stays(app: App) -> None:
    queue = app.queue("q", order="key")

    @queue.task(max_attempts=1, key="customer")
    def update(customer: str, amount: float) -> None:
        if amount < 0:
            raise ValueError("less than nothing")

    ids = [update.enqueue(customer="a", amount=-1.0), update.options(key="b").enqueue(customer="a", amount=-1.0)]
    fail(app)
    with pytest.raises(InvalidInput, match="another key than 'a'"):
        app.retry(ids[0], args={"customer": "c", "amount": 1.0})
    assert app.retry(ids[0], args={"customer": "a", "amount": 1.0}) == "ready"
    # This one's key was given beside its arguments.
    assert app.retry(ids[1], args={"customer": "c", "amount": 1.0}) == "ready"
    fail(app)
    assert [(app.job(id_).state, app.job(id_).key) for id_ in ids] == [("succeeded", "a"), ("succeeded", "b")]


def test_an_app_that_does_not_declare_the_task_edits_only_jobs_without_a_key(app: App, urls: list[str]) -> None:
    queue = app.queue("q")

    @queue.task(max_attempts=1)
    def work(n: int) -> int:
        if n < 0:
            raise ValueError("no")
        return n

    plain, keyed = work.enqueue(n=-1), work.options(key="k").enqueue(n=-1)
    fail(app)
    with App(shards=urls) as other:
        with pytest.raises(InvalidInput, match="only an app that declares task 'work' of queue 'q' knows"):
            other.retry(keyed, args={"n": 1})
        with pytest.raises(InvalidInput, match="not text"):
            other.retry(plain, args={1: 1})  # type: ignore[dict-item]
        assert other.retry(plain, args={"n": 1}) == "ready"
    assert asyncio.run(app.aretry(keyed, args={"n": 2})) == "ready"
    fail(app)
    assert [app.result(id_) for id_ in (plain, keyed)] == [1, 2]
