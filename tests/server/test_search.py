"""One field in which anything may be typed: what is found, in which order, and what narrow tokens find."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.server.asking import Client, asking_as
from tests.server.conftest import Shop

from penstock import InvalidInput
from penstock.model.checks import KEY_BYTES


def hits(client: Client, text: str, **query: Any) -> list[tuple[str, str, str | None]]:
    found = client.get("search", params={"q": text, **query})
    assert found["unavailable"] == []
    return [(hit["kind"], hit["name"], hit["queue"]) for hit in found["hits"]]


@pytest.fixture
def jobs(shop: Shop) -> dict[str, int]:
    ids = {
        "halted": shop.book.options(tenant="acme").enqueue(customer="C-77"),
        "keyed": shop.send.options(key="k-new", tags=["vip"], tenant="acme").enqueue(),
        "once": shop.send.options(idempotency_key="Order 66").enqueue(),
    }
    shop.app.work(until_idle=True)
    shop.app.set_cron("Mail report", "@daily", "orders", "book", args={"customer": "x"})
    return ids


def test_everything_is_found_by_what_it_is_called(shop: Shop, client: Client, jobs: dict[str, int]) -> None:
    assert hits(client, str(jobs["once"])) == [("job", "send", "mail")]
    assert hits(client, "mail") == [("queue", "mail", "mail"), ("cron", "Mail report", "orders")]
    assert hits(client, "MAI") == hits(client, " mai ") == hits(client, "mail")
    assert hits(client, "OOK") == [("task", "book", "orders")]
    assert hits(client, "C-77") == [("key", "C-77", "orders")]
    assert hits(client, "Order 66") == [("idempotency-key", "Order 66", "mail")]
    assert hits(client, "vip") == [("tag", "vip", "mail")]
    assert hits(client, "k-new") == [("key", "k-new", "mail")]
    assert hits(client, "c-77") == hits(client, "order 66") == hits(client, "C-7") == hits(client, "nowhere") == []


def test_ids_are_those_of_the_newest_job(shop: Shop, client: Client, jobs: dict[str, int]) -> None:
    (hit,) = client.get("search?q=C-77")["hits"]
    assert hit["id"] == str(jobs["halted"])
    newer = shop.send.options(key="k-new").enqueue()
    (hit,) = client.get("search?q=k-new")["hits"]
    assert hit["id"] == str(newer)
    assert [(hit["kind"], hit["id"]) for hit in client.get(f"search?q={newer}")["hits"]] == [("job", str(newer))]


def test_a_task_that_nobody_ever_had_is_found_while_jobs_of_it_wait(
    shop: Shop, client: Client, jobs: dict[str, int], database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.enqueue('mail', 'sned', '{}') from generate_series(1, 3)")
        assert hits(client, "sned") == []
        # Whoever works on the queue sets aside what it has no handler for.
        connection.execute("update penstock.ready set is_parked = true where task = 'sned'")
        assert hits(client, "SNE") == [("task", "sned", "mail")]


def test_loads_and_workers_are_found(shop: Shop, client: Client, database_url: str) -> None:
    shop.app.stats("mail")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into penstock.load (name, queue_id, is_stream)"
            " select 'Backfill ' || n, id, false from penstock.queue, generate_series(1, 12) as n where name = 'mail'"
        )
        connection.execute(
            "insert into penstock.worker (id, name, host, pid, version, concurrency, lease_seconds)"
            " values (77, 'host-a:12#abc', 'host-a', 12, '0', 4, 15)"
        )
    assert hits(client, "backfill 1")[:2] == [("load", "Backfill 1", "mail"), ("load", "Backfill 10", "mail")]
    assert len(hits(client, "backfill", limit=5)) == 5
    (hit,) = client.get("search?q=HOST-A")["hits"]
    assert hit == {"kind": "worker", "name": "host-a:12#abc", "queue": None, "id": "77"}


def test_a_percent_sign_and_a_quote_are_themselves(shop: Shop, client: Client) -> None:
    shop.app.set_queue("100% 'sure'_")
    assert hits(client, "%") == hits(client, "'") == hits(client, "_") == [("queue", "100% 'sure'_", "100% 'sure'_")]
    assert hits(client, "1_0") == []


def test_a_stage_that_was_not_published_is_not_found(shop: Shop, client: Client, database_url: str) -> None:
    shop.app.stats("mail")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into penstock.job (id, partition_id, priority, task, key, args)"
            " select 5 * 1024, id, 5, 'send', 'staged', '{}' from penstock.partition limit 1"
        )
    assert hits(client, "staged") == []


def test_a_token_finds_what_it_is_for(shop: Shop, jobs: dict[str, int]) -> None:
    with asking_as(shop.app, queues=frozenset({"mail"})) as client:
        assert hits(client, "mail") == [("queue", "mail", "mail")]
        assert hits(client, str(jobs["keyed"])) == [("job", "send", "mail")]
        for hidden in ("C-77", "book", "orders", "Mail report", str(jobs["halted"]), "#"):
            assert hits(client, hidden) == [], hidden
        assert hits(client, "vip") == [("tag", "vip", "mail")]
    with asking_as(shop.app, tenant="acme") as client:
        assert hits(client, str(jobs["keyed"])) == [("job", "send", "mail")]
        for hidden in ("mail", "C-77", "vip", "Order 66", str(jobs["once"])):
            assert hits(client, hidden) == [], hidden


def test_what_cannot_be_looked_for_is_refused(shop: Shop, client: Client) -> None:
    for bad in ("", " ", "x" * (KEY_BYTES + 1), "a\x00b", "é" * KEY_BYTES):
        assert client.refused("GET", "search", params={"q": bad})["field"] in ("q", "text")
        with pytest.raises(InvalidInput, match="text"):
            shop.app.search(bad)
    assert client.refused("GET", "search")["field"] == "q"
    assert client.refused("GET", "search?q=x&limit=101")["field"] == "limit"
    with pytest.raises(InvalidInput, match="text"):
        shop.app.search(7)  # type: ignore[arg-type]
