"""Who may look at the dashboard, for how long, and what a page of another site cannot do with it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.server.browsing import browsing, cookie, csrf_in, sign_in
from tests.system.facts import eventually

from penstock import App, Role
from penstock.clock import system
from penstock.server import TrustedProxy, asgi
from penstock.server.dashboard.pages import PAGES
from penstock.server.dashboard.session import SIGNED_IN_SECONDS


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.migrate()
        yield app


@pytest.fixture
def client(app: App) -> Iterator[httpx.Client]:
    with browsing(app) as client:
        yield client


def test_a_token_signs_in_and_what_was_asked_for_is_shown(app: App, client: httpx.Client) -> None:
    token = app.create_token("ada", role="read")
    away = client.get("/audit?act=pause")
    assert (away.status_code, away.headers["location"]) == (303, "/sign-in?next=%2Faudit%3Fact%3Dpause")
    page = client.get(away.headers["location"])
    form = {"csrf": csrf_in(page), "token": f" {token} ", "next": "/audit?act=pause"}
    done = client.post("/sign-in", data=form)
    assert (done.status_code, done.headers["location"]) == (303, "/audit?act=pause")
    shown = client.get("/audit?act=pause")
    assert (shown.status_code, "ada" in shown.text) == (200, True)
    assert token not in shown.text


@pytest.mark.parametrize("which", ["wrong", "no token", "expired", "revoked", "produce", "work"])
def test_who_may_not_look_is_told_so_and_gets_no_cookie(app: App, client: httpx.Client, which: str) -> None:
    made: dict[str, Callable[[], str]] = {
        "wrong": lambda: "penstock_" + "x" * 43,
        "no token": lambda: "\N{SNOWMAN}'; --",
        "expired": lambda: app.create_token("late", role="admin", expires=0.001),
        "revoked": lambda: app.create_token("gone", role="admin"),
        "produce": lambda: app.create_token("shop", role="produce"),
        "work": lambda: app.create_token("hand", role="work"),
    }
    token = made[which]()
    if which == "revoked":
        app.revoke_token("gone")
    answer = sign_in(client, token)
    assert (answer.status_code, 'role="alert"' in answer.text) == (401, True)
    assert "penstock_token" not in client.cookies
    assert token not in answer.text
    assert client.get("/").headers["location"].startswith("/sign-in")


def test_nobody_signs_in_with_nothing(client: httpx.Client) -> None:
    assert sign_in(client, "").status_code in (303, 422)
    assert "penstock_token" not in client.cookies


def test_no_script_and_no_other_site_gets_the_cookie_and_it_ends(app: App, client: httpx.Client) -> None:
    token = app.create_token("ada", role="read")
    kept = cookie(sign_in(client, token), "penstock_token")
    assert (kept["httponly"], kept["samesite"], kept["path"], kept["secure"]) == (True, "lax", "/", "")
    assert int(kept["max-age"]) == SIGNED_IN_SECONDS == 12 * 3_600
    assert int(kept.value.partition(".")[0]) - system.now().timestamp() <= SIGNED_IN_SECONDS
    elsewhere = {"Host": "jobs.example.org", "Origin": "https://jobs.example.org"}
    page = client.get("/sign-in", headers=elsewhere)
    form = {"csrf": csrf_in(page), "token": token}
    for name, sent in (
        ("penstock_token", client.post("/sign-in", data=form, headers=elsewhere)),
        ("penstock_csrf", httpx.get(client.base_url.join("/sign-in"), headers={"Host": "jobs.example.org"})),
    ):
        morsel = cookie(sent, name)
        assert (morsel["secure"], morsel["httponly"], morsel["samesite"]) == (True, True, "lax"), name


def test_who_signs_in_without_tls_is_told_that_the_browser_keeps_no_cookie(app: App, client: httpx.Client) -> None:
    token = app.create_token("ada", role="read")
    elsewhere = {"Host": "jobs.example.org", "Origin": "http://jobs.example.org"}
    word = csrf_in(client.get("/sign-in", headers=elsewhere))
    # A browser drops a cookie that is for TLS only and came without.
    client.cookies.clear()
    answer = client.post("/sign-in", data={"csrf": word, "token": token}, headers=elsewhere)
    assert (answer.status_code, "by HTTPS only" in answer.text) == (403, True)


def test_after_half_a_day_one_signs_in_again(app: App, client: httpx.Client) -> None:
    token = app.create_token("ada", role="read")
    for until in (int(system.now().timestamp()) - 1, "", "x", "9" * 40, "-5"):
        client.cookies.set("penstock_token", f"{until}.{token}")
        assert client.get("/").headers["location"].startswith("/sign-in")
        client.cookies.clear()
    client.cookies.set("penstock_token", f"{int(system.now().timestamp()) + 60}.{token}")
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "following",
    [
        "//evil.example/", "https://evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)",
        "///evil.example", "/\t/evil.example", "evil.example", "", "/\r\nX-Evil: 1", "http:evil.example",
    ],
)  # fmt: skip
def test_signing_in_leads_nowhere_else(app: App, client: httpx.Client, following: str) -> None:
    answer = sign_in(client, app.create_token("ada", role="read"), following)
    assert answer.status_code == 303
    assert "x-evil" not in answer.headers
    assert client.base_url.join(answer.headers["location"]).host == client.base_url.host
    page = client.get("/sign-in", params={"next": following})
    assert "evil" not in page.text or following.startswith("/")


def test_the_page_to_sign_in_says_nothing_that_a_link_puts_into_it(client: httpx.Client) -> None:
    assert "call me" not in client.get("/sign-in?why=call+me&error=call+me").text


def test_a_form_of_another_page_is_refused(app: App, client: httpx.Client) -> None:
    sign_in(client, app.create_token("root", role="admin"))
    word = csrf_in(client.get("/"))
    host = str(client.base_url).rstrip("/")
    for data, headers in (
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": word[:-1] + "_"}, {}),
        ({"csrf": word}, {"Origin": "http://evil.example"}),
        ({"csrf": word}, {"Origin": "null"}),
        ({"csrf": word}, {"Origin": f"{host}.evil.example"}),
        ({"csrf": word}, {"Sec-Fetch-Site": "cross-site"}),
        ({"csrf": word}, {"Sec-Fetch-Site": "same-site"}),
    ):
        refused = client.post("/example", data={"x": "1"} | data, headers=headers)
        assert refused.status_code in (303, 403), (data, headers)
        assert app.queues(["example"]) == [], (data, headers)
    with httpx.Client(base_url=client.base_url, cookies=client.cookies, trust_env=False) as without:
        assert without.post("/example", data={"csrf": word}).status_code == 403
    assert client.post("/example", json={"csrf": word}).status_code == 415
    assert app.queues(["example"]) == []
    assert client.post("/example", data={"csrf": word}).status_code == 303
    assert len(app.jobs(queue="example")) == 1


def test_nobody_is_signed_in_or_out_by_another_page(app: App, client: httpx.Client) -> None:
    token = app.create_token("ada", role="read")
    assert sign_in(client, token, Origin="http://evil.example").status_code == 403
    assert "penstock_token" not in client.cookies
    sign_in(client, token)
    word = csrf_in(client.get("/"))
    assert client.get("/sign-out").status_code == 405
    assert client.post("/sign-out", data={"csrf": word}, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post("/sign-out", data={"x": "1"}).status_code == 403
    assert client.get("/").status_code == 200
    out = client.post("/sign-out", data={"csrf": word})
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
    assert cookie(out, "penstock_token")["max-age"] == "0"
    assert client.get("/").headers["location"].startswith("/sign-in")


@pytest.mark.parametrize(
    "others",
    ['prefs={"theme": "dark"}', "a b=c", "flag", "x=\u00e9", "[a]=1", "path=/", 'x="', "=", "a@b=1", "expires=never"],
)
def test_cookies_of_other_programs_on_the_host_sign_nobody_out(app: App, client: httpx.Client, others: str) -> None:
    token = app.create_token("root", role="admin")
    said = {b"Cookie": others.encode("latin-1")}
    word = cookie(client.get("/sign-in", headers=said), "penstock_csrf").value
    client.cookies.clear()
    said = {b"Cookie": f"{others}; penstock_csrf={word}".encode("latin-1")}
    signed = client.post("/sign-in", data={"csrf": word, "token": token}, headers=said)
    kept = cookie(signed, "penstock_token").value
    client.cookies.clear()
    said = {b"Cookie": f"{others}; penstock_csrf={word}; penstock_token={kept}; {others}".encode("latin-1")}
    assert client.get("/", headers=said).status_code == 200
    assert client.post("/queues/mail/pause", data={"csrf": word}, headers=said).status_code == 303
    assert app.stats("mail").paused


def test_of_two_cookies_of_a_name_that_of_the_longer_path_counts(app: App, client: httpx.Client) -> None:
    # Another dashboard is at the root of the same host, and this one below a path: browsers send this one's first.
    until = int(system.now().timestamp()) + 60
    own, other = f"{until}.{app.create_token('ada', role='read')}", f"{until}.penstock_of_another_system"
    said = {"Cookie": f"penstock_token={own}; penstock_token={other}"}
    assert client.get("/", headers=said).status_code == 200


def test_every_page_says_what_may_run_in_it_and_stands_in_no_frame(app: App, client: httpx.Client) -> None:
    def check(answer: httpx.Response) -> None:
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert (policy["default-src"], policy["script-src"]) == ("'none'", "'self'")
        assert (policy["frame-ancestors"], policy["base-uri"], policy["form-action"]) == ("'none'", "'none'", "'self'")
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin"

    check(client.get("/sign-in"))
    check(client.get("/"))
    sign_in(client, app.create_token("root", role="admin"))
    for entry in PAGES:
        if entry.method == "GET" and entry.path != "/history/report":
            check(client.get(re.sub(r"\{\w+\}", "1024", entry.path)))
    check(client.get("/nothing"))
    check(client.post("/example", data={}))


def test_what_is_open_ends_when_the_token_is_revoked(app: App, client: httpx.Client) -> None:
    sign_in(client, app.create_token("ada", role="read"))
    with client.stream("GET", "/live?page=/", headers={"Accept": "text/event-stream"}) as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: page"
        app.revoke_token("ada")
        # It ends.
        list(lines)
    eventually(lambda: client.get("/").status_code == 303, "nobody is let in")
    answer = client.get("/live?page=/", headers={"Accept": "text/event-stream"})
    assert answer.status_code == 401


def test_a_token_that_reads_is_given_no_act(app: App, client: httpx.Client) -> None:
    sign_in(client, app.create_token("ada", role="read"))
    word = csrf_in(client.get("/"))
    answer = client.post("/example", data={"csrf": word})
    assert (answer.status_code, app.queues(["example"])) == (403, [])


def test_a_token_that_reads_is_shown_no_form_of_an_act(app: App, client: httpx.Client) -> None:
    app.set_cron("nightly", "@daily", "mail", "send")
    job = str(app.queue("mail").task(name="send")(print).enqueue())
    named = {"queue": "mail", "cron": "nightly", "job_id": job, "shard": "1", "token": "ada"}
    sign_in(client, app.create_token("ada", role="read"))
    paths = [entry.path.format_map(named | {"worker": "1", "load": "x"}) for entry in PAGES if entry.method == "GET"]
    acts = ("cancel", "retry", "discard")
    asked = [
        "/schedules?new=1",
        *(f"/jobs/change?act={act}&{by}" for act in acts for by in (f"id={job}", "queue=mail")),
    ]
    for path in [*paths, *asked]:
        forms = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', client.get(path).text)
        assert set(forms) <= {"/sign-out"}, path


def test_mounted_below_a_path_all_of_it_stays_there(app: App) -> None:
    token = app.create_token("root", role="admin")

    async def look() -> None:
        transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/in/here", asgi(app))]))
        headers = {"Origin": "http://localhost", "Accept": "text/html"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            away = await client.get("/in/here/loads")
            assert away.headers["location"] == "/in/here/sign-in?next=%2Fin%2Fhere%2Floads"
            page = await client.get(away.headers["location"])
            form = {"csrf": csrf_in(page), "token": token}
            for following, leads_to in (("/elsewhere", "/in/here/"), ("/in/here/loads", "/in/here/loads")):
                done = await client.post("/in/here/sign-in", data=form | {"next": following})
                assert done.headers["location"] == leads_to
                assert cookie(done, "penstock_token")["path"] == "/in/here"
            shown = await client.get("/in/here/")
            assert shown.status_code == 200
            links = re.findall(r'(?:href|src|action)="([^"]*)"', shown.text)
            assert links
            assert all(link.startswith("/in/here/") or link == "#main" for link in links), links
            (style,) = re.findall(r'href="([^"]*[.]css)"', shown.text)
            assert (await client.get(style)).status_code == 200
            enqueued = await client.post("/in/here/example", data={"csrf": csrf_in(shown)})
            assert enqueued.headers["location"].startswith("/in/here/jobs/")

    asyncio.run(look())


PROXY = {"X-Forwarded-User": "ada@example.org"}


@pytest.mark.parametrize(("role", "status"), [(Role.READ, 403), (Role.ADMIN, 303)])
def test_a_trusted_proxy_signs_its_users_in_with_the_role_that_they_have(app: App, role: Role, status: int) -> None:
    app.create_token("one", role="read")
    with browsing(app, trusted_proxy=TrustedProxy("127.0.0.1", role)) as client:
        page = client.get("/", headers=PROXY)
        assert (page.status_code, "ada@example.org" in page.text) == (200, True)
        assert client.post("/example", data={"csrf": csrf_in(page)}, headers=PROXY).status_code == status
        assert client.get("/").headers["location"].startswith("/sign-in")
    if role is Role.ADMIN:
        assert {entry.actor for entry in app.audit(target="example")} == {"user ada@example.org"}
        assert app.audit(target="example")[0].address == "127.0.0.1"


@pytest.mark.parametrize("address", ["127.0.0.2", "10.0.0.1", "::1", "::ffff:10.0.0.1"])
def test_from_any_other_address_the_header_is_nothing(app: App, address: str) -> None:
    with browsing(app, trusted_proxy=TrustedProxy(address, Role.ADMIN)) as client:
        answer = client.get("/", headers=PROXY)
        assert answer.headers["location"].startswith("/sign-in")
        assert client.get("/live?page=/", headers=PROXY | {"Accept": "text/event-stream"}).status_code == 401


def test_an_address_is_known_however_it_is_written(app: App) -> None:
    with browsing(app, trusted_proxy=TrustedProxy("::ffff:127.0.0.1", Role.READ)) as client:
        assert client.get("/", headers=PROXY).status_code == 200


def test_of_two_users_none_is_believed_and_of_none_nobody(app: App) -> None:
    with browsing(app, trusted_proxy=TrustedProxy("127.0.0.1", Role.ADMIN, "X-User")) as client:
        url = str(client.base_url)
        two = httpx.get(url, headers=[("X-User", "ada"), ("X-User", "eve"), ("Accept", "text/html")])
        assert (two.status_code, "X-User names no user" in two.text) == (403, True)
        for name in ("", "x" * 201):
            assert client.get("/", headers={"X-User": name}).status_code == 403
        assert client.get("/", headers=PROXY).headers["location"].startswith("/sign-in")
        assert client.get("/", headers={"X-User": "<b>ada</b>"}).text.count("&lt;b&gt;ada&lt;/b&gt;") == 1


def test_whom_a_proxy_signs_in_cannot_use_the_api_by_that(app: App) -> None:
    with browsing(app, trusted_proxy=TrustedProxy("127.0.0.1", Role.ADMIN)) as client:
        for method, path in (("GET", "/api/v1/queues"), ("PUT", "/api/v1/queues/q"), ("GET", "/metrics")):
            answer = client.request(method, path, headers=PROXY)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path


@pytest.mark.parametrize("header", ["X-Forwarded-User", "Remote-User"])
def test_behind_a_trusted_proxy_nobody_is_whoever_sits_at_this_machine(app: App, header: str) -> None:
    # The proxy is on this machine, and passes on what its users ask, with the Host that they name.
    with browsing(app, is_local=True, trusted_proxy=TrustedProxy("127.0.0.1", Role.READ, header)) as client:
        for headers in ({}, {header: "ada"}):
            assert client.get("/api/v1/queues", headers=headers).status_code == 401
            assert client.put("/api/v1/queues/q", headers=headers, json={}).status_code == 401
            assert client.get("/metrics", headers=headers).status_code == 401
        assert client.get("/").headers["location"].startswith("/sign-in")
        assert client.get("/", headers={header: "ada"}).status_code == 200
