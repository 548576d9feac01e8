"""G2, G12, G13: what a server says no to is repeated, refused with a sentence, or the end of the worker with one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql
from tests.fault.proxy import Proxy

from penstock import App
from penstock.client.pending import PendingJob
from penstock.errors import PartitionUnavailable, RequestTimeout, ResultTimeout, SchemaMismatch
from penstock.storage.connection.database import Connection, Database
from penstock.storage.upkeep.sweep import promote

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
        apps.append(App(database_url, lease=60.0, **options))  # type: ignore[arg-type]
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
    assert "canceling statement due to statement timeout; it waited for a lock" in caplog.text


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
        # The last attempt may be ended by the call's own time before the role's, or not be made: all are true here.
        why = "it waited for a lock .* or takes longer than the statement_timeout|holds a lock|were over"
        with pytest.raises(RequestTimeout, match=why) as refused:
            app.enqueue_many([keyed.job() for _ in range(150)])
        assert refused.value.outcome == "not written"
        assert "when it does" not in str(refused.value)


@pytest.mark.parametrize("act", ["purge", "cancel", "retry"])
@pytest.mark.parametrize("trouble", ["a lock", "cancelled each time"])
def test_g12_what_an_act_of_many_statements_has_done_before_one_is_in_the_way_is_not_called_unwritten(
    make_app: MakeApp, database_url: str, setting: Setting, act: str, trouble: str
) -> None:
    app = make_app(request_timeout=2.0)
    queue = app.queue("q")
    work = queue.task(name="work")(lambda: None)
    later = datetime.now(UTC) + timedelta(days=1)
    app.enqueue_many([work.options(run_at=later).job() for _ in range(10)])
    ready = work.enqueue()
    acts: dict[str, Callable[[], object]] = {
        "purge": lambda: app.purge(queue),
        "cancel": lambda: app.cancel(queue=queue),
        "retry": lambda: app.retry(queue=queue, state="scheduled"),
    }
    if trouble == "cancelled each time":
        setting("statement_timeout", "200ms")
        app.close()
    with psycopg.connect(database_url, options="-c statement_timeout=0") as holder:
        holder.execute("lock table penstock.ready in exclusive mode")
        with pytest.raises(PartitionUnavailable) as refused:
            acts[act]()
        assert refused.value.outcome == "unknown"
        # What is one statement is done or not.
        with pytest.raises(PartitionUnavailable) as refused:
            app.cancel(ready)
        assert refused.value.outcome == "not written"


def test_a_call_of_a_coroutine_has_the_time_that_it_is_given(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(request_timeout=1.0)
    work = app.queue("q").task(name="work")(lambda: None)
    given: list[float | None] = []
    send = app.sender.send

    def note(jobs: Sequence[PendingJob], connection: object, timeout: float | None) -> list[int]:
        given.append(timeout)
        return send(jobs, connection, timeout)

    monkeypatch.setattr(app.sender, "send", note)
    assert len(asyncio.run(app.aenqueue_many([work.job()], request_timeout=60.0))) == 1
    assert given == [60.0]


def test_g12_who_waits_for_a_result_is_told_where_the_database_does_not_answer(database_url: str) -> None:
    proxy = Proxy(database_url)
    with App(proxy.url, request_timeout=30.0) as app:
        job = app.queue("q").task(name="work")(lambda: None).enqueue()
        with pytest.raises(ResultTimeout, match="it goes on: wait longer"):
            app.result(job, timeout=2.0)
        proxy.stall()
        with pytest.raises(ResultTimeout, match=f"whether job {job} has ended could not be asked .* does not answer"):
            app.result(job, timeout=1.0)
        proxy.flow()
    proxy.close()


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
