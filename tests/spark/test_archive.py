"""Archiving: each job that ended is in the lake or in the database, once, whatever happens (G8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from tests.spark.past import live

import penstock.spark as ps
from penstock import App, InvalidInput, NotFound, PenstockError
from penstock.spark.lake.parquet_lake import ParquetLake
from penstock.spark.tables.columns import HISTORY, MORE_HISTORY
from penstock.storage.history import archive as storage_archive
from penstock.storage.history.archive import Archiving
from penstock.storage.upkeep.prune import prune

DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}


def ids(spark: SparkSession, app: App, lake: Path | None, **options: Any) -> list[int]:
    """The ids that one history has, in order; a repeated one shows."""
    return sorted(row.id for row in ps.history(spark, app, lake, ["id"], **options).collect())


def test_every_column_comes_back_from_the_lake_as_it_was(spark: SparkSession, app: App, tmp_path: Path) -> None:
    past = live(app)
    lake = tmp_path / "lake"
    columns = [*HISTORY, *MORE_HISTORY]
    before = {row.id: row for row in ps.history(spark, app, lake, columns).collect()}
    assert sorted(before) == sorted(past.ended)
    archived = ps.archive(spark, app, lake)
    assert (archived.rows, archived.waits_for) == (len(past.ended) - len(past.dead), [])
    assert archived.files == len(list(lake.glob("history/**/*.parquet"))) > 0
    history = ps.history(spark, app, lake, columns, view="history")
    after = {row.id: row for row in history.collect()}
    assert after == before
    assert list(ps.history(spark, app, lake).columns) == list(HISTORY)
    assert spark.sql("select count(*) as n from history where outcome = 'failed'").collect()[0].n == len(past.dead)

    # What was archived is gone from the database, the dead letters are work, the waiting ones wait.
    hot = spark.read.format("penstock").options(url=app.url, table="finished", columns="id").load()
    assert sorted(row.id for row in hot.collect()) == sorted(past.dead)
    with pytest.raises(NotFound, match="archived"):
        app.job(past.ended[0])
    assert app.job(past.dead[0]).state == "failed"
    assert sorted(job.id for job in app.jobs(state="scheduled")) == past.waiting[:1]

    # Again: nothing to do, nothing changed.
    files = sorted(lake.rglob("*"))
    again = ps.archive(spark, app, lake)
    assert (again.slices, again.rows) == ([], 0)
    assert sorted(lake.rglob("*")) == files
    assert ids(spark, app, lake) == sorted(past.ended)


# Where it dies: before or after an act. Before one is after the one that precedes it.
KILLS: list[tuple[Any, str, bool]] = [
    (Archiving, "close", True),
    (Archiving, "take", True),
    (Archiving, "set_apart", True),
    (Archiving, "begin_writing", True),
    (ParquetLake, "read", False),
    (ParquetLake, "write", True),
    (storage_archive, "verify_writing", True),
    (Archiving, "_drop", False),
    (Archiving, "_drop", True),
    (Archiving, "let_go", True),
    (ParquetLake, "add_to_manifest", True),
]


# Lets the numbers pass the table of jobs in use.
PASS_TABLES = """
select setval('penstock.range_number', high + 1) from penstock.job_table
 where (select last_value from penstock.range_number) between low and high - 1
"""


class Killed(BaseException):
    """What no code catches."""


@pytest.fixture
def finish(app: App) -> Callable[[int], list[int]]:
    """So many jobs that end well, on two queues; their ids."""
    tasks = [app.queue(name).task(name="t")(lambda n: {"n": n}) for name in ("first", "second")]

    def run(count: int) -> list[int]:
        enqueued = [job for task in tasks for job in task.enqueue_many([{"n": n} for n in range(count)])]
        app.work(until_idle=True)
        return enqueued

    return run


def test_killed_at_any_point_it_is_gone_on_from_and_no_job_is_lost_or_doubled(
    spark: SparkSession, app: App, tmp_path: Path, finish: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    ended: list[int] = []
    for owner, name, is_after in KILLS:
        ended += finish(3)
        real = getattr(owner, name)

        def killing(*arguments: Any, real: Any = real, is_after: bool = is_after) -> Any:
            if is_after:
                real(*arguments)
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, killing)
            with pytest.raises(Killed):
                ps.archive(spark, app, lake)
        point = f"{'after' if is_after else 'before'} {name}"
        assert ids(spark, app, lake) == sorted(ended), point
        # Prune touches nothing that is on its way, and keeps its jobs when it drops their tables.
        with app.database.connection() as connection:
            connection.execute(PASS_TABLES)
        for _ in range(2):
            prune(app.database, DAYS)
    archived = ps.archive(spark, app, lake)
    assert archived.waits_for == []
    assert ids(spark, app, lake) == sorted(ended)
    assert hot_rows(app) == 0
    # Nothing is left of what was begun and not listed.
    manifest = [json.loads(path.read_text()) for path in lake.glob("_penstock/*/slice-*.json")]
    folders = {f"history/{path.name}" for path in (lake / "history").iterdir()}
    assert folders == {entry["folder"] for entry in manifest if entry["folder"]}
    assert sum(entry["jobs"] for entry in manifest) == len(ended)


def hot_rows(app: App) -> int:
    """Rows of history in the database, attached or not."""
    with app.database.connection() as connection:
        rows = connection.execute("select count(*) from penstock.finished_rows(0, 9007199254740991, null, '{}', '{}')")
        return int(rows.fetchall()[0][0])


def test_what_is_not_in_the_lake_as_it_was_is_not_dropped(
    spark: SparkSession, app: App, tmp_path: Path, finish: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = finish(5)
    lake = tmp_path / "lake"
    real = ParquetLake.read
    spoilt: dict[str, Callable[[Any], Any]] = {
        "a row less": lambda rows: rows.where(rows.id != ended[0]),
        "a row more": lambda rows: rows.union(rows.limit(1)),
        "a value changed": lambda rows: rows.replace("t", "u", "task"),
    }
    for spoil in spoilt.values():
        with monkeypatch.context() as patched:
            patched.setattr(ParquetLake, "read", lambda self, folders, spoil=spoil: spoil(real(self, folders)))
            with pytest.raises(PenstockError, match="nothing was dropped"):
                ps.archive(spark, app, lake)
        assert hot_rows(app) > 0
    assert ids(spark, app, lake) == sorted(ended)
    assert ps.archive(spark, app, lake).rows == len(ended)


def test_a_history_made_before_an_archive_has_the_same_jobs_after_it(
    spark: SparkSession, app: App, tmp_path: Path, finish: Callable[[int], list[int]]
) -> None:
    lake = tmp_path / "lake"
    ended = finish(4)
    early = ps.history(spark, app, lake, queue="second")
    whole = ps.history(spark, app, lake)
    before = sorted(whole.collect())
    ps.archive(spark, app, lake)
    ended += finish(2)
    # The table is gone that it was to read; what ended since is there, too.
    after = whole.collect()
    assert sorted(row.id for row in after) == sorted(ended)
    assert [row for row in sorted(after) if row.id in {each.id for each in before}] == before
    assert {row.queue for row in early.collect()} == {"second"}
    assert early.count() == 6
    ps.archive(spark, app, lake)
    assert whole.select("id").count() == len(ended)


def test_archiving_while_jobs_end_and_are_pruned_loses_none(
    spark: SparkSession, app: App, tmp_path: Path, finish: Callable[[int], list[int]]
) -> None:
    lake = tmp_path / "lake"
    ended: list[int] = []
    is_done = Event()

    def work() -> None:
        while not is_done.is_set():
            ended.extend(finish(50))
            prune(app.database, DAYS)

    worker = Thread(target=work)
    worker.start()
    try:
        for _ in range(2):
            counted = [row.id for row in ps.history(spark, app, lake, ["id"]).collect()]
            assert len(counted) == len(set(counted))
            ps.archive(spark, app, lake)
    finally:
        is_done.set()
        worker.join()
    ps.archive(spark, app, lake)
    assert ids(spark, app, lake) == sorted(ended)
    assert ids(spark, app, None) == []


def test_only_one_archive_runs_and_an_open_transaction_is_not_waited_for_longer_than_told(
    spark: SparkSession, app: App, tmp_path: Path, finish: Callable[[int], list[int]]
) -> None:
    lake = tmp_path / "lake"
    ended = finish(2)
    with app.database.connect() as connection:
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtext('penstock.archive'))")
            with pytest.raises(PenstockError, match="another archive of this database is running"):
                ps.archive(spark, app, lake)
        with connection.transaction():
            connection.execute("select count(*) from penstock.finished")
            held = ps.archive(spark, app, lake, wait=0.2)
            assert (held.rows, len(held.waits_for)) == (0, 1)
            assert ids(spark, app, lake) == sorted(ended)
    assert ps.archive(spark, app, lake).rows == len(ended)


def test_children_and_idempotency_keys_of_archived_jobs(spark: SparkSession, app: App, tmp_path: Path) -> None:
    queue = app.queue("q")

    @queue.task
    def t(n: int) -> int:
        return n

    parent = t.options(idempotency_key="once").enqueue(n=1)
    alone = t.enqueue(n=2)
    app.work(until_idle=True)
    waits = t.options(after=[t.options(delay=3600).enqueue(n=9), parent]).enqueue(n=3)
    ps.archive(spark, app, tmp_path / "lake")
    # The parent's end stayed: its child waits for the other one only.
    assert app.job(parent).state == "succeeded"
    assert str(parent) not in app.explain(waits).reason
    # A job that is in the lake is nowhere here: a child of it would wait for ever.
    with pytest.raises(InvalidInput, match=f"job {alone} is unknown, pruned or archived"):
        t.options(after=[alone]).enqueue(n=4)
    # Its key is still taken, also once the table of its job is gone.
    app.cancel(waits)
    ps.archive(spark, app, tmp_path / "lake")
    with app.database.connection() as connection:
        connection.execute("select setval('penstock.range_number', (select max(high) from penstock.job_table) - 1023)")
    for _ in range(2):
        prune(app.database, DAYS)
    with pytest.raises(NotFound):
        app.job(parent)
    assert t.options(idempotency_key="once").enqueue(n=5) == parent
    with app.database.connection() as connection:
        connection.execute("update penstock.job_table set keys_until = now()")
    prune(app.database, DAYS)
    assert t.options(idempotency_key="once").enqueue(n=5) != parent


def test_a_day_and_a_queue_are_read_from_their_folders_and_from_nothing_else(
    spark: SparkSession, app: App, tmp_path: Path, finish: Callable[[int], list[int]]
) -> None:
    lake = tmp_path / "lake"
    now = datetime.now(UTC)
    for days in (3, 2, 1):
        finish(2)
        with app.database.connection() as connection:
            connection.execute(
                "update penstock.finished set finished_at = %s where finished_at > %s - interval '12 hours'",
                (now - timedelta(days=days), now),
            )
    ps.archive(spark, app, lake)
    finish(2)
    day = (now - timedelta(days=2)).date()
    found = ps.history(spark, app, lake, queue="first", since=day, until=day + timedelta(days=1))
    rows, read = scanned(found)
    assert {(row.queue, row.finished_at.astimezone(UTC).date()) for row in rows} == {("first", day)}
    assert len(rows) == 2
    assert read == {"files": 1, "rows": 2}
    # Filters of Spark's own leave folders closed as well.
    own = ps.history(spark, app, lake, [*HISTORY, "day"]).where(f"queue = 'first' and day = date'{day}'")
    assert scanned(own)[1] == {"files": 1, "rows": 2}


def scanned(frame: Any) -> tuple[list[Row], dict[str, int]]:
    """The rows, and the files and rows that Spark read from Parquet for them; of a DataFrame not used before."""
    rows = frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    found = {"files": 0, "rows": 0}
    for scan in leaves(plan):
        metrics = scan.metrics()
        if metrics.contains("numFiles"):
            found["files"] += metrics.apply("numFiles").value()
            found["rows"] += metrics.apply("numOutputRows").value()
    return rows, found


def leaves(plan: Any) -> Iterator[Any]:
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan()
    children = plan.children()
    if children.isEmpty():
        yield plan
    for index in range(children.size()):
        yield from leaves(children.apply(index))


def test_what_cannot_be_is_refused_by_name(spark: SparkSession, app: App, tmp_path: Path) -> None:
    assert ps.history(spark, app, tmp_path / "nowhere").collect() == []
    assert ps.archive(spark, app, tmp_path / "lake").slices == []
    with pytest.raises(InvalidInput, match="lake: the path of a folder is needed"):
        ps.archive(spark, app, "")
    with pytest.raises(InvalidInput, match="lake: 'nonsense://a/b' cannot be opened"):
        ps.history(spark, app, "nonsense://a/b")
    with pytest.raises(InvalidInput, match="format: 'orc' is none of parquet, delta, iceberg"):
        ps.archive(spark, app, tmp_path / "lake", format="orc")
    with pytest.raises(PenstockError, match="cannot write delta to"):
        ps.archive(spark, app, tmp_path / "lake", format="delta")
    with pytest.raises(InvalidInput, match="columns: history has no column 'nonsense'"):
        ps.history(spark, app, None, ["nonsense"])
    app.queue("é" * 200)
    app.migrate()
    with pytest.raises(InvalidInput, match="too long for a folder"):
        ps.archive(spark, app, tmp_path / "lake")
