"""Every bad input over HTTP: refused by name, or stored and given back as it was; never another kind of answer."""

from __future__ import annotations

import json
import math
import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from tests.security.bad_inputs import ARGUMENTS, DECLARATIONS, HOSTILE_TEXTS, IDS, OPTIONS, Given
from tests.server.asking import Client

from penstock import App


@pytest.fixture
def app(app: App) -> App:
    app.queue("q", partitions=2).task(name="t", max_attempts=1)(lambda value=None: value)
    app.queues()
    return app


def body_of(value: Any) -> bytes | None:
    """A value as somebody would send it, also where it is no JSON; None where nobody can."""
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError, RuntimeError):
        return None


def sent(client: Client, method: str, path: str, body: bytes) -> Any:
    return client.request(method, path, content=body, headers={"content-type": "application/json"})


def judge(response: Any, given: Given, field: str | None) -> bool:
    """Whether it was taken; an answer that is neither fails."""
    assert response.status_code < 500, f"{given.name}: {response.text}"
    if response.is_success:
        assert given.refused is None, f"{given.name} was taken"
        return True
    problem = response.json()
    assert problem["code"] in ("invalid-input", "not-found"), f"{given.name}: {problem}"
    assert all(each.isprintable() for each in problem["detail"].split("\n")), given.name
    if field is not None:
        assert re.split(r"[.\[]", problem["field"])[0] in (field, "body"), f"{given.name}: {problem}"
    return False


def test_arguments_are_refused_or_come_back_equal(client: Client) -> None:
    for given in ARGUMENTS:
        value = given.value
        raw = body_of({"task": "t", "args": {"value": value}})
        if given.name == "depth 10,000":
            raw = b'{"task": "t", "args": {"value": ' + b"[" * 10_000 + b"]" * 10_000 + b"}}"
        if given.name == "a number of 5,000 digits":
            raw = b'{"task": "t", "args": {"value": 1' + b"0" * 5_000 + b"}}"
        if raw is None:
            continue
        response = sent(client, "POST", "queues/q/jobs", raw)
        if has_other_names({"value": value}):
            assert response.is_success
        elif judge(response, given, None):
            (id_,) = response.json()["ids"]
            stored = client.get(f"jobs/{id_}")["args"]
            assert msgspec.json.encode(stored) == msgspec.json.encode({"value": value}), given.name


def test_options_are_refused_by_name_or_come_back(client: Client) -> None:
    for given in OPTIONS:
        raw = body_of({"task": "t", **{name: encoded(value) for name, value in given.options.items()}})
        if raw is None or {"connection", "request_timeout"} & given.options.keys():
            continue
        response = sent(client, "POST", "queues/q/jobs", raw)
        assert response.status_code < 500, f"{given.name}: {response.text}"
        if not response.is_success:
            judge(response, given, None)


def has_other_names(given: dict[str, Any]) -> bool:
    """Whether a dict in it has names that are no text: JSON makes text of them."""
    return any(isinstance(each, dict) and not all(isinstance(name, str) for name in each) for each in given.values())


def encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": msgspec.json.encode(value).decode().strip('"')}
    return value.isoformat() if hasattr(value, "isoformat") else value


def test_a_queue_is_refused_by_the_option_that_cannot_be(client: Client) -> None:
    for given in DECLARATIONS:
        raw = body_of(given.options)
        if raw is None or not isinstance(given.value, str) or not given.value:
            continue
        try:
            name = quote("new" if given.value == "q" else given.value, safe="")
            # A client that finds a dot alone walks by it.
            path = f"queues/{name.replace('.', '%2E')}"
        except UnicodeEncodeError:
            path = "queues/%ED%A0%80"
        if not has_other_names(given.options):
            judge(sent(client, "PUT", path, raw), given, given.refused)


def test_hostile_texts_are_names_like_any(client: Client) -> None:
    for text in HOSTILE_TEXTS.values():
        path = quote(text, safe="")
        assert client.request("PUT", f"queues/{path}", json={}).status_code == 201
        job = {"task": text, "tenant": text, "created_by": text, "tags": [text], "key": text, "idempotency_key": text}
        (id_,) = client.post(f"queues/{path}/jobs", job)["ids"]
        told = client.get(f"jobs/{id_}")
        assert (told["queue"], told["task"], told["key"], told["tags"]) == (text, text, text, [text])
        for name in ("queue", "task", "key", "tag", "tenant", "created_by"):
            assert id_ in [each["id"] for each in client.get("jobs", params={name: text})["jobs"]], name
        assert client.get(f"queues/{path}/stats")["queue_length"] == 1
        assert client.done("PUT", f"crons/{path}", json={"expression": "@daily", "queue": text, "task": text})
        assert client.post(f"crons/{path}/run")["id"].isdigit()
        assert client.post("jobs/cancel", {"tenant": text, "reason": text})["jobs"] == 1
        assert client.get(f"jobs/{id_}")["error"] == text
        assert client.done("DELETE", f"queues/{path}?force=true")


def test_an_id_that_is_none_is_refused_everywhere(client: Client) -> None:
    for name, value in IDS.items():
        text = str(value)[:400]
        path = quote(text, safe="")
        if not path:
            continue
        for method, act in (("GET", ""), ("GET", "/explain"), ("POST", "/cancel"), ("POST", "/retry")):
            assert client.refused(method, f"jobs/{path}{act}")["field"] == "job_id", name
        assert client.refused("GET", "jobs", params={"before": text})["field"] == "before", name


def test_null_is_no_value_in_a_query_but_the_text_null_is(client: Client) -> None:
    assert client.done("PUT", "queues/mail", json={})
    (id_,) = client.post("queues/mail/jobs", {"task": "null", "key": "null"})["ids"]
    for name in ("task", "key"):
        assert [each["id"] for each in client.get("jobs", params={name: "null"})["jobs"]] == [id_]
    for path, name in (("queues/mail/blocked-keys", "kind"), ("jobs", "state")):
        refused = client.refused("GET", path, params={name: "null"})
        assert (refused["code"], refused.get("field")) == ("invalid-input", name), refused


@pytest.mark.parametrize("path", ["%00", "a%00b", "%ff", "%ED%A0%80", "x" * 201, "%20", "..%2f..%2fetc"])
def test_a_name_in_a_path_that_cannot_be_is_refused_or_not_found(client: Client, path: str) -> None:
    for method, below in (
        ("GET", "queues/{}/stats"), ("DELETE", "queues/{}"), ("POST", "queues/{}/pause"), ("GET", "loads/{}"),
        ("POST", "loads/{}/pause"), ("DELETE", "crons/{}"), ("POST", "crons/{}/run"), ("POST", "shards/{}/drain"),
    ):  # fmt: skip
        assert client.refused(method, below.format(path))["code"] in ("invalid-input", "not-found")
    assert client.request("PUT", f"queues/{path}", json={}).status_code in (201, 422)


def test_numbers_that_cannot_be_are_refused_in_bodies_and_queries(client: Client) -> None:
    for number in ("1e400", "-1", "0", "1.5", str(2**63), "9" * 400, "true", '"1"', "[1]"):
        for path, field in (("queues/q/limit", "limit"), ("queues/q/resize", "partitions")):
            body = f'{{"{field}": {number}}}'.encode()
            problem = sent(client, "POST", path, body).json()
            assert (problem["status"], problem["field"] in (field, "body")) == (422, True), (path, number)
    for text in ("1e400", "NaN", "-1", "0x10", "1_0", "\u0665", " 1", "9" * 400, ""):
        assert client.refused("GET", "jobs", params={"limit": text})["field"] == "limit", text
    assert math.isfinite(client.get("queues/q/stats")["queue_length"])
