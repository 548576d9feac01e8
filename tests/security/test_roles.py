"""Roles at work: each can do what its kind is for, and the server refuses it the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege, InvalidParameterValue
from tests.security.conftest import Realm
from tests.security.roles_at_work import Works, acts_on_tables, calls, done_after_all, works

from penstock import App, PenstockError, admin
from penstock.model.check import Check
from penstock.storage import Database

REFUSED_TO_ALL = (
    "drop schema penstock cascade",
    "drop table penstock.job",
    "truncate penstock.job",
    "alter table penstock.job disable trigger all",
    "create table penstock.mine (n int)",
    "create function penstock.mine() returns int language sql as 'select 1'",
    "create trigger mine before insert on penstock.job execute function suppress_redundant_updates_trigger()",
    "insert into penstock.table_file values (999, 'x', 'x')",
    "update penstock.function_set set version = 999",
    "insert into penstock.grantee values ('stranger', 'worker')",
    "alter default privileges for role owner in schema penstock grant select on tables to stranger",
    "alter function penstock.enqueue reset search_path",
)


@pytest.fixture
def worker(realm: Realm) -> Iterator[Works]:
    """An app whose role is a worker; it has declared its queues."""
    working = works(realm.url("worker"))
    with working.app as app:
        app.queues()
        yield working


@pytest.mark.parametrize("role", ["worker", "producer", "reader", "stranger"])
def test_no_role_but_the_owner_changes_the_schema_or_what_is_granted(realm: Realm, role: str) -> None:
    assert done_after_all(realm, role, *REFUSED_TO_ALL) == []
    refusals = (InsufficientPrivilege, InvalidParameterValue)
    with realm.connect(role) as connection, pytest.raises(refusals, match=r"permission denied|only owner"):
        connection.execute("select penstock.grant_to('stranger', 'worker')")


def test_a_stranger_can_do_nothing(realm: Realm) -> None:
    called = [f"select {call}" for call in calls(realm)]
    acts = acts_on_tables(realm)
    assert len(called) > 50
    assert len(acts) > 60
    assert done_after_all(realm, "stranger", *called, *acts, "select penstock.enqueue('q', 'double')") == []
    with (
        works(realm.url("stranger")).app as app,
        pytest.raises(PenstockError, match="penstock grant worker stranger --url"),
    ):
        app.queues()


def test_a_producer_enqueues_in_its_own_transaction_and_does_nothing_else(realm: Realm, worker: Works) -> None:
    app = worker.app
    with psycopg.connect(realm.url("producer")) as connection:
        row = connection.execute("""select penstock.enqueue('q', 'double', '{"n": 21}', key => 'k')""").fetchone()
        assert row is not None
        connection.execute("""select penstock.enqueue('ordered', 'follow', '{"n": 1}', idempotency_key => 'once')""")
        connection.execute("""select penstock.enqueue('q', 'double', '{"n": 1}', after => array[%s])""", row)
        connection.execute("""select penstock.enqueue('q', 'double', '{"n": 1}', delay => 1000)""")
        assert app.jobs() == []
        connection.commit()
        connection.execute("""select penstock.enqueue('q', 'double', '{"n": 1}')""")
        connection.rollback()
    app.work(until_idle=True)
    assert app.result(row[0], timeout=10) == 42
    assert sorted(job.state for job in app.jobs()) == ["scheduled", "succeeded", "succeeded", "succeeded"]

    called = [f"select {call}" for call in calls(realm)]
    acts = [*acts_on_tables(realm), "select nextval('penstock.range_number')"]
    assert done_after_all(realm, "producer", *called, *acts) == []


def test_a_producer_that_comes_to_the_last_table_makes_the_next_as_it_commits(realm: Realm, worker: Works) -> None:
    with realm.connect("owner") as owner, realm.connect("producer") as producer:
        high = owner.execute("select max(high) from penstock.job_table").fetchall()[0][0]
        owner.execute("select setval('penstock.range_number', %s)", (high - 100 * 1024 + 1,))
        for _ in range(200):
            producer.execute("select penstock.enqueue('q', 'double')")
        assert owner.execute("select count(*) from penstock.job").fetchall() == [(200,)]
        assert owner.execute("select max(high) > %s from penstock.job_table", [high]).fetchall() == [(True,)]


def test_what_a_producer_puts_before_the_real_things_is_not_used_by_the_owners_functions(
    realm: Realm, worker: Works
) -> None:
    with psycopg.connect(realm.url()) as superuser:
        superuser.execute("create schema authorization producer")
    with realm.connect("producer") as connection:
        connection.execute(
            "create function producer.now() returns timestamptz language sql"
            " as $$ select pg_catalog.now() + interval '1 year' $$"
        )
        connection.execute("create temporary table job (like pg_catalog.pg_class)")
        connection.execute("set search_path = producer, pg_catalog, pg_temp")
        connection.execute("""select penstock.enqueue('q', 'double', '{"n": 1}', delay => 0)""")
    worker.app.work(until_idle=True)
    assert [job.state for job in worker.app.jobs()] == ["succeeded"]


def test_the_python_client_tells_a_producer_that_it_needs_more(realm: Realm, worker: Works) -> None:
    with works(realm.url("producer")).app as app, pytest.raises(PenstockError, match="penstock grant worker producer"):
        app.queues()
    database = Database(realm.url("producer"))
    (check,) = [check for check in admin.doctor([database]) if not check.ok]
    assert (check.name, check.advice) == ("schema", "connect as its owner, or as a worker or a reader")
    database.close()


def test_the_doctor_of_a_role_says_that_it_cannot_see_the_transactions_of_others(realm: Realm) -> None:
    def oldest(role: str) -> Check:
        database = Database(realm.url(role))
        try:
            return next(check for check in admin.doctor([database]) if check.name == "oldest transaction")
        finally:
            database.close()

    with realm.connect("owner") as holder, holder.transaction():
        holder.execute("select 1")
        hidden = oldest("worker")
        assert hidden.ok
        assert hidden.found == "0 s; 1 session of other roles cannot be seen"
        assert "grant pg_read_all_stats to this role" in hidden.advice
        with psycopg.connect(realm.url(), autocommit=True) as superuser:
            superuser.execute("grant pg_read_all_stats to worker")
        try:
            seen = oldest("worker")
        finally:
            with psycopg.connect(realm.url(), autocommit=True) as superuser:
                superuser.execute("revoke pg_read_all_stats from worker")
        assert f"(process {holder.info.backend_pid})" in seen.found
        assert seen.advice == ""


def test_a_worker_adds_to_the_audit_and_changes_nothing_that_stands_there(realm: Realm, worker: Works) -> None:
    worker.app.pause("q")
    (entry, *_) = worker.app.audit()
    assert (entry.act, entry.database_role, entry.outcome) == ("pause", "worker", "done")
    attempts = (
        "delete from penstock.audit",
        "update penstock.audit set actor = 'another'",
        "insert into penstock.audit (id) values (1)",
        "truncate penstock.audit",
    )
    for role in ("worker", "reader", "producer"):
        assert done_after_all(realm, role, *attempts) == []
    with realm.connect("worker") as connection:
        # What came of an act is told once, and nothing of the last day can be forgotten.
        connection.execute("select penstock.end_audit(%s, 'not done', 7, '{}')", [entry.id])
        assert connection.execute("select penstock.forget_audit(0, 1000)").fetchone() == (0,)
        assert worker.app.audit()[0] == entry
        # Whoever writes an entry by hand cannot say that another role did.
        connection.execute("select penstock.begin_audit(gen_random_uuid(), 'x', 'cli', null, 'x', null, '{}')")
    assert worker.app.audit()[0].database_role == "worker"


def test_readers_and_producers_see_no_token_and_make_none(realm: Realm, worker: Works) -> None:
    worker.app.create_token("shop", role="read")
    with App(realm.url("reader")) as app:
        assert [each.act for each in app.audit(limit=1)] == ["create_token"]
        asks: list[Callable[[], object]] = [
            app.tokens,
            lambda: app.create_token("mine", role="admin"),
            lambda: app.revoke_token("shop"),
            lambda: admin.TokenBook(app.databases).find("penstock_x"),
        ]
        for ask in asks:
            with pytest.raises(PenstockError, match="does not allow it to this role"):
                ask()
    acts = ["select from penstock.access_token", "insert into penstock.access_token (name) values ('x')"]
    acts += ["update penstock.access_token set revoked_at = null", "delete from penstock.access_token"]
    for role in ("reader", "producer", "stranger"):
        assert done_after_all(realm, role, *acts) == []
    assert [token.revoked_at for token in worker.app.tokens()] == [None]


def test_a_reader_sees_everything_and_changes_nothing(realm: Realm, worker: Works) -> None:
    worker.double.enqueue_many([{"n": n} for n in (1, 2, -1)])
    worker.app.work(until_idle=True)
    waiting = worker.double.enqueue(3)
    with App(realm.url("reader")) as app:
        assert app.stats("q").dead == 1
        assert [stats.queue for stats in app.queues()] == ["ordered", "q"]
        assert sorted(job.state for job in app.jobs()) == ["failed", "ready", "succeeded", "succeeded"]
        assert app.job(waiting).state == "ready"
        assert app.explain(waiting).reason
        assert (app.workers(), app.crons(), app.loads(), app.blocked_keys("ordered")) == ([], [], [], [])
        changes: list[Callable[[], object]] = [
            lambda: app.cancel(waiting),
            lambda: app.retry(state="failed"),
            lambda: app.pause("q"),
            lambda: app.purge("q"),
            lambda: app.limit("q", max_length=1),
            lambda: app.delete_queue("q", force=True),
        ]
        for change in changes:
            with pytest.raises(PenstockError, match="does not allow it to this role"):
                change()
    database = Database(realm.url("reader"))
    checks = {check.name: check for check in admin.doctor([database])}
    assert [check.name for check in checks.values() if not check.ok] == ["tasks"]
    assert checks["role"].found == "reader (reader)"
    database.close()
    assert worker.app.job(waiting).state == "ready"

    writes = [act for act in acts_on_tables(realm) if act.startswith("delete")]
    writes += ["select penstock.enqueue('q', 'double')", "select nextval('penstock.range_number')"]
    writes += ["select penstock.add_slice()", "select penstock.add_job_table(1)"]
    writes += ["select penstock.detach_table('job', 'job_0')", "select penstock.drop_table('job_0')"]
    assert done_after_all(realm, "reader", *writes) == []
