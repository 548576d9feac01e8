"""Access tokens: made and told once, kept as digests, good until they expire or are revoked."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.system.cli_runs import CommandLine
from tests.system.conftest import Execute, MakeApp
from tests.system.facts import eventually

from penstock import App, InvalidInput, NotFound, PartitionUnavailable, Role
from penstock.admin import TokenBook
from penstock.clock import ManualClock
from penstock.storage.catalogue import access_tokens

SECRET = r"penstock_[A-Za-z0-9_-]{43}"


class Reads:
    """How often a database was asked for its tokens."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self, connection: Any) -> Any:
        with self._lock:
            self.count += 1
        return self._read(connection)

    _read = staticmethod(access_tokens.read)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()
    monkeypatch.setattr("penstock.admin.token_book.access_tokens.read", counted)
    return counted


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def book(app: App, clock: ManualClock) -> TokenBook:
    """A server's, on the app's databases."""
    return TokenBook(app.databases, clock)


def everything_stored(urls: list[str]) -> str:
    """All rows of all tables, as text."""
    found = []
    for url in urls:
        with psycopg.connect(url) as connection:
            tables = connection.execute(
                "select oid::regclass::text from pg_class where relkind in ('r', 'p')"
                " and relnamespace = 'penstock'::regnamespace"
            ).fetchall()
            for (table,) in tables:
                rows = connection.execute(f"select t::text from {table} as t".encode()).fetchall()
                found += [row[0] for row in rows]
    return "\n".join(found)


def test_a_secret_is_told_once_and_stands_nowhere(
    app: App, urls: list[str], execute: Execute, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        secret = app.create_token("shop", role="produce", queues=["emails"], hides_args=True)
        (token,) = app.tokens()
    assert re.fullmatch(SECRET, secret)
    assert execute("select digest from penstock.access_token") == [(sha256(secret.encode()).digest(),)] * len(urls)
    assert secret not in everything_stored(urls) + caplog.text + repr(token)
    assert (token.name, token.role, token.queues, token.tenant) == ("shop", Role.PRODUCE, ("emails",), None)
    assert (token.hides_args, token.expires_at, token.revoked_at) == (True, None, None)
    assert "@" in token.created_by
    assert app.create_token("other", role="produce") != secret


def test_a_token_lets_in_until_it_is_revoked_and_a_second_later_nobody(
    app: App, make_app: MakeApp, clock: ManualClock, book: TokenBook, reads: Reads, urls: list[str]
) -> None:
    assert not book.has_any
    secret = app.create_token("shop", role="read")
    clock.advance(1.0)
    before = reads.count
    found = book.find(secret)
    assert found is not None
    assert (found.name, found.role) == ("shop", "read")
    assert book.is_fresh
    make_app().revoke_token("shop")
    clock.advance(0.99)
    book.find(secret)
    assert reads.count == before + len(urls)
    clock.advance(0.01)
    assert not book.is_fresh
    assert book.find(secret) is None
    # A token was made, and so one is needed from here on.
    assert book.has_any
    (token,) = app.tokens()
    assert token.revoked_at is not None
    app.revoke_token("shop")
    assert app.tokens() == [token]


def test_a_token_that_expires_lets_nobody_in_from_then_on(
    app: App, clock: ManualClock, book: TokenBook, execute: Execute, reads: Reads
) -> None:
    by_length = app.create_token("a", role="read", expires=3600.4)
    by_time = app.create_token("b", role="read", expires=datetime.now(UTC) + timedelta(hours=1))
    for secret in (by_length, by_time):
        assert book.find(secret) is not None
    # Between two readings it goes by the length of time that the database told.
    execute("update penstock.access_token set expires_at = clock_timestamp() + interval '0.5 s'")
    clock.advance(1.0)
    assert book.find(by_length) is not None
    before = reads.count
    clock.advance(0.6)
    assert book.find(by_length) is None
    assert reads.count == before
    execute("update penstock.access_token set expires_at = clock_timestamp() - interval '1 s'")
    clock.advance(1.0)
    assert (book.find(by_length), book.find(by_time)) == (None, None)
    # Its name is free again.
    assert app.create_token("a", role="read")


def test_what_is_unknown_expired_or_revoked_takes_the_same_statements(
    app: App, clock: ManualClock, book: TokenBook, execute: Execute, reads: Reads, urls: list[str]
) -> None:
    good, revoked, expired = (app.create_token(name, role="read") for name in ("good", "revoked", "expired"))
    app.revoke_token("revoked")
    execute("update penstock.access_token set expires_at = now() - interval '1 s' where name = 'expired'")
    told = {}
    for secret in (good, revoked, expired, "penstock_" + "x" * 43, "", "\ud800", "é" * 100_000):
        clock.advance(1.0)
        before = reads.count
        token = book.find(secret)
        told[secret] = (None if token is None else token.name, reads.count - before)
    assert told.pop(good) == ("good", len(urls))
    assert set(told.values()) == {(None, len(urls))}


def test_many_who_come_at_once_wait_for_one_reading(app: App, book: TokenBook, reads: Reads, urls: list[str]) -> None:
    secret = app.create_token("shop", role="read")
    before = reads.count
    together = threading.Barrier(8)
    found: list[object] = []

    def come() -> None:
        together.wait()
        found.append(book.find(secret))

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert None not in found
    assert reads.count == before + len(urls)


def test_a_name_is_of_one_token_in_use(app: App) -> None:
    app.create_token("shop", role="read")
    with pytest.raises(InvalidInput, match=r"^name: there is a token 'shop' in use: revoke it first"):
        app.create_token("shop", role="admin")
    app.revoke_token("shop")
    app.create_token("shop", role="admin")
    assert [(token.role, token.revoked_at is None) for token in app.tokens()] == [("admin", True), ("read", False)]
    with pytest.raises(NotFound, match=r"there is no token 'shap': see app\.tokens"):
        app.revoke_token("shap")


@pytest.mark.parametrize("role", ["work", "admin"])
def test_a_tenant_goes_with_roles_that_read_or_produce_only(app: App, execute: Execute, role: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^tenant: .* give the role read or produce, or leave the tenant out"):
        app.create_token("acme", role=role, tenant="acme")
    assert app.tokens() == []
    for allowed in ("read", "produce"):
        app.create_token(allowed, role=allowed, tenant="acme")
    with pytest.raises(psycopg.errors.CheckViolation):
        execute("update penstock.access_token set role = %s", role)


def test_an_administrator_may_do_everything_and_the_others_their_own(app: App) -> None:
    for role in Role:
        app.create_token(role, role=role.value)
    allowed = {token.role: {role for role in Role if token.allows(role)} for token in app.tokens()}
    assert allowed == {**{role: {role} for role in Role}, Role.ADMIN: set(Role)}
    (token, *_) = app.tokens()
    assert token.covers("any")
    app.create_token("some", role="read", queues=[app.queue("emails"), "sms"])
    assert [app.tokens()[0].covers(queue) for queue in ("emails", "sms", "other")] == [True, True, False]


@pytest.fixture
def proxy(urls: list[str]) -> Iterator[Proxy]:
    proxy = Proxy(urls[0])
    yield proxy
    proxy.close()


def when_no_database_answers(proxy: Proxy, app: App) -> None:
    """The only database is gone, and the app has noticed."""
    proxy.go_down()
    with pytest.raises(PartitionUnavailable):
        app.stats("q")
    eventually(lambda: app.databases.lead.breaker.is_down, "the breaker noticed that the database is gone")


def test_without_a_database_a_server_goes_by_what_it_read_and_after_half_a_minute_lets_nobody_in(
    proxy: Proxy, make_app: MakeApp, clock: ManualClock
) -> None:
    app = make_app(proxy.url, request_timeout=0.5)
    secret = app.create_token("shop", role="read")
    book, late = TokenBook(app.databases, clock), TokenBook(app.databases, clock)
    assert book.find(secret) is not None
    when_no_database_answers(proxy, app)
    # One that has read nothing yet lets nobody in, nor says that no token is needed.
    asks: list[Callable[[], object]] = [lambda: late.find(secret), lambda: late.has_any]
    for ask in asks:
        with pytest.raises(PartitionUnavailable, match="who may come in is not known"):
            ask()
    clock.advance(30.0)
    assert book.find(secret) is not None
    assert book.find("penstock_unknown") is None
    clock.advance(0.1)
    for secret_or_not in (secret, "penstock_unknown"):
        with pytest.raises(PartitionUnavailable, match="who may come in is not known"):
            book.find(secret_or_not)
    proxy.come_up()
    assert app.databases.lead.breaker.wait_until_up(60.0)
    clock.advance(1.0)
    assert book.find(secret) is not None


def test_the_command_line_makes_lists_and_revokes(tmp_path: Path, app: App, urls: list[str]) -> None:
    penstock = CommandLine(tmp_path, " ".join(urls))
    app.migrate()
    assert penstock.done("token", "list").out.startswith("there is no token: penstock token create")
    app.set_queue("a")
    run = penstock("token", "create", "shop", "--role", "produce", "--queue", "a", "--queue", "b")
    assert run.code == 0
    assert re.fullmatch(SECRET, run.out.splitlines()[-1])
    assert re.fullmatch("warning: there is no queue 'b': .+\n", run.err)
    made = penstock.done(
        "token", "create", "acme", "--role=read", "--tenant=acme", "--expires=30d", "--hide-args", "--json"
    ).json
    assert re.fullmatch(SECRET, made["token"])
    acme, shop = penstock.done("token", "list", "--json").json["tokens"]
    assert (shop["name"], shop["role"], shop["queues"], shop["tenant"]) == ("shop", "produce", ["a", "b"], None)
    assert (acme["tenant"], acme["queues"], acme["hides_args"]) == ("acme", None, True)
    assert datetime.fromisoformat(acme["expires_at"]) - datetime.fromisoformat(acme["created_at"]) == timedelta(days=30)
    assert penstock.done("token", "revoke", "shop").out == "token 'shop' is revoked\n"
    table = penstock.done("token", "list").out
    assert re.search(r"^acme +read, no arguments +all +acme .* expires in 30 d$", table, flags=re.M)
    assert re.search(r"^shop +produce +a, b .* revoked \d+ s ago$", table, flags=re.M)
    assert made["token"] not in table
    assert "no token 'shap'" in penstock.refused("token", "revoke", "shap")
    assert "'boss' is no role of a token; give read, produce, work, admin" in penstock.refused(
        "token", "create", "x", "--role", "boss"
    )
    assert "tenant" in penstock.refused("token", "create", "x", "--role", "work", "--tenant", "acme")
    assert "--role" in penstock.wrong("token", "create", "x")
