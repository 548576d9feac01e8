"""Causes over HTTP: dead letters by why they failed, one group's list, retry and discard, and who is told what."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.asking import Client, asking, asking_as
from tests.server.conftest import Shop, shop_of

from penstock import App

MISSING = "0" * 16


@pytest.fixture
def failed(shop: Shop) -> dict[str, list[int]]:
    """Dead letters of three causes in two queues, by queue."""
    ids = {
        "mail": shop.send.enqueue_many([{"to": "nobody 1"}, {"to": "nobody 22"}, {"to": "nobody else"}]),
        "orders": shop.book.enqueue_many([{"customer": "c"}]),
    }
    shop.app.work(until_idle=True)
    return ids


def told(client: Client, query: str = "") -> dict[str, dict[str, Any]]:
    """The causes by their shape."""
    return {cause["shape"]: cause for cause in client.get(f"dead-letters/causes{query}")["causes"]}


def test_causes_are_told_and_a_group_is_listed_retried_and_discarded(
    shop: Shop, client: Client, failed: dict[str, list[int]]
) -> None:
    found = told(client)
    assert next(iter(found)) == "ValueError: there is no nobody …"
    assert {shape: (cause["queue"], cause["task"], cause["dead"]) for shape, cause in found.items()} == {
        "ValueError: there is no nobody …": ("mail", "send", 2),
        "ValueError: there is no nobody else": ("mail", "send", 1),
        "ZeroDivisionError: integer division or modulo by zero": ("orders", "book", 1),
    }
    group = found["ValueError: there is no nobody …"]
    assert (group["last_hour"][-1], sum(group["last_day"])) == (4, 4), "each of the two was tried twice"
    job = client.get(f"jobs/{group['job_id']}")
    assert (job["cause"], job["finished_at"]) == (group["id"], group["last_at"])
    chosen = {"cause": group["id"]}
    listed = client.get(f"jobs?cause={group['id']}")["jobs"]
    assert [int(each["id"]) for each in listed] == failed["mail"][1::-1]
    assert client.post("jobs/retry", {**chosen, "preview": True}) == {"jobs": 2, "preview": True}
    assert client.post("jobs/retry", chosen) == {"jobs": 2, "preview": False}
    assert "ValueError: there is no nobody …" not in told(client, "?queue=mail")
    shop.app.work(until_idle=True)
    assert told(client)["ValueError: there is no nobody …"]["id"] == group["id"]
    assert client.post("queues/orders/purge", chosen) == {"jobs": 0, "preview": False}
    assert client.post("queues/mail/purge", chosen) == {"jobs": 2, "preview": False}
    assert list(told(client, "?queue=mail")) == ["ValueError: there is no nobody else"]
    assert client.refused("POST", "jobs/cancel", json=chosen)["field"] == "cause"
    assert client.refused("GET", "jobs?cause=x")["field"] == "cause"
    assert client.refused("GET", "dead-letters/causes?queue=nowhere")["code"] == "not-found"
    assert client.refused("GET", "dead-letters/causes?limit=0")["field"] == "limit"
    assert len(client.get("dead-letters/causes?limit=1")["causes"]) == 1
    assert client.get(f"jobs?cause={MISSING}")["jobs"] == []


@pytest.mark.usefixtures("failed")
def test_failed_attempts_of_a_queue_are_told_over_time(client: Client) -> None:
    history = client.get("queues/mail/failures?minutes=30&causes=1")
    assert (len(history["began_at"]), len(history["others"])) == (6, 6)
    assert [(each["shape"], sum(each["failed"])) for each in history["causes"]] == [
        ("ValueError: there is no nobody …", 4)
    ]
    assert sum(history["others"]) == 2
    assert client.refused("GET", "queues/nowhere/failures")["code"] == "not-found"
    assert client.refused("GET", "queues/mail/failures?minutes=1441")["field"] == "minutes"


@pytest.mark.usefixtures("failed")
def test_a_token_is_told_of_its_queues_and_of_no_shape_where_it_hides_arguments(shop: Shop) -> None:
    everything = told_of(shop)
    mail = frozenset({"mail"})
    with asking_as(shop.app, queues=mail) as client:
        assert told(client) == {shape: each for shape, each in everything.items() if each["queue"] == "mail"}
        assert told(client, "?queue=mail") == told(client)
        assert client.refused("GET", "dead-letters/causes?queue=orders")["code"] == "forbidden"
        assert client.refused("GET", "dead-letters/causes?queue=nowhere")["code"] == "forbidden"
        assert client.refused("GET", "queues/orders/failures")["code"] == "forbidden"
        foreign = everything["ZeroDivisionError: integer division or modulo by zero"]
        assert client.get(f"jobs?cause={foreign['id']}")["jobs"] == []
    with asking_as(shop.app, queues=frozenset({"mail", "orders"})) as client:
        assert told(client) == everything
    with asking_as(shop.app, role="admin", queues=mail) as client:
        assert client.post("jobs/retry", {"cause": foreign["id"]}) == {"jobs": 0, "preview": False}
    with asking_as(shop.app, tenant="acme") as client:
        for path in ("dead-letters/causes", "queues/mail/failures"):
            assert client.refused("GET", path)["code"] == "forbidden", path
    with asking_as(shop.app, hides_args=True) as client:
        hidden = client.get("dead-letters/causes")["causes"]
        assert [each["shape"] for each in hidden] == [None] * 3
        assert {each["id"] for each in hidden} == {each["id"] for each in everything.values()}
        assert [each["shape"] for each in client.get("queues/mail/failures")["causes"]] == [None] * 2


def told_of(shop: Shop) -> dict[str, dict[str, Any]]:
    with asking(shop.app) as client:
        return told(client)


def test_a_cause_is_one_over_all_shards(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app, asking(app) as client:
        shop = shop_of(app)
        for n in range(20):
            shop.send.enqueue(to=f"nobody {n}")
        app.work(until_idle=True)
        (cause,) = client.get("dead-letters/causes")["causes"]
        assert (cause["dead"], sum(cause["last_hour"])) == (20, 40)
