"""Every question over HTTP is answered as the same call in Python is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from tests.server.asking import Client, asking, asking_as
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
    for path in ("stats", "history", "blocked-keys", "hot-keys"):
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


def test_keys_that_many_jobs_wait_for_are_told(shop: Shop, client: Client, jobs: dict[str, int]) -> None:
    found = client.get("queues/orders/hot-keys")
    assert found == told(shop.app.hot_keys("orders"))
    assert found["waiting"] == shop.app.stats("orders").queue_length == sum(each["waiting"] for each in found["keys"])
    assert client.get("queues/orders/hot-keys?limit=1")["keys"] == found["keys"][:1]
    assert client.refused("GET", "queues/orders/hot-keys?limit=101")["field"] == "limit"


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
        (worker,) = shop.app.workers()
        seen.append((client.get("workers"), client.get("workers?jobs=3"), client.get(f"workers/{worker.id}")))
        seen.append(client.post(f"workers/{worker.id}/stop"))

    id_ = look.enqueue()
    # It ends, for it was asked to.
    shop.app.work(queues=["looks"])
    (answer, fuller, worker), stopped = seen
    assert (answer["count"], answer["workers"][0]["id"]) == (1, worker["id"])
    assert (worker["queues"], worker["tasks"]) == (["looks"], {"looks": ["look"]})
    assert (answer["workers"][0]["jobs"], fuller["workers"][0]["jobs"]) == ([], worker["jobs"])
    (job,) = worker["jobs"]
    assert (job["id"], job["queue"], job["task"], job["attempt"]) == (str(id_), "looks", "look", 1)
    assert (worker["is_stopping"], stopped["is_stopping"], stopped["id"]) == (False, True, worker["id"])
    assert client.refused("GET", f"workers/{worker['id']}")["code"] == "not-found"
    assert client.refused("POST", f"workers/{worker['id']}/stop")["code"] == "not-found"
    assert client.refused("GET", "workers/x")["field"] == "worker_id"
    assert client.refused("GET", "workers?jobs=101")["field"] == "jobs"


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


def test_crons_tell_what_comes_and_what_became_of_the_last_job(shop: Shop, client: Client) -> None:
    shop.app.set_cron("hourly", "0 * * * *", "mail", "send", args={"to": "bob"})
    cron = client.get("crons")["crons"][0]
    upcoming = [datetime.fromisoformat(each) for each in cron["upcoming"]]
    assert upcoming == [upcoming[0] + n * timedelta(hours=1) for n in range(5)]
    assert (cron["next_at"], cron["last_job_id"], cron["last_state"]) == (cron["upcoming"][0], None, None)
    job = client.post("crons/hourly/run")["id"]
    cron = client.get("crons")["crons"][0]
    assert (cron["last_job_id"], cron["last_state"]) == (job, "ready")
    shop.app.work(until_idle=True)
    assert client.get("crons")["crons"][0]["last_state"] == "succeeded"
    shop.app.set_cron("hourly", "0 * * * *", "mail", "send", args={"to": "nobody"})
    failing = shop.app.run_cron("hourly")
    shop.app.work(until_idle=True)
    assert client.get("crons")["crons"][0]["last_state"] == "failed"
    assert shop.app.crons()[0].last_job_id == failing
    assert client.post("crons/hourly/pause")["upcoming"] == []


def test_a_resize_and_a_drain_are_looked_at_without_an_act(shop: Shop, client: Client) -> None:
    shop.book.enqueue_many([{"customer": f"c-{n}", "amount": 1} for n in range(10)])
    assert client.get("queues/orders/resize") == {
        "queue": "orders", "partitions": 2, "epoch": 1, "draining": [], "is_through": True,
    }  # fmt: skip
    shop.app.resize("orders", partitions=3)
    progress = client.get("queues/orders/resize")
    assert (progress["partitions"], progress["epoch"], progress["is_through"]) == (3, 2, False)
    assert sum(each["jobs"] for each in progress["draining"]) == 10
    stats = client.get("queues/orders/stats")
    assert (stats["epoch"], [part["is_current"] for part in stats["partitions"]]) == (2, [True] * 3)
    shop.app.resize("orders", partitions=1)
    parts = client.get("queues/orders/stats")["partitions"]
    assert [(part["name"], part["is_current"]) for part in parts][:2] == [("orders", True), ("orders__p1", False)]
    shop.app.work(until_idle=True, queues=["orders"])
    assert client.get("queues/orders/resize")["draining"] == []
    assert client.get("queues/orders/stats")["partitions"][0]["owner_epoch"] > 0
    for number in (1, 7):
        assert client.refused("GET", f"shards/{number}/drain")["field"] == "shard"
    assert client.refused("GET", "queues/nowhere/resize")["code"] == "not-found"
    assert {entry.act for entry in shop.app.audit() if entry.source == "http"} == set()


def test_what_is_due_when_is_counted(shop: Shop, client: Client) -> None:
    waits = {"minute": 30, "ten-minutes": 300, "hour": 1_800, "six-hours": 7_200, "day": 50_000, "week": 200_000,
             "later": 10_000_000}  # fmt: skip
    for count, seconds in enumerate(waits.values(), start=1):
        shop.send.options(delay=seconds).enqueue_many([{}] * count)
    shop.book.options(delay=120).enqueue(customer="c")
    answer = client.get("due")
    assert [span["name"] for span in answer["spans"]] == list(waits)
    assert [span["jobs"] for span in answer["spans"]] == [1, 3, 3, 4, 5, 6, 7]
    assert all(span["is_exact"] for span in answer["spans"])
    untils = [span["until"] for span in answer["spans"]]
    assert untils[-1] is None
    assert untils[:-1] == sorted(untils[:-1])
    assert [span["jobs"] for span in client.get("due?queue=mail")["spans"]] == [1, 2, 3, 4, 5, 6, 7]
    assert sum(span["jobs"] for span in client.get("due?queue=orders")["spans"]) == 1
    assert client.refused("GET", "due?queue=nowhere")["code"] == "not-found"
    with asking_as(shop.app, queues=frozenset({"orders"})) as narrow:
        assert sum(span["jobs"] for span in narrow.get("due")["spans"]) == 1
        assert narrow.refused("GET", "due?queue=mail")["code"] == "forbidden"


def test_more_than_is_looked_at_is_told_as_so_many_at_least(shop: Shop, client: Client, database_url: str) -> None:
    shop.app.stats("mail")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, task)"
            " select now() + interval '2 hours', p.id, 5, n, 0, 2, 'send'"
            " from penstock.partition as p, generate_series(1, 2100) as n where p.name = 'mail'"
        )
    spans = {span["name"]: span for span in client.get("due")["spans"]}
    assert not spans["six-hours"]["is_exact"]
    assert 4_000 <= spans["six-hours"]["jobs"] < 4_200
    assert spans["day"]["is_exact"]


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
    assert client.get("audit?act=set_queue&target=new&since=2030-01-01T00:00:00Z")["entries"] == []
    assert client.refused("GET", "audit?before=x")["field"] == "before"
    assert client.refused("GET", "audit?since=yesterday")["field"] == "since"


def told_of(shop: Shop, limit: int, **filters: Any) -> Any:
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


@pytest.mark.parametrize(("given", "lease"), [({}, 2.0), ({"lease": 6}, 6.0)])
def test_a_remote_worker_is_told_for_how_long_it_may_be_silent(
    database_url: str, given: dict[str, Any], lease: float
) -> None:
    with App(database_url, lease=2.0) as app, asking(app) as client:
        app.set_queue("mail")
        told = client.post("workers", {"name": "w", "queues": {"mail": {"send": {}}}, **given})
        assert told["lease"] == lease
