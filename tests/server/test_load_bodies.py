"""Bodies that become loads, over real sockets: whole or not at all, once for their name."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from tests.security.trace_contexts import SAMPLED
from tests.server.served import serving
from tests.system.facts import eventually

from penstock import App

NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("orders", partitions=4, order="key")
        app.migrate()
        yield app


@pytest.fixture
def client(app: App) -> Iterator[httpx.Client]:
    with serving(app) as client:
        yield client


def lines(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield b'{"customer": "c-%d", "step": %d}\n' % (number % 50, number)


def test_a_stream_becomes_a_load_once_for_its_name(app: App, client: httpx.Client) -> None:
    path = "queues/orders/loads/november?task=book&key=customer&order_by=step&rows=20000"
    first = client.put(path, content=lines(20_000), headers=NDJSON)
    assert (first.status_code, first.json()) == (
        201,
        {"name": "november", "rows": 20_000, "duplicates": 0, "is_new": True},
    )
    again = client.put(path, content=lines(20_000), headers=NDJSON)
    assert (again.status_code, again.json()["is_new"]) == (200, False)
    assert app.stats("orders").queue_length == 20_000


def test_a_bad_row_is_refused_with_its_number_and_nothing_is_enqueued(app: App, client: httpx.Client) -> None:
    def body() -> Iterator[bytes]:
        yield from lines(5_000)
        yield b"no json\n"
        yield from lines(5_000)

    answer = client.put("queues/orders/loads/bad?task=book&key=customer", content=body(), headers=NDJSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert "5001" in f"{answer.json()['field']} {answer.json()['detail']}"
    assert app.stats("orders").queue_length == 0
    fixed = client.put("queues/orders/loads/bad?task=book&key=customer", content=lines(10), headers=NDJSON)
    assert (fixed.status_code, fixed.json()["rows"]) == (201, 10)


def test_a_body_that_is_cut_is_no_load(app: App, client: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as connection:
        connection.sendall(
            b"PUT /api/v1/queues/orders/loads/cut?task=book&key=customer HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n" + b"".join(lines(10_000))
        )
    whole = client.put("queues/orders/loads/cut?task=book&key=customer", content=lines(7), headers=NDJSON)
    assert whole.json() == {"name": "cut", "rows": 7, "duplicates": 0, "is_new": True}
    eventually(lambda: app.stats("orders").queue_length == 7, "what was cut is gone")


@pytest.mark.parametrize(
    ("path", "headers", "status", "field"),
    [
        ("queues/orders/loads/x?task=book&rows=-1", NDJSON, 422, "rows"),
        ("queues/orders/loads/x?task=book&types=a:float", {"content-type": "text/csv"}, 422, "types"),
        ("queues/none/loads/x?task=book", NDJSON, 404, None),
        ("queues/orders/loads/x?task=book", {"content-type": "application/json"}, 415, "Content-Type"),
        ("queues/orders/loads/x?task=book&tusk=1", NDJSON, 422, "tusk"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    client: httpx.Client, path: str, headers: dict[str, str], status: int, field: str | None
) -> None:
    answer = client.put(path, content=lines(5), headers=headers)
    assert (answer.status_code, answer.json().get("field")) == (status, field)


def test_no_token_takes_the_place_of_all_loads(app: App, client: httpx.Client) -> None:
    silent, other = (
        {"Authorization": f"Bearer {app.create_token(name, role='produce')}"} for name in ("silent", "other")
    )
    names = itertools.count()

    def load(bearer: dict[str, str]) -> tuple[int, str | None]:
        path = f"queues/orders/loads/{next(names)}?task=book&key=customer"
        answer = client.put(path, content=lines(1), headers=NDJSON | bearer)
        return answer.status_code, answer.json().get("code")

    for bearer in (silent, other):
        # A server hears of a new token within a second.
        eventually(lambda bearer=bearer: load(bearer) == (201, None), "the token is known")  # type: ignore[misc]
    with ExitStack() as connections:

        def say_nothing() -> None:
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", client.base_url.port or 0)))
            head = f"PUT /api/v1/queues/orders/loads/{next(names)}?task=book HTTP/1.1\r\nHost: localhost\r\n"
            rest = (
                f"Content-Type: application/x-ndjson\r\nContent-Length: 9\r\nAuthorization: {silent['Authorization']}"
            )
            connection.sendall(f"{head}{rest}\r\n\r\n".encode())

        def is_refused() -> bool:
            # One that came while the load before it was just ending was refused, and is not under way.
            say_nothing()
            return load(silent) == (429, "too-many-requests")

        eventually(is_refused, "four loads of one token are under way")
        assert load(other) == (201, None)
    eventually(lambda: load(silent) == (201, None), "those that were cut have ended")


def test_a_tenants_token_may_not_load(app: App, client: httpx.Client) -> None:
    token = app.create_token("acme", role="produce", tenant="acme")
    headers = NDJSON | {"Authorization": f"Bearer {token}"}
    answer = client.put("queues/orders/loads/x?task=book&key=customer", content=lines(5), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_sampled_trace_is_kept_once_with_the_load(app: App, client: httpx.Client) -> None:
    traced = NDJSON | {"traceparent": SAMPLED, "tracestate": "vendor=1"}
    assert client.put("queues/orders/loads/traced?task=book", content=lines(3), headers=traced).status_code == 201
    assert client.put("queues/orders/loads/plain?task=book", content=lines(3), headers=NDJSON).status_code == 201
    with app.database.connection() as connection:
        kept = dict(connection.execute("select name, trace ->> 'traceparent' from penstock.load").fetchall())
    assert kept == {"traced": SAMPLED, "plain": None}
