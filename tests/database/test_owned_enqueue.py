"""Enqueue on queues with an owner: ranges whatever the tasks, stamped, by the queue's own map of keys only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from penstock import App
from penstock.routing.key_hash import partition_of


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def declare(app: App, **options: Any) -> tuple[Any, Any]:
    queue = app.queue("q", order="key", **options)

    @queue.task(key="k")
    def first(k: str) -> None: ...

    @queue.task(key="k")
    def second(k: str) -> None: ...

    return first, second


def resize(connection: psycopg.Connection[Any], partitions: int) -> None:
    """As a resize does it."""
    connection.execute("select penstock.resize('q', %s)", [partitions])


def rows(connection: psycopg.Connection[Any], statement: str) -> list[Any]:
    found = connection.execute(statement.encode()).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def test_a_call_of_several_tasks_is_one_range_in_its_order(app: App, connection: psycopg.Connection[Any]) -> None:
    first, second = declare(app)
    ids = app.enqueue_many([task.job(k="a") for task in (first, second, first, second)])
    assert ids == list(range(ids[0], ids[0] + 4))
    assert rows(connection, "select task from penstock.job order by id") == ["first", "second"] * 2
    assert rows(
        connection, "select task, range, low, high, pos = range, epoch, changed is not null from penstock.ready"
    ) == [("", ids[0] // 1024, 0, 4, True, 1, True)]


def test_each_way_to_write_stamps_the_transaction_and_the_map(app: App, connection: psycopg.Connection[Any]) -> None:
    first, _ = declare(app, partitions=2)
    first.enqueue(k="a")
    first.enqueue_many([{"k": "a"}] * 3)
    first.enqueue_many([{"k": "a"}] * 1500)
    first.options(idempotency_key="once").enqueue(k="a")
    connection.execute("select penstock.enqueue('q', 'other', '{}', key => 'a')")
    stamps = rows(connection, "select task, epoch, changed is null, high - low from penstock.ready order by pos")
    assert stamps == [("", 1, False, size) for size in (1, 3, 1024, 476, 1, 1)]
    assert rows(connection, "select count(distinct changed) from penstock.ready") == [5]
    assert rows(
        connection,
        "select distinct p.number from penstock.ready as r join penstock.partition as p on p.id = r.partition_id",
    ) == [partition_of(b"a", 2)]
    assert rows(connection, "select count(*), count(distinct task) from penstock.job") == [(1506, 2)]


def test_a_plain_queue_is_written_without_a_stamp_or_a_lock(app: App, connection: psycopg.Connection[Any]) -> None:
    task = app.queue("p", partitions=2).task(key="k", name="t")(lambda k: None)
    app.migrate()
    with psycopg.connect(app.url) as other:
        task.options(connection=other).enqueue(k="a")
        other.execute("select penstock.enqueue('p', 't', '{}', key => 'a')")
        held = other.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
        assert held == (0,)
    assert rows(connection, "select task, epoch, changed from penstock.ready") == [("t", None, None)] * 2


def test_delays_and_children_bear_no_place_yet(app: App, connection: psycopg.Connection[Any]) -> None:
    first, second = declare(app)
    parent = first.enqueue(k="a")
    first.options(delay=60).enqueue(k="a")
    app.enqueue_many([t.options(delay=60).job(k="a") for t in (first, second)])
    second.options(after=[parent]).enqueue(k="a")
    connection.execute("select penstock.enqueue('q', 'third', '{}', key => 'a', delay => 60)")
    assert rows(connection, "select task, pos, epoch, high - low from penstock.scheduled order by range") == [
        ("", None, 1, size) for size in (1, 2, 1)
    ]
    assert rows(connection, "select task from penstock.blocked") == ["second"]


def test_an_idempotency_key_is_unique_for_each_ordering_key(app: App, connection: psycopg.Connection[Any]) -> None:
    first, second = declare(app, partitions=2)
    once = {"idempotency_key": "m"}
    a = first.options(**once).enqueue(k="a")
    assert first.options(**once).enqueue(k="a") == a
    assert second.options(**once).enqueue(k="a") == a
    b = first.options(**once).enqueue(k="b")
    assert b != a
    assert rows(connection, "select penstock.enqueue('q', 't', '{}', key => 'a', idempotency_key => 'm')") == [a]
    assert rows(connection, "select penstock.enqueue('q', 't', '{}', key => 'b', idempotency_key => 'm')") == [b]
    (unkeyed,) = rows(connection, "select penstock.enqueue('q', 't', '{}', idempotency_key => 'm')")
    assert unkeyed not in (a, b)
    many = app.enqueue_many([first.options(**once).job(k=k) for k in ("a", "c", "c")])
    assert many[0] == a
    assert many[1] == many[2]
    assert many[1] not in (a, b, unkeyed)


def test_unkeyed_jobs_go_to_the_emptiest_partition_in_use(app: App, connection: psycopg.Connection[Any]) -> None:
    declare(app, partitions=3)
    task = app.queue("q", order="key", partitions=3).task(name="unkeyed")(lambda: None)
    app.migrate()
    resize(connection, 2)
    for _ in range(4):
        connection.execute("select penstock.enqueue('q', 'unkeyed')")
    task.enqueue_many([{}] * 100)
    counts = rows(
        connection,
        "select p.number, count(*) from penstock.job as j join penstock.partition as p on p.id = j.partition_id"
        " group by 1 order by 1",
    )
    assert [number for number, _ in counts] == [0, 1]
    assert counts[0][1] + counts[1][1] == 104
    assert min(counts)[1] >= 2


Enqueue = Callable[[App, Any, psycopg.Connection[Any]], list[int]]


def one(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    return [task.enqueue(k="a")]


def few(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    ids: list[int] = app.enqueue_many([task.job(k="a")] * 3)
    return ids


def many(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    ids: list[int] = task.enqueue_many([{"k": "a"}] * 200)
    return ids


def once(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    return [task.options(idempotency_key="m").enqueue(k="a")]


def child(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    parent = task.job(k="a")
    ids: list[int] = app.enqueue_many([parent, task.options(after=[parent]).job(k="a")])
    return ids


def by_sql(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    return rows(connection, "select penstock.enqueue('q', 'first', '{}', key => 'a')")


def in_a_transaction(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    with connection.transaction():
        connection.execute("select 1")
        return [
            task.options(connection=connection).enqueue(k="a"),
            *app.enqueue_many([task.job(k="a")] * 200, connection=connection),
        ]


def in_an_asynchronous_transaction(app: App, task: Any, connection: psycopg.Connection[Any]) -> list[int]:
    async def write() -> list[int]:
        async with await psycopg.AsyncConnection.connect(app.url) as other:
            one = await task.options(connection=other).aenqueue(k="a")
            return [one, *await app.aenqueue_many([task.job(k="a")] * 200, connection=other)]

    return asyncio.run(write())


@pytest.mark.parametrize(
    "enqueue", [one, few, many, once, child, by_sql, in_a_transaction, in_an_asynchronous_transaction]
)
def test_a_producer_with_an_old_map_writes_by_the_new_one(
    app: App, connection: psycopg.Connection[Any], enqueue: Enqueue
) -> None:
    first, _ = declare(app, partitions=4)
    app.migrate()
    assert app.stats("q").queue_length == 0  # the map is known here from now on
    resize(connection, 7)
    assert partition_of(b"a", 7) != partition_of(b"a", 4)
    ids = enqueue(app, first, connection)
    numbers = rows(
        connection,
        "select distinct p.number from penstock.job as j join penstock.partition as p on p.id = j.partition_id",
    )
    assert numbers == [partition_of(b"a", 7)]
    assert rows(connection, "select distinct epoch from penstock.ready") == [2]
    assert sorted(ids) == rows(connection, "select id from penstock.job order by id")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_transaction_that_began_before_a_resize_and_cannot_see_it_is_told_to_begin_again(
    app: App, connection: psycopg.Connection[Any], is_known: bool
) -> None:
    first, _ = declare(app, partitions=2)
    app.migrate()
    with psycopg.connect(app.url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select count(*) from penstock.queue")
        resize(connection, 3)
        if is_known:
            app.stats("q")
        with pytest.raises(psycopg.errors.SerializationFailure):
            first.options(connection=other).enqueue(k="a")
        other.rollback()
        other.execute("select count(*) from penstock.queue")
        resize(connection, 4)
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute("select penstock.enqueue('q', 'first', '{}', key => 'a')")
        other.rollback()
        first.options(connection=other).enqueue(k="a")
    assert rows(connection, "select epoch from penstock.ready") == [3]


def test_calls_that_met_in_a_transaction_that_cannot_see_a_resize_are_told_to_begin_again(
    app: App, connection: psycopg.Connection[Any]
) -> None:
    """Where a database's transactions are so by default, the statement that writes them is, too."""
    declare(app, partitions=2)
    app.migrate()
    where = rows(connection, "select queue_id, partition_ids[1] from penstock.queue_map")[0]
    with psycopg.connect(app.url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select count(*) from penstock.queue")
        resize(connection, 3)
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute(
                """select penstock.enqueue_merged(
                       array[%s::int], array[1], array[%s::int], array[5::smallint], array[''], null, null,
                       array[1::smallint], null, array['first'], null, '[{}]', '[{}]', null, null)""",
                where,
            )
        other.rollback()
    assert rows(connection, "select epoch from penstock.ready") == []
