"""GET jobs/{id}?wait: answered when the job has ended, by one look for all who wait."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import pytest
from tests.server.asking import Client
from tests.server.conftest import Shop
from tests.system.facts import eventually

from penstock import App, PartitionUnavailable
from penstock.server import job_ends


def waiting(client: Client) -> int:
    return client.application.services.job_ends._count


def test_whoever_waits_is_answered_when_the_job_has_ended(shop: Shop, client: Client) -> None:
    ends = {shop.send.enqueue(to="ada"): "succeeded", shop.send.enqueue(to="nobody"): "failed"}
    cancelled = shop.book.enqueue(customer="c")
    answers = {id_: client.start("GET", f"jobs/{id_}?wait=30") for id_ in [*ends, cancelled]}
    eventually(lambda: waiting(client) == 3, "all wait")
    shop.app.cancel(cancelled)
    shop.app.work(until_idle=True)
    for id_, state in {**ends, cancelled: "cancelled"}.items():
        assert answers[id_].result(60).json()["state"] == state
    assert waiting(client) == 0
    # One that has ended is not waited for.
    assert client.get(f"jobs/{cancelled}?wait=30")["state"] == "cancelled"


def test_a_wait_that_is_over_is_answered_with_the_job_as_it_is(shop: Shop, client: Client) -> None:
    id_ = shop.send.enqueue()
    assert client.get(f"jobs/{id_}?wait=0.05")["state"] == "ready"
    assert client.refused("GET", "jobs/1024000?wait=30")["code"] == "not-found"


def test_many_who_wait_are_one_question(shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = shop.send.enqueue_many([{"to": "ada"}] * 20)
    asked: list[Collection[int]] = []
    look = App.ended_jobs

    def count(app: App, given: Collection[int]) -> set[int]:
        asked.append(given)
        return look(app, given)

    monkeypatch.setattr(client.application.services.job_ends, "_which_ended", lambda given: count(shop.app, given))
    before = threading.active_count()
    answers = [client.start("GET", f"jobs/{id_}?wait=30") for id_ in ids for _ in range(5)]
    eventually(lambda: waiting(client) == 100, "all wait")
    eventually(lambda: asked and len(asked[-1]) == 20, "all are asked for at once")
    # No thread waits: those there are have looked at the jobs first.
    assert threading.active_count() <= before + 20
    asked.clear()
    shop.app.work(until_idle=True)
    assert {answer.result(60).json()["state"] for answer in answers} == {"succeeded"}
    assert all(len(set(each)) == len(list(each)) for each in asked)


def test_who_waits_is_answered_when_the_server_stops(shop: Shop, client: Client) -> None:
    id_ = shop.send.enqueue()
    answer = client.start("GET", f"jobs/{id_}?wait=30")
    eventually(lambda: waiting(client) == 1, "it waits")
    client.call(client.application.begin_stop)
    assert answer.result(60).json()["state"] == "ready"
    assert client.get(f"jobs/{id_}?wait=30")["state"] == "ready"


def test_all_who_wait_are_answered_also_where_their_jobs_end_at_once(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = shop.send.enqueue_many([{"to": "ada"}] * 60)
    answers = [client.start("GET", f"jobs/{id_}?wait=30") for id_ in ids]
    eventually(lambda: waiting(client) == len(ids), "all wait")
    # No more may wait for a thread than that.
    monkeypatch.setattr(client.application.services.looking, "_most", 20)
    shop.app.cancel(queue="mail")
    assert {answer.result(60).status_code for answer in answers} == {200}


def test_a_database_that_does_not_answer_once_ends_no_wait(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Any] = []

    def fail(given: Collection[int]) -> set[int]:
        if len(failed) < 2:
            failed.append(given)
            raise PartitionUnavailable("away")
        return shop.app.ended_jobs(given)

    monkeypatch.setattr(client.application.services.job_ends, "_which_ended", fail)
    id_ = shop.send.enqueue()
    answer = client.start("GET", f"jobs/{id_}?wait=30")
    eventually(lambda: len(failed) == 2, "it has failed twice")
    shop.app.work(until_idle=True)
    assert answer.result(60).json()["state"] == "succeeded"


def test_more_than_there_is_room_for_are_told_so(shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ends, "MOST_WAITING", 1)
    id_ = shop.send.enqueue()
    first = client.start("GET", f"jobs/{id_}?wait=30")
    eventually(lambda: waiting(client) == 1, "one waits")
    assert client.refused("GET", f"jobs/{id_}?wait=30")["code"] == "too-many-requests"
    assert client.get(f"jobs/{id_}")["state"] == "ready"
    shop.app.cancel(id_)
    assert first.result(60).json()["state"] == "cancelled"
