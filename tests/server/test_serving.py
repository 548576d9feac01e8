"""The server as a program, beside a worker, and inside another application; what it bounds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.server.asking import BASE, LOCAL, check_described
from tests.server.programs import running
from tests.server.served import serving
from tests.system.facts import eventually

from penstock import App
from penstock.server import Application, asgi, body
from penstock.server import serving as program
from penstock.server.beside import serving_beside

JOB = {"task": "send", "args": {"to": "a@b.c"}}
TASKS = """
from penstock import App

app = App()
mail = app.queue("mail")


@mail.task
def send(to: str) -> None: ...
"""


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.migrate()
        yield app


def test_serve_answers_until_it_is_told_to_stop(app: App, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    with running(tmp_path, database_url, "serve", "tasks:app", "--port", "0") as (_, url):
        assert httpx.post(f"{url}/queues/mail/jobs", json=JOB).status_code == 201
        wrong = httpx.post(f"{url}/queues/mail/jobs", json={"task": "send", "args": {"to": 1}})
        assert wrong.json()["field"] == "to"
    assert app.stats("mail").total_enqueued == 1


def test_of_several_processes_each_answers_and_one_that_dies_is_started_again(
    app: App, database_url: str, tmp_path: Path
) -> None:
    with running(tmp_path, database_url, "serve", "--port", "0", "--workers", "2") as (process, url):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def answers() -> bool:
            try:
                return httpx.post(f"{url}/queues/mail/jobs", json=JOB).status_code == 201
            except httpx.TransportError:
                return False

        eventually(answers, "it answers")
        first, second = map(int, children.read_text().split())
        os.kill(first, signal.SIGKILL)
        others = lambda: len({*map(int, children.read_text().split())} - {first}) == 2  # noqa: E731
        eventually(others, "another is started")
        os.kill(second, signal.SIGKILL)
        eventually(answers, "it answers again")


def test_up_serves_beside_its_worker(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    with running(tmp_path, database_url, "up", "tasks:app", "--port", "0") as (_, url), App(database_url) as app:
        (job_id,) = httpx.post(f"{url}/queues/mail/jobs", json=JOB).json()["ids"]
        assert app.result(job_id, timeout=60) is None


def test_a_port_that_is_taken_is_refused_with_a_sentence(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "penstock", "serve", "--port", str(port)]
        environment = os.environ | {"PENSTOCK_URL": database_url}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert f"127.0.0.1:{port} cannot be listened at" in run.stderr


def test_it_may_be_mounted_and_asks_for_a_token_then(app: App) -> None:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/in/here", asgi(app))]))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/in/here/api/v1/queues/mail/jobs", json=JOB)

    answer = asyncio.run(call())
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_where_it_is_mounted_stands_in_openapi_json_and_in_what_it_says(app: App) -> None:
    headers = {"authorization": f"Bearer {app.create_token('looker', role='read')}"}

    async def call() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/in/here", asgi(app))]))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            paths = ("api/v1/openapi.json", "nothing", "api/v1/nothing")
            return [await client.get(f"/in/here/{path}") for path in paths]

    document, *elsewhere = asyncio.run(call())
    assert document.json()["servers"] == [{"url": "/in/here/api/v1"}]
    for answer in elsewhere:
        assert answer.status_code == 404
        assert "/in/here/api/v1/openapi.json" in answer.json()["detail"]


def test_an_answer_does_not_wait_for_its_headers_to_be_acknowledged() -> None:
    with program.bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_headers_that_do_not_come_end_the_connection(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "HEADER_SECONDS", 0.2)
    with serving(app) as client:
        assert client.base_url.port is not None
        for begun in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
                slow.sendall(begun)
                assert slow.recv(1) == b""


def test_blank_lines_between_requests_keep_no_connection(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "HEADER_SECONDS", 0.2)
    with serving(app) as client, socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as slow:
        slow.settimeout(30)
        slow.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = b""
        while not told.endswith(b"ok\n"):
            told += slow.recv(1_000)
        slow.sendall(b"\r\n")
        assert slow.recv(1) == b""


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nX: ",
        b"POST /health/live HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
)
def test_headers_without_end_are_cut_off(app: App, begun: bytes) -> None:
    with serving(app) as client, socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as endless:
        endless.settimeout(30)
        endless.sendall(begun)
        with pytest.raises(ConnectionError):
            endless.sendall(b"a" * 64 * 1024 * 1024)


def test_who_has_gone_is_not_told_any_more_also_where_another_request_had_come_behind(app: App) -> None:
    application = Application(app, is_local=True)
    with serving_beside(application, program.bind("127.0.0.1", 0)) as url:
        feed = application.services.feed
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            client.sendall(b"GET /api/v1/events?queue=mail HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            while b"event: stats" not in told:
                told += client.recv(10_000)
            client.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            eventually(lambda: len(feed._streams) == 1 and client.recv(1), "it is told of")
        eventually(lambda: not feed._streams, "its stream is over")


def test_who_is_not_answered_in_time_by_a_server_that_stops_is_told_so(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "GRACE_SECONDS", 1)
    begun, over = threading.Event(), threading.Event()

    def hang(_: App) -> list[str]:
        begun.set()
        over.wait(300)
        return []

    monkeypatch.setattr(App, "queue_names", hang)

    def ask(url: str) -> httpx.Response:
        try:
            return httpx.get(f"{url}/api/v1/queues", timeout=300)
        finally:
            over.set()

    with ThreadPoolExecutor() as threads:
        with serving_beside(Application(app, is_local=True), program.bind("127.0.0.1", 0)) as url:
            asked = threads.submit(ask, url)
            assert begun.wait(300)
        answer = asked.result()
    assert (answer.status_code, answer.json()["code"]) == (503, "stopping")


def test_a_body_that_does_not_come_is_not_waited_for(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "LONGEST_SILENCE_SECONDS", 0.2)
    with serving(app) as client:
        assert client.base_url.port is not None
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
            slow.sendall(
                b"POST /api/v1/queues/mail/jobs HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
            answer = slow.makefile("rb").read().split(b"\r\n\r\n")[1]
    assert json.loads(answer)["code"] == "request-timeout"
    assert app.stats("mail").total_enqueued == 0


@pytest.mark.parametrize(
    ("path", "piece"),
    [("/api/v1/nothing", b"1\r\na\r\n"), ("/health/live", b"1\r\na\r\n"), ("/api/v1/queues/none/stats", b"1\r\na\r\n")],
)
def test_a_body_that_goes_on_after_its_answer_keeps_no_connection(
    app: App, monkeypatch: pytest.MonkeyPatch, path: str, piece: bytes
) -> None:
    monkeypatch.setattr(program, "HEADER_SECONDS", 0.2)
    with serving(app) as client, socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as endless:
        endless.settimeout(30)
        endless.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        assert endless.recv(12).startswith(b"HTTP/1.1 ")

        def is_cut() -> bool:
            try:
                endless.sendall(piece)
            except ConnectionError:
                return True
            return False

        eventually(is_cut, "the connection is closed")


def test_a_body_that_ends_soon_after_its_answer_keeps_the_connection(app: App) -> None:
    with serving(app) as client, socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as late:
        late.settimeout(30)
        late.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
        for rest in (b"ab", b""):
            told = b""
            while not told.endswith(b"ok\n"):
                told += late.recv(1_000)
            late.sendall(rest + b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")


def test_metrics_take_a_token_that_may_read_everything(app: App) -> None:
    with serving(app) as client:
        root = f"http://127.0.0.1:{client.base_url.port}"
        told = client.get(f"{root}/metrics")
        assert (told.status_code, told.headers["content-type"].split(";")[0]) == (200, "text/plain")
        assert 'queue="mail"' in told.text
        tokens = {
            "one": app.create_token("one", role="read", queues=["mail"]),
            "work": app.create_token("work", role="work"),
            "all": app.create_token("all", role="read"),
        }
        eventually(lambda: client.get(f"{root}/metrics").status_code == 401, "a token is asked for")
        statuses = {
            name: client.get(f"{root}/metrics", headers={"Authorization": f"Bearer {token}"}).status_code
            for name, token in tokens.items()
        }
    assert statuses == {"one": 403, "work": 403, "all": 200}


def test_probes_take_none_and_are_told_nothing_else(app: App) -> None:
    with serving(app, is_local=False) as client:
        root = f"http://127.0.0.1:{client.base_url.port}"
        assert [client.get(f"{root}/health/{each}").text for each in ("live", "ready")] == ["ok\n", "ok\n"]
        heads = [client.head(f"{root}/health/{each}") for each in ("live", "ready")]
        assert [(head.status_code, head.content) for head in heads] == [(200, b"")] * 2
        assert client.get(f"{root}/health/other").status_code == 404


def test_a_proxy_that_was_named_signs_people_in(app: App, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<h1>the past</h1>")
    words = (
        "--require-token",
        "--trusted-proxy",
        "127.0.0.1",
        "--proxy-user-header",
        "X-Who",
        "--report",
        "report.html",
    )
    with running(tmp_path, database_url, "serve", "--port", "0", *words) as (_, api):
        url = api.removesuffix("/api/v1")
        page = httpx.get(f"{url}/history/report", headers={"X-Who": "ada", "Accept": "text/html"})
        assert (page.status_code, page.text) == (200, "<h1>the past</h1>")
        assert httpx.get(f"{url}/queues", headers={"X-Forwarded-User": "ada", "Accept": "text/html"}).status_code != 200
        assert httpx.get(f"{api}/queues", headers={"X-Who": "ada"}).status_code == 401


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trusted-proxy", "proxy.example.org"), "'proxy.example.org' is no IP address"),
        (("--trusted-proxy", "10.0.0.0/8"), "is no IP address"),
        (("--trusted-proxy", "10.0.0.4", "--proxy-role", "produce"), "'produce' is no role for people"),
        (("--trusted-proxy", "10.0.0.4", "--proxy-role", "king"), "'king' is no role for people"),
        (("--trusted-proxy", "10.0.0.4", "--proxy-user-header", "X User"), "'X User' is no name of a header"),
        (("--proxy-role", "admin"), "give the address of the proxy too"),
        (("--report", "/"), "/ is a folder"),
        (("--report", "none/report.html"), "there is no folder"),
    ],
)
def test_what_the_dashboard_cannot_be_told_is_refused_in_words(
    database_url: str, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--port", "0", *words],
        cwd=tmp_path,
        env=os.environ | {"PENSTOCK_URL": database_url, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (1, 2)
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_a_request_that_comes_as_the_server_ends_is_told_so(app: App) -> None:
    app.migrate()
    registration = {"name": "w", "queues": {"mail": {"send": {}}}}

    async def ask_late() -> None:
        application = Application(app, is_local=True)
        transport = httpx.ASGITransport(application, client=LOCAL)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            async with application.lifespan():
                worker = (await client.post("workers", json=registration)).json()["worker"]
            for answer in [
                await client.get("queues"),
                await client.post("queues/mail/jobs", json={"task": "send"}),
                await client.put(
                    "queues/mail/loads/l?task=send", content=b"{}\n", headers={"Content-Type": "application/x-ndjson"}
                ),
                await client.post("workers", json=registration),
                await client.post(f"workers/{worker}/poll", json={"number": 1, "want": 1}),
                await client.post(f"workers/{worker}/renew", json={}),
                await client.delete(f"workers/{worker}"),
                await client.get("events?queue=mail"),
            ]:
                check_described(answer)
                assert (answer.status_code, answer.json()["code"]) == (503, "stopping")

    asyncio.run(ask_late())
