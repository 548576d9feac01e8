"""The small HTTP thread answers three paths and is not kept from it by anybody."""

from __future__ import annotations

import http.client
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.system.facts import eventually
from tests.system.forks import Forked
from tests.system.scraped import fetch, parse

from penstock.errors import InvalidInput
from penstock.metrics import Probes
from penstock.metrics.exposition import CONTENT_TYPE
from penstock.metrics.probes import MOST_CONNECTIONS, Address

METRICS, HEALTH = Address("--metrics-port", "127.0.0.1", 0), Address("--health-port", "127.0.0.1", 0)


@pytest.fixture
def ports(caplog: pytest.LogCaptureFixture) -> Iterator[dict[str, int]]:
    """Probes of no worker, and where each path is answered."""
    with caplog.at_level(logging.INFO, "penstock"), Probes(list, metrics=METRICS, health=HEALTH):
        found = {}
        for record in caplog.records:
            paths, port = re.fullmatch(r"answers (.+) on port (\d+)", record.getMessage()).groups()  # type: ignore[union-attr]
            found.update(dict.fromkeys(paths.split(" and "), int(port)))
        yield found


def test_each_port_answers_its_own_paths(ports: dict[str, int]) -> None:
    assert ports.keys() == {"/metrics", "/health/live", "/health/ready"}
    assert fetch(ports["/health/live"], "/health/live") == (200, b"live\n")
    assert fetch(ports["/health/ready"], "/health/ready?verbose") == (503, b"no worker has begun\n")
    status, text = fetch(ports["/metrics"], "/metrics")
    assert (status, parse(text).value("penstock_worker_slots")) == (200, 0)
    assert fetch(ports["/metrics"], "/health/live") == (404, b"here are /metrics\n")
    assert fetch(ports["/health/live"], "/metrics")[0] == 404


def test_what_is_no_request_is_refused(ports: dict[str, int]) -> None:
    assert fetch(ports["/metrics"], "/metrics", "POST")[0] == 405
    assert fetch(ports["/metrics"], "/metrics", "HEAD") == (200, b"")
    for request in (b"hello\r\n\r\n", b"GET /metrics\r\n\r\n", b"\xff\xfe /metrics HTTP/2\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", ports["/metrics"]), timeout=60) as client:
            client.sendall(request)
            assert client.makefile("rb").read().startswith(b"HTTP/1.1 400 Bad Request\r\n")
    with socket.create_connection(("127.0.0.1", ports["/metrics"]), timeout=60) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nA: " + b"a" * 8_000)
        try:
            client.sendall(b"a" * 1_000)
            assert client.recv(1) == b""
        except ConnectionError:
            pass


def test_an_answer_says_what_it_is_and_that_it_is_the_last(ports: dict[str, int]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ports["/metrics"], timeout=60)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    assert response.headers["Content-Type"] == CONTENT_TYPE
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Connection"] == "close"
    response.read()
    connection.close()


def test_those_who_say_nothing_keep_nobody_from_an_answer(ports: dict[str, int]) -> None:
    with ExitStack() as opened:
        for _ in range(MOST_CONNECTIONS + 20):
            opened.enter_context(socket.create_connection(("127.0.0.1", ports["/health/live"]), timeout=60)).send(
                b"GET"
            )
        assert fetch(ports["/health/live"], "/health/live") == (200, b"live\n")


def test_who_says_nothing_is_cut_off(ports: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.metrics.probes.PATIENCE_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", ports["/health/live"]), timeout=60) as client:
        client.sendall(b"GET /health/live")
        assert client.recv(1) == b""


def test_a_port_that_is_taken_is_refused_by_the_option_that_named_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("--health-port", "127.0.0.1", taken.getsockname()[1])
        with pytest.raises(
            InvalidInput, match=r"--health-port: nothing can listen on 127.0.0.1, port \d+ .*another port"
        ):
            Probes(list, metrics=METRICS, health=address).__enter__()


def test_one_port_for_both_is_one_listener_on_every_address() -> None:
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    both = [Address(option, "", port) for option in ("--metrics-port", "--health-port")]
    with Probes(list, metrics=both[0], health=both[1]):
        assert fetch(port, "/metrics")[0] == fetch(port, "/health/live")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        fetch(port, "/metrics")


def is_refused(port: int) -> bool:
    try:
        fetch(port, "/health/live")
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # The child has just begun, and is about to close what it inherited.
    return False


def test_a_child_that_a_handler_forked_does_not_keep_the_port() -> None:
    reads, writes = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Probes(list, metrics=None, health=Address("--health-port", "127.0.0.1", port)):
        child = Forked(lambda: os.read(reads, 1))
    eventually(lambda: is_refused(port), "the child has let go of the port, too")
    os.write(writes, b"x")
    assert child.answer() == b"x"
    os.close(reads)
    os.close(writes)


def test_where_nothing_is_asked_for_there_is_no_thread() -> None:
    with Probes(list, metrics=None, health=None) as probes:
        assert probes._thread is None
