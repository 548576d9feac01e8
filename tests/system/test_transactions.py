"""G10, and settling in the handler's own transaction: it exists, or is done, if and only if that commits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg
import django
import django.db
import django.db.transaction
import psycopg
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from tests.fault.proxy import Proxy
from tests.judge.snapshot import read_snapshot
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

import penstock
from penstock import App
from penstock.client.task import Task
from penstock.routing.key_hash import home_of, shard_of


class Changed(Exception):
    """The caller changed its mind."""


@pytest.fixture
def database_url(urls: list[str]) -> str:
    """The database that the caller's own transactions are on."""
    return urls[-1]


@pytest.fixture
def key(app: App, urls: list[str]) -> str:
    """An idempotency key that is at home there."""
    shards = range(1, len(urls) + 1)
    return next(key for key in map(str, range(1_000)) if home_of(key, shards) == shards[-1])


@pytest.fixture
def work(app: App) -> Task[..., Any]:
    @app.queue("q").task
    def work(n: int) -> int:
        return n

    return work


def url_of(urls: list[str], context: penstock.Context) -> str:
    """The database that holds the running job."""
    return urls[shard_of(context.job_id) - 1]


def alchemy(url: str, driver: str = "psycopg") -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def psycopg_cursor(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def dict_row_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield connection


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    with sqlalchemy.create_engine(alchemy(url), poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy(url), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def django_database(url: str, **settings: Any) -> Iterator[None]:
    """Django's default database, for a block."""
    if not django_settings.configured:
        django_settings.configure(USE_TZ=False, TIME_ZONE="Asia/Tokyo", LOGGING_CONFIG=None)
        django.setup()
    there = conninfo_to_dict(url)
    django.db.connections.settings = django.db.connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": there["dbname"],
                "USER": there.get("user", ""),
                "PASSWORD": there.get("password", ""),
                "HOST": there["host"],
                "PORT": there.get("port", ""),
                **settings,
            }
        }
    )
    try:
        yield
    finally:
        django.db.connections.close_all()
        with suppress(AttributeError):  # Nobody used it.
            del django.db.connections["default"]


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    with django_database(url), django.db.transaction.atomic():
        yield django.db.connection


@contextmanager
def django_wrapper_that_binds_on_the_server(url: str) -> Iterator[Any]:
    with django_database(url, OPTIONS={"server_side_binding": True}), django.db.transaction.atomic():
        yield django.db.connections["default"]


@contextmanager
def django_cursor(url: str) -> Iterator[Any]:
    with django_database(url), django.db.transaction.atomic(), django.db.connection.cursor() as cursor:
        yield cursor


SYNC = [
    psycopg_connection,
    psycopg_cursor,
    dict_row_connection,
    sqlalchemy_connection,
    sqlalchemy_session,
    django_connection,
    django_wrapper_that_binds_on_the_server,
    django_cursor,
]


@pytest.mark.parametrize("count", [1, 150], ids=["one", "many"])
@pytest.mark.parametrize("opened", SYNC, ids=lambda opened: opened.__name__)
def test_g10_a_job_exists_if_and_only_if_the_transaction_commits(
    app: App,
    work: Task[..., Any],
    urls: list[str],
    database_url: str,
    key: str,
    opened: Callable[[str], Any],
    count: int,
) -> None:
    app.migrate()
    with pytest.raises(Changed), opened(database_url) as connection:  # noqa: PT012
        work.options(connection=connection).enqueue_many([{"n": n} for n in range(count)])
        raise Changed
    assert not read_snapshot(*urls).labels
    with opened(database_url) as connection:
        ids = work.options(connection=connection).enqueue_many([{"n": n} for n in range(count)])
        one = work.options(connection=connection).enqueue(n=7)
        keyed = work.options(connection=connection, idempotency_key=key).enqueue(n=8)
        assert not read_snapshot(*urls).labels
    assert set(read_snapshot(*urls).labels) == {*ids, one, keyed}
    app.work(until_idle=True)
    assert app.result(one) == 7


async def in_psycopg(url: str, act: Callable[[Any], Awaitable[Any]]) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await act(connection)


async def in_psycopg_cursor(url: str, act: Callable[[Any], Awaitable[Any]]) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        await act(cursor)


async def in_sqlalchemy_connection(url: str, act: Callable[[AsyncConnection], Awaitable[Any]]) -> None:
    async with create_async_engine(alchemy(url), poolclass=NullPool).begin() as connection:
        await act(connection)


async def in_sqlalchemy_session(url: str, act: Callable[[AsyncSession], Awaitable[Any]]) -> None:
    async with AsyncSession(create_async_engine(alchemy(url), poolclass=NullPool)) as session, session.begin():
        await act(session)


async def in_sqlalchemy_session_on_asyncpg(url: str, act: Callable[[AsyncSession], Awaitable[Any]]) -> None:
    async with (
        AsyncSession(create_async_engine(alchemy(url, "asyncpg"), poolclass=NullPool)) as session,
        session.begin(),
    ):
        await act(session)


async def in_asyncpg(url: str, act: Callable[[Any], Awaitable[Any]]) -> None:
    connection = await asyncpg.connect(url)
    # As many applications have it: Penstock's own JSON is none of these codecs' business.
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    try:
        async with connection.transaction():
            await act(connection)
    finally:
        await connection.close()


async def in_asyncpg_begun_by_hand(url: str, act: Callable[[Any], Awaitable[Any]]) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        await connection.execute("begin")
        await act(connection)
        await connection.execute("commit")
    finally:
        await connection.close()


async def in_asyncpg_pool(url: str, act: Callable[[Any], Awaitable[Any]]) -> None:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection, connection.transaction():
        await act(connection)


ASYNC = [
    in_psycopg,
    in_psycopg_cursor,
    in_sqlalchemy_connection,
    in_sqlalchemy_session,
    in_sqlalchemy_session_on_asyncpg,
    in_asyncpg,
    in_asyncpg_begun_by_hand,
    in_asyncpg_pool,
]


@pytest.mark.parametrize("count", [1, 150], ids=["one", "many"])
@pytest.mark.parametrize("within", ASYNC, ids=lambda within: within.__name__)
def test_g10_a_job_exists_if_and_only_if_the_async_transaction_commits(
    app: App, work: Task[..., Any], urls: list[str], database_url: str, key: str, within: Any, count: int
) -> None:
    app.migrate()
    ids: list[int] = []

    async def enqueue(connection: Any) -> None:
        ids[:] = await work.options(connection=connection).aenqueue_many([{"n": n} for n in range(count)])
        ids.append(await work.options(connection=connection).aenqueue(n=7))
        ids.extend(await app.aenqueue_many([work.options(idempotency_key=key).job(n=8)], connection=connection))
        assert not read_snapshot(*urls).labels

    async def change(connection: Any) -> None:
        await enqueue(connection)
        raise Changed

    with pytest.raises(Changed):
        asyncio.run(within(database_url, change))
    assert not read_snapshot(*urls).labels
    asyncio.run(within(database_url, enqueue))
    assert set(read_snapshot(*urls).labels) == set(ids)


async def enqueue_all_kinds(
    connection: Any, parent: int, work: Task[..., Any], ordered: Task[..., Any], text: str
) -> list[int]:
    """Jobs that are plain, scheduled, blocked, marked, and of a key that lives on the connection's database."""
    here: dict[str, Any] = {"connection": connection}
    marked = await work.options(tags=["x"], tenant="acme", **here).aenqueue(n=0, text=text)
    later = await work.options(delay=60, **here).aenqueue(n=1)
    many_later = await work.options(delay=60, **here).aenqueue_many([{"n": 2}] * 150)
    child = await work.options(after=[parent], **here).aenqueue(n=3)
    few = await work.options(**here).aenqueue_many([{"n": 4, "text": text}] * 2)
    for name in map(str, range(1_000)):
        with suppress(penstock.InvalidInput):  # It lives on the other shard.
            of_key = [await ordered.options(**here).aenqueue(name=name)]
            break
    for count in (2, 150):
        of_key += await ordered.options(**here).aenqueue_many([{"name": name}] * count)
    return [marked, later, many_later[0], child, few[0], of_key[0], of_key[1], of_key[-1]]


@pytest.mark.parametrize("within", [in_psycopg, in_asyncpg], ids=lambda within: within.__name__)
def test_g10_whatever_a_job_has_is_written_in_an_async_transaction_as_in_any_other(
    app: App, database_url: str, within: Any
) -> None:
    @app.queue("q").task
    def work(n: int, text: str = "") -> None: ...

    @app.queue("keyed", order="key").task(key="name")
    def ordered(name: str) -> None: ...

    app.migrate()
    text = 'a "quoted" \\ tab\t line\n ü 🐘'
    parent = work.enqueue(n=0)
    ids: list[int] = []

    async def enqueue(connection: Any) -> None:
        ids[:] = await enqueue_all_kinds(connection, parent, work, ordered, text)

    asyncio.run(within(database_url, enqueue))
    marked, later, many_later, child, few, *of_key = map(app.job, ids)
    assert (marked.args, marked.tags, marked.tenant) == ({"n": 0, "text": text}, ["x"], "acme")
    assert few.args == {"n": 4, "text": text}
    assert [each.state for each in (marked, later, many_later, child, few)] == [
        *("ready", "scheduled", "scheduled", "blocked", "ready")
    ]
    assert many_later.run_at is not None
    assert (many_later.run_at - many_later.enqueued_at).total_seconds() == 60
    assert len({each.key for each in of_key}) == 1
    assert [each.id for each in app.jobs(queue="keyed", limit=1_000)][-1] == of_key[0].id


@pytest.mark.parametrize("count", [1, 150], ids=["one", "many"])
def test_g10_what_is_refused_leaves_the_callers_transaction_as_it_was(
    app: App, work: Task[..., Any], urls: list[str], database_url: str, count: int
) -> None:
    app.migrate()

    async def enqueue() -> int:
        connection = await asyncpg.connect(database_url)
        try:
            async with connection.transaction():
                kept: int = await work.options(connection=connection).aenqueue(n=1)
                with pytest.raises(penstock.InvalidInput, match="unknown"):
                    await work.options(connection=connection, after=[kept + 1]).aenqueue_many([{"n": 2}] * count)
            return kept
        finally:
            await connection.close()

    kept = asyncio.run(enqueue())
    assert set(read_snapshot(*urls).labels) == {kept}


def test_an_asyncpg_connection_in_no_transaction_is_refused(
    app: App, work: Task[..., Any], urls: list[str], database_url: str
) -> None:
    app.migrate()

    async def enqueue() -> None:
        connection = await asyncpg.connect(database_url)
        try:
            with pytest.raises(penstock.InvalidInput, match=r"in no transaction.*connection\.transaction\(\)"):
                await work.options(connection=connection).aenqueue(n=1)
            with pytest.raises(penstock.InvalidInput, match="asynchronous; use aenqueue"):
                work.options(connection=connection).enqueue(n=1)
        finally:
            await connection.close()

    asyncio.run(enqueue())
    assert not read_snapshot(*urls).labels


@pytest.mark.parametrize("count", [1, 3])
def test_a_connection_in_autocommit_mode_is_refused_outside_of_a_transaction(
    app: App, work: Task[..., Any], urls: list[str], database_url: str, count: int
) -> None:
    app.migrate()
    refused = pytest.raises(penstock.InvalidInput, match=r"in no transaction.*connection\.transaction\(\)")
    rows = [{"n": 1}] * count

    async def enqueue() -> list[int]:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            with refused:
                await work.options(connection=connection).aenqueue_many(rows)
            async with connection.transaction():
                return list(await work.options(connection=connection).aenqueue_many(rows))

    kept = set(asyncio.run(enqueue()))
    with psycopg.connect(database_url, autocommit=True) as connection:
        for given in (connection, connection.cursor()):
            with refused:
                work.options(connection=given).enqueue_many(rows)
        with connection.transaction():
            kept |= set(work.options(connection=connection).enqueue_many(rows))
    engine = sqlalchemy.create_engine(alchemy(database_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as alchemys, refused:
        work.options(connection=alchemys).enqueue_many(rows)
    engine.dispose()
    assert set(read_snapshot(*urls).labels) == kept


def test_djangos_connection_is_refused_where_it_would_be_another_one(
    app: App, work: Task[..., Any], urls: list[str], database_url: str
) -> None:
    app.migrate()

    async def enqueue() -> None:
        with pytest.raises(penstock.InvalidInput, match="sync_to_async"):
            await work.options(connection=django.db.connection).aenqueue(n=1)

    with django_database(database_url):
        asyncio.run(enqueue())
    assert not read_snapshot(*urls).labels


def test_what_lies_under_a_connection_that_cannot_be_used_is_named(app: App, work: Task[..., Any]) -> None:
    app.migrate()
    with (
        django_database("host=x dbname=:memory:", ENGINE="django.db.backends.sqlite3"),
        pytest.raises(
            penstock.InvalidInput, match="ConnectionProxy over sqlite3 is not one Penstock can write through"
        ),
    ):
        work.options(connection=django.db.connection).enqueue(n=1)


def test_g10_djangos_savepoint_and_its_on_commit_go_by_the_same_transaction(
    app: App, work: Task[..., Any], urls: list[str], database_url: str
) -> None:
    app.migrate()
    seen: list[int] = []
    with django_database(database_url):
        with django.db.transaction.atomic():
            kept = work.options(connection=django.db.connection, delay=60).enqueue(n=1)
            django.db.transaction.on_commit(lambda: seen.append(len(read_snapshot(*urls).labels)))
            with pytest.raises(Changed), django.db.transaction.atomic():  # noqa: PT012
                work.options(connection=django.db.connection).enqueue(n=2)
                raise Changed
            many = work.options(connection=django.db.connection).enqueue_many([{"n": n} for n in range(150)])
        # Outside of an atomic block each statement is a transaction of its own, as for Django's own writes.
        one = work.options(connection=django.db.connection).enqueue(n=3)
    assert set(read_snapshot(*urls).labels) == {kept, one, *many}
    assert seen == [151]
    # Times are times, though this Django has a zone of its own and cuts it off.
    assert abs((app.job(many[0]).enqueued_at - app.job(one).enqueued_at).total_seconds()) < 3_600


def test_g10_a_savepoint_that_is_rolled_back_takes_its_jobs_along(
    work: Task[..., Any], urls: list[str], database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        kept = work.options(connection=connection).enqueue(n=1)
        with pytest.raises(Changed), connection.transaction():  # noqa: PT012
            work.options(connection=connection).enqueue(n=2)
            raise Changed
    assert set(read_snapshot(*urls).labels) == {kept}


def test_a_job_settled_in_its_handlers_transaction_is_done_if_and_only_if_that_commits(
    app: App, urls: list[str], execute: Execute
) -> None:
    queue = app.queue("q")
    attempts: list[tuple[str, int]] = []

    @queue.task(max_attempts=3, backoff=0)
    def transfer(context: penstock.Context, name: str) -> str:
        attempts.append((name, context.attempt))
        with psycopg.connect(url_of(urls, context)) as connection:
            connection.execute("insert into public.effect values (%s, %s)", [name, context.attempt])
            context.settle(connection, result=name)
            if name == "rolled back" and context.attempt == 1:
                connection.rollback()
            if name == "raised" and context.attempt == 1:
                raise Changed
        if name == "raised after" and context.attempt == 1:
            raise Changed
        return "not this"

    @queue.task(max_attempts=3, backoff=0)
    async def transfer_lane(context: penstock.Context, name: str) -> None:
        attempts.append((name, context.attempt))
        async with await psycopg.AsyncConnection.connect(url_of(urls, context)) as connection:
            await connection.execute("insert into public.effect values (%s, %s)", [name, context.attempt])
            await context.asettle(connection, result=name)
            if context.attempt == 1 and name == "async rolled back":
                await connection.rollback()

    @queue.task(max_attempts=3, backoff=0)
    async def transfer_by_asyncpg(context: penstock.Context, name: str) -> None:
        attempts.append((name, context.attempt))
        connection = await asyncpg.connect(url_of(urls, context))
        try:
            with suppress(Changed):
                async with connection.transaction():
                    await connection.execute("insert into public.effect values ($1, $2)", name, context.attempt)
                    await context.asettle(connection, result=name)
                    if context.attempt == 1 and name == "asyncpg rolled back":
                        raise Changed
        finally:
            await connection.close()

    execute("create table public.effect (name text, attempt int)")
    plain = ("committed", "rolled back", "raised", "raised after")
    lanes = ("async committed", "async rolled back")
    by_asyncpg = ("asyncpg committed", "asyncpg rolled back")
    jobs = {name: transfer.enqueue(name=name) for name in plain}
    jobs |= {name: transfer_lane.enqueue(name=name) for name in lanes}
    jobs |= {name: transfer_by_asyncpg.enqueue(name=name) for name in by_asyncpg}
    app.work(until_idle=True)
    twice = {"rolled back", "raised", "async rolled back", "asyncpg rolled back"}
    assert sorted(attempts) == sorted(
        (name, attempt) for name in jobs for attempt in ((1, 2) if name in twice else (1,))
    )
    effects = execute("select name, attempt from public.effect")
    assert sorted(effects) == sorted((name, 2 if name in twice else 1) for name in jobs)
    assert {name: app.result(job) for name, job in jobs.items()} == {name: name for name in jobs}
    final = read_snapshot(*urls)
    assert final.states == {"succeeded": 8}
    assert final.totals["completed"] == 8


def test_g4_a_handler_without_its_lease_is_told_when_it_settles(app: App, urls: list[str]) -> None:
    told: list[type[BaseException]] = []

    @app.queue("q").task(max_attempts=3, backoff=0)
    def work(context: penstock.Context) -> None:
        with psycopg.connect(url_of(urls, context)) as connection:
            if context.attempt == 1:
                # Somebody declares this worker dead and takes its jobs.
                connection.execute("delete from penstock.worker")
                connection.execute("select penstock.rescue()")
                connection.commit()
            try:
                context.settle(connection)
            except penstock.LeaseLost as error:
                told.append(type(error))
                raise

    job = work.enqueue()
    app.work(until_idle=True)
    assert told == [penstock.LeaseLost]
    assert app.job(job).state == "succeeded"
    assert read_snapshot(*urls).states == {"succeeded": 1}


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])
def test_a_job_settled_by_its_handler_ends_though_the_database_goes_away_right_after(
    make_app: MakeApp, working: Working, urls: list[str], is_committed: bool
) -> None:
    # The only partition is on the first shard, and that is what goes away.
    proxy = Proxy(urls[0])
    app, near = make_app(proxy.url, *urls[1:], request_timeout=2.0, lease=30.0), make_app()
    queue = app.queue("q", partitions=1)

    def leave(connection: psycopg.Connection[Any]) -> None:
        if not is_committed:
            connection.rollback()
        connection.close()
        proxy.go_down()

    @queue.task(backoff=0)
    def work(context: penstock.Context) -> None:
        if context.attempt == 1:
            connection = psycopg.connect(urls[0])
            context.settle(connection)
            if is_committed:
                connection.commit()
            leave(connection)

    @queue.task(backoff=0)
    async def work_lane(context: penstock.Context) -> None:
        if context.attempt == 1:
            connection = psycopg.connect(urls[0])
            await asyncio.to_thread(context.settle, connection)
            if is_committed:
                connection.commit()
            leave(connection)

    near.queue("q", partitions=1)
    with working(app):
        for task in (work, work_lane):
            job = task.options(request_timeout=30.0).enqueue()
            eventually(lambda: proxy.is_down, "the handler has settled")
            eventually(proxy.refused_someone, "the worker misses its database")
            eventually(proxy.refused_someone, "and misses it still")
            proxy.come_up()
            eventually(lambda: near.job(job).state == "succeeded", "it ended")  # noqa: B023
            assert near.job(job).attempt == (1 if is_committed else 2)
    proxy.close()


def test_g11_a_call_whose_idempotency_key_an_open_transaction_has_is_refused_by_its_timeout(
    app: App, work: Task[..., Any], urls: list[str], database_url: str, key: str
) -> None:
    app.migrate()
    with psycopg.connect(database_url) as connection:
        first = work.options(connection=connection, idempotency_key=key).enqueue(n=1)
        with pytest.raises(penstock.RequestTimeout, match="holds a lock") as refused:
            work.options(idempotency_key=key, request_timeout=1.0).enqueue(n=2)
        assert refused.value.outcome == "not written"
        assert list(refused.value.written) == [None]
    assert work.options(idempotency_key=key).enqueue(n=3) == first
    assert set(read_snapshot(*urls).labels) == {first}


@pytest.mark.parametrize("count", [1, 150], ids=["one", "many"])
def test_g11_a_call_to_a_locked_table_is_refused_by_its_timeout(make_app: MakeApp, urls: list[str], count: int) -> None:
    app = make_app(request_timeout=2.0)

    @app.queue("q", partitions=1).task
    def task() -> None: ...

    app.migrate()
    with psycopg.connect(urls[0]) as connection:
        connection.execute("lock penstock.ready in access exclusive mode")
        with pytest.raises(penstock.RequestTimeout, match="holds a lock") as refused:
            task.enqueue_many([{} for _ in range(count)])
        assert refused.value.outcome == "not written"
    assert not read_snapshot(*urls).labels
    task.enqueue()


def test_a_transaction_that_cannot_see_the_lease_of_its_job_is_told_to_settle_first(app: App, urls: list[str]) -> None:
    told: list[BaseException] = []

    @app.queue("q").task(max_attempts=2, backoff=0)
    def work(context: penstock.Context) -> None:
        with psycopg.connect(url_of(urls, context)) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            if context.attempt == 2:
                context.settle(connection)
            connection.execute("select count(*) from penstock.queue")
            if context.attempt == 1:
                try:
                    context.settle(connection)
                except penstock.PenstockError as error:
                    told.append(error)
                    raise

    job = work.enqueue()
    app.work(until_idle=True)
    assert [type(each) for each in told] == [penstock.InvalidInput]
    assert "before any other statement" in str(told[0])
    assert (app.job(job).state, app.job(job).attempt) == ("succeeded", 2)
