"""What a user meets where something is wrong: the error says what, to what, and what to do, in no driver's words."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.security.conftest import Realm
from tests.security.roles_at_work import works

from penstock import App, InvalidInput, NotFound, PartitionUnavailable, PenstockError, admin

MUST_NOT = "does not allow it to this role: permission denied .*grant its role what it needs"


def test_a_reader_that_changes_something_is_told_that_its_role_must_not(realm: Realm) -> None:
    with works(realm.url("worker")).app as app:
        app.queues()
    with App(realm.url("reader")) as app:
        for act in (app.pause, app.resume, app.purge, lambda queue: app.limit(queue, limit=1)):
            with pytest.raises(PenstockError, match=MUST_NOT) as refused:
                act("q")
            assert isinstance(refused.value.__cause__, psycopg.errors.InsufficientPrivilege)
        with pytest.raises(PenstockError, match=MUST_NOT):
            app.queue("new").task(lambda: None).enqueue()


def test_a_callers_connection_whose_role_must_not_enqueue_is_refused_in_words(realm: Realm) -> None:
    working = works(realm.url("worker"))

    async def enqueue_later() -> None:
        connection = await psycopg.AsyncConnection.connect(realm.url("stranger"))
        async with connection:
            await working.double.options(connection=connection).aenqueue(n=1)

    with working.app as app:
        app.queues()
        for role in ("stranger", "reader"):
            with psycopg.connect(realm.url(role)) as connection, pytest.raises(PenstockError, match=MUST_NOT):
                working.double.options(connection=connection).enqueue(n=1)
        with pytest.raises(PenstockError, match=MUST_NOT):
            asyncio.run(enqueue_later())


def test_what_makes_a_caller_repeat_its_transaction_stays_as_the_driver_has_it(realm: Realm) -> None:
    working = works(realm.url("worker"))
    with working.app as app, psycopg.connect(realm.url("worker")) as connection:
        app.queues()
        working.double.options(connection=connection).enqueue(n=1)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            working.double.options(connection=connection).enqueue(n=1)
        connection.rollback()


def wrong_urls(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    _, _, host = parts.netloc.rpartition("@")
    return {
        "mend the user and the password of its URL": parts._replace(netloc=f"penstock:wrong@{host}").geturl(),
        "mend the user and the password": parts._replace(netloc=f"nobody:wrong@{host}").geturl(),
        "create that database, or mend the name at the end of its URL": parts._replace(path="/nowhere").geturl(),
    }


def test_a_server_that_does_not_let_one_in_is_told_from_an_outage_and_at_once(server_url: str) -> None:
    for advice, url in wrong_urls(server_url).items():
        # Whoever waited for it to come back would wait as long as the test may take.
        with App(url, request_timeout=3600.0) as app:
            with pytest.raises(PartitionUnavailable, match=f"refuses the connection .*; {advice}") as refused:
                app.queues()
            assert "does not answer" not in str(refused.value)
            work = app.queue("q").task(name="work")(lambda: None)
            for call in (work.enqueue, lambda: asyncio.run(work.aenqueue()), lambda: app.enqueue_many([work.job()])):  # noqa: B023
                with pytest.raises(PartitionUnavailable, match=f"refuses the connection .*; {advice}") as refused:
                    call()
                assert (refused.value.outcome, refused.value.written) == ("not written", [None])
            checks = {check.name: check for check in admin.doctor(app.unchecked_databases)}
            assert advice in checks["database"].advice


def test_an_enqueue_without_a_key_that_no_shard_lets_in_is_told_at_once(server_url: str) -> None:
    with (
        App(shards=list(wrong_urls(server_url).values()), request_timeout=60.0) as app,
        pytest.raises(PartitionUnavailable, match="refuses the connection") as refused,
    ):
        app.queue("q").task(lambda: None).enqueue()
    assert (refused.value.outcome, refused.value.written) == ("not written", [None])


def test_an_unknown_id_speaks_of_no_shards_where_there_is_one_database(database_url: str) -> None:
    with App(database_url) as app:
        for job_id in (5, 690 * 1024, 2**40):
            with pytest.raises(NotFound) as refused:
                app.job(job_id)
            assert "shard" not in str(refused.value)
        with pytest.raises(NotFound, match=r"pass what enqueue returned"):
            app.job(5)


def test_a_declaration_that_contradicts_the_database_names_the_option(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q", order="key")
        app.migrate()
    wrong: dict[str, dict[str, Any]] = {
        "order": {},
        "per_key": {"order": "key", "per_key": 2},
        "fair_by": {"order": "key", "fair_by": "tenant"},
    }
    for field, options in wrong.items():
        with App(database_url) as app:
            app.queue("q", **options)
            with pytest.raises(InvalidInput, match=r"queue 'q' is declared here with .*the database has") as refused:
                app.queues()
            assert refused.value.field == field


def test_what_a_limit_cannot_change_is_refused_with_what_can(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q")
        wrong: Any = {"order": "key"}
        with pytest.raises(InvalidInput, match="declare a queue of another name with it") as refused:
            app.limit("q", **wrong)
        assert refused.value.field == "order"
        with pytest.raises(InvalidInput, match=re.escape("app.resize('q', partitions=...) does")):
            app.limit("q", partitions=2)  # type: ignore[call-arg]
        with pytest.raises(InvalidInput, match="with fair_by='tenant'"):
            app.limit("q", weights={"a": 2})
        with pytest.raises(InvalidInput, match=r"app.add_shard\(url\)"):
            app.move_partition("q", 0, 2)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://u:secret@h/d?sslmod=x", r"the option 'sslmod' \(did you mean 'sslmode'\?\)"),
        ("host=h password=secret sslmod=x", r"the option 'sslmod' \(did you mean 'sslmode'\?\)"),
        ("postgresql://u:secret@h/d?shema=x", r"the option 'shema' \(did you mean 'schema'\?\)"),
        ("postgresql://u:x@h/d?secret=1", "does not know one of its options"),
        ("postgresql://u:secret@h/d?sslmode=on", "sslmode 'on' is none of disable, allow"),
        ("postgresql://u:secret@h:abc/d", "its port is no number from 1 to 65535"),
        ("postgresql://u:secret", "its port is no number"),
        ("postgresql://u:secret@h:0/d", "its port is no number"),
        ("postgresql://u:secret@h:5432,g:70000/d", "its port is no number"),
    ],
)
def test_what_is_wrong_in_a_url_is_named_and_its_password_is_not(url: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        App(url)
    assert refused.value.field == "url"
    assert "secret" not in str(refused.value)


def test_urls_with_several_hosts_ports_and_options_are_taken() -> None:
    for url in ("postgresql://a:5432,b/d", "postgresql://a,b:5433/d?sslmode=verify-full", "postgresql:///d?host=/tmp"):
        App(url)


SQL = {
    "null, 't'": ("22023", "InvalidInput: queue: must be the name of a queue"),
    "'q', 't', after => array[null]::bigint[]": ("22023", "InvalidInput: after: must hold ids, not null"),
    "'q', 't', key => repeat('x', 600)": ("22023", "InvalidInput: key: 600 bytes, more than the limit of 512: give a"),
    "'nowhere', 't'": ("42704", "NotFound: queue 'nowhere' does not exist"),
    "'q', 't', 'no JSON'": ("22P02", "invalid input syntax for type json"),
    "'q', 't', after => array[null]": ("42883", "function penstock.enqueue"),
    "'q', 't', prioritty => 1": ("42883", "function penstock.enqueue"),
}


def test_sql_is_told_by_the_codes_that_the_manual_names(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q")
        app.migrate()
    with psycopg.connect(database_url, autocommit=True) as connection:
        for call, (code, told) in SQL.items():
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(f"select penstock.enqueue({call})".encode())
            assert (refused.value.sqlstate, str(refused.value)[: len(told)]) == (code, told), call
