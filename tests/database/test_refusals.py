"""G2, G12, G13: what a server says no to is repeated, refused with a sentence, or the end of the worker with one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from penstock import App
from penstock.errors import PartitionUnavailable, RequestTimeout, SchemaMismatch
from penstock.storage.database import Connection, Database
from penstock.storage.sweep import promote

# Each lease takes so long to settle that few of them fit into a statement's time.
SLOW_SETTLES = """
create function public.be_slow() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.03); return old; end $$;
create trigger slow before delete on penstock.lease for each row execute function public.be_slow();
"""

SLOW_ENQUEUES = """
create function public.be_slow() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.05); return new; end $$;
create trigger slow before insert on penstock.job for each statement execute function public.be_slow();
"""

SLOW_PROMOTES = """
create function public.be_slow() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.03); return old; end $$;
create trigger slow before delete on penstock.scheduled for each row execute function public.be_slow();
"""

Setting = Callable[[str, str], None]
Execute = Callable[[str], None]
MakeApp = Callable[..., App]


@pytest.fixture
def execute(database_url: str) -> Execute:
    def run(statement: str) -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    return run


@pytest.fixture
def make_app(database_url: str) -> Iterator[MakeApp]:
    apps: list[App] = []

    def make(**options: float) -> App:
        apps.append(App(database_url, lease=2.0, **options))  # type: ignore[arg-type]
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def setting(database_url: str) -> Iterator[Setting]:
    """Sets what sessions that begin later have."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)

        def set_(name: str, value: str) -> None:
            parts = (database, sql.Identifier(name), sql.Literal(value))
            connection.execute(sql.SQL("alter database {} set {} = {}").format(*parts))

        yield set_


def test_g2_g13_what_takes_longer_than_a_statement_may_is_settled_in_halves_and_told(
    make_app: MakeApp, execute: Execute, setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()
    together = threading.Barrier(16)

    @app.queue("q").task()
    def work() -> None:
        together.wait()

    for _ in range(16):
        work.enqueue()
    execute(SLOW_SETTLES)
    setting("statement_timeout", "150ms")
    app.close()
    worked = app.work(concurrency=16, until_idle=True)
    assert worked.succeeded == 16
    assert (
        "canceling statement due to statement timeout; where its role or database has a statement_timeout"
        in caplog.text
    )


def test_g12_a_call_that_is_cancelled_each_time_is_refused_and_says_why(
    make_app: MakeApp, database_url: str, setting: Setting
) -> None:
    app = make_app(request_timeout=1.0)
    keyed = app.queue("q").task(name="keyed")(lambda: None)
    keyed.options(idempotency_key="a").enqueue()
    setting("statement_timeout", "50ms")
    app.close()
    with psycopg.connect(database_url, options="-c statement_timeout=0") as holder:
        holder.execute("lock table penstock.job")
        # The last attempt may be ended by the call's own time before the role's: both causes are true here.
        why = "has a statement_timeout, raise that|holds a lock"
        with pytest.raises(RequestTimeout, match=why) as refused:
            app.enqueue_many([keyed.job() for _ in range(150)])
        assert refused.value.outcome == "not written"


def test_g12_a_call_whose_sessions_are_ended_each_time_is_refused_and_says_why(
    make_app: MakeApp, execute: Execute, database_url: str, setting: Setting
) -> None:
    app = make_app(request_timeout=1.0)
    work = app.queue("q").task(name="work")(lambda: None)
    work.enqueue()
    with psycopg.connect(database_url) as connection:
        if connection.info.server_version < 170_000:
            pytest.skip("this PostgreSQL has no transaction_timeout")
    execute(SLOW_ENQUEUES)
    setting("transaction_timeout", "20ms")
    app.close()
    with pytest.raises((RequestTimeout, PartitionUnavailable), match="raise the transaction_timeout") as refused:
        work.enqueue_many([{}] * 150)
    assert getattr(refused.value, "outcome", "not written") == "not written"


def test_g13_a_worker_ends_with_a_sentence_where_the_schema_lacks_what_it_needs(
    make_app: MakeApp, execute: Execute
) -> None:
    app = make_app()
    work = app.queue("q").task(name="work")(lambda: None)
    work.enqueue()
    execute("alter function penstock.claim rename to claim_of_another_version")
    with pytest.raises(SchemaMismatch, match="run `penstock migrate`"):
        app.work(until_idle=True)


def test_a_prepared_statement_whose_table_changed_is_repeated_on_another_session(
    database: Database, execute: Execute
) -> None:
    execute("create table public.grown (a int)")

    def read(connection: Connection) -> int:
        return len(connection.execute("select * from public.grown", prepare=True).description or ())

    assert [database.run(read) for _ in range(3)] == [1, 1, 1]
    execute("alter table public.grown add column b int")
    assert database.run(read) == 2


def test_a_session_that_lost_its_prepared_statements_is_replaced(database: Database) -> None:
    def read(connection: Connection) -> int:
        return len(connection.execute("select 7", prepare=True).fetchall())

    assert [database.run(read) for _ in range(3)] == [1, 1, 1]
    # In a block, so that the driver does not notice.
    database.run(lambda connection: connection.execute("do $$ begin execute 'deallocate all'; end $$", prepare=False))
    assert database.run(read) == 1


def test_a_session_that_a_fatal_error_of_any_class_ended_is_lost(database: Database) -> None:
    attempts: list[int] = []

    def be_ended(connection: Connection) -> int:
        attempts.append(connection.info.backend_pid)
        if connection.info.server_version < 170_000:
            pytest.skip("this PostgreSQL has no transaction_timeout")
        connection.execute("set transaction_timeout = '1ms'" if len(attempts) == 1 else "select 1")
        return len(connection.execute("select pg_sleep(0.1)").fetchall())

    assert database.run(be_ended) == 1
    assert len(set(attempts)) == 2


def test_g2_what_is_due_is_promoted_in_halves_where_so_many_take_too_long(
    make_app: MakeApp, execute: Execute, database: Database
) -> None:
    work = make_app().queue("q").task(name="work")(lambda: None)
    for _ in range(16):
        work.options(delay=0.001).enqueue()
    execute(SLOW_PROMOTES)

    def promote_in_haste(connection: Connection) -> int:
        connection.execute("set statement_timeout = '150ms'")
        return promote(connection)

    assert database.run(promote_in_haste) == 16
