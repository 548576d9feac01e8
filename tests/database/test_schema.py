"""The schema: made once, by whoever comes first, taken further by newer programs, and every query fits it."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from penstock.errors import InvalidInput, PenstockError, SchemaMismatch
from penstock.storage import Connection, Database
from penstock.storage.connection.queries import QUERIES, fill
from penstock.storage.connection.schema_name import with_schema
from penstock.storage.history.conditions import Condition, compose_conditions
from penstock.storage.schema import (
    EMPTY,
    OURS,
    Schema,
    TableFile,
    check_schema,
    describe,
    migrate,
    plan,
    read_state,
    script,
    transaction,
)

_PARAMETER = re.compile(r"%\((\w+)\)s")
# What `plan` fills in, or sends together.
_NOT_PREPARED = {"begin_step", "create_books", "note_table_file", "refuse_older_functions", "note_function_set"}
_NOT_PREPARED |= {"lock_migrations", "refuse_foreign_schema", "refuse_other_base", "begin_script"}
# Parts of others: they are prepared there, as `which`.
_PARTS = {"among_ids", "within_bounds"}
_BRACES = re.compile(r"\{([a-z_]+)\}")
_FILLED = {
    "channel": sql.Identifier("c"),
    "parent": sql.Identifier("finished"),
    "table": sql.Identifier("job_kept"),
    "which": sql.SQL("{} and {}").format(fill("among_ids", ids="{1,2}"), fill("within_bounds", low=1, high=2)),
    "with_args": True,
    "with_tenant": False,
    "columns": sql.Identifier("id"),
    "conditions": compose_conditions([Condition("id", "in", [1, 2])]),
    "low": 0,
    "high": 1,
    "number": 1,
    "version": 1,
    "only": None,
    "hot": [1],
    "cold": [],
}
EVERYTHING = [step.name for step in plan(EMPTY, OURS)]


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def successor(
    schema: Schema = OURS, *, function: str = "", oldest_program: int = 1, tables: tuple[TableFile, ...] = ()
) -> Schema:
    """The next version, with a further file of functions."""
    return replace(
        schema,
        tables=(*schema.tables, *tables),
        functions={**schema.functions, "98_next.sql": function},
        version=schema.version + 1,
        oldest_program=oldest_program,
    )


def constant(name: str, value: int) -> str:
    return f"create or replace function penstock.{name}() returns int language sql immutable return {value};"


def names(connection: Connection) -> set[str]:
    rows = connection.execute("select proname from pg_proc where pronamespace = 'penstock'::regnamespace")
    return {name for (name,) in rows}


def test_every_query_prepares_against_the_schema(database: Database) -> None:
    refused = {}
    with database.connection() as connection:
        for name, given in QUERIES.items():
            if given.startswith("copy ") or name in _NOT_PREPARED | _PARTS:
                continue
            text = fill(name, **_FILLED).as_string(connection) if _BRACES.search(given) else given
            numbers: dict[str, int] = {}
            for parameter in _PARAMETER.findall(text):
                numbers.setdefault(parameter, len(numbers) + 1)
            numbered = _PARAMETER.sub(lambda match, numbers=numbers: f"${numbers[match[1]]}", text)  # type: ignore[misc]
            result = connection.pgconn.prepare(name.encode(), numbered.replace("%%", "%").encode())
            if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                refused[name] = result.error_message.decode()
    assert refused == {}


def test_an_empty_database_is_refused_and_told_how_to_migrate(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        told = rf"database '{connection.info.dbname}' has no schema 'penstock' .* run `penstock migrate --url postgresql://"
        with pytest.raises(SchemaMismatch, match=told) as refused:
            check_schema(connection)
        assert connection.info.password not in str(refused.value)
        assert migrate(connection) == EVERYTHING
        check_schema(connection)
        assert migrate(connection) == []


def test_every_definition_of_the_set_may_be_made_again_and_is_whole() -> None:
    made = re.compile(r"^(create|alter|drop|insert|do|select)\b[^\n]*", re.MULTILINE)
    statements = [match[0] for match in made.finditer(OURS.function_text)]
    assert [each for each in statements if not each.startswith(("create or replace function", "create view"))] == []
    # Every column in its final form: a table is not changed by a later file of the same release.
    assert [file.title for file in OURS.tables if "alter table" in file.text] == []


def test_a_newer_set_is_taken_once_and_an_older_program_leaves_it_as_it_is(connection: Connection) -> None:
    newer = successor(function=constant("answer", 42))
    assert migrate(connection, newer) == ["functions 2"]
    assert migrate(connection, newer) == []
    # The older program: it fits, does nothing, and says so.
    check_schema(connection)
    assert migrate(connection) == []
    assert "answer" in names(connection)
    said = "the schema is newer than this program: functions 2, not 1; they work with it, and stay as they are"
    assert describe(read_state(connection)) == said


def test_a_newer_program_waits_for_its_functions(connection: Connection) -> None:
    with pytest.raises(SchemaMismatch, match=r"lacks functions 2: run `penstock migrate --url .* may go on meanwhile"):
        check_schema(connection, successor())


def test_functions_of_the_same_version_that_are_others_are_refused(connection: Connection) -> None:
    other = replace(successor(function=constant("answer", 42)), version=OURS.version)
    for act in (check_schema, migrate):
        with pytest.raises(SchemaMismatch, match="have the version of this program's, 1, and are others"):
            act(connection, other)
    assert "answer" not in names(connection)


def test_a_program_that_is_too_old_for_the_functions_is_refused(connection: Connection) -> None:
    migrate(connection, successor(oldest_program=2))
    for act in (check_schema, migrate):
        with pytest.raises(SchemaMismatch, match="are for programs of version 2 or later, and this one has version 1"):
            act(connection)


def test_a_table_file_applied_in_another_form_is_refused(connection: Connection) -> None:
    connection.execute("update penstock.table_file set checksum = 'x' where number = 1")
    for act in (check_schema, migrate):
        with pytest.raises(SchemaMismatch, match="0001 catalogue was applied in another form"):
            act(connection)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("create table penstock.job (n serial)", "table penstock.job, sequence penstock.job_n_seq"),
        ("create function penstock.norm() returns int language sql return 1", r"function penstock.norm\(\)"),
        ("create type penstock.mood as enum ('well')", "type penstock.mood"),
        ("create table penstock.table_file (n int)", "table penstock.table_file"),
        (
            "".join(f"create view penstock.{name} as select 1;" for name in "abcde"),
            "view penstock.a, view penstock.b, view penstock.c and 2 more",
        ),
    ],
)
def test_a_schema_that_something_else_uses_is_refused_and_left_as_it_is(
    empty_database_url: str, made: str, told: str
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:

        def held() -> list[tuple[object, ...]]:
            return connection.execute(
                "select classid, objid, nspacl::text from pg_namespace as n join pg_depend on refobjid = n.oid"
                " where nspname = 'penstock' order by 1, 2"
            ).fetchall()

        connection.execute("create schema penstock")
        connection.execute(made.encode())
        before = held()
        with pytest.raises(InvalidInput, match=rf"schema: penstock is used by .* holds {told}; choose another name"):
            migrate(connection)
        assert held() == before
        with pytest.raises(psycopg.errors.DuplicateSchema, match=f"holds {told}"):
            connection.execute(without_psql(script(EMPTY, OURS)))
        connection.rollback()
        assert held() == before


def test_an_empty_schema_is_taken(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(
            "create schema penstock; alter default privileges in schema penstock revoke all on tables from public"
        )
        assert migrate(connection) == EVERYTHING


def test_a_superuser_too_is_refused_a_schema_of_another_role(connection: Connection) -> None:
    """What it makes there would run with its rights, and be the other's to change."""
    connection.execute("create role another_owner; alter schema penstock owner to another_owner")
    try:
        for refused in (
            lambda: migrate(connection, successor()),
            lambda: connection.execute(without_psql(script(read_state(connection), successor()))),
        ):
            with pytest.raises(
                (PenstockError, psycopg.errors.InsufficientPrivilege), match="database role another_owner"
            ):
                refused()
            connection.rollback()
        assert migrate(connection) == [], "where nothing is to be done anybody may ask"
    finally:
        connection.execute("alter schema penstock owner to current_user; drop role another_owner")


def test_what_the_set_does_not_make_any_more_goes_and_what_tables_need_stays(connection: Connection) -> None:
    grown = TableFile(
        OURS.tables[-1].number + 1,
        "grown",
        "create function penstock.first_value() returns int language sql immutable return 1;"
        "create function penstock.is_small(n int) returns boolean language sql immutable return n < 10;"
        "create function penstock.twice(n int) returns int language sql immutable return 2 * n;"
        "create table penstock.grown (n int default penstock.first_value(), check (penstock.is_small(n)));"
        "create index on penstock.grown (penstock.twice(n));",
    )
    # One that calls the other: neither could be dropped alone.
    leaving = "create or replace function penstock.caller() returns int language sql return penstock.answer() + 1;"
    second = successor(function=f"{constant('answer', 42)}\n{leaving}", tables=(grown,))
    migrate(connection, second)
    before = names(connection)
    assert {"answer", "caller", "first_value", "is_small", "twice", "mend_shortage", "refuse_writes"} <= before
    migrate(connection, successor(second))
    assert before - names(connection) == {"answer", "caller"}


def test_functions_are_the_same_whether_made_anew_or_over_others(connection: Connection) -> None:
    def definitions() -> dict[str, tuple[str, str]]:
        rows = connection.execute(
            "select oid::regprocedure::text, pg_get_functiondef(oid), coalesce(proacl::text, '')"
            " from pg_proc where pronamespace = 'penstock'::regnamespace"
        )
        return {name: (text, rights) for name, text, rights in rows}

    before = definitions()
    connection.execute("alter function penstock.enqueue security invoker")
    connection.execute("alter function penstock.claim reset all")
    migrate(connection, successor())
    assert definitions() == before


@pytest.mark.parametrize("built_on", ["depth", "waiting_in(int)"])
def test_what_somebody_built_on_our_views_is_not_taken_with_them(connection: Connection, built_on: str) -> None:
    """A function that is bound to a view falls with it, and so would a view that calls it."""
    source = "penstock.waiting_in(1) as n" if "(" in built_on else "n.opened from penstock.depth as n"
    connection.execute(f"create view public.mine as select {source}")
    with pytest.raises(PenstockError, match=r"view public.mine: drop what was built on"):
        migrate(connection, successor())
    assert connection.execute("select count(*) from public.mine").fetchone() is not None
    check_schema(connection)
    connection.execute("drop view public.mine")
    assert migrate(connection, successor()) == ["functions 2"]


def test_a_function_that_goes_away_stays_where_somebody_uses_it(connection: Connection) -> None:
    second = successor(function=constant("answer", 42))
    migrate(connection, second)
    connection.execute("create view public.mine as select penstock.answer()")
    with pytest.raises(
        PenstockError, match=r"view public.mine depends on function penstock.answer\(\).*: drop what was built"
    ):
        migrate(connection, successor(second))
    check_schema(connection, second)


def in_threads(*acts: Callable[[], object]) -> list[object]:
    """What each returned or raised, all at once."""
    results: list[object] = [None] * len(acts)
    ready = threading.Barrier(len(acts))

    def run(number: int) -> None:
        ready.wait()
        try:
            results[number] = acts[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_each_step_is_done_once_however_many_migrate(empty_database_url: str) -> None:
    def run() -> list[str]:
        with psycopg.connect(empty_database_url, autocommit=True) as connection:
            return migrate(connection)

    results = in_threads(run, run, run)
    done = [step for result in results if isinstance(result, list) for step in result]
    assert (sorted(done), [each for each in results if not isinstance(each, list)]) == (sorted(EVERYTHING), [])


def test_programs_of_two_versions_that_migrate_at_once_leave_the_newer_functions(empty_database_url: str) -> None:
    newer = successor(function=constant("answer", 42))

    def run(schema: Schema) -> list[str]:
        with psycopg.connect(empty_database_url, autocommit=True) as connection:
            return migrate(connection, schema)

    results = in_threads(lambda: run(OURS), lambda: run(newer), lambda: run(OURS), lambda: run(newer))
    assert [each for each in results if not isinstance(each, list)] == []
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        check_schema(connection, newer)
        assert "answer" in names(connection)


@pytest.mark.parametrize("number", range(len(EVERYTHING)))
def test_a_migration_that_was_killed_is_taken_up_where_it_was(
    empty_database_url: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ends within step `number`: that one is undone, those before stay."""
    with (
        psycopg.connect(empty_database_url, autocommit=True) as connection,
        closing(psycopg.connect(empty_database_url, autocommit=True)) as killed,
    ):
        steps = plan(EMPTY, OURS)
        deadly = [
            replace(step, body=psycopg.sql.SQL("{}\nselect pg_terminate_backend(pg_backend_pid());").format(step.body))
            if place == number
            else step
            for place, step in enumerate(steps)
        ]
        monkeypatch.setattr(
            "penstock.storage.schema.migration.plan",
            lambda state, schema, *_: [each for each in deadly if each.name in {s.name for s in plan(state, schema)}],
        )
        with pytest.raises(psycopg.OperationalError):
            migrate(killed)
        monkeypatch.undo()
        with pytest.raises(SchemaMismatch, match="run `penstock migrate "):
            check_schema(connection)
        assert migrate(connection) == EVERYTHING[number:]
        check_schema(connection)


def test_a_step_gives_way_to_whoever_holds_what_it_needs_and_says_who_that_is(
    connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.schema.migration.SAY_SECONDS", 0.0)
    grow = TableFile(OURS.tables[-1].number + 1, "grow", "alter table penstock.ready add column more int;")
    schema = successor(tables=(grow,))
    with psycopg.connect(database_url, application_name="reader") as holder:
        holder.execute("select count(*) from penstock.ready, penstock.depth")
        done: list[object] = []
        thread = threading.Thread(target=lambda: done.append(migrate(connection, schema)))
        thread.start()
        while len(caplog.records) < 2:
            assert thread.is_alive()
            # Whoever comes meanwhile is not kept waiting for long: the lock is asked for 100 ms at a time.
            with psycopg.connect(database_url) as other:
                other.execute("set lock_timeout = '5s'; select count(*) from penstock.ready")
        holder.rollback()
        thread.join()
    assert done == [[grow.title, "functions 2"]]
    assert re.search(r"grow waits for .* process \d+ \(reader\) has used Penstock's tables", caplog.messages[0])


def without_psql(text: str) -> bytes:
    """A script as a connection takes it: without what only psql understands, so that every step is done."""
    return re.sub(r"^\\.*$", "", text, flags=re.MULTILINE).replace(" \\gset", ";").encode()


def test_the_script_does_the_same_as_the_migration(empty_database_url: str, connection: Connection) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as other:
        other.execute(without_psql(script(EMPTY, OURS)))
        check_schema(other)
        assert names(other) == names(connection)
        newer = successor(function=constant("answer", 42))
        other.execute(without_psql(script(read_state(other), newer)))
        check_schema(other, newer)
        assert "answer" in names(other)
        # One that was printed before, and is run late, puts no older functions back.
        late = without_psql(transaction(plan(EMPTY, OURS)[-1]))
        with pytest.raises(psycopg.errors.RaiseException, match="functions of version 1 or later already"):
            other.execute(late)
        other.rollback()
        check_schema(other, newer)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("update penstock.table_file set checksum = 'x' where number = 2", "its table file 2 is another"),
        ("delete from penstock.table_file where number = 3", "it lacks table file 3"),
        (
            "update penstock.function_set set version = 2, checksum = 'x'",
            "its functions are others of the same version",
        ),
        (
            "update penstock.function_set set version = 9, oldest_program = 9",
            "its functions are for programs of version 9",
        ),
        ("drop schema penstock cascade", "it has no such schema"),
    ],
)
def test_a_script_is_refused_by_a_database_that_it_was_not_made_for(
    connection: Connection, change: str, problem: str
) -> None:
    printed = script(read_state(connection), successor())
    connection.execute(change.encode())
    with pytest.raises(
        psycopg.errors.RaiseException, match=f"not made for schema penstock of this database: {problem}"
    ):
        connection.execute(without_psql(printed))


@pytest.mark.skipif(shutil.which("psql") is None, reason="there is no psql here")
def test_psql_runs_the_script_twice_stops_at_an_error_and_prints_one_line(empty_database_url: str) -> None:
    def psql(text: str) -> tuple[int, str]:
        run = subprocess.run(
            ["psql", "-X", empty_database_url], input=text, capture_output=True, text=True, check=False
        )
        return run.returncode, run.stdout + run.stderr

    printed = script(EMPTY, OURS, "staging")
    # One that stops halfway is run again.
    status, said = psql(printed.replace("-- 0004 work\n", "select 1 / 0;\n"))
    assert (status, "division by zero" in said) == (3, True)
    for _ in range(2):
        assert psql(printed) == (0, f"schema staging is up to date: functions {OURS.version}\n")
    with closing(Database(with_schema(empty_database_url, "staging"))) as database:
        database.run(check_schema)
        with database.connection() as connection:
            connection.execute("update staging.table_file set checksum = 'x' where number = 2")
    assert psql(printed)[0] == 3


def test_a_migration_is_no_part_of_a_transaction(connection: Connection) -> None:
    """By what its own transaction wrote it knows which functions went away."""
    with connection.transaction(), pytest.raises(PenstockError, match="in none"):
        migrate(connection, successor())


def test_no_statement_takes_whatever_columns_a_table_has() -> None:
    """A table grows while functions of before use it, and those that were taken out of it do not grow with it."""
    texts = {**OURS.functions, **QUERIES}
    stars = re.compile(r"\b(?:select|returning|,)\s+\*(?!\))", re.IGNORECASE)
    found = {name for name, text in texts.items() if stars.search(text)}
    for name, text in texts.items():
        # Of what is made in the statement itself, a list of columns or a function's rows, all may be meant.
        for statement in re.split(r"\n\n(?=--|create)", text):
            for alias in re.findall(r"\b(\w+)\.\*", statement):
                if re.search(rf"\bpenstock\.(?:{alias}\b|\w+ as {alias}\b)", statement):
                    found.add(f"{name}: {alias}.*")
    assert found == set()


def test_no_function_returns_the_row_of_a_table(connection: Connection) -> None:
    """That changes when the table grows, and the function does not."""
    rows = connection.execute(
        "select p.proname from pg_proc as p"
        " cross join unnest(p.prorettype || coalesce(p.proallargtypes, '{}'),"
        """                   'o'::"char" || coalesce(p.proargmodes, '{}')) as given(type, mode)"""
        " join pg_type as t on t.oid = given.type or t.typarray = given.type"
        " join pg_class as c on c.oid = t.typrelid"
        " where p.pronamespace = 'penstock'::regnamespace and given.mode in ('o', 'b', 't') and c.relkind <> 'c'"
    ).fetchall()
    assert rows == []
