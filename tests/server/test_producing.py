"""Jobs over HTTP: one, several, lines of JSON; refused with the field, or durable when answered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from tests.server.served import serving

from penstock import App


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.queue("updates", partitions=4, order="key")

        @app.queue("shop").task(key="customer")
        def order(customer: str, when: datetime, amount: float = 1.0) -> None: ...

        app.migrate()
        yield app


@pytest.fixture
def client(app: App) -> Iterator[httpx.Client]:
    with serving(app) as client:
        yield client


@pytest.mark.parametrize("given", [[""], ["a", "b"], ["a", "a"]])
def test_a_key_of_a_call_that_says_nothing_is_refused(app: App, client: httpx.Client, given: list[str]) -> None:
    headers = [("Idempotency-Key", each) for each in given]
    answers = [client.post("queues/mail/jobs", json={"task": "send"}, headers=headers) for _ in range(2)]
    assert [(each.status_code, each.json()["field"]) for each in answers] == [(422, "Idempotency-Key")] * 2
    assert app.stats("mail").total_enqueued == 0


def test_one_job_is_durable_when_it_is_answered(app: App, client: httpx.Client) -> None:
    answer = client.post(
        "queues/mail/jobs",
        json={
            "task": "send",
            "args": {"to": "a@b.c", "n": 2**63, "deep": [{"x": None}]},
            "key": "k",
            "priority": 1,
            "tenant": "acme",
            "created_by": "billing",
            "tags": ["x", "y"],
        },
    )
    assert (answer.status_code, answer.headers["content-type"]) == (201, "application/json")
    (job_id,) = answer.json()["ids"]
    job = app.job(job_id)
    assert (job.queue, job.task, job.args) == ("mail", "send", {"to": "a@b.c", "n": 2**63, "deep": [{"x": None}]})
    assert (job.key, job.priority, job.tenant, job.created_by, job.tags) == ("k", 1, "acme", "billing", ["x", "y"])


def test_several_jobs_keep_their_order_and_may_wait_for_each_other(app: App, client: httpx.Client) -> None:
    jobs = [
        {"task": "first", "args": {"n": 1}},
        {"task": "second", "after": [{"item": 0}], "on_parent_failure": "run"},
        {"task": "later", "run_at": "2090-01-01T00:00:00Z"},
        {"task": "soon", "delay": 3600},
    ]
    ids = client.post("queues/mail/jobs", json={"jobs": jobs}).json()["ids"]
    found = [app.job(id_) for id_ in ids]
    assert [job.task for job in found] == ["first", "second", "later", "soon"]
    assert found[1].after == [int(ids[0])]
    assert found[2].run_at == datetime(2090, 1, 1, tzinfo=UTC)
    assert [job.state for job in found] == ["ready", "blocked", "scheduled", "scheduled"]
    again = client.post("queues/mail/jobs", json={"task": "third", "after": [ids[0], int(ids[1])]})
    assert app.job(again.json()["ids"][0]).after == [int(ids[0]), int(ids[1])]


@pytest.mark.parametrize("has_other", [False, True])
def test_many_that_are_alike_are_as_each_alone(app: App, client: httpx.Client, has_other: bool) -> None:
    jobs: list[dict[str, object]] = [
        {"task": "t", "args": {"n": n, "x": None if n == 7 else "é"},
         "key": {"base64": "/wA="} if n == 3 else f"k-{n % 5}", "tags": ["a"], "priority": 2, "tenant": "acme"}
        for n in range(20)
    ]  # fmt: skip
    if has_other:
        jobs.append({"task": "other", "key": "k-0"})
    ids = client.post("queues/updates/jobs", json={"jobs": jobs}).json()["ids"][:20]
    found = [app.job(id_) for id_ in ids]
    assert [job.args for job in found] == [{"n": n, "x": None if n == 7 else "é"} for n in range(20)]
    assert [job.key for job in found] == [b"\xff\x00" if n == 3 else f"k-{n % 5}" for n in range(20)]
    assert {(job.task, tuple(job.tags), job.priority, job.tenant) for job in found} == {("t", ("a",), 2, "acme")}
    declared = [{"task": "order", "args": {"customer": f"c-{n}", "when": "2026-01-01T00:00:00Z"}} for n in range(20)]
    ids = client.post("queues/shop/jobs", json={"jobs": declared}).json()["ids"]
    assert [app.job(id_).key for id_ in ids] == [f"c-{n}" for n in range(20)]
    declared[13]["args"] = {"customer": "c-1"}
    assert client.post("queues/shop/jobs", json={"jobs": declared}).json()["field"] == "jobs[13].when"
    assert app.stats("shop").total_enqueued == 20


def test_each_line_is_a_job(app: App, client: httpx.Client) -> None:
    body = b'{"task": "send", "args": {"n": 1}}\n\n{"task": "send", "args": {"n": 2}}\n'
    answer = client.post("queues/mail/jobs", content=body, headers={"content-type": "application/x-ndjson"})
    assert [app.job(id_).args["n"] for id_ in answer.json()["ids"]] == [1, 2]
    answer = client.post("queues/mail/jobs", content=body + b"[]", headers={"content-type": "application/x-ndjson"})
    assert (answer.status_code, answer.json()["detail"][:10]) == (422, "in line 4:")
    assert app.stats("mail").total_enqueued == 2


def test_a_declared_task_checks_its_arguments_and_finds_its_key(app: App, client: httpx.Client) -> None:
    good = {"task": "order", "args": {"customer": "c-1", "when": "2026-01-01T10:00:00Z"}}
    (job_id,) = client.post("queues/shop/jobs", json=good).json()["ids"]
    assert app.job(job_id).key == "c-1"
    bad = {"task": "order", "args": {"customer": "c-1", "when": "yesterday"}}
    answer = client.post("queues/shop/jobs", json={"jobs": [good, bad]})
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid-input", "jobs[1].when")
    assert app.stats("shop").total_enqueued == 1


def test_bytes_may_be_a_key(app: App, client: httpx.Client) -> None:
    answer = client.post("queues/updates/jobs", json={"task": "t", "key": {"base64": "/wA="}})
    assert app.job(answer.json()["ids"][0]).key == b"\xff\x00"
    answer = client.post("queues/updates/jobs", json={"task": "t", "key": {"base64": "!"}})
    assert (answer.status_code, answer.json()["field"]) == (422, "key")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"task": "send", "argss": {}}, "argss"),
        ({"args": {}}, "task"),
        ({"task": ""}, "task"),
        ({"task": "send", "priority": 10}, "priority"),
        ({"task": "send", "priority": "1"}, "priority"),
        ({"task": "send", "args": []}, "args"),
        ({"task": "send", "delay": -1}, "delay"),
        ({"task": "send", "run_at": "2090-01-01T00:00:00"}, "run_at"),
        ({"task": "send", "delay": 1, "run_at": "2090-01-01T00:00:00Z"}, "delay"),
        ({"task": "send", "after": ["x"]}, "after"),
        ({"task": "send", "after": [{"item": 0}]}, "after"),
        ({"task": "send", "unique": "always"}, "unique"),
        ({"task": "send", "tenant": "a\0b"}, "tenant"),
        ({"task": "send", "idempotency_key": "penstock.x"}, "idempotency_key"),
        ({"jobs": {}}, "jobs"),
        ({"jobs": [{"task": "a"}, {"task": "b", "priority": 11}]}, "jobs[1].priority"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field(
    app: App, client: httpx.Client, body: object, field: str
) -> None:
    answer = client.post("queues/mail/jobs", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert (answer.json()["code"], answer.json()["field"]) == ("invalid-input", field)
    assert app.stats("mail").total_enqueued == 0


def test_refusals_that_are_not_about_a_value(app: App, client: httpx.Client) -> None:
    job = {"task": "send"}
    assert client.post("queues/none/jobs", json=job).json()["code"] == "not-found"
    assert client.post("queues/mail/jobs?x=1", json=job).json()["field"] == "query"
    assert (
        client.post("queues/mail/jobs", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    )
    xml = client.post("queues/mail/jobs", content=b"<a/>", headers={"content-type": "text/xml"})
    assert (xml.status_code, xml.json()["code"]) == (415, "unsupported-media-type")
    many = client.post("queues/mail/jobs", json={"jobs": [job] * 10_001})
    assert (many.status_code, many.json()["code"]) == (413, "too-large")
    huge = client.post("queues/mail/jobs", json={"task": "send", "args": {"x": "y" * 33 * 2**20}})
    assert (huge.status_code, huge.json()["code"]) == (413, "too-large")
    app.limit("mail", max_length=1)
    assert client.post("queues/mail/jobs", json={"jobs": [job, job]}).json()["code"] == "queue-full"
    wrong = client.delete("queues/mail/jobs")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["code"]) == (405, "POST", "method-not-allowed")


def test_a_call_with_an_idempotency_key_may_be_repeated(app: App, client: httpx.Client) -> None:
    jobs = {"jobs": [{"task": "send", "args": {"n": 1}}, {"task": "send", "idempotency_key": "own"}]}
    once, again = (
        client.post("queues/mail/jobs", json=jobs, headers={"Idempotency-Key": "call-7"}).json() for _ in range(2)
    )
    assert once == again
    assert app.stats("mail").total_enqueued == 2
    assert [app.job(id_).idempotency_key for id_ in once["ids"]] == ["call-7/0", "own"]


def test_a_name_of_a_queue_may_hold_anything(app: App, client: httpx.Client) -> None:
    app.queue("a/b?c é")
    app.migrate()
    answer = client.post("queues/a%2Fb%3Fc%20%C3%A9/jobs", json={"task": "t"})
    assert app.job(answer.json()["ids"][0]).queue == "a/b?c é"
    assert client.post("queues/%FF/jobs", json={"task": "t"}).json()["field"] == "queue"


def test_the_trace_of_a_request_is_kept_with_its_jobs_where_it_is_sampled(app: App, client: httpx.Client) -> None:
    def sent(traceparent: str) -> list[str | None]:
        headers = {"traceparent": traceparent, "tracestate": "vendor=1"}
        answer = client.post("queues/mail/jobs", json={"jobs": [{"task": "a"}, {"task": "b"}]}, headers=headers)
        return [app.job(id_).traceparent for id_ in answer.json()["ids"]]

    sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert sent(sampled) == [sampled, sampled]
    assert sent(sampled[:-1] + "0") == [None, None]
    assert sent("nonsense") == [None, None]


@pytest.mark.parametrize(("queue", "keys"), [("mail", {}), ("updates", {"key": "k"})])
def test_a_worker_in_any_language_is_given_the_trace_of_the_request_with_the_job(
    app: App, client: httpx.Client, queue: str, keys: dict[str, str]
) -> None:
    sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    def sent(headers: dict[str, str]) -> str:
        answer = client.post(f"queues/{queue}/jobs", json={"task": "a", "tags": ["x"], **keys}, headers=headers)
        return str(answer.json()["ids"][0])

    def polled(worker: str, number: int, ends: list[dict[str, str]]) -> dict[str, Any]:
        poll = {"number": number, "ends": ends, "want": 5, "wait": 30}
        return dict(client.post(f"workers/{worker}/poll", json=poll, timeout=60).json())

    both = sent({"traceparent": sampled, "tracestate": "vendor=1"})
    alone = sent({"traceparent": sampled})
    without = [sent({}), sent({"traceparent": sampled[:-1] + "0"})]
    worker = client.post("workers", json={"name": "w", "queues": {queue: {"a": {}}}}).json()["worker"]
    given: dict[str, Any] = {}
    ends: list[dict[str, str]] = []
    number = 0
    # Of a key one is given after the other.
    while len(given) < 4:
        number += 1
        answer = polled(worker, number, ends)
        assert polled(worker, number, ends) == answer
        given |= {job["id"]: job for job in answer["jobs"]}
        ends = [{"job": job["id"], "lease": job["lease"], "end": "succeeded"} for job in answer["jobs"]]
    traces = {id_: {name: job[name] for name in job if name.startswith("trace")} for id_, job in given.items()}
    assert traces == {
        both: {"traceparent": sampled, "tracestate": "vendor=1"},
        alone: {"traceparent": sampled},
        **{id_: {} for id_ in without},
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"task": "se\xffnd"}', "byte 0xff at 12"),
        (b'{"task": "send", "args": {"to": "\xc3("}}', "byte 0xc3 at 33"),
        (b'{"jobs": [{"task": "send", "args": {"\xed\xa0\x80": 1}}]}', "byte 0xed at 37"),
        ('{"task": "send"}'.encode("utf-16"), "byte 0xff at 0"),
    ],
)
def test_a_body_that_is_no_utf_8_is_refused_with_the_place_and_nothing_is_written(
    app: App, client: httpx.Client, body: bytes, said: str
) -> None:
    answer = client.post("queues/mail/jobs", content=body, headers={"content-type": "application/json"})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (422, "invalid-input", "body")
    assert problem["detail"] == f"it is no UTF-8: {said}; send JSON in UTF-8"
    lines = b'{"task": "send"}\n' + body
    answer = client.post("queues/mail/jobs", content=lines, headers={"content-type": "application/x-ndjson"})
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (422, "line 2" if b"jobs" not in body else "jobs")
    assert app.stats("mail").total_enqueued == 0


def test_a_body_without_anything_is_called_empty(client: httpx.Client) -> None:
    answer = client.post("queues/mail/jobs", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (422, "it is empty; send JSON")


def test_a_state_that_there_is_not_is_refused_with_those_there_are(client: httpx.Client) -> None:
    problem = client.get("jobs", params={"state": "dead"}).json()
    assert (problem["code"], problem["field"]) == ("invalid-input", "state")
    assert problem["detail"].startswith("there is no state 'dead'; give scheduled, blocked")
    assert problem["detail"].endswith("(dead letters are failed)")
    assert "failed" in problem["detail"]
