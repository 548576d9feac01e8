"""Acts over HTTP do what the same calls in Python do, and say what came of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.asking import Client, asking, asking_as
from tests.server.conftest import Shop, shop_of
from tests.system.facts import eventually

from penstock import App, Context, InvalidInput, State


def state(shop: Shop, id_: int) -> State:
    return shop.app.job(id_).state


def test_a_job_is_cancelled_retried_and_rescheduled(shop: Shop, client: Client) -> None:
    id_ = shop.send.enqueue(to="nobody")
    later = {"run_at": "2030-01-01T12:00:00+01:00"}
    assert client.post(f"jobs/{id_}/reschedule", later) == {"job_id": str(id_), "state": "scheduled"}
    assert client.get(f"jobs/{id_}")["run_at"] == "2030-01-01T11:00:00Z"
    # A body whose fields can all be left out can be left out itself.
    assert client.post(f"jobs/{id_}/retry") == {"job_id": str(id_), "state": "ready"}
    shop.app.work(until_idle=True)
    assert client.post(f"jobs/{id_}/retry", {"args": {"to": "ada"}})["state"] == "ready"
    assert client.post(f"jobs/{id_}/cancel", {"reason": "no more"})["state"] == "cancelled"
    assert client.get(f"jobs/{id_}")["error"] == "no more"
    assert client.get(f"jobs/{id_}")["args"] == {"to": "ada"}
    assert client.post(f"jobs/{id_}/retry")["state"] == "cancelled"
    assert client.refused("POST", f"jobs/{id_}/retry", json={"args": {"wrong": 1}})["field"] == "wrong"
    assert client.refused("POST", f"jobs/{id_}/reschedule", json={"run_at": "2030-01-01T12:00:00"})["field"] == "run_at"
    assert client.refused("POST", f"jobs/{id_}/reschedule")["field"] == "body"


def test_many_jobs_are_counted_before_they_are_cancelled_or_retried(shop: Shop, client: Client) -> None:
    ids = shop.send.options(tags=["x"]).enqueue_many([{"to": "nobody"}] * 3)
    other = shop.send.enqueue()
    assert client.post("jobs/cancel", {"tag": "x", "preview": True}) == {"jobs": 3, "preview": True}
    assert state(shop, ids[0]) == "ready"
    shop.app.work(until_idle=True)
    assert client.post("jobs/retry", {"queue": "mail", "preview": True}) == {"jobs": 3, "preview": True}
    assert client.post("jobs/retry", {"queue": "mail", "task": "send"}) == {"jobs": 3, "preview": False}
    assert client.post("jobs/cancel", {"tag": "x", "reason": "enough"}) == {"jobs": 3, "preview": False}
    assert shop.app.job(ids[0]).error == "enough"
    assert state(shop, other) == "succeeded"
    for act in ("cancel", "retry"):
        assert "give a job's id, or a filter" in client.refused("POST", f"jobs/{act}", json={})["detail"]
        assert client.refused("POST", f"jobs/{act}")["code"] == "invalid-input"
    assert client.refused("POST", "jobs/cancel", json={"state": "succeeded"})["field"] == "state"


def test_a_queue_is_made_changed_and_deleted(app: App, client: Client) -> None:
    rules = {"order": "key", "partitions": 2, "limit": 3, "rate": "60/m", "max_wait": 60}
    answer = client.request("PUT", "queues/q", json=rules)
    assert answer.status_code == 201
    assert [part["name"] for part in answer.json()["partitions"]] == ["q", "q__p1"]
    assert (app.stats("q").rules.limit, app.stats("q").rules.rate) == (3, "1/s")
    # The same again changes nothing, and what is left out stays.
    assert client.request("PUT", "queues/q", json=rules).status_code == 200
    before = app.stats("q")
    assert client.done("PUT", "queues/q", json={})["rules"]["limit"] == 3
    assert app.stats("q") == before
    changed = client.done("PUT", "queues/q", json={"limit": 5, "rate": None, "partitions": 4})
    assert (changed["rules"]["limit"], changed["rules"]["rate"], len(changed["partitions"])) == (5, None, 4)
    for field, value in (("order", None), ("per_key", 2), ("fair_by", "tenant"), ("on_dead", "halt")):
        assert client.refused("PUT", "queues/q", json={field: value})["field"] == field
    assert client.done("PUT", "queues/q", json={"order": "key", "per_key": 1, "on_dead": "continue"})
    for field, value in (("limit", 0), ("rate", "x"), ("partitions", 0), ("order", "x"), ("colour", "red")):
        assert client.refused("PUT", "queues/q", json={field: value})["field"] == field
        assert client.refused("PUT", "queues/new", json={field: value})["field"] == field
    assert client.refused("GET", "queues/new/stats")["code"] == "not-found"
    assert client.done("PUT", "queues/plain", json={})["rules"]["order"] is None
    client.done("POST", "queues/plain/jobs", json={"task": "t"})
    assert client.refused("DELETE", "queues/plain")["field"] == "queue"
    assert client.done("DELETE", "queues/plain?force=true&preview=true") == {"jobs": 1, "preview": True}
    assert client.done("DELETE", "queues/plain?force=true") == {"jobs": 1, "preview": False}
    assert [stats.queue for stats in app.queues()] == ["q"]


def test_setting_a_queue_in_python_takes_its_options_by_name(app: App) -> None:
    assert app.set_queue("q", order="key", limit=2)
    assert not app.set_queue("q", limit=None)
    assert app.stats("q").rules.limit is None
    with pytest.raises(InvalidInput, match="did you mean 'limit'"):
        app.set_queue("q", limits=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="it stays as queue 'q' was declared"):
        app.set_queue("q", order=None)


def test_a_queue_is_paused_limited_resized_and_purged(shop: Shop, client: Client) -> None:
    shop.send.enqueue_many([{"to": "ada"}] * 3)
    assert client.post("queues/mail/pause") == {"queue": "mail", "paused": True}
    assert client.get("queues/mail/stats")["paused"] is True
    assert client.post("queues/mail/resume") == {"queue": "mail", "paused": False}
    assert client.post("queues/mail/limit", {"limit": 1, "max_length": 10})["limit"] == 1
    assert (
        client.post("queues/mail/limit", {"max_length": None})["rules"] | {"limit": 1, "max_length": None}
        == (client.get("queues/mail/stats")["rules"])
    )
    assert client.refused("POST", "queues/mail/limit", json={})["field"] == "limits"
    resized = client.post("queues/mail/resize", {"partitions": 3})
    assert (resized["queue"], resized["partitions"]) == ("mail", 3)
    assert client.post("queues/mail/purge", {"preview": True}) == {"jobs": 3, "preview": True}
    assert client.post("queues/mail/purge", {"task": "none"}) == {"jobs": 0, "preview": False}
    assert client.post("queues/mail/purge") == {"jobs": 3, "preview": False}
    assert client.refused("POST", "queues/mail/purge", json={"queue": "orders"})["field"] == "queue"


def test_a_halted_key_is_released(shop: Shop, client: Client) -> None:
    halting = shop.book.enqueue(customer="c-1", amount=0)
    behind = shop.book.enqueue(customer="c-1", amount=1)
    shop.app.work(until_idle=True)
    assert (state(shop, halting), state(shop, behind)) == ("failed", "ready")
    assert client.refused("POST", "queues/orders/release", json={"key": {"base64": "/w=="}})["code"] == "not-found"
    assert client.refused("POST", "queues/orders/release", json={})["field"] == "key"
    assert client.request("POST", "queues/orders/release", json={"key": "c-1"}).status_code == 204
    shop.app.work(until_idle=True)
    assert state(shop, behind) == "succeeded"


def test_a_cron_is_made_changed_run_paused_and_removed_by_names(shop: Shop, client: Client) -> None:
    shop.app.queues()
    entry: dict[str, Any] = {"expression": "0 3 * * *", "queue": "mail", "task": "send", "args": {"to": "all"}}
    answer = client.request("PUT", "crons/nightly", json={**entry, "timezone": "Europe/Berlin", "key": "k"})
    assert answer.status_code == 201
    assert (answer.json()["key"], answer.json()["timezone"]) == ("k", "Europe/Berlin")
    (cron,) = shop.app.crons()
    assert (cron.task, cron.args, cron.key) == ("send", {"to": "all"}, "k")
    assert client.post("crons/nightly/pause")["is_paused"] is True
    assert client.request("PUT", "crons/nightly", json=entry).status_code == 200
    assert shop.app.crons()[0].key is None
    job = client.post("crons/nightly/run")["id"]
    assert shop.app.job(job).args == {"to": "all"}
    assert client.post("crons/nightly/resume")["is_paused"] is False
    # A task that nobody here declares may have any arguments; one that is declared has its own.
    assert client.done("PUT", "crons/other", json={**entry, "task": "elsewhere", "args": {"n": 1}})["args"] == {"n": 1}
    assert client.refused("PUT", "crons/x", json={**entry, "args": {"wrong": 1}})["field"] == "wrong"
    assert client.refused("PUT", "crons/x", json={**entry, "expression": "61 * * * *"})["field"] == "expression"
    assert client.refused("PUT", "crons/x", json={**entry, "timezone": "Mars"})["field"] == "timezone"
    assert client.refused("PUT", "crons/x", json={**entry, "queue": "nowhere"})["code"] == "not-found"
    assert client.refused("PUT", "crons/x", json={"queue": "mail"})["field"] == "expression"
    assert client.done("DELETE", "crons/nightly") is None
    assert [cron.name for cron in shop.app.crons()] == ["other"]


def test_partitions_move_and_a_shard_is_drained_by_its_number(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app, asking(app) as client:
        shop = shop_of(app)
        shop.app.stats("orders")
        shards = {part.name: part.shard for part in app.stats("orders").partitions}
        target = "2" if shards["orders"] == "1" else "1"
        moved = client.post("queues/orders/partitions/0/move", {"shard": target})
        assert moved["queue"] == "orders"
        assert app.stats("orders").partitions[0].shard == target
        drained = client.post("shards/2/drain")
        assert (drained["shard"], drained["state"] in ("draining", "drained")) == ("2", True)
        for url in ("postgresql://a:b@c/d", "0x1", "-1", "1" * 20):
            problem = client.refused("POST", "queues/orders/partitions/0/move", json={"shard": url})
            assert (problem["field"], url in problem["detail"]) == ("shard", False)
        assert client.refused("POST", "shards/9/drain")["code"] == "not-found"
        told = client.get("shards")["shards"]
        assert [each["name"] for each in told] == ["1", "2"]
        assert not any(url in str(told) or "penstock:" in str(told) for url in shard_urls)


def test_the_jobs_of_a_load_are_counted_before_they_are_cancelled(shop: Shop, client: Client) -> None:
    shop.app.migrate()
    rows = b"".join(b'{"to": "%d"}\n' % number for number in range(1_500))
    headers = {"content-type": "application/x-ndjson"}
    client.request("PUT", "queues/mail/loads/l?task=send", content=rows, headers=headers)
    shop.app.pause_load("l")
    assert client.post("loads/l/cancel", {"preview": True}) == {"name": "l", "jobs": 1_500, "preview": True}
    shop.app.resume_load("l")
    assert client.post("loads/l/cancel", {"preview": True}) == {"name": "l", "jobs": 1_500, "preview": True}
    assert (client.get("loads/l")["state"], client.get("loads/l")["waiting"]) == ("running", 1_500)
    assert [entry.act for entry in shop.app.audit()].count("cancel_load") == 0
    assert client.post("loads/l/cancel", {"reason": "enough"}) == {"name": "l", "jobs": 1_500, "preview": False}
    assert client.post("loads/l/cancel", {"preview": True})["jobs"] == 0
    assert client.refused("POST", "loads/none/cancel", json={"preview": True})["code"] == "not-found"
    assert client.refused("POST", "loads/l/cancel", json={"preview": "yes"})["field"] == "preview"


def test_named_jobs_are_cancelled_and_retried_and_each_is_told(shop: Shop, client: Client) -> None:
    done, dead = shop.send.enqueue(to="bob"), shop.send.enqueue(to="nobody")
    shop.app.work(until_idle=True)
    waiting, later = shop.send.enqueue(), shop.send.options(delay=3600).enqueue()
    missing = later + 1
    body = {"ids": [str(each) for each in (waiting, done, missing, dead, waiting)], "reason": "not wanted"}
    assert client.post("jobs/cancel", body) == {
        "jobs": 1,
        "preview": False,
        "each": [
            {"job_id": str(waiting), "outcome": "done", "state": "cancelled"},
            {"job_id": str(done), "outcome": "not-in-state", "state": "succeeded"},
            {"job_id": str(missing), "outcome": "unknown", "state": None},
            {"job_id": str(dead), "outcome": "not-in-state", "state": "failed"},
        ],
    }
    assert (shop.app.job(waiting).state, shop.app.job(waiting).error) == ("cancelled", "not wanted")
    answer = client.post("jobs/retry", {"ids": [str(each) for each in (dead, later, done, waiting, missing)]})
    assert [(each["outcome"], each["state"]) for each in answer["each"]] == [
        ("done", "ready"),
        ("done", "ready"),
        ("not-in-state", "succeeded"),
        ("not-in-state", "cancelled"),
        ("unknown", None),
    ]
    assert answer["jobs"] == 2
    acts = [(entry.act, entry.count) for entry in shop.app.audit() if entry.source == "http"]
    assert acts == [("retry_jobs", 2), ("cancel_jobs", 1)]


def test_a_running_job_that_is_named_is_asked_to_stop(shop: Shop, client: Client) -> None:
    told: list[Any] = []

    @shop.app.queue("long").task
    def run(context: Context) -> None:
        told.append(client.post("jobs/cancel", {"ids": [str(context.job_id)]})["each"])
        eventually(lambda: context.is_cancelled, "it hears that it is to stop")

    id_ = run.enqueue()
    shop.app.work(until_idle=True, queues=["long"])
    assert told == [[{"job_id": str(id_), "outcome": "done", "state": "running"}]]


def test_a_token_names_the_jobs_that_it_is_for(shop: Shop) -> None:
    mine, other = shop.send.enqueue(), shop.book.enqueue(customer="c", amount=1)
    with asking_as(shop.app, role="admin", queues=frozenset({"mail"})) as client:
        answer = client.post("jobs/cancel", {"ids": [str(other), str(mine)]})
    assert [each["outcome"] for each in answer["each"]] == ["unknown", "done"]
    assert shop.app.job(other).state == "ready"


def test_names_and_filters_are_not_given_together(shop: Shop, client: Client) -> None:
    for act in ("cancel", "retry"):
        for more in ({"queue": "mail"}, {"preview": True}):
            assert client.refused("POST", f"jobs/{act}", json={"ids": ["1024"], **more})["field"] == "ids"
        for ids in ([], ["x"], ["-1"], [7], ["1"] * 1_001):
            assert client.refused("POST", f"jobs/{act}", json={"ids": ids})["field"].startswith("ids")
        shop.app.stats("mail")
        assert client.post(f"jobs/{act}", {"queue": "mail"}) == {"jobs": 0, "preview": False}
