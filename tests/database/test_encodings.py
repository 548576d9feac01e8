"""Text comes back as it was given, whatever encoding a role or a session speaks; other databases are refused."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg import sql

from penstock import App, admin
from penstock.errors import InvalidInput
from penstock.storage import Database

TEXT = "café 漢字 😀"
FRENCH = "café"


@pytest.fixture
def latin1_url(database_url: str) -> str:
    """A database whose role speaks LATIN1 unless it is told otherwise."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        alter = sql.SQL("alter role {} in database {} set client_encoding = latin1")
        connection.execute(alter.format(sql.Identifier("penstock"), sql.Identifier(connection.info.dbname)))
    with psycopg.connect(database_url) as connection:
        assert connection.info.encoding == "iso8859-1"
    return database_url


@pytest.mark.parametrize("count", [1, 5, 100, 1500])
def test_text_is_stored_as_it_was_given_whatever_the_role_speaks(latin1_url: str, count: int) -> None:
    with App(latin1_url) as app:
        queue = app.queue("q")

        @queue.task(key="text")
        def say(text: str) -> str:
            return text

        ids = say.enqueue_many([{"text": TEXT}] * count)
        job = app.job(ids[-1])
        assert (job.args, job.key) == ({"text": TEXT}, TEXT)
        if count == 5:
            app.work(until_idle=True)
            assert app.result(ids[0]) == TEXT


@pytest.mark.parametrize("count", [1, 5, 100])
def test_text_is_stored_as_it_was_given_through_a_callers_session(database_url: str, count: int) -> None:
    with App(database_url) as app, psycopg.connect(database_url, client_encoding="latin1") as connection:
        queue = app.queue("q")

        @queue.task(key="text")
        def say(text: str) -> None: ...

        ids = say.options(connection=connection).enqueue_many([{"text": FRENCH}] * count)
        connection.commit()
        job = app.job(ids[-1])
        assert (job.args, job.key) == ({"text": FRENCH}, FRENCH)


@pytest.mark.parametrize("count", [1, 5])
def test_text_that_a_callers_session_cannot_carry_is_refused_with_the_remedy(database_url: str, count: int) -> None:
    with App(database_url) as app, psycopg.connect(database_url, client_encoding="latin1") as connection:
        queue = app.queue("q")

        @queue.task
        def say(text: str) -> None: ...

        with pytest.raises(InvalidInput, match=r"^connection: .*client_encoding.*UTF8"):
            say.options(connection=connection).enqueue_many([{"text": TEXT}] * count)
        say.options(connection=connection).enqueue(text=FRENCH)
        connection.commit()
        assert [job.args for job in app.jobs(queue="q")] == [{"text": FRENCH}]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_is_refused_with_the_remedy(server_url: str, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        create = sql.SQL("create database {} encoding {} locale 'C' template template0")
        connection.execute(create.format(sql.Identifier(name), sql.Literal(encoding)))
        try:
            with App(f"{server_url.rpartition('/')[0]}/{name}") as app:
                for call in (app.migrate, app.queues):
                    with pytest.raises(InvalidInput, match=rf"^url: the encoding of database .* is {encoding}.*'UTF8'"):
                        call()
                database = Database(app.url)
                (check,) = [check for check in admin.doctor([database]) if not check.ok]
                database.close()
                assert (check.name, encoding in check.found) == ("schema", True)
                assert check.advice == "make one with create database … encoding 'UTF8' template template0"
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_sql_stores_what_its_session_means(database_url: str) -> None:
    with (
        App(database_url) as app,
        psycopg.connect(database_url, client_encoding="latin1", autocommit=True) as connection,
    ):
        app.queue("q")
        app.queues()
        row = connection.execute(
            "select penstock.enqueue('q', 't', %s)", [json.dumps({"text": FRENCH}, ensure_ascii=False)]
        )
        ((job_id,),) = row.fetchall()
        assert app.job(job_id).args == {"text": FRENCH}
