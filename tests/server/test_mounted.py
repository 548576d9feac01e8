"""The API inside other applications: the examples of Starlette and of Django, as programs that are told to stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.system.facts import eventually

from penstock import App

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MOUNTED = {"Starlette": "mounted_starlette:web", "Django": "mounted_django:application"}


@contextmanager
def running(target: str, url: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An example under uvicorn, and where it listens."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", "0", target]
    process = subprocess.Popen(
        [*command, "--timeout-graceful-shutdown", "60"],
        cwd=folder,
        env=os.environ | {"PENSTOCK_URL": url, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"running on (http://\S+)", line):
                yield process, found[1]
                break
        else:
            raise AssertionError(said)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


@pytest.mark.parametrize("target", MOUNTED.values(), ids=MOUNTED)
def test_an_application_serves_its_own_pages_and_below_a_path_the_api_and_the_dashboard(
    target: str, database_url: str, tmp_path: Path
) -> None:
    with App(database_url) as app:
        app.queue("orders", order="key")
        app.migrate()
        bearer = {"Authorization": f"Bearer {app.create_token('t', role='admin')}"}
        with running(target, database_url, tmp_path) as (process, url), httpx.Client(timeout=60) as client:
            job = client.post(f"{url}/sign-up", json={"email": "a@b.c"}).json()["job"]
            api = f"{url}/jobs/api/v1"
            assert client.get(f"{api}/jobs/{job}").status_code == 401
            told = client.get(f"{api}/jobs/{job}", headers=bearer).json()
            assert (told["queue"], told["task"], told["args"]) == ("mail", "send", {"to": "a@b.c"})
            assert client.get(f"{api}/openapi.json", headers=bearer).json()["servers"] == [{"url": "/jobs/api/v1"}]
            assert client.get(f"{url}/jobs/health/ready").status_code == 200
            assert client.get(f"{url}/jobsx").status_code == 404
            page = client.get(f"{url}/jobs/", headers={"accept": "text/html"}, follow_redirects=True)
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert 'action="/jobs/' in page.text
            # A worker far away, for which the server owns a partition.
            body = {"name": "far", "queues": {"orders": {"book": {}}}}
            worker = client.post(f"{api}/workers", json=body, headers=bearer).json()["worker"]
            client.post(f"{api}/workers/{worker}/poll", json={"number": 1, "want": 1, "wait": 1}, headers=bearer)
            assert {each.is_remote for each in app.workers()} == {True, False}
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            # It has left as a server that is told to stop.
            eventually(lambda: {each.is_remote for each in app.workers()} == {True}, "the server is gone")
