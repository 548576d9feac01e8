"""Ids above 2^31 and 2^53, up to the last one; and the tables they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import IsolationLevel
from tests.database.conftest import Scene
from tests.database.ledger import check

from penstock import App, Context, State
from penstock.storage.upkeep.sweep import rescue, unblock_all

# The first numbers whose ids pass 2^31, 2^53 and come near 2^63; numbers are 1 more than a multiple of 1,024.
NUMBERS = {"2^31": 2**21 + 1, "2^53": 2**43 + 1, "near 2^63": 2**53 - 10 * 1024 + 1}


def stand_at(connection: psycopg.Connection[Any], number: int) -> None:
    """Let the numbers go on there; one table holds all that is left."""
    connection.execute("select penstock.add_job_table(8796093022208)")
    connection.execute("select setval('penstock.range_number', %s, false)", [number])


@pytest.mark.parametrize("name", NUMBERS)
def test_jobs_with_large_ids_do_all_that_jobs_do(name: str, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection, App(database_url) as app:
        stand_at(connection, NUMBERS[name])
        seen: list[int] = []

        @app.queue("q").task(max_attempts=1)
        def t(context: Context, n: int) -> int:
            seen.append(context.job_id)
            if n == 13:
                raise ValueError("unlucky")
            return context.job_id

        ids = t.enqueue_many([{"n": n} for n in range(20)])
        assert min(ids) >= NUMBERS[name] * 1024
        child = t.options(after=ids[:2], idempotency_key="k").enqueue(n=1)
        assert t.options(idempotency_key="k").enqueue(n=1) == child
        row = connection.execute("select penstock.enqueue('q', 't', '{\"n\": 1}', after => %s)", [ids[:1]]).fetchone()
        assert row is not None
        assert app.cancel(ids[5]) == State.CANCELLED
        assert str(app.explain(str(ids[0])))
        app.work(until_idle=True)
        assert sorted(seen) == sorted({*ids, child, row[0]} - {ids[5]})
        assert app.job(child).after == ids[:2]
        assert app.result(child) == child
        assert app.job(ids[13]).state == State.FAILED
        assert app.retry(ids[13]) == State.READY
        assert [job.id for job in app.jobs(state="ready")] == [ids[13]]
        assert [job.id for job in app.jobs(before=ids[3])] == ids[2::-1]
        assert {job.id for job in app.jobs(limit=100)} == {*ids, child, row[0]}
        check(connection)


def test_the_last_ids_of_all_can_be_held_rescued_and_cancelled(scene: Scene) -> None:
    stand_at(scene.connection, 2**53 - 6 * 1024 + 1)
    first, second = scene.enqueue(1024), scene.enqueue(1024)
    children = scene.enqueue(2, after=[first[-1], second[-1]])
    assert max(children) < 2**63
    scene.claim(1024, 1024)
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity'")
    rescue(scene.connection)
    scene.worker = scene.register()
    scene.connection.execute("update penstock.ready set rescues = 0")
    held = scene.claim(1024, 1024)
    assert [job for _, job in held] == [*first, *second]
    assert scene.succeed(held) == 0
    unblock_all(scene.connection)
    assert check(scene.connection).of("ready") == set(children)


def test_the_last_number_is_followed_by_a_clear_error(scene: Scene) -> None:
    stand_at(scene.connection, 2**53 - 1024 + 1)
    scene.enqueue(1)
    with pytest.raises(psycopg.errors.SequenceGeneratorLimitExceeded):
        scene.enqueue(1)
    check(scene.connection)


def near_the_end_of_the_tables(scene: Scene) -> int:
    """The next number is one that looks at the tables ahead, and they are running out; the number of tables."""
    last = scene.one("select max(high) from penstock.job_table")
    scene.connection.execute("select setval('penstock.range_number', %s, false)", [last - 256 * 1024 + 1])
    return int(scene.one("select count(*) from penstock.job_table"))


def test_producers_alone_pass_the_last_table_without_a_gap(scene: Scene) -> None:
    before = near_the_end_of_the_tables(scene)
    ids = [scene.enqueue(1)[0] for _ in range(300)]
    assert scene.one("select count(*) from penstock.job_table") == before + 1
    assert scene.one("select count(distinct tableoid) from penstock.job") == 2
    assert [job for _, job in scene.claim(300)] == ids
    check(scene.connection)


def test_nobody_waits_for_a_transaction_that_came_to_the_last_table_first(scene: Scene) -> None:
    before = near_the_end_of_the_tables(scene)
    holder, other = scene.connect(), scene.connect()
    holder.execute("begin")
    scene.enqueue(1, connection=holder)
    for _ in range(64):
        scene.enqueue(1, connection=other)
    assert scene.one("select count(*) from penstock.job_table") == before + 1
    holder.execute("commit")
    check(scene.connection)


@pytest.fixture
def repeatable(scene: Scene) -> Iterator[psycopg.Connection[Any]]:
    connection = scene.connect()
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    yield connection
    connection.isolation_level = None


def test_a_caller_with_an_old_snapshot_does_not_make_the_same_table_again(
    scene: Scene, repeatable: psycopg.Connection[Any]
) -> None:
    before = near_the_end_of_the_tables(scene)
    with repeatable.transaction():
        repeatable.execute("select 1 from penstock.job_table")
        for _ in range(64):
            scene.enqueue(1)
        ids = scene.enqueue(1, connection=repeatable)
    assert scene.one("select count(*) from penstock.job_table") == before + 1
    assert check(scene.connection).places[ids[0]] == "ready"


def test_parents_are_kept_as_text_where_json_has_no_room_for_their_ids(scene: Scene) -> None:
    stand_at(scene.connection, NUMBERS["2^53"])
    parent = scene.one("select penstock.enqueue('q', 't')")
    by_sql = scene.one("select penstock.enqueue('q', 't', after => %s)", [parent])
    (by_copy,) = scene.enqueue(1, after=[parent])
    for job in (by_sql, by_copy):
        kept = scene.one("select attributes::text from penstock.job where id = %s", job)
        assert msgspec.json.decode(kept)["parents"] == [str(parent)]
