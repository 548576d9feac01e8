"""Nothing that a role may put into a schema of the path, or lock, gets between Penstock and its tables."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from tests.security.conftest import Realm

from penstock import App
from penstock.errors import PenstockError
from penstock.storage import Database

# An operator of whoever may create in `public`: PostgreSQL has none for just these types, and would convert.
TRAP = """
    create table public.caught (role text);
    grant insert on public.caught to public;
    create function public.modulo(bigint, int) returns bigint language plpgsql as
        'begin insert into public.caught values (current_user); return mod($1, $2::bigint); end';
    create operator public.% (leftarg = bigint, rightarg = int, function = public.modulo);
"""


@pytest.fixture
def open_realm(realm: Realm) -> Realm:
    """Everybody may create in `public`, as by default before PostgreSQL 15, and a producer did."""
    with psycopg.connect(realm.url(), autocommit=True) as connection:
        connection.execute("grant create, usage on schema public to public")
    with realm.connect("producer") as connection:
        connection.execute(TRAP)
    return realm


def caught(realm: Realm) -> set[str]:
    with psycopg.connect(realm.url()) as connection:
        return {role for (role,) in connection.execute("select role from public.caught")}


def test_every_function_is_bound_when_it_is_created_or_names_its_path(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        loose = connection.execute(
            "select oid::regprocedure::text from pg_proc where pronamespace = 'penstock'::regnamespace"
            " and prosqlbody is null and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)"
        ).fetchall()
    assert loose == []


def test_no_function_that_forbids_scans_is_compiled(database_url: str) -> None:
    """What is forbidden looks so expensive that it would always be."""
    with psycopg.connect(database_url) as connection:
        compiled = connection.execute(
            "select oid::regprocedure::text from pg_proc where pronamespace = 'penstock'::regnamespace"
            " and 'enable_seqscan=off' = any (proconfig) and not 'jit=off' = any (proconfig)"
        ).fetchall()
    assert compiled == []


def test_sessions_look_nowhere_else(database_url: str) -> None:
    database = Database(database_url)
    try:
        with database.connect() as lasting, database.connection() as pooled:
            found = {each.execute("show search_path").fetchone() for each in (lasting, pooled)}
        assert found == {("pg_catalog, pg_temp",)}
    finally:
        database.close()


@pytest.mark.parametrize("role", ["worker", "owner"])
def test_an_operator_of_a_producer_is_used_by_nobody(open_realm: Realm, role: str) -> None:
    with App(open_realm.url(role)) as app:
        queue = app.queue("o", order="key", partitions=2, limit=3)

        @queue.task(key="n", max_attempts=2)
        def t(n: int) -> None:
            if n == 3:
                raise ValueError(n)

        first = t.enqueue(n=0)
        t.enqueue_many([{"n": n % 5} for n in range(150)])
        t.options(after=[first], delay=0.1).enqueue(n=1)
        app.work(until_idle=True)
        app.resize("o", partitions=3)
        app.work(until_idle=True)
        assert app.stats("o").total_completed > 100
        app.explain(first)
        app.retry(queue="o", state="failed")
    assert caught(open_realm) == set()


def test_the_sql_function_uses_none_on_any_session(open_realm: Realm) -> None:
    with open_realm.connect("owner") as connection:
        connection.execute("select 5::bigint % 3")
        assert caught(open_realm) == {"owner"}, "the trap works"
    with App(open_realm.url("owner")) as app:
        app.queue("q", partitions=2)
        app.queue("o", order="key")
        app.queues()
    with psycopg.connect(open_realm.url(), autocommit=True) as connection:
        connection.execute("truncate public.caught")
    with open_realm.connect("owner") as connection:
        connection.execute("select penstock.enqueue('q', 't', '{}')")
        connection.execute("select penstock.enqueue('o', 't', '{}', key => 'k', delay => 5)")
    assert caught(open_realm) == set()


def test_a_call_in_a_callers_transaction_uses_none(open_realm: Realm) -> None:
    """The path is the caller's there, and the statements of small calls are no functions: each name has one meaning."""
    with open_realm.connect("producer") as connection:
        connection.execute("""
            create function public.nextval(text) returns bigint language plpgsql as
                'begin insert into public.caught values (current_user); return pg_catalog.nextval($1::regclass); end';
            create function public.join(text, int) returns text language plpgsql as
                'begin insert into public.caught values (current_user); return concat($1, $2); end';
            create operator public.|| (leftarg = text, rightarg = int, function = public.join)
        """)
    with App(open_realm.url("owner")) as app:

        @app.queue("q").task
        def t(n: int) -> None: ...

        t.enqueue(n=0)
        with psycopg.connect(open_realm.url(), autocommit=True) as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute("insert into penstock.sleeper (queue_id, worker_id) select id, 1 from penstock.queue")
        with open_realm.connect("owner") as connection, connection.transaction():
            t.options(connection=connection).enqueue(n=1)
            t.options(connection=connection).enqueue_many([{"n": 2}, {"n": 3}])
    assert caught(open_realm) == set()


def test_migrate_refuses_a_schema_of_another_role(empty_database_url: str, realm: Realm) -> None:
    name = empty_database_url.rpartition("/")[2]
    there = Realm(realm.server_url, name)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("grant create on database {} to owner, stranger").format(sql.Identifier(name)))
    with there.connect("stranger") as connection:
        connection.execute("create schema penstock; grant all on schema penstock to owner")
    told = r"belongs to the database role stranger.*: migrate as stranger, or choose another name"
    for role in ("owner", None):  # None: the superuser
        with App(there.url(role)) as app, pytest.raises(PenstockError, match=told):
            app.migrate()


def test_a_producer_cannot_take_the_locks_that_enqueues_need(realm: Realm) -> None:
    with App(realm.url("owner")) as app:
        app.queue("o", order="key", partitions=2)
        app.queues()
    with realm.connect("producer") as holder, holder.transaction():
        # Whatever advisory lock our names or numbers would give.
        for name in ("map", "add_job_table", "add_slice"):
            holder.execute("select pg_advisory_xact_lock(hashtext('penstock.' || %s))", [name])
        for queue in range(1, 5):
            holder.execute(
                "select pg_advisory_xact_lock(hashtext('penstock.map'), hashtext(%s || ':' || 1))", [str(queue)]
            )
        for table in ("queue_map", "job_table", "slice", "queue"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), holder.transaction():
                holder.execute(sql.SQL("lock table penstock.{} in share mode").format(sql.Identifier(table)))
        with realm.connect("owner") as connection:
            connection.execute("set lock_timeout = '5s'")
            connection.execute("select penstock.enqueue('o', 't', '{}', key => 'k')")
            connection.execute("select penstock.add_job_table(1), penstock.add_slice()")
