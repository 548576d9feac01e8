"""Who may call without a token, and who may not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.served import serving

from penstock import App


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.migrate()
        yield app


JOB = {"task": "send"}


def test_whoever_sits_at_this_machine_needs_no_token(app: App) -> None:
    with serving(app) as client:
        port = client.base_url.port
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            assert client.post("queues/mail/jobs", json=JOB, headers={"Host": host}).status_code == 201
            own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
            assert client.post("queues/mail/jobs", json=JOB, headers=own).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Host": "evil.example@localhost"},
        {"Host": "localhost/evil.example"},
        {"Host": "localhost#.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Forwarded": "for=1.2.3.4"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Host": "localhost"},
        {"Via": "1.1 proxy"},
    ],
)
def test_a_page_or_a_proxy_on_this_machine_does(app: App, headers: dict[str, str]) -> None:
    with serving(app) as client:
        answer = client.post("queues/mail/jobs", json=JOB, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert app.stats("mail").total_enqueued == 0


def test_of_two_none_is_believed(app: App) -> None:
    with serving(app) as client:
        own = f"http://{client.base_url.host}:{client.base_url.port}"
        for name, values in (("Origin", (own, "http://evil.example")), ("Sec-Fetch-Site", ("none", "cross-site"))):
            answer = client.post("queues/mail/jobs", json=JOB, headers=[(name, value) for value in values])
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_elsewhere_a_token_is_always_needed(app: App) -> None:
    with serving(app, is_local=False) as client:
        answer = client.post("queues/mail/jobs", json=JOB)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("openapi.json").status_code == 401
        for given in ("Bearer x", "Basic eDp5", "bearer"):
            answer = client.post("queues/mail/jobs", json=JOB, headers={"Authorization": given})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_the_token_of_this_machine_is_taken(app: App) -> None:
    with serving(app, is_local=False, machine_token="penstock_abc") as client:
        answer = client.post("queues/mail/jobs", json=JOB, headers={"Authorization": "Bearer penstock_abc"})
        assert answer.status_code == 201
        answer = client.post("queues/mail/jobs", json=JOB, headers={"Authorization": "Bearer penstock_abd"})
        assert answer.status_code == 401
