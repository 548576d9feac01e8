"""Every question over HTTP is answered as the same call in Python is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from tests.server.asking import Client, asking_as
from tests.server.conftest import Shop

from penstock import App
from penstock.model.records import record

LATER = datetime.now(UTC) + timedelta(days=1)


def told(value: object) -> Any:
    """A value as it comes over HTTP."""
    return json.loads(msgspec.json.encode(record(value)))


@pytest.fixture
def jobs(shop: Shop) -> dict[str, int]:
    """One in each state, and more."""
    send, book = shop.send, shop.book
    ids = {
        "succeeded": send.options(tenant="acme", tags=["x", "y"], created_by="me", priority=1).enqueue(to="bob"),
        "failed": send.options(key=b"\xff\x00").enqueue(to="nobody"),
        "halting": book.enqueue(customer="c-1", amount=0),
    }
    shop.app.work(until_idle=True)
    ids["cancelled"] = send.enqueue(to="eve")
    shop.app.cancel(ids["cancelled"], reason="not wanted")
    ids["parent"] = send.options(run_at=LATER).enqueue()
    ids["blocked"] = send.options(after=[ids["parent"]]).enqueue()
    ids["behind"] = book.enqueue(customer="c-1", amount=1)
    ids["ready"] = send.options(idempotency_key="k-1").enqueue(to="ready")
    shop.app.retry(ids["failed"], args={"to": "nobody else"})
    shop.app.work(until_idle=True, queues=["orders"])
    return ids


def test_a_job_is_told_with_its_attempts_parents_and_children(shop: Shop, client: Client, jobs: dict[str, int]) -> None:
    for name, id_ in jobs.items():
        answer = client.get(f"jobs/{id_}")
        children = answer.pop("children")
        assert answer == told(shop.app.job(id_)), name
        assert children == ([str(jobs["blocked"])] if name == "parent" else [])
        assert client.get(f"jobs/{id_}/explain") == told(shop.app.explain(id_)), name
    failed = client.get(f"jobs/{jobs['failed']}")
    assert failed["key"] == {"base64": "/wA="}
    assert [edit["args"] for edit in failed["edits"]] == [{"to": "nobody"}]
    assert [failure["attempt"] for failure in failed["failures"]] == [1, 2]
    assert client.get(f"jobs/{jobs['blocked']}")["after"] == [str(jobs["parent"])]
    assert client.get(f"jobs/{jobs['blocked']}/explain")["detail"]["parents"] == [str(jobs["parent"])]
    assert client.get(f"jobs/{jobs['behind']}/explain")["detail"]["head"] == str(jobs["halting"])


def test_figures_are_told_of_each_queue_and_partition(shop: Shop, client: Client, jobs: dict[str, int]) -> None:
    for queue in ("mail", "orders"):
        assert client.get(f"queues/{queue}/stats") == told(shop.app.stats(queue))
    assert len(client.get("queues/orders/stats")["partitions"]) == 2
    assert client.get("queues") == {"queues": told(shop.app.queues()), "next": None}
    page = client.get("queues?limit=1")
    assert ([each["queue"] for each in page["queues"]], page["next"]) == (["mail"], "mail")
    page = client.get("queues?limit=1&after=mail")
    assert ([each["queue"] for each in page["queues"]], page["next"]) == (["orders"], None)


def test_a_queue_without_jobs_has_zeros_and_only_one_that_does_not_exist_is_not_found(app: App, client: Client) -> None:
    app.set_queue("empty", partitions=3)
    stats = client.get("queues/empty/stats")
    assert (stats["queue_length"], stats["total_enqueued"], stats["oldest_enqueued_at"]) == (0, 0, None)
    assert [part["queue_length"] for part in stats["partitions"]] == [0, 0, 0]
    assert client.get("queues/empty/history") == {"queue": "empty", "minutes": [], "unavailable": []}
    for path in ("stats", "history", "blocked-keys"):
        assert client.refused("GET", f"queues/nowhere/{path}")["code"] == "not-found"


def test_the_minutes_of_a_queue_are_those_that_were_noted(shop: Shop, client: Client, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for count in (3, 2):
            shop.book.enqueue_many([{"customer": f"c-{n}", "amount": 1} for n in range(count)])
            connection.execute(
                "update penstock.minute set minute = minute - interval '1 minute',"
                " noted_at = noted_at - interval '1 minute', previous = previous - interval '1 minute'"
            )
            connection.execute("select penstock.note_minute()")
        rows = connection.execute(
            "select sum(waiting), sum(enqueued) from penstock.stats_history where queue = 'orders'"
            " group by minute order by minute"
        ).fetchall()
    history = client.get("queues/orders/history?minutes=10")
    assert [(minute["waiting"], minute["enqueued"]) for minute in history["minutes"]] == rows == [(3, None), (5, 2)]
    assert history == told(shop.app.history("orders", 10))
    assert client.refused("GET", "queues/orders/history?minutes=1441")["field"] == "minutes"


def test_keys_that_wait_are_told(shop: Shop, client: Client, jobs: dict[str, int]) -> None:
    (blocked,) = client.get("queues/orders/blocked-keys")["keys"]
    assert blocked == told(shop.app.blocked_keys("orders"))[0]
    assert (blocked["key"], blocked["job_id"]) == ("c-1", str(jobs["halting"]))


def test_crons_shards_workers_and_loads_are_told(shop: Shop, client: Client) -> None:
    shop.app.cron("nightly", "0 3 * * *", shop.send, args={"to": "all"})
    shop.app.cron("weekly", "@weekly", shop.send)
    shop.app.queues()
    assert client.get("crons") == {"crons": told(shop.app.crons()), "next": None, "unavailable": []}
    assert client.get("crons?limit=1")["next"] == "nightly"
    assert [cron["name"] for cron in client.get("crons?after=nightly")["crons"]] == ["weekly"]
    (shard,) = client.get("shards")["shards"]
    assert "url" not in shard
    assert shard == told(shop.app.shards[0])
    assert client.get("workers") == {"workers": [], "count": 0, "unavailable": []}
    assert client.get("loads") == {"loads": [], "unavailable": []}
    assert client.refused("GET", "loads/none")["code"] == "not-found"


def test_a_worker_is_told_while_it_runs(shop: Shop, client: Client) -> None:
    seen: list[Any] = []

    @shop.app.queue("looks").task
    def look() -> None:
        seen.append((client.get("workers"), told(shop.app.workers())))

    look.enqueue()
    shop.app.work(until_idle=True, queues=["looks"])
    ((answer, workers),) = seen
    (worker,) = answer["workers"]
    assert (answer["count"], worker["id"], worker["queues"]) == (1, workers[0]["id"], ["looks"])


def test_what_needs_attention_is_told_with_ids_as_text(shop: Shop, client: Client, database_url: str) -> None:
    assert client.get("attention") == {"attention": [], "unavailable": []}
    shop.send.enqueue_many([{"to": "bob"}] * 2)
    shop.book.enqueue(customer="c-1", amount=0)
    shop.app.set_cron("nightly", "@daily", "orders", "book", args={"customer": "c-2"})
    (failed, _) = (shop.app.run_cron("nightly"), shop.app.work(queues=["orders"], until_idle=True))
    answer = client.get("attention")["attention"]
    assert [each["kind"] for each in answer] == [each.kind for each in shop.app.attention()]
    by_kind = {each["kind"]: each for each in answer}
    assert list(by_kind) == ["no-worker", "halted-keys", "dead-letters", "failed-cron"]
    assert (by_kind["no-worker"]["queue"], by_kind["no-worker"]["count"]) == ("mail", 2)
    assert (by_kind["halted-keys"]["queue"], by_kind["halted-keys"]["count"]) == ("orders", 2)
    assert by_kind["failed-cron"]["detail"] == {"job_id": str(failed)}
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("insert into penstock.trouble (duty, error, since) values ('fold', 'it has 4111', now())")
    assert "it has 4111" in client.request("GET", "attention").text
    with asking_as(shop.app, hides_args=True) as careful:
        assert "it has 4111" not in careful.request("GET", "attention").text
    with asking_as(shop.app, queues=frozenset({"mail"})) as narrow:
        assert [(each["kind"], each["queue"]) for each in narrow.get("attention")["attention"]] == [
            ("no-worker", "mail")
        ]


def test_what_was_done_over_http_is_in_the_audit(shop: Shop, client: Client) -> None:
    shop.app.queues()
    client.done("PUT", "queues/new", json={"limit": 5})
    client.post("queues/new/pause")
    client.refused("POST", "queues/nowhere/pause")
    entries = client.get("audit?limit=2")["entries"]
    told = [(entry["act"], entry["target"], entry["source"], entry["actor"], entry["address"]) for entry in entries]
    assert told == [
        ("pause", "nowhere", "http", "this machine", "127.0.0.1"),
        ("pause", "new", "http", "this machine", "127.0.0.1"),
    ]
    assert [entry["outcome"] for entry in entries] == ["not done", "done"]
    (older,) = client.get(f"audit?act=set_queue&target=new&before={entries[-1]['id']}")["entries"]
    assert older["detail"] == {"limit": 5}
    assert [*entries, older] == told_of(shop, 2) + told_of(shop, 100, act="set_queue")
    assert client.refused("GET", "audit?before=x")["field"] == "before"


def told_of(shop: Shop, limit: int, **filters: str) -> Any:
    return told(shop.app.audit(limit, **filters))


def test_what_does_not_exist_is_not_found_and_what_is_wrong_names_its_field(client: Client) -> None:
    for method, path in (
        ("GET", "jobs/1024"),
        ("GET", "jobs/1024/explain"),
        ("POST", "jobs/1024/cancel"),
        ("POST", "jobs/1024/retry"),
        ("POST", "crons/none/run"),
        ("DELETE", "crons/none"),
        ("DELETE", "queues/none"),
        ("POST", "queues/none/pause"),
        ("POST", "loads/none/cancel"),
    ):
        assert client.refused(method, path)["code"] == "not-found", path
    for path, field in (
        ("jobs/abc", "job_id"),
        ("jobs/1?wait=31", "wait"),
        ("jobs?limit=1001", "limit"),
        ("jobs?state=dead", "state"),
        ("jobs?before=x", "before"),
        ("jobs?colour=red", "colour"),
        ("jobs?queue=a&queue=b", "queue"),
        ("jobs?key=a&key_base64=YQ==", "key_base64"),
        ("jobs?key_base64=%25", "key_base64"),
        ("queues?limit=0", "limit"),
        ("events", "queue"),
        ("events?queue=" + "&queue=".join(map(str, range(101))), "queue"),
    ):
        problem = client.refused("GET", path)
        assert (problem["code"], problem["field"]) == ("invalid-input", field), path
