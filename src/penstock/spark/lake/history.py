"""`history`: every job that ended, whether it is in a database or in the lake, in one DataFrame.

All shards count: where one is away there would be only a part of the history, and that is refused.

Where a slice is read from is decided when the DataFrame is made, by the database: there, by the name of its table, for
as long as it has one, else from the files of its verified writing. An archive may finish later. Then the tasks that
miss the table ask the database for its writing and read its files instead, in place of the rows they would have read:
no job is met twice, and none is missing. Where database and lake do not know the same past, that is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from penstock.errors import InvalidInput, PenstockError
from penstock.shards.shard_urls import join_urls
from penstock.spark.data_source.options import checked_lake
from penstock.spark.data_source.penstock_source import register
from penstock.spark.lake.consistency import LakeComparison
from penstock.spark.lake.open_lake import Lake, open_lake
from penstock.spark.lake.unread import ASK_SECONDS, describe_known, read_known
from penstock.spark.tables.columns import HISTORY, MORE_HISTORY
from penstock.spark.tables.row_filter import RowFilter, read_instant
from penstock.storage.history.archive import read_lake_identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["history"]

log = logging.getLogger("penstock")


def history(
    spark: SparkSession,
    app: Any,
    lake: str | PathLike[str] | None = None,
    columns: Iterable[str] | None = None,
    *,
    queue: str | None = None,
    task: str | None = None,
    outcome: str | None = None,
    key: str | bytes | int | None = None,
    since: str | date | datetime | None = None,
    until: str | date | datetime | None = None,
    view: str | None = None,
    format: str = "parquet",  # noqa: A002
) -> DataFrame:
    """What ended, hot and cold, a row a job; the dead letters as failed. The lake may be left out, or
    be empty before the first archive; then only what is in the database is read.

    `columns` names those to read, `queue`, `task`, `outcome`, `key`, `since` and `until` which rows: PostgreSQL sends
    only those, and of the lake only the folders of those days, that queue and outcome are opened. Filters of Spark's
    own work as well; what they leave out has been read from PostgreSQL. `view` gives the DataFrame that name in SQL.
    """
    names = _check_columns(columns)
    row_filter = RowFilter(queue, task, outcome, None, key, read_instant("since", since), read_instant("until", until))
    register(spark)
    databases = app.databases
    lakes = {} if lake is None else _open_lakes(spark, databases, checked_lake(lake), format)
    # An archive may run meanwhile: `LakeComparison.compare` says why it is read in this order.
    listed = {number: target.list_writings() for number, target in lakes.items()}
    answers = databases.each(read_known, timeout=ASK_SECONDS)
    answers.all()
    if lake is None and (said := describe_known(answers.given)) is not None:
        log.warning("%s", said)
    reader = spark.read.format("penstock").options(
        url=join_urls(app.databases), table="finished", columns=",".join(names)
    )
    reader = reader.options(**row_filter.options())
    hot_slices: dict[int, list[int]] = {}
    frame: DataFrame | None = None
    folders: list[str] = []
    for number, (slices, writings) in answers.given.items():
        hot_slices[number] = list(slices)
        if number in lakes:
            comparison = LakeComparison.compare(lakes[number], listed[number], slices, writings)
            comparison.check()
            for said in comparison.describe_left_out():
                log.warning("%s%s", said, databases.named(number, " (shard {})"))
            folders += [each.folder for each in comparison.cold]
            reader = reader.options(lake=lakes[number].root, lake_format=format)
    if folders:
        # The folders of all shards lie side by side in one lake, so any of its objects reads them all.
        frame = _filter_rows(next(iter(lakes.values())).read(folders), row_filter).select(*names)
    elif not any(writings for _, writings in answers):
        _refuse_other_system(list(lakes.values()))
    rows = reader.options(hot_slices=msgspec.json.encode(hot_slices).decode()).load()
    found = rows if frame is None else rows.unionByName(frame)
    if view is not None:
        try:
            found.createOrReplaceTempView(view)
        except PySparkException:
            raise InvalidInput("view", f"{view!r:.200} is no name for a view; give one like 'history'") from None
    return found


def _open_lakes(spark: SparkSession, databases: Any, path: str, kind: str) -> dict[int, Lake]:
    """What the database of each shard has in the lake."""
    identities = databases.each(read_lake_identity, timeout=ASK_SECONDS)
    identities.all()
    return {number: open_lake(spark, path, number, identity, kind) for number, identity in identities.given.items()}


def _refuse_other_system(targets: Sequence[Lake]) -> None:
    """Raise where a lake has the history of others, and these databases never archived."""
    strangers = set[str]().union(*(target.list_other_databases() for target in targets))
    for target in targets:
        strangers &= set(target.list_other_databases())
    if strangers:
        raise PenstockError(
            f"the lake {targets[0].root} holds the history of another system (of database {min(strangers)}), and none "
            "of this one's: give the lake that this one archives to, or archive to this one first, or give no lake"
        )


def _filter_rows(rows: DataFrame, row_filter: RowFilter) -> DataFrame:
    """The rows of the lake that are asked for. A filter on the day leaves folders closed; it follows from the times."""
    for name in ("queue", "task", "outcome"):
        value = getattr(row_filter, name)
        if value is not None:
            rows = rows.where(f.col(name) == f.lit(value))
    if isinstance(row_filter.key, bytes):
        rows = rows.where(f.col("key_bytes") == f.lit(row_filter.key))
    elif row_filter.key is not None:
        # A text key may look like the \x… that a key of other bytes is shown as: those rows have `key_bytes`.
        rows = rows.where((f.col("key") == f.lit(row_filter.key)) & f.col("key_bytes").isNull())
    if row_filter.since is not None:
        rows = rows.where(
            (f.col("day") >= f.lit(row_filter.since.date())) & (f.col("finished_at") >= f.lit(row_filter.since))
        )
    if row_filter.until is not None:
        last = (row_filter.until - timedelta(microseconds=1)).date()
        rows = rows.where((f.col("day") <= f.lit(last)) & (f.col("finished_at") < f.lit(row_filter.until)))
    return rows


def _check_columns(columns: object) -> list[str]:
    if columns is None:
        return list(HISTORY)
    given = [columns] if isinstance(columns, str) or not isinstance(columns, Iterable) else list(columns)
    names = [name for name in given if isinstance(name, str)]
    if len(names) < len(given):
        raise InvalidInput("columns", f"names are needed, not {columns!r:.200}")
    known = {**HISTORY, **MORE_HISTORY}
    for name in names:
        if name not in known:
            raise InvalidInput("columns", f"history has no column {name!r}; it has {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise InvalidInput("columns", "name at least one column, and each once")
    return names
