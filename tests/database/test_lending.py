"""Connections are lent again and again, the one used last first, and nobody waits for one that nobody uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from penstock import App, PartitionUnavailable, RequestTimeout
from penstock.storage import Connection, Database


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=2, request_timeout=30.0)
    yield database
    database.close()


def pid(connection: Connection) -> int:
    return connection.info.backend_pid


def test_the_connection_used_last_is_lent_next(database: Database) -> None:
    with database.connection() as first, database.connection() as second:
        both = {pid(first), pid(second)}
    assert len(both) == 2
    assert len({database.run(pid) for _ in range(20)}) == 1


def test_one_that_is_kept_and_one_in_the_pool_are_both_to_be_had(database: Database) -> None:
    database.run(pid)
    with ExitStack() as stack:
        assert len({pid(stack.enter_context(database.connection(5.0))) for _ in range(2)}) == 2


def test_whoever_waits_is_given_one_as_soon_as_it_is_free(database: Database) -> None:
    given: list[int] = []

    def borrow() -> None:
        with database.connection(30.0) as connection:
            given.append(pid(connection))

    database.run(pid)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(database.connection())
        waiting = [threading.Thread(target=borrow) for _ in range(4)]
        for each in waiting:
            each.start()
        waiting[0].join(0.3)
        assert given == []
    for each in waiting:
        each.join(30.0)
    assert len(given) == 4


def test_a_transaction_left_open_is_not_lent_on(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("begin")
    with database.connection() as connection:
        assert connection.info.transaction_status.name == "IDLE"


def test_whoever_gets_no_connection_is_told_why(database: Database, database_url: str) -> None:
    place = database_url.partition("@")[2]
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("create role scarce login superuser password 'scarce'")
        try:
            with App(f"postgresql://scarce:scarce@{place}", request_timeout=2.0) as app:
                queue = app.queue("letters")

                @queue.task
                def send() -> None: ...

                send.enqueue()
                owner.execute("alter role scarce nosuperuser connection limit 0")
                owner.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'scarce'")
                for call in (send.enqueue, app.queues):
                    with pytest.raises((RequestTimeout, PartitionUnavailable), match="too many connections for role"):
                        call()
        finally:
            owner.execute("drop role scarce")
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(database.connection())
        with pytest.raises(PartitionUnavailable, match="all 2 connections of this app were in use"):
            database.run(pid, timeout=0.5)
