"""What a token lets its bearer do over HTTP, and whose name stands in the audit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.server.served import serving
from tests.system.facts import eventually

from penstock import App

JOB = {"task": "send"}


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.queue("orders")
        app.migrate()
        yield app


@pytest.fixture
def client(app: App) -> Iterator[httpx.Client]:
    with serving(app) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def post(client: httpx.Client, token: str, queue: str = "mail", **job: object) -> httpx.Response:
    return client.post(f"queues/{queue}/jobs", json=JOB | job, headers=bearer(token))


def test_the_first_token_closes_the_door_to_this_machine(app: App, client: httpx.Client) -> None:
    assert client.post("queues/mail/jobs", json=JOB).status_code == 201
    token = app.create_token("shop", role="produce")
    eventually(lambda: client.post("queues/mail/jobs", json=JOB).status_code == 401, "a token is asked for")
    assert post(client, token).status_code == 201


def test_one_that_is_revoked_lets_nobody_in(app: App, client: httpx.Client) -> None:
    token = app.create_token("shop", role="produce")
    eventually(lambda: post(client, token).status_code == 201, "the token is known")
    app.revoke_token("shop")
    eventually(lambda: post(client, token).status_code == 401, "the token is not taken any more")


def test_what_a_token_had_begun_ends_when_it_is_revoked(app: App, client: httpx.Client) -> None:
    token = bearer(app.create_token("shop", role="admin"))
    job = client.post("queues/mail/jobs", json=JOB, headers=token)
    body = {"name": "w", "queues": {"orders": {"book": {}}}}
    worker = client.post("workers", json=body, headers=token).json()["worker"]
    poll = {"number": 1, "ends": [], "want": 1, "wait": 30}
    with ThreadPoolExecutor() as threads, client.stream("GET", "events?queue=mail", headers=token) as events:
        lines = events.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: stats"
        open_ = [
            threads.submit(client.post, f"workers/{worker}/poll", json=poll, headers=token),
            threads.submit(client.get, f"jobs/{job.json()['ids'][0]}?wait=30", headers=token),
        ]
        eventually(lambda: len(app.workers()) == 1, "the worker is there")
        app.revoke_token("shop")
        assert [call.result().status_code for call in open_] == [401, 401]
        # It ends.
        list(lines)


@pytest.mark.parametrize(("role", "status"), [("read", 403), ("produce", 201), ("work", 403), ("admin", 201)])
def test_a_role_is_what_it_says(app: App, client: httpx.Client, role: str, status: int) -> None:
    token = app.create_token("one", role=role)  # type: ignore[arg-type]
    assert post(client, token).status_code == status


def test_a_token_for_some_queues_is_refused_the_same_whether_there_are_others(app: App, client: httpx.Client) -> None:
    token = app.create_token("shop", role="produce", queues=["mail"])
    assert post(client, token).status_code == 201
    others = [post(client, token, queue) for queue in ("orders", "none")]
    assert [each.status_code for each in others] == [403, 403]
    assert others[0].content == others[1].content


def test_a_tenants_token_enqueues_for_that_tenant_and_in_its_own_space_of_keys(app: App, client: httpx.Client) -> None:
    acme = app.create_token("acme", role="produce", tenant="acme")
    other = app.create_token("other", role="produce", tenant="other")
    ids = [post(client, token, idempotency_key="k").json()["ids"][0] for token in (acme, other, acme)]
    assert ids[0] == ids[2] != ids[1]
    assert [app.job(id_).tenant for id_ in ids[:2]] == ["acme", "other"]
    assert [app.job(id_).idempotency_key for id_ in ids[:2]] == ["k", "k"]
    unique = [post(client, token, unique="waiting").json()["ids"][0] for token in (acme, other, acme)]
    assert unique[0] == unique[2] != unique[1]
    refused = post(client, acme, tenant="other")
    assert (refused.status_code, refused.json()["field"]) == (422, "tenant")


def test_the_key_of_a_call_is_its_tokens_own(app: App, client: httpx.Client) -> None:
    one, two = (app.create_token(name, role="produce") for name in ("one", "two"))
    headers = [bearer(token) | {"Idempotency-Key": "call"} for token in (one, two, one)]
    ids = [client.post("queues/mail/jobs", json=JOB, headers=each).json()["ids"] for each in headers]
    assert ids[0] == ids[2] != ids[1]


def test_tokens_are_made_listed_and_revoked_over_http(app: App, client: httpx.Client) -> None:
    admin = bearer(app.create_token("boss", role="admin"))
    body = {"name": "shop", "role": "produce", "queues": ["mail"], "expires": 60, "hides_args": True}
    made = client.post("tokens", json=body, headers=admin)
    assert made.status_code == 201
    secret = made.json().pop("token")
    assert made.json() == {"name": "shop", "role": "produce", "token": secret}
    assert made.headers["cache-control"] == "no-store"
    # At the server that made it at once, though it has just read those there were.
    assert post(client, secret).status_code == 201
    assert post(client, secret, queue="orders").status_code == 403
    listed = client.get("tokens", headers=admin)
    assert [(each["name"], each["role"], each["queues"]) for each in listed.json()["tokens"]] == [
        ("shop", "produce", ["mail"]),
        ("boss", "admin", None),
    ]
    assert "penstock_" not in listed.text
    assert client.delete("tokens/shop", headers=admin).status_code == 204
    assert post(client, secret).status_code == 401
    shop, _ = client.get("tokens", headers=admin).json()["tokens"]
    assert shop["revoked_at"] is not None
    acts = [(entry.act, entry.target, entry.actor) for entry in app.audit() if entry.source == "http"]
    assert acts == [("revoke_token", "shop", "token boss"), ("create_token", "shop", "token boss")]
    assert secret not in str(app.audit())


def test_only_who_may_do_everything_handles_tokens(app: App, client: httpx.Client) -> None:
    boss = bearer(app.create_token("boss", role="admin"))
    callers = [
        bearer(app.create_token(f"of-{number}", **options))  # type: ignore[arg-type]
        for number, options in enumerate(
            [{"role": "read"}, {"role": "admin", "queues": ["mail"]}, {"role": "read", "tenant": "acme"}]
        )
    ]
    body = {"name": "more", "role": "admin"}
    for headers in callers:
        eventually(lambda: client.get("tokens", headers=headers).status_code != 401, "the token is known")  # noqa: B023
        assert client.get("tokens", headers=headers).status_code == 403
        assert client.post("tokens", json=body, headers=headers).status_code == 403
        assert client.delete("tokens/boss", headers=headers).status_code == 403
    assert client.delete("tokens/nobody", headers=boss).status_code == 404
    assert {token.name for token in app.tokens()} == {"boss", "of-0", "of-1", "of-2"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""), ("role", "root"), ("queues", []), ("queues", "mail"), ("tenant", "acme"), ("expires", -1),
        ("expires", "2020-01-01T00:00:00"), ("secret", "mine"),
    ],
)  # fmt: skip
def test_a_bad_token_names_its_field(app: App, client: httpx.Client, field: str, value: object) -> None:
    answer = client.post("tokens", json={"name": "n", "role": "admin", field: value})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert app.tokens() == []
