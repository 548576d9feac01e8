"""G13: a row that cannot be read, or an end that cannot be written, costs itself: it is set aside and told, everything
else goes on, and a person can repair it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from tests.database.conftest import Scene
from tests.database.owned import Owned

from penstock import App
from penstock.admin.doctor import doctor
from penstock.errors import PenstockError
from penstock.storage.catalogue.resize import resize
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.upkeep import sweep
from penstock.storage.upkeep.prune import prune
from penstock.storage.work.leases import Lease, read_jobs
from penstock.storage.work.set_aside import set_aside

REPAIR = Path(__file__).parents[2] / "docs" / "how-to" / "look-and-repair.md"
LATER = datetime.now(UTC) + timedelta(days=1)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gated": {"limit": 2},
    "owned": {"order": "key"},
    "fair": {"fair_by": "tenant"},
}
# Every order in which jobs may come: alone, a few in a range, many in one.
SIZES = (1, 1, 5, 40)


class Shop:
    """An app with one queue, whose task notes what it ran."""

    def __init__(self, app: App, kind: str) -> None:
        self.app = app
        self.ran: list[int] = []
        ran = self.ran

        @app.queue("q", **KINDS[kind]).task(max_attempts=1)
        def t(n: int) -> None:
            ran.append(n)
            if n < 0:
                raise ValueError("no")

        self.task = t
        self.kind = kind

    def enqueue(self, *numbers: int) -> list[int]:
        key = "k" if self.kind == "owned" else None
        return self.app.enqueue_many([self.task.options(key=key).job(n=n) for n in numbers])

    def fetch(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.app.databases.lead.run(lambda c: c.execute(statement, parameters).fetchall())

    def work(self) -> None:
        self.app.work(until_idle=True, concurrency=4)

    def take_away(self, job: int) -> tuple[Any, ...]:
        """What is left where a row was lost: everything but the row."""
        (row,) = self.fetch("delete from penstock.job where id = %s returning *", job)
        return row

    def assert_told(self, job: int, why: str) -> None:
        explanation = self.app.explain(job)
        assert explanation.state == "ready"
        assert explanation.reason.startswith(f"set aside: {why}")
        (check,) = [each for each in doctor(list(self.app.databases)) if each.name == "jobs set aside"]
        assert not check.ok
        assert "penstock retry" in check.advice


@pytest.fixture(params=list(KINDS))
def shop(request: pytest.FixtureRequest, database_url: str) -> Iterator[Shop]:
    with App(database_url) as app:
        yield Shop(app, request.param)


def test_a_job_whose_row_is_missing_is_set_aside_and_can_be_repaired(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    ids: list[int] = []
    for size in SIZES:
        ids += shop.enqueue(*range(len(ids), len(ids) + size))
    shop.app.databases.lead.run(lambda c: c.execute("create table public.restored_job as select * from penstock.job"))
    lost = {job: shop.take_away(job) for job in (ids[0], ids[3], ids[20])}
    with caplog.at_level(logging.ERROR, "penstock"):
        shop.work()
    assert sorted(shop.ran) == [n for n, job in enumerate(ids) if job not in lost]
    assert {job: f"job {job} was set aside" in caplog.text for job in lost} == dict.fromkeys(lost, True)
    for job in lost:
        shop.assert_told(job, "it is in no table of jobs")
        with pytest.raises(PenstockError, match="bring its row back"):
            shop.app.retry(job)
    repaired, cancelled, _ = lost
    # As the manual says.
    (find, bring_back) = re.findall(r"^(?:select|insert).*?;$", REPAIR.read_text(), re.M | re.S)
    assert [row[0] for row in shop.fetch(find)] == sorted(lost)
    shop.fetch(bring_back.replace("2048;", f"{repaired} returning 1"))
    shop.ran.clear()
    shop.work()
    assert shop.ran == [], "it waits for a person"
    assert shop.app.retry(repaired) == "ready"
    assert shop.app.cancel(cancelled) == "cancelled"
    shop.work()
    assert shop.ran == [ids.index(repaired)]
    assert shop.app.job(repaired).state == "succeeded"
    (check,) = [each for each in doctor(list(shop.app.databases)) if each.name == "jobs set aside"]
    assert check.found.startswith("1 jobs")
    assert shop.app.stats("q").queue_length == 1


def test_a_job_whose_row_is_there_twice_runs_once(shop: Shop) -> None:
    ids = shop.enqueue(*range(20), -1)
    shop.fetch("insert into penstock.job_kept select * from penstock.job returning 1")
    shop.work()
    assert sorted(shop.ran) == [-1, *range(20)]
    assert [shop.app.job(job).state for job in ids] == ["succeeded"] * 20 + ["failed"]
    assert shop.app.retry(ids[-1]) == "ready"
    shop.work()
    assert shop.ran[-1] == -1
    assert len(shop.app.jobs(queue="q")) == 21


def test_arguments_that_are_no_json_cost_their_job(shop: Shop) -> None:
    ids = shop.enqueue(*range(12))
    # As damage would leave it: text of the type json that never was parsed.
    with psycopg.connect(shop.app.databases.lead.url, autocommit=True) as connection:
        connection.execute("create cast (text as json) without function")
        connection.execute("update penstock.job set args = '{\"n\": tru'::text::json where id = %s", [ids[4]])
        connection.execute("drop cast (text as json)")
    shop.work()
    assert sorted(shop.ran) == [n for n in range(12) if n != 4]
    assert shop.app.job(ids[5]).state == "succeeded"
    (state,) = shop.fetch("select job_id from penstock.dead")
    assert state == (ids[4],)


@pytest.mark.parametrize("end", [0, -1])
def test_an_end_that_is_refused_is_set_aside_and_the_others_are_written(
    shop: Shop, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The dead letter is there already; or history takes no such row."""
    ids = shop.enqueue(*range(1, 9), end, *range(9, 17))
    bad = ids[8]
    if end:
        shop.fetch(
            "insert into penstock.dead (job_id, partition_id, task, attempt, cause)"
            " select id, partition_id, task, 1, 0 from penstock.job where id = %s returning 1",
            bad,
        )
    else:
        with psycopg.connect(shop.app.databases.lead.url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("alter table penstock.finished add check (range <> {} or not {} = any (positions))").format(
                    sql.Literal(bad // 1024), sql.Literal(bad % 1024)
                )
            )
    shop.work()
    assert sorted(shop.ran) == sorted([end, *range(1, 17)])
    assert {shop.app.job(job).state for job in ids if job != bad} == {"succeeded"}
    shop.assert_told(bad, "its end (" + ("failed" if end else "succeeded") + ") cannot be written")
    assert "repeated piece by piece" in caplog.text
    if end:
        shop.fetch("delete from penstock.dead returning 1")
        assert shop.app.retry(bad) == "ready"
        shop.work()
        assert shop.app.job(bad).state == "failed"


def test_a_rescue_sets_aside_what_is_refused_and_rescues_the_others(scene: Scene) -> None:
    ids = scene.enqueue(6)
    scene.connection.execute("insert into penstock.task values (%s, 't', 1)", [scene.queue.id])
    scene.claim(4)
    partition = scene.queue.partition_ids[0]
    scene.connection.execute(
        "insert into penstock.dead (job_id, partition_id, task, attempt, cause) values (%s, %s, 't', 1, 0)",
        [ids[1], partition],
    )
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity'")
    assert sweep.rescue(scene.connection) == (1, 4, 3)
    assert scene.one("select count(*) from penstock.lease") == 0
    assert scene.connection.execute("select job_id from penstock.dead order by 1").fetchall() == [
        (job,) for job in ids[:4]
    ]
    aside = scene.connection.execute("select range * 1024 + low, reason from penstock.ready where is_parked").fetchall()
    assert [job for job, _ in aside] == [ids[1]]
    assert "duplicate key" in aside[0][1]
    scene.connection.execute("delete from penstock.dead where job_id = %s", [ids[1]])
    scene.connection.execute("insert into penstock.tally (partition_id) values (%s)", [partition])
    scene.assert_conserved()


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene, partitions=1)


def aside(scene: Scene) -> dict[int, tuple[str, int | None, Any]]:
    rows = scene.connection.execute(
        "select range * 1024 + low, reason, epoch, changed from penstock.ready where is_parked and reason is not null"
    )
    return {job: (reason, epoch, changed) for job, reason, epoch, changed in rows}


NOT_STORED = ("it is in no table of jobs", None, None)


def test_a_child_whose_row_is_missing_is_set_aside_when_its_parents_have_ended(owned: Owned) -> None:
    key = owned.key(0, 1)
    (parent,) = owned.enqueue([key])
    bad, good = (owned.enqueue([key], parents={0: Parents([parent])})[0] for _ in range(2))
    owned.connection.execute("delete from penstock.job where id = %s", [bad])
    (held,) = owned.lease([parent])
    owned.scene.worker = owned.worker
    owned.scene.succeed([held])
    assert sweep.unblock_all(owned.connection) == 2
    assert aside(owned.scene) == {bad: NOT_STORED}
    assert owned.row(good).epoch == 1
    owned.scene.assert_conserved()


def test_what_is_due_and_has_no_row_is_set_aside(owned: Owned) -> None:
    keys = [owned.key(0, 1, moves_to=(to, 2)) for to in (0, 1)]
    ids = owned.enqueue([*keys, *keys], run_at=LATER)
    resize(owned.connection, "o", 2)
    owned.connection.execute("delete from penstock.job where id = any (%s)", [ids[1:3]])
    owned.connection.execute("update penstock.scheduled set due_at = now()")
    assert sweep.promote(owned.connection) == 4
    assert aside(owned.scene) == dict.fromkeys(ids[1:3], NOT_STORED)
    assert [owned.row(job).number for job in (ids[0], ids[3])] == [0, 1]
    owned.scene.assert_conserved()


def test_a_dead_letter_whose_row_is_missing_stays_one(scene: Scene) -> None:
    bad, good = scene.dead(2)
    scene.connection.execute("delete from penstock.job where id = %s", [bad])
    rows = scene.connection.execute("select penstock.retry_dead(%s)", [[bad, good]]).fetchall()
    assert rows == [(good,)]
    assert scene.connection.execute("select job_id from penstock.dead").fetchall() == [(bad,)]


def test_setting_aside_parts_a_range_and_keeps_the_others_places(scene: Scene) -> None:
    ids = scene.enqueue(10)
    set_aside(scene.connection, {ids[0]: "a", ids[4]: "b", ids[9]: "c", ids[9] + 1024: "d"})
    assert {job: why for job, (why, _, _) in aside(scene).items()} == {ids[0]: "a", ids[4]: "b", ids[9]: "c"}
    assert [job for _, job in scene.claim(20)] == [*ids[1:4], *ids[5:9]]
    assert sweep.park(scene.connection) == 0, "a worker that knows the task does not let them back in"
    scene.assert_conserved()


@pytest.mark.parametrize("count", [3, 40])
def test_what_the_server_cannot_read_is_told_and_the_others_are_read(scene: Scene, count: int) -> None:
    """A damaged row: reading it raises, and so does every statement that reads it among others."""
    ids = scene.enqueue(count)
    bad = ids[1]
    for statement in (
        "create role damaged_reader",
        "grant usage on schema penstock to damaged_reader",
        "grant select on all tables in schema penstock to damaged_reader",
        "create function penstock.read_row(p_id bigint) returns boolean language plpgsql as $$ begin"
        f" if p_id = {bad} then raise exception using errcode = 'XX001', message = 'missing chunk number 0'; end if;"
        " return true; end $$",
        "grant execute on function penstock.read_row to damaged_reader",
        "alter table penstock.job enable row level security",
        "create policy damaged on penstock.job using (penstock.read_row(id))",
    ):
        scene.connection.execute(statement.encode())
    reader = scene.connect()
    try:
        reader.execute("set role damaged_reader")
        with pytest.raises(errors.DataCorrupted):
            reader.execute("select args from penstock.job")
        lease = Lease(1, 1, 5, ids[0] // 1024, ids[0] // 1024, 0, count, None, 1, 0, False, "t", 0.0)
        stored = read_jobs(reader, [lease])
    finally:
        reader.close()
        scene.connection.execute("drop policy damaged on penstock.job")
        scene.connection.execute(b"drop owned by damaged_reader; drop role damaged_reader")
    assert sorted(stored) == [job for job in ids if job != bad]
    assert stored.unreadable == {bad: "it cannot be read: missing chunk number 0"}


def test_a_row_that_cannot_be_moved_keeps_its_own_table_and_no_other(scene: Scene) -> None:
    days = dict.fromkeys(("succeeded", "failed", "cancelled", "discarded", "expired"), 99.0)
    ids = []
    for _ in range(2):
        ids += scene.enqueue()
        scene.connection.execute(
            "select setval('penstock.range_number', high + 1) from penstock.job_table, penstock.range_number"
            " where last_value >= low and last_value < high"
        )
    scene.connection.execute(
        sql.SQL("alter table penstock.job_kept add constraint damaged check (id <> {})").format(sql.Literal(ids[0]))
    )
    prune(scene.database, days)
    with pytest.raises(PenstockError, match="table job_0 cannot be let go"):
        prune(scene.database, days)
    assert scene.connection.execute("select id from penstock.job_kept").fetchall() == [(ids[1],)]
    scene.connection.execute("alter table penstock.job_kept drop constraint damaged")
    assert prune(scene.database, days).job_tables == [0]
    scene.assert_conserved()
