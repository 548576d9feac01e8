"""Whatever is asked of the dashboard, it answers that this cannot be, and nothing breaks or leads elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest
from tests.server.browsing import browsing, csrf_in
from tests.server.conftest import Shop

from penstock import App

EVENTS = {"Accept": "text/event-stream"}
NUMBERS = ("", "x", "-1", "0", "1e3", "1_0", "9" * 30, "9" * 5_000, "\x00", "\u0661")
TEXTS = ("\x00", "\u202e", "%", "..", "/", "a" * 3_000, "\r\n", "'\"<>", "\ufffe")


@pytest.fixture
def client(app: App) -> Iterator[httpx.Client]:
    app.migrate()
    with browsing(app, is_local=True) as client:
        yield client


@pytest.mark.parametrize("said", ["http://[", "http://x]y", "//[", "null", "", "http:", "://", "\u00e9"])
def test_an_address_that_is_none_is_no_error_of_the_server(client: httpx.Client, said: str) -> None:
    word = csrf_in(client.get("/"))
    sent = said.encode("latin-1")
    refused = client.post("/sign-in", data={"csrf": word, "token": "x"}, headers={b"Origin": sent})
    assert refused.status_code == 403
    missing = client.post("/jobs/1024/cancel", data={"csrf": word}, headers={b"Referer": sent})
    assert missing.status_code == 404


@pytest.mark.parametrize(
    ("page", "back"),
    [
        ("//evil.example/x", "/evil.example/x"),
        ("///jobs/1?a=b", "/jobs/1?a=b"),
        ("/\\evil.example", "/evil.example"),
        ("/jobs?queue=a%20b", "/jobs?queue=a%20b"),
        ("", "/"),
    ],
)
def test_a_form_that_is_refused_leads_back_to_this_server_only(client: httpx.Client, page: str, back: str) -> None:
    word = csrf_in(client.get("/"))
    here = str(client.base_url).rstrip("/")
    answer = client.post("/jobs/1024/cancel", data={"csrf": word}, headers={"Referer": f"{here}{page}"})
    assert (answer.status_code, answer.headers["location"]) == (303, back)


def test_what_is_said_of_an_act_is_no_more_than_a_browser_keeps(app: App, client: httpx.Client) -> None:
    app.set_queue("fair", fair_by="tenant")
    word = csrf_in(client.get("/"))
    tenants = json.dumps({f"{number}\U0001f600" * 9: 1 for number in range(40)}, ensure_ascii=False)
    done = client.post("/queues/fair/rules", data={"csrf": word, "weights": tenants})
    (said,) = [each for each in done.headers.get_list("set-cookie") if each.startswith("penstock_said")]
    assert len(said.partition(";")[0]) <= 4_096
    assert "fair has weights" in client.get(done.headers["location"]).text


@pytest.mark.parametrize(
    ("page", "status"),
    [("//[", 404), ("/nothing", 404), ("/jobs/a/b/c", 404), ("/jobs?" + "a=1&" * 1_500, 422), ("\u00e9", 404)],
)
def test_what_is_no_page_is_not_followed(client: httpx.Client, page: str, status: int) -> None:
    with client.stream("GET", f"/live?page={quote(page, safe='')}", headers=EVENTS) as answer:
        assert answer.status_code == status


def test_no_option_of_a_page_breaks_it(shop: Shop, client: httpx.Client) -> None:
    id_ = shop.send.enqueue(to="nobody")
    shop.app.work(queues=["mail"], until_idle=True)
    assert client.get("/jobs?" + "a=1&" * 1_500).status_code == 422
    for path, names in (
        ("/jobs", ("before", "newer", "partition", "cause", "key_base64", "queue", "state", "key", "tag", "tenant")),
        (
            "/jobs/change?act=retry&state=failed",
            ("id", "partition", "cause", "key_base64", "queue", "load", "created_by"),
        ),
        ("/queues/mail", ("minutes",)),
        ("/queues/mail/partitions", ("from",)),
        ("/queues/mail/purge", ("state",)),
        ("/dead-letters", ("queue",)),
        ("/search", ("q",)),
        ("/audit", ("before", "since", "actor", "act", "target")),
        ("/schedules", ("after", "new")),
        ("/", ("after",)),
    ):
        for name in names:
            for value in (*NUMBERS, *TEXTS):
                asked = f"{path}{'&' if '?' in path else '?'}{name}={quote(value)}"
                assert client.get(asked).status_code < 500, asked[:100]
    for path in (
        "/queues/{}",
        "/jobs/{}",
        "/schedules/{}",
        "/workers/{}",
        "/loads/{}",
        "/shards/{}/drain",
        "/live?page={}",
    ):
        for value in ("%ff", *map(quote, (*NUMBERS, *TEXTS))):
            with client.stream("GET", path.format(value)) as answer:
                assert answer.status_code < 500, path.format(value)[:100]
    assert shop.app.job(id_).state == "failed"


def test_numbers_that_were_typed_are_kept_or_refused_and_never_nothing(shop: Shop, client: httpx.Client) -> None:
    id_ = shop.book.enqueue(customer="c")
    shop.app.work(queues=["orders"], until_idle=True)
    forms: dict[str, dict[str, str]] = {
        f"/jobs/{id_}/arguments": {},
        "/queues/orders/enqueue": {"task": "book", "key": "c"},
        "/schedules": {"expression": "@daily", "queue": "orders", "task": "book", "key": "c", "name": "nightly"},
    }
    word = csrf_in(client.get("/"))
    for amount in ("1e400", "-1e400", "NaN", '"\\ud800"', '{"\\udfff": 1}'):
        args = f'{{"customer": "c", "amount": {amount}}}'
        for path, form in forms.items():
            refused = client.post(path, data={"csrf": word, "args": args, **form})
            assert (refused.status_code, 'role="alert"' in refused.text) == (422, True), (path, amount)
    assert (shop.app.job(id_).state, shop.app.crons(), len(shop.app.jobs())) == ("failed", [], 1)
    large = 12345678901234567890123
    args = f'{{"customer": "c", "amount": {large}}}'
    for path, form in forms.items():
        assert client.post(path, data={"csrf": word, "args": args, **form}).status_code == 303, path
    kept = [job.args for job in shop.app.jobs()] + [cron.args for cron in shop.app.crons()]
    assert kept == [{"customer": "c", "amount": large}] * 3


def test_where_nothing_was_ticked_nothing_is_meant(shop: Shop, client: httpx.Client) -> None:
    shop.send.enqueue_many([{"to": "ada"}] * 3)
    # As a browser without scripts sends the form of the list.
    form = 'name="ticked" value="1"'
    assert form in client.get("/jobs?queue=mail").text
    for act in ("cancel", "retry"):
        asked = client.get(f"/jobs/change?queue=mail&ticked=1&act={act}")
        assert (asked.status_code, "no job was ticked" in asked.text) == (422, True)
    assert client.get("/jobs/change?queue=mail&act=cancel").status_code == 200


def test_what_stands_in_an_address_is_no_event_of_its_own(client: httpx.Client) -> None:
    # For a stream of events a carriage return ends a line, and two end an event.
    asked = quote("x\r\rdata: OWNED\revent: page\r\r\ny")
    with client.stream("GET", f"/live?page={quote(f'/jobs?tag={asked}', safe='')}", headers=EVENTS) as answer:
        text = ""
        for chunk in answer.iter_text():
            text += chunk
            if "event: page" in text and text.endswith("\n\n"):
                break
    event = text[text.index("event: page") :]
    assert "\r" not in event
    assert [line for line in event.split("\n") if line and not line.startswith("data: ")] == ["event: page"]
    assert 'value="x&#13;&#13;data: OWNED&#13;event: page&#13;&#13;&#10;y"' in event
    assert "No job matches" in event


def test_nobody_who_looks_waits_behind_acts_that_wait(
    app: App, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.set_queue("mail")
    word = csrf_in(client.get("/"))
    goes_on = threading.Event()
    monkeypatch.setattr(app, "pause", lambda _: goes_on.wait(60))

    def act(_: int) -> int:
        return client.post("/queues/mail/pause", data={"csrf": word}).status_code

    with ThreadPoolExecutor(8) as people:
        acts = people.map(act, range(8))
        try:
            for _ in range(20):
                assert client.get("/jobs", timeout=20).status_code == 200
        finally:
            goes_on.set()
        assert list(acts) == [303] * 8
