"""The grant matrix: who may do what with each table, sequence and function, as the server's catalogue has it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from psycopg import sql
from tests.security.conftest import KINDS, ROLES, Realm

from penstock import InvalidInput, admin
from penstock.storage import Connection, Database
from penstock.storage.schema import OURS, TableFile, migrate
from penstock.storage.upkeep.tables_ahead import rotate_slice

Matrix = dict[tuple[str, str], dict[str, set[str]]]

# Of the owner's: what others may at most read.
OWNERS_TABLES = {"table_file", "function_set", "grantee", "audit"}
# Of no reader's business: whoever reads it knows of every token there is.
WORKERS_TABLES = {"access_token"}
# Run with the owner's rights, and who may call them; a trigger's function is called by nobody.
OWNERS_FUNCTIONS = {
    "add_job_table": {"worker"},
    "add_slice": {"worker"},
    "detach_table": {"worker"},
    "drop_table": {"worker"},
    "enqueue": {"worker", "producer"},
    "mend_shortage": set(),
    "refuse_writes": set(),
    "end_writes": {"worker"},
    "begin_audit": {"worker"},
    "end_audit": {"worker"},
    "forget_audit": {"worker"},
}
# Of a trigger, and with the rights of whoever writes.
CALLED_BY_NOBODY = {"check_step"}
ROWS = {"SELECT", "INSERT", "UPDATE", "DELETE"}


def matrix(connection: Connection) -> Matrix:
    """What each role but the owner has, PUBLIC among them, by kind and name of the object."""
    rows = connection.execute(
        """
        with object as (
            select 'schema' as kind, nspname::text as name, nspowner as owner,
                   coalesce(nspacl, acldefault('n', nspowner)) as acl
              from pg_namespace where nspname = 'penstock'
            union all
            select case relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, relname, relowner,
                   coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner))
              from pg_class where relnamespace = 'penstock'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f', 'S')
            union all
            select 'function', proname, proowner, coalesce(proacl, acldefault('f', proowner))
              from pg_proc where pronamespace = 'penstock'::regnamespace)
        select kind, name, case when grantee = 0 then 'PUBLIC' else grantee::regrole::text end, privilege_type,
               is_grantable
          from object left join lateral aclexplode(acl) as a on a.grantee <> owner
        """
    ).fetchall()
    found: Matrix = {}
    for kind, name, role, privilege, is_grantable in rows:
        roles = found.setdefault((kind, name), {})
        if role is not None:
            roles.setdefault(role, set()).add(privilege + " WITH GRANT OPTION" * is_grantable)
    return found


def expected(kind: str, name: str) -> dict[str, set[str]]:
    """The rule: workers write rows, readers read, producers call enqueue, and the owner's own is the owner's."""
    if kind == "schema":
        return {role: {"USAGE"} for role in KINDS}
    if kind == "sequence":
        return {"worker": {"USAGE", "SELECT"}, "reader": {"SELECT"}}
    if kind == "view" or name in OWNERS_TABLES:
        return {"worker": {"SELECT"}, "reader": {"SELECT"}}
    if name in WORKERS_TABLES:
        return {"worker": ROWS}
    if kind == "table":
        return {"worker": ROWS, "reader": {"SELECT"}}
    callers = set() if name in CALLED_BY_NOBODY else OWNERS_FUNCTIONS.get(name, {"worker", "reader"})
    return {role: {"EXECUTE"} for role in callers}


def assert_as_promised(connection: Connection) -> None:
    found = matrix(connection)
    kinds = {kind for kind, _ in found}
    assert kinds == {"schema", "sequence", "view", "table", "function"}
    assert found == {(kind, name): expected(kind, name) for kind, name in found}


def test_every_table_and_function_is_open_to_those_it_is_for_and_to_nobody_else(realm: Realm) -> None:
    with realm.connect("owner") as connection:
        assert_as_promised(connection)
        # Each is there by its name: a rule about what is not there would hold nothing.
        names = {name for _, name in matrix(connection)}
        assert {
            *OWNERS_TABLES,
            *WORKERS_TABLES,
            *OWNERS_FUNCTIONS,
            "job",
            "job_0",
            "finished_1",
            "range_number",
            "depth",
        } <= names


def test_functions_that_run_with_the_owners_rights_are_these_and_look_nowhere_else(realm: Realm) -> None:
    with realm.connect("owner") as connection:
        rows = connection.execute(
            "select proname, proconfig, proowner::regrole::text from pg_proc"
            " where pronamespace = 'penstock'::regnamespace and prosecdef"
        ).fetchall()
    assert {name: (settings, owner) for name, settings, owner in rows} == {
        name: (["search_path=pg_catalog, pg_temp"], "owner") for name in OWNERS_FUNCTIONS
    }


def test_tables_made_later_are_open_to_the_same(realm: Realm) -> None:
    with realm.connect("worker") as worker, realm.connect("owner") as owner:
        worker.execute("select penstock.add_job_table(65536)")
        rotate_slice(worker)
        owner.execute("select penstock.add_slice()")
        assert_as_promised(owner)
        assert len([name for kind, name in matrix(owner) if kind == "table" and name.startswith("finished_")]) == 6


def test_what_later_migrations_make_is_granted_and_closed_by_them(realm: Realm) -> None:
    """Roles that were granted before a migration find after it what they would have been granted after it."""
    later = TableFile(OURS.tables[-1].number + 1, "later", "create table penstock.later (n int);")
    function = "create or replace function penstock.later() returns int language sql return 1;"
    with realm.connect("owner") as connection:
        assert migrate(
            connection,
            replace(
                OURS,
                tables=(*OURS.tables, later),
                functions={**OURS.functions, "98_later.sql": function},
                version=OURS.version + 1,
            ),
        ) == [later.title, f"functions {OURS.version + 1}"]
        assert_as_promised(connection)
        assert {("table", "later"), ("function", "later")} <= set(matrix(connection))


def test_a_grant_is_given_twice_changed_and_taken_back(realm: Realm) -> None:
    database = Database(realm.url("owner"))
    with realm.connect("owner") as connection:
        before = matrix(connection)
        admin.grant(database, "worker", "worker")
        assert matrix(connection) == before
        admin.grant(database, "reader", "worker")
        changed = matrix(connection)
        assert [key for key, roles in changed.items() if roles.get("worker") != roles.get("reader")] == []
        admin.grant(database, "none", "worker")
        rotate_slice(connection)
        assert [key for key, roles in matrix(connection).items() if "worker" in roles] == []
        admin.grant(database, "worker", "worker")
        assert_as_promised(connection)
    database.close()


def test_the_name_of_a_role_is_only_a_name(realm: Realm, server_url: str) -> None:
    name = 'o"; drop schema penstock cascade; --'
    database = Database(realm.url("owner"))
    with Database(server_url).connect() as superuser, realm.connect("owner") as connection:
        superuser.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        try:
            admin.grant(database, "reader", name)
            assert len([role for role in matrix(connection)["table", "job"] if "drop schema" in role]) == 1
            admin.grant(database, "none", name)
        finally:
            superuser.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
    database.close()


@pytest.mark.parametrize("role", ["nobody", "public", "none", "", "Worker", "x" * 100, "a\x00b"])
def test_a_role_that_does_not_exist_is_refused_by_name(realm: Realm, role: str) -> None:
    database = Database(realm.url("owner"))
    with realm.connect("owner") as connection:
        before = matrix(connection)
        with pytest.raises(InvalidInput) as caught:
            admin.grant(database, "reader", role)
        assert caught.value.field == "role"
        assert matrix(connection) == before
    database.close()


def test_the_refusal_says_what_to_do(realm: Realm) -> None:
    owner, worker = Database(realm.url("owner")), Database(realm.url("worker"))
    with pytest.raises(
        InvalidInput, match="there is no database role 'nobody': create it first, as in create role nobody"
    ):
        admin.grant(owner, "reader", "nobody")
    with pytest.raises(InvalidInput, match="kind: must be one of worker, producer, reader, none, not 'admin'"):
        admin.grant(owner, "admin", "reader")
    for kind in ("reader", "none"):
        with pytest.raises(InvalidInput, match="'owner' owns the schema"):
            admin.grant(owner, kind, "owner")
    with pytest.raises(InvalidInput, match="only owner, who owns the schema, can grant"):
        admin.grant(worker, "worker", "stranger")
    owner.close()
    worker.close()


def test_a_role_that_was_dropped_does_not_stop_a_migration(realm: Realm) -> None:
    database = Database(realm.url("owner"))
    with Database(realm.url()).connect() as superuser, realm.connect("owner") as owner:
        superuser.execute("create role passing")
        admin.grant(database, "worker", "passing")
        superuser.execute("drop owned by passing")
        superuser.execute("drop role passing")
        owner.execute("select penstock.renew_grants()")
        assert_as_promised(owner)
        assert owner.execute("select count(*) from penstock.grantee where role = 'passing'").fetchone() == (0,)
    database.close()


def test_the_roles_of_this_test_are_no_superusers(realm: Realm) -> None:
    with realm.connect("owner") as connection:
        rows = connection.execute("select rolname, rolsuper from pg_roles where rolname = any(%s)", [list(ROLES)])
        assert dict(rows.fetchall()) == dict.fromkeys(ROLES, False)
