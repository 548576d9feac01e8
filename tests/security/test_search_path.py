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


def test_sessions_look_nowhere_else(database_url: str) -> None:
    database = Database(database_url)
    try:
        with database.connect() as lasting, database.connection() as pooled:
            found = {each.execute("show search_path").fetchone() for each in (lasting, pooled)}
        assert found == {("pg_catalog, pg_temp",)}
    finally:
        database.close()


def test_migrate_refuses_a_schema_of_another_role(empty_database_url: str, realm: Realm) -> None:
    name = empty_database_url.rpartition("/")[2]
    there = Realm(realm.server_url, name)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("grant create on database {} to owner, stranger").format(sql.Identifier(name)))
    with there.connect("stranger") as connection:
        connection.execute("create schema penstock; grant all on schema penstock to owner")
    with App(there.url("owner")) as app, pytest.raises(PenstockError, match="belongs to the database role stranger"):
        app.migrate()


def test_a_producer_cannot_take_the_locks_that_enqueues_need(realm: Realm) -> None:
    with App(realm.url("owner")) as app:
        app.queue("o", order="key", partitions=2)
        app.queues()
    with realm.connect("producer") as holder, holder.transaction():
        # Whatever advisory lock our names or numbers would give.
        for name in ("map", "add_job_part", "add_slice"):
            holder.execute("select pg_advisory_xact_lock(hashtext('penstock.' || %s))", [name])
        for queue in range(1, 5):
            holder.execute(
                "select pg_advisory_xact_lock(hashtext('penstock.map'), hashtext(%s || ':' || 1))", [str(queue)]
            )
        for table in ("queue_map", "job_part", "slice", "queue"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), holder.transaction():
                holder.execute(sql.SQL("lock table penstock.{} in share mode").format(sql.Identifier(table)))
        with realm.connect("owner") as connection:
            connection.execute("set lock_timeout = '5s'")
            connection.execute("select penstock.enqueue('o', 't', '{}', key => 'k')")
            connection.execute("select penstock.add_job_part(1), penstock.add_slice()")
