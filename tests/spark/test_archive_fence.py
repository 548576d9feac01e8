"""An archive that lost its duty, a database that was restored, a wrong lake: no job is lost or doubled (G8).

Backups are copies of the database, made while nobody uses it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.servers import created_database

import penstock.spark as ps
from penstock import App, InvalidInput, PenstockError, Task
from penstock.cli import analyse
from penstock.spark.lake import open_lake
from penstock.spark.lake.consistency import LakeComparison
from penstock.spark.lake.parquet_lake import ParquetLake
from penstock.spark.lake.table_lake import TableLake
from penstock.spark.lake.unread import describe_unread
from penstock.storage.history import archive as storage_archive
from penstock.storage.history.archive import Archiving

END_GUARD = """
select pg_terminate_backend(pid, 10000) from pg_locks
 where locktype = 'advisory' and granted
   and (classid::bigint << 32 | objid::bigint) = hashtext('penstock.archive')::bigint
   and database = (select oid from pg_database where datname = current_database())
"""


class Killed(BaseException):
    """What no code catches."""


def ids(spark: SparkSession, app: App, lake: Path | str | None, **options: Any) -> list[int]:
    """The ids that one history has, in order; a repeated one shows."""
    return sorted(row.id for row in ps.history(spark, app, lake, ["id"], **options).collect())


def done(n: int) -> int:
    return n


tasks: WeakKeyDictionary[App, Task[..., Any]] = WeakKeyDictionary()


def finish(app: App, count: int) -> list[int]:
    """So many jobs that failed once and then ended well."""
    if app not in tasks:
        tasks[app] = app.queue("q").task(name="t")(done)
    task = tasks[app]
    found = list(task.enqueue_many([{"n": n} for n in range(count)]))
    app.work(until_idle=True)
    with app.database.connection() as connection:
        connection.execute(
            "insert into penstock.failure (job_id, attempt, error) select unnest(%s::bigint[]), 1, 'once'", (found,)
        )
    return found


def failures(app: App) -> list[int]:
    with app.database.connection() as connection:
        return [row[0] for row in connection.execute("select job_id from penstock.failure order by job_id")]


@contextmanager
def killed_at(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever has come so far dies there."""
    real = getattr(owner, name)

    def dying(*arguments: Any) -> None:
        real(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises(Killed):
            yield


# Where an archive stands when its connection is lost and another one runs.
STEPS: list[tuple[Any, str, bool]] = [
    (Archiving, "take_duty", True),
    (Archiving, "take", True),
    (Archiving, "set_apart", True),
    (Archiving, "begin_writing", True),
    (ParquetLake, "write", False),
    (ParquetLake, "write", True),
    (Archiving, "let_go", False),
    (Archiving, "let_go", True),
]


def test_an_archive_that_was_replaced_at_any_step_loses_and_doubles_nothing_g8(
    spark: SparkSession, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    ended: list[int] = []
    for owner, name, is_after in STEPS:
        point = f"{'after' if is_after else 'before'} {name}"
        ended += finish(app, 5)
        real = getattr(owner, name)
        patched = pytest.MonkeyPatch()

        def replaced(
            *arguments: Any, real: Any = real, is_after: bool = is_after, patched: pytest.MonkeyPatch = patched
        ) -> Any:
            patched.undo()
            answer = real(*arguments) if is_after else None
            with app.database.connect() as connection:
                assert connection.execute(END_GUARD).fetchall() == [(True,)]
            ps.archive(spark, app, lake)
            return answer if is_after else real(*arguments)

        patched.setattr(owner, name, replaced)
        with pytest.raises(PenstockError, match="another archive of this database has taken over"):
            ps.archive(spark, app, lake)
        assert ids(spark, app, lake) == ended, point
        assert ids(spark, app, None) == [], point
    ps.archive(spark, app, lake)
    assert ids(spark, app, lake) == ended
    assert_only_what_counts(lake, app)


def assert_only_what_counts(lake: Path, app: App) -> None:
    """Folders and manifest are those of the writings that were verified."""
    with app.database.connection() as connection:
        rows = connection.execute("select folder, identity from penstock.writing where state = 'verified'").fetchall()
    assert {f"history/{path.name}" for path in (lake / "history").iterdir()} == {row[0] for row in rows}
    assert {path.stem[-32:] for path in lake.glob("_penstock/*/*.json")} == {row[1].hex for row in rows}


def test_in_the_middle_of_another_archive_one_that_was_replaced_can_do_nothing_g8(
    spark: SparkSession, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    ended = finish(app, 5)
    write, let_go = ParquetLake.write, Archiving.let_go
    runs: list[Archiving] = []
    said: list[str] = []

    def letting_go(self: Archiving, *arguments: Any) -> Any:
        runs.append(self)
        if len(runs) == 1:
            # The first has written. Its connection is lost, and a second begins; see below.
            with app.database.connect() as connection:
                connection.execute(END_GUARD)
            first_arguments.extend(arguments)
            ps.archive(spark, app, lake)
        return let_go(self, *arguments)

    def writing(self: ParquetLake, *arguments: Any) -> Any:
        if runs:
            # The second has cleaned up and not yet written: the first goes on.
            with pytest.raises(PenstockError, match="has taken over") as error:
                let_go(runs[0], *first_arguments)
            said.append(str(error.value))
        return write(self, *arguments)

    first_arguments: list[Any] = []
    monkeypatch.setattr(Archiving, "let_go", letting_go)
    monkeypatch.setattr(ParquetLake, "write", writing)
    with pytest.raises(PenstockError, match="has taken over"):
        ps.archive(spark, app, lake)
    assert len(said) == 1
    assert ids(spark, app, lake) == ended
    assert_only_what_counts(lake, app)


# What an archive has just done when the backup is made.
MOMENTS: list[tuple[Any, str] | None] = [
    None,
    (Archiving, "take"),
    (Archiving, "begin_writing"),
    (ParquetLake, "write"),
    (Archiving, "let_go"),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: "before" if moment is None else moment[1])
def test_after_a_restore_each_row_is_read_once_or_an_error_says_what_to_do_g8(
    spark: SparkSession,
    database_url: str,
    server_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: tuple[Any, str] | None,
) -> None:
    lake = tmp_path / "lake"
    with App(database_url) as app:
        old = finish(app, 4)
        ps.archive(spark, app, lake)
        open_then = finish(app, 3)
        if moment is not None:
            with killed_at(*moment, monkeypatch):
                ps.archive(spark, app, lake)
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with created_database(server_url, str(name)) as backup:
        with App(database_url) as app:
            # Goes with the disk: in the lake it is of a past that the backup does not have.
            lost = finish(app, 6)
            ps.archive(spark, app, lake)
            assert ids(spark, app, lake) == old + open_then + lost
        files = sorted(lake.rglob("*.parquet"))
        with App(backup) as app:
            # The same ids, given again.
            assert (now := finish(app, 2)) == lost[:2]
            kept = failures(app)
            for act in (ps.history, ps.archive):
                with pytest.raises(PenstockError, match=r"restored from a backup .* reconcile=True"):
                    act(spark, app, lake)
            # Nothing was moved, removed or forgotten.
            assert sorted(lake.rglob("*.parquet")) == files
            assert failures(app) == kept
            assert set(now) <= set(kept)
            ps.archive(spark, app, lake, reconcile=True)
            assert ids(spark, app, lake) == old + open_then + now
            assert failures(app) == []
            # The lost past is still in the lake, for whoever wants it.
            rows = spark.read.option("basePath", str(lake / "history")).parquet(str(lake / "history")).select("id")
            assert set(lost) <= {row.id for row in rows.collect()}
            assert ps.archive(spark, app, lake).rows == 0
            assert ids(spark, app, lake) == old + open_then + now


def test_a_wrong_lake_a_missing_file_and_a_lake_of_others_are_told_g8(
    spark: SparkSession, app: App, shard_urls: list[str], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    ended = finish(app, 4)
    assert ps.archive(spark, app, lake).rows == 4
    # Another folder.
    for act in (ps.history, ps.archive):
        with pytest.raises(
            PenstockError, match=rf"4 jobs of this database, slice 1, are in the lake .*{lake}, and .*els"
        ):
            act(spark, app, tmp_path / "else")
    assert not (tmp_path / "else").exists()
    # The same one, elsewhere.
    moved = tmp_path / "moved"
    lake.rename(moved)
    assert ids(spark, app, moved) == ended
    # A file is gone; one is cut short.
    for damage in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-8])):
        shutil.copytree(moved, lake)
        damage(next(lake.rglob("*.parquet")))
        for act in (ps.history, ps.archive):
            with pytest.raises(PenstockError, match=r"of slice 1 in the lake .* files are missing or damaged"):
                act(spark, app, lake)
        shutil.rmtree(lake)
    shutil.copytree(moved, lake)
    next(lake.glob("_penstock/*/lake")).write_text("nonsense")
    with pytest.raises(
        PenstockError, match=r"_penstock/.*/lake of the lake cannot be read or written: .*Checksum error"
    ):
        ps.history(spark, app, lake)
    # A lake of another system.
    with App(shard_urls[0]) as other:
        finish(other, 2)
        with pytest.raises(PenstockError, match="holds the history of another system"):
            ps.history(spark, other, moved)
        ps.archive(spark, other, moved)
        assert len(ids(spark, other, moved)) == 2
    assert ids(spark, app, moved) == ended
    # Given up, history goes on without it; come back, it is read again.
    (moved / "history").rename(tmp_path / "away")
    ps.archive(spark, app, moved, reconcile=True)
    assert ids(spark, app, moved) == []
    (tmp_path / "away").rename(moved / "history")
    assert ids(spark, app, moved) == ended


def test_what_a_reconcile_gave_up_is_told_by_each_history_g8(
    spark: SparkSession, app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(lake: Path) -> tuple[list[int], list[str]]:
        caplog.clear()
        found = ids(spark, app, lake)
        return found, [record.getMessage() for record in caplog.records if record.name == "penstock"]

    lake = tmp_path / "lake"
    lost = finish(app, 4)
    ps.archive(spark, app, lake)
    kept = finish(app, 2)
    assert told(lake) == (lost + kept, [])
    file = next(lake.rglob("*.parquet"))
    whole = file.read_bytes()
    file.unlink()
    ps.archive(spark, app, lake, reconcile=True)
    for content in (None, whole[:-8]):
        # Gone; back again, and damaged.
        if content is not None:
            file.write_bytes(content)
        for _ in range(2):
            found, (said,) = told(lake)
            assert found == kept
            assert said.startswith("slice 1 with 4 jobs was given up by a reconcile and is not read")
    file.write_bytes(whole)
    assert told(lake) == (lost + kept, [])


@pytest.mark.parametrize(
    ("field", "arguments", "options"),
    [
        ("lake", ("",), {}),
        ("lake", (" ",), {"format": "delta"}),
        ("lake", (None,), {}),
        ("lake", (7,), {}),
        ("wait", ("lake",), {"wait": "soon"}),
        ("wait", ("lake",), {"wait": -1}),
        ("wait", ("lake",), {"wait": True}),
        ("reconcile", ("lake",), {"reconcile": "no"}),
        ("reconcile", ("lake",), {"reconcile": 1}),
        ("format", ("lake",), {"format": "csv"}),
    ],
)
def test_an_archive_refuses_a_wrong_argument_by_its_name(
    spark: SparkSession, app: App, field: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as error:
        ps.archive(spark, app, *arguments, **options)
    assert error.value.field == field


@pytest.mark.parametrize("nothing", [None, "spark", 3])
def test_what_is_no_session_is_refused_by_its_name(app: App, nothing: Any) -> None:
    for act in (ps.archive, ps.history):
        with pytest.raises(InvalidInput, match=r"^spark: a SparkSession is needed"):
            act(nothing, app, "lake")


def test_half_of_a_history_is_never_given_in_silence(
    spark: SparkSession,
    app: App,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archived = finish(app, 3)
    assert describe_unread(app.databases) is None
    ps.archive(spark, app, tmp_path / "lake")
    here = finish(app, 2)
    for wrong in (tmp_path / "lak", tmp_path / "lake" / "history"):
        with pytest.raises(PenstockError, match=rf"3 jobs .* are in the lake .*{tmp_path}/lake, and .*{wrong} is ano"):
            ps.history(spark, app, wrong)
    caplog.clear()
    assert ids(spark, app, tmp_path / "lake") == archived + here
    assert caplog.messages == []
    assert ids(spark, app, None) == here
    [said] = caplog.messages
    assert f"3 jobs that ended are in the lake file:{tmp_path}/lake and left out here" in said
    analyse._check_lake(app, str(tmp_path / "lake"))
    assert capsys.readouterr().err == ""
    analyse._check_lake(app, None)
    assert capsys.readouterr().err == f"warning: {said}\n"


def test_a_slice_does_not_come_to_lie_in_two_lakes_unnoticed_g8(
    spark: SparkSession, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ended = finish(app, 3)
    with killed_at(ParquetLake, "write", monkeypatch):
        ps.archive(spark, app, first)
    with pytest.raises(PenstockError, match=rf"an archive to .*{first} was killed while it wrote slice 1"):
        ps.archive(spark, app, second)
    assert ids(spark, app, first) == ended
    ps.archive(spark, app, first)
    assert_only_what_counts(first, app)
    # Verified in one lake, and not yet dropped.
    ended += finish(app, 3)
    with killed_at(storage_archive, "verify_writing", monkeypatch):
        ps.archive(spark, app, first)
    with pytest.raises(PenstockError, match="is another one"):
        ps.archive(spark, app, second)
    assert ps.archive(spark, app, first).rows == 3
    assert ids(spark, app, first) == ended
    # Whoever means it says so.
    finish(app, 2)
    with killed_at(ParquetLake, "write", monkeypatch):
        ps.archive(spark, app, first)
    assert ps.archive(spark, app, second, reconcile=True).rows == 2
    assert len(ids(spark, app, second)) == 2


@pytest.mark.parametrize("is_first", [True, False], ids=["the first archive", "a later one"])
def test_an_archive_between_two_looks_is_not_taken_for_a_lost_past_g8(
    spark: SparkSession, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    lake = tmp_path / "lake"
    ended = finish(app, 2)
    if not is_first:
        ps.archive(spark, app, lake)
        ended += finish(app, 3)
    # History has looked into the database, and now the whole of an archive takes place.
    compare = LakeComparison.compare

    def archive_first(*arguments: Any) -> LakeComparison:
        monkeypatch.undo()
        ps.archive(spark, app, lake)
        return compare(*arguments)

    monkeypatch.setattr(LakeComparison, "compare", archive_first)
    assert ids(spark, app, lake) == ended


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A table that is neither of Delta nor of Iceberg, which have no jars here: rows are deleted in another way."""

    def delete(self: TableLake, name: str) -> None:
        shutil.rmtree(tmp_path / "table" / f"slice={name}")
        spark.catalog.clearCache()

    monkeypatch.setattr(open_lake, "FORMATS", ("orc",))
    monkeypatch.setattr(TableLake, "_delete", delete)
    return str(tmp_path / "table"), "orc"


def test_rows_in_a_table_do_not_make_a_slice_archived_g8(
    spark: SparkSession, app: App, table: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kind = table
    ended = finish(app, 5)
    append = TableLake._append

    def append_some(self: TableLake, rows: DataFrame) -> None:
        append(self, rows.where("id % 2 = 0"))

    with monkeypatch.context() as patched:
        patched.setattr(TableLake, "_append", append_some)
        with pytest.raises(PenstockError, match="nothing was dropped"):
            ps.archive(spark, app, path, kind)
    assert ids(spark, app, path, format=kind) == ended
    with killed_at(TableLake, "write", monkeypatch):
        ps.archive(spark, app, path, kind)
    assert ids(spark, app, path, format=kind) == ended
    assert ps.archive(spark, app, path, kind).rows == 5
    assert ids(spark, app, None) == []
    assert ids(spark, app, path, format=kind) == ended
    # Of what was begun nothing is left.
    assert sorted(row.id for row in spark.read.orc(path).collect()) == ended
    assert ps.archive(spark, app, path, kind).rows == 0
    with pytest.raises(PenstockError, match="is another one"):
        ps.history(spark, app, f"{path}2", format=kind)
    shutil.rmtree(next(Path(path).glob("slice=*")))
    with pytest.raises(PenstockError, match=r"of slice 1 in the lake .* are missing or damaged"):
        ps.history(spark, app, path, format=kind)
