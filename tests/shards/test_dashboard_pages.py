"""A shard that does not answer, as the dashboard tells of it: every page says so, and none that there is nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.fault.proxy import Proxy
from tests.server.browsing import browsing, csrf_in

from penstock import App

CRONS = [f"cron-{number}" for number in range(12)]


@pytest.fixture
def app(shard_urls: list[str], second: Proxy) -> Iterator[App]:
    with App(shards=[shard_urls[0], second.url], request_timeout=5.0) as app:
        yield app


@pytest.fixture
def ids(app: App) -> list[int]:
    """A dead letter on each shard; and schedules on both."""
    queue = app.queue("q", partitions=2, order="key")

    @queue.task(key="n", max_attempts=1)
    def t(n: str) -> None:
        raise ValueError("no")

    t.enqueue_many([{"n": str(n)} for n in range(40)])
    app.work(until_idle=True)
    for name in CRONS:
        app.set_cron(name, "@daily", "q", "t", args={"n": name}, key=name)
    shards = {each.name: each.shard for each in app.stats("q").partitions}
    found = {shards[job.partition]: job.id for job in app.jobs(state="failed")}
    return [found["1"], found["2"]]


@pytest.fixture
def client(app: App) -> Iterator[httpx.Client]:
    with browsing(app, is_local=True) as client:
        yield client


def test_every_page_says_which_shard_does_not_answer(
    app: App, ids: list[int], client: httpx.Client, second: Proxy
) -> None:
    assert all(client.get(f"/schedules/{name}").status_code == 200 for name in CRONS)
    assert client.get("/shards/2/drain").status_code == 200
    second.go_down()
    for path in (
        "/", "/jobs", "/jobs?state=failed", "/jobs?queue=q", "/dead-letters", "/queues/q", "/queues/q/keys",
        "/queues/q/partitions", "/queues/q/purge", "/queues/q/purge?state=failed", "/queues/q/delete", "/schedules",
        "/workers", "/loads", "/shards", "/shards/2/drain", "/tokens", "/tokens/none/revoke", "/audit", "/search?q=abc",
        f"/jobs/{ids[1]}", "/jobs/change?act=retry&queue=q",
    ):  # fmt: skip
        answer = client.get(path)
        assert (answer.status_code in (200, 503), "does not answer" in answer.text) == (True, True), path
        assert "hard 2" in answer.text, path
    told = {name: client.get(f"/schedules/{name}") for name in CRONS}
    assert {answer.status_code for answer in told.values()} == {200, 503}
    assert all("shard 2 does not answer" in each.text for each in told.values() if each.status_code == 503)


def test_of_those_ticked_it_is_told_what_became_of_each(
    app: App, ids: list[int], client: httpx.Client, second: Proxy
) -> None:
    word = csrf_in(client.get("/"))
    ended = app.jobs(state="failed", limit=3)
    near = next(job.id for job in ended if job.id not in ids)
    app.retry(near)
    app.cancel(near)
    named = "&".join(f"id={id_}" for id_ in (*ids, near))
    second.go_down()
    done = client.post(f"/jobs/change?act=retry&{named}", data={"csrf": word})
    assert done.status_code == 303
    said = client.get(done.headers["location"]).text
    assert "1 job was retried." in said
    assert "nobody knows: the shard does not answer" in said
    assert app.job(ids[0]).state == "ready"
