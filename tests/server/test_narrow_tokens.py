"""A token for some queues, or a tenant's: what is outside of it does not exist, by text and by what is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.server.asking import Client, asking, asking_as
from tests.server.conftest import Shop

from penstock.model.token import Role
from penstock.server.caller import Caller

TENANT = {"tenant": "acme"}
MAIL = {"queues": frozenset({"mail"})}
BOTH = {"queues": frozenset({"mail", "orders"})}


@pytest.fixture
def jobs(shop: Shop) -> dict[str, int]:
    ids = {
        "acme mail": shop.send.options(tenant="acme", tags=["x"]).enqueue(to="nobody"),
        "other mail": shop.send.options(tenant="other", tags=["x"]).enqueue(to="nobody"),
        "acme order": shop.book.options(tenant="acme", tags=["x"]).enqueue(customer="c"),
        "free order": shop.book.options(tags=["x"]).enqueue(customer="d"),
    }
    shop.app.work(until_idle=True)
    return ids


def seen(client: Client, jobs: dict[str, int], path: str = "jobs") -> set[str]:
    """Which of the jobs are listed."""
    names = {str(id_): name for name, id_ in jobs.items()}
    return {names[job["id"]] for job in client.get(path)["jobs"]}


def test_lists_have_what_a_token_is_for(shop: Shop, jobs: dict[str, int]) -> None:
    for caller, visible in (
        (TENANT, {"acme mail", "acme order"}),
        (MAIL, {"acme mail", "other mail"}),
        ({**TENANT, **MAIL}, {"acme mail"}),
    ):
        with asking_as(shop.app, **caller) as client:
            assert seen(client, jobs) == visible
            assert seen(client, jobs, "jobs?tag=x&state=failed") == visible
    with asking_as(shop.app, **BOTH) as client:
        problem = client.refused("GET", "jobs")
        assert (problem["field"], "mail, orders" in problem["detail"]) == ("queue", True)
        assert seen(client, jobs, "jobs?queue=orders") == {"acme order", "free order"}
        assert [stats["queue"] for stats in client.get("queues")["queues"]] == ["mail", "orders"]
    with asking_as(shop.app, **MAIL) as client:
        assert client.refused("GET", "jobs?queue=orders")["code"] == "forbidden"
        assert client.refused("GET", "jobs?queue=nowhere")["code"] == "forbidden"
        assert client.refused("GET", "jobs?partition=orders")["code"] == "not-found"
        assert [stats["queue"] for stats in client.get("queues")["queues"]] == ["mail"]
        assert client.get("queues/mail/stats")["dead"] == 2
        assert client.refused("GET", "queues/orders/stats")["code"] == "forbidden"
        assert client.refused("GET", "loads")["code"] == "forbidden"
    with asking_as(shop.app, **TENANT) as client:
        assert client.refused("GET", "jobs?tenant=other")["field"] == "tenant"
        assert seen(client, jobs, "jobs?tenant=acme&queue=mail") == {"acme mail"}


def test_a_job_outside_is_as_one_that_does_not_exist(shop: Shop, jobs: dict[str, int]) -> None:
    missing = jobs["free order"] + 1
    for caller, outside in ((TENANT, "other mail"), (TENANT, "free order"), (MAIL, "acme order")):
        with asking_as(shop.app, **caller) as client:
            for path in ("", "/explain", "?wait=30"):
                told = [client.refused("GET", f"jobs/{id_}{path}") for id_ in (jobs[outside], missing)]
                for problem, id_ in zip(told, (jobs[outside], missing), strict=True):
                    assert problem["code"] == "not-found"
                    problem["detail"] = problem["detail"].replace(str(id_), "ID")
                assert told[0] == told[1]
    with asking_as(shop.app, role="admin", **MAIL) as client:
        for act, body in (("cancel", {}), ("retry", {}), ("reschedule", {"run_at": "2030-01-01T00:00:00Z"})):
            assert client.refused("POST", f"jobs/{jobs['acme order']}/{act}", json=body)["code"] == "not-found"
            assert client.post(f"jobs/{jobs['acme mail']}/{act}", body)["job_id"] == str(jobs["acme mail"])


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def note(self: Any, query: Any, *args: Any, **named: Any) -> Any:
        sent.append(str(query)[:200])
        return execute(self, query, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", note)
        yield sent


def test_a_refusal_takes_the_statements_of_a_miss(
    shop: Shop, jobs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with asking_as(shop.app, **TENANT) as client:
        client.get(f"jobs/{jobs['acme mail']}")
        for path in ("", "/explain"):
            asked = []
            for id_ in (jobs["other mail"], jobs["free order"] + 1):
                with statements(monkeypatch) as sent:
                    client.refused("GET", f"jobs/{id_}{path}")
                asked.append(sent)
            assert asked[0] == asked[1] != []


def test_acts_on_many_keep_to_the_queues_of_a_token(shop: Shop, jobs: dict[str, int]) -> None:
    with asking_as(shop.app, role="admin", **MAIL) as client:
        assert client.post("jobs/retry", {"tag": "x"}) == {"jobs": 2, "preview": False}
        assert client.refused("POST", "jobs/retry", json={"queue": "orders"})["code"] == "forbidden"
        assert client.post("jobs/cancel", {"tag": "x"}) == {"jobs": 2, "preview": False}
        assert client.refused("POST", "queues/orders/pause")["code"] == "forbidden"
        assert client.refused("POST", "crons/any/pause")["code"] == "forbidden"
        assert client.refused("POST", "shards/1/drain")["code"] == "forbidden"
        assert client.refused("POST", "workers/1/stop")["code"] == "forbidden"
    assert shop.app.job(jobs["acme order"]).state == "failed"
    with asking_as(shop.app, role="admin", **BOTH) as client:
        assert client.refused("POST", "jobs/cancel", json={"tag": "x"})["field"] == "queue"


def test_a_tenant_is_told_of_nothing_but_its_jobs(shop: Shop, jobs: dict[str, int]) -> None:
    with asking_as(shop.app, **TENANT) as client:
        for path in (
            "queues", "queues/mail/stats", "queues/mail/history", "queues/mail/blocked-keys", "workers", "loads",
            "loads/x", "crons", "shards", "events?queue=mail", "events?dead_letters=true", "attention",
            "workers/1", "shards/1/drain", "queues/mail/resize", "due", "due?queue=mail", "queues/mail/hot-keys",
            "dead-letters/causes", "history",
        ):  # fmt: skip
            assert client.refused("GET", path)["code"] == "forbidden", path
        for path in ("jobs/cancel", f"jobs/{jobs['acme mail']}/cancel", "queues/mail/pause"):
            assert client.refused("POST", path, json={"queue": "mail"})["code"] == "forbidden", path


def test_a_tenant_is_told_why_its_job_waits_and_nothing_of_others(shop: Shop) -> None:
    others = shop.send.options(tenant="other").enqueue_many([{"to": "x"}] * 3)
    parent = shop.send.options(tenant="other", delay=3600).enqueue()
    behind = shop.send.options(tenant="acme").enqueue()
    child = shop.send.options(tenant="acme", after=[parent]).enqueue()
    later = shop.send.options(tenant="acme", delay=3600).enqueue()
    with asking_as(shop.app, **TENANT) as client, asking(shop.app) as all_:
        full = all_.get(f"jobs/{child}/explain")
        assert full["detail"] == {"parents": [str(parent)]}
        told = {id_: client.get(f"jobs/{id_}/explain") for id_ in (behind, child, later)}
        assert [told[id_]["detail"] for id_ in told] == [{}, {}, {}]
        assert told[behind]["reason"].startswith("no worker")
        assert told[child]["reason"] == "blocked by jobs that it comes after"
        assert told[later]["reason"].startswith("scheduled: due at 20")
        for each in told.values():
            assert not any(str(id_) in each["reason"] for id_ in [*others, parent])
        shop.app.pause("mail")
        assert client.get(f"jobs/{behind}/explain")["reason"].startswith("paused: queue 'mail'")
        shop.app.resume("mail")
        shop.app.cancel(behind, reason="mine")
        assert client.get(f"jobs/{behind}/explain")["reason"] == "finished: cancelled: mine"


def test_children_of_others_are_not_told(shop: Shop) -> None:
    parent = shop.send.options(tenant="acme").enqueue()
    mine = shop.send.options(tenant="acme", after=[parent]).enqueue()
    other = shop.book.options(tenant="other", after=[parent]).enqueue(customer="c")
    for caller, children in ((TENANT, [mine]), (MAIL, [mine]), ({}, [other, mine])):
        with asking_as(shop.app, **caller) as client:
            assert client.get(f"jobs/{parent}")["children"] == [str(id_) for id_ in children]


def test_events_keep_to_the_queues_of_a_token(shop: Shop, jobs: dict[str, int]) -> None:
    with asking_as(shop.app, **MAIL) as client:
        assert client.refused("GET", "events?queue=orders")["code"] == "forbidden"
        assert client.refused("GET", f"events?job={jobs['acme order']}")["code"] == "not-found"
        with client.events("dead_letters=true") as events:
            shop.book.enqueue(customer="x")
            mine = shop.send.enqueue(to="nobody")
            shop.app.work(until_idle=True)
            assert events.next("dead_letter").data["job_id"] == str(mine)


def test_arguments_results_and_errors_are_hidden_everywhere(shop: Shop, jobs: dict[str, int]) -> None:
    secret = "nobody-4111"
    shop.app.cron("nightly", "@daily", shop.send, args={"to": secret})
    dead = shop.send.enqueue(to=secret)
    done = shop.send.enqueue(to="secret-4111")
    shop.app.work(until_idle=True)
    shop.app.retry(dead, args={"to": f"{secret} again"})
    shop.app.work(until_idle=True)
    with asking_as(shop.app, hides_args=True) as client:
        for path in (
            "jobs", f"jobs/{dead}", f"jobs/{done}", f"jobs/{done}?wait=1", f"jobs/{dead}/explain", "crons",
            "queues/mail/stats",
        ):  # fmt: skip
            assert "4111" not in client.request("GET", path).text, path
        job = client.get(f"jobs/{dead}")
        assert (job["args"], job["result"], job["error"]) == (None, None, None)
        assert [failure["error"] for failure in job["failures"]] == [None] * 3
        assert [edit["args"] for edit in job["edits"]] == [None]
        assert client.get(f"jobs/{dead}/explain")["reason"] == "finished: failed"
        with client.events(f"dead_letters=true&job={done}") as events:
            shop.send.enqueue(to=secret)
            shop.app.work(until_idle=True)
            told = [events.next("job").data, events.next("dead_letter").data]
            assert "4111" not in str(told)
            assert told[1]["error"] is None


def test_the_reason_of_a_cancel_is_hidden_in_the_audit_too(shop: Shop) -> None:
    shop.app.cancel(shop.send.enqueue(to="a"), reason="nobody-4111")
    shop.app.cancel(queue="mail", task="send", reason="nobody-4111")
    with asking_as(shop.app, hides_args=True) as client:
        entries = client.get("audit?act=cancel")["entries"]
        assert ["reason" in entry["detail"] for entry in entries] == [False, False]
        assert entries[0]["detail"]["task"] == "send"
        assert "4111" not in str(entries)
    with asking_as(shop.app) as client:
        entries = client.get("audit?act=cancel")["entries"]
        assert [entry["detail"]["reason"] for entry in entries] == ["nobody-4111"] * 2


def test_a_job_of_another_tenant_is_unknown_as_one_to_wait_for_too(shop: Shop, jobs: dict[str, int]) -> None:
    missing = jobs["free order"] + 1
    with asking_as(shop.app, role="produce", **TENANT) as client:
        for outside in ("other mail", "free order"):
            told = []
            for id_ in (jobs[outside], missing):
                problem = client.refused("POST", "queues/mail/jobs", json={"task": "send", "after": [str(id_)]})
                assert problem["field"] == "after"
                told.append({**problem, "detail": problem["detail"].replace(str(id_), "ID")})
            assert told[0] == told[1]
        mine = {"task": "send", "after": [str(jobs["acme mail"]), str(jobs["acme order"]), {"item": 0}]}
        assert len(client.post("queues/mail/jobs", {"jobs": [{"task": "send"}, mine]})["ids"]) == 2
        bad = {"jobs": [mine | {"after": []}, {"task": "send", "after": [jobs["other mail"]]}]}
        assert client.refused("POST", "queues/mail/jobs", json=bad)["field"] == "jobs[1].after"


def test_a_token_for_some_queues_waits_for_jobs_of_these_only(shop: Shop, jobs: dict[str, int]) -> None:
    missing = jobs["free order"] + 1
    with asking_as(shop.app, role="produce", **MAIL) as client:
        told = []
        for id_ in (jobs["acme order"], missing):
            problem = client.refused("POST", "queues/mail/jobs", json={"task": "send", "after": [str(id_)]})
            told.append({**problem, "detail": problem["detail"].replace(str(id_), "ID")})
        assert told[0] == told[1]
        assert client.post("queues/mail/jobs", {"task": "send", "after": [str(jobs["other mail"])]})["ids"]


def test_parents_of_others_are_not_told(shop: Shop) -> None:
    mine = shop.send.options(tenant="acme").enqueue()
    other = shop.book.options(tenant="other").enqueue(customer="c")
    child = shop.send.options(tenant="acme", after=[mine, other]).enqueue()
    for caller, parents in ((TENANT, [mine]), (MAIL, [mine]), ({}, [mine, other])):
        with asking_as(shop.app, **caller) as client:
            assert client.get(f"jobs/{child}")["after"] == [str(id_) for id_ in parents]
            listed = {job["id"]: job["after"] for job in client.get("jobs")["jobs"]}
            assert listed[str(child)] == [str(id_) for id_ in parents]


def test_why_a_child_waits_or_was_cancelled_names_no_parent_of_others(shop: Shop) -> None:
    parent = shop.book.options(tenant="other", delay=3600).enqueue(customer="c")
    child = shop.send.options(tenant="acme", after=[parent]).enqueue()
    with asking_as(shop.app, **MAIL) as client, asking_as(shop.app, **TENANT) as tenant:
        told = client.get(f"jobs/{child}/explain")
        assert (told["reason"], told["detail"]["parents"]) == ("blocked by jobs that it comes after", [])
        shop.app.cancel(parent)
        shop.app.work(until_idle=True)
        for each in (client, tenant):
            assert each.get(f"jobs/{child}")["error"] == "a parent was cancelled"
            told = each.get(f"jobs/{child}/explain")
            assert told["reason"] == "finished: cancelled: a parent was cancelled"
            assert str(parent) not in str(told)
    with asking(shop.app) as client:
        assert client.get(f"jobs/{child}")["error"] == f"parent {parent} was cancelled"


def test_who_may_see_no_arguments_runs_no_jobs(shop: Shop) -> None:
    with asking_as(shop.app, role="admin", hides_args=True) as client:
        body = {"name": "w", "queues": {"mail": {"send": {}}}}
        assert client.refused("POST", "workers", json=body)["code"] == "forbidden"
        assert client.refused("POST", "workers/1/poll", json={"number": 1})["code"] == "forbidden"


def test_who_may_see_no_arguments_makes_no_token_that_shows_them(shop: Shop) -> None:
    with asking_as(shop.app, role="admin", hides_args=True) as client:
        assert client.refused("POST", "tokens", json={"name": "a", "role": "read"})["code"] == "forbidden"
        assert client.post("tokens", {"name": "b", "role": "read", "hides_args": True})["name"] == "b"
    assert [token.name for token in shop.app.tokens()] == ["b"]


def test_a_worker_of_another_queue_is_as_one_that_is_not_there(shop: Shop) -> None:
    with asking_as(shop.app, role="work", queues=frozenset({"orders"})) as client:
        worker = client.post("workers", {"name": "w", "queues": {"orders": {"book": {}}}})["worker"]
        other = Caller(bearer="m", role=Role.WORK, queues=MAIL["queues"])
        client.application._guard.admit = lambda scope, headers: other  # type: ignore[method-assign]
        for act, body in (("poll", {"number": 1}), ("renew", {})):
            mine = client.refused("POST", f"workers/{worker}/{act}", json=body)
            missing = client.refused("POST", f"workers/999999/{act}", json=body)
            assert (mine["code"], mine["status"]) == ("worker-gone", 410)
            assert mine["detail"].replace(worker, "W") == missing["detail"].replace("999999", "W")
        assert client.request("DELETE", f"workers/{worker}").status_code == 204
        assert client.request("DELETE", "workers/999999").status_code == 204
    assert [each.name for each in shop.app.workers() if each.name.startswith("w#")]
