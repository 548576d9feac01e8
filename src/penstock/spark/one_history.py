"""`history`: every job that ended, whether it is in a database or in the lake, in one DataFrame.

All shards count: where one is away there would be only a part of the history, and that is refused.

Where a slice is read from is decided when the DataFrame is made: from the lake if its manifest lists it, else from the
database, where its table is read by name. An archive may finish later. Then the tasks that miss the table find the
slice in the manifest and read its files instead, in place of the rows they would have read: no job is met twice, and
none is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as f

from penstock.errors import InvalidJob
from penstock.spark.archiving import opened_lake
from penstock.spark.choice import Choice, instant
from penstock.spark.reaching import urls_of
from penstock.spark.source import register
from penstock.spark.table_columns import HISTORY, MORE_HISTORY
from penstock.spark.tables import Place
from penstock.storage.archive import read_identity, read_slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["history"]

ASK_SECONDS = 10.0


def history(
    spark: SparkSession,
    app: Any,
    lake: str | PathLike[str] | None = None,
    columns: Iterable[str] | None = None,
    *,
    queue: str | None = None,
    task: str | None = None,
    outcome: str | None = None,
    key: str | None = None,
    since: str | date | datetime | None = None,
    until: str | date | datetime | None = None,
    view: str | None = None,
    format: str = "parquet",  # noqa: A002
) -> DataFrame:
    """What ended, hot and cold, a row a job; the dead letters as failed. The lake may be empty or absent.

    `columns` names those to read, `queue`, `task`, `outcome`, `key`, `since` and `until` which rows: PostgreSQL sends
    only those, and of the lake only the folders of those days, that queue and outcome are opened. Filters of Spark's
    own work as well; what they leave out has been read from PostgreSQL. `view` gives the DataFrame that name in SQL.
    """
    names = _checked(columns)
    choice = Choice(queue, task, outcome, None, key, instant("since", since), instant("until", until))
    register(spark)
    shards = app.databases
    # In this order: a slice that leaves a database after the first look is in the manifest at the second.
    answers = shards.each(lambda connection: (read_slices(connection), read_identity(connection)), timeout=ASK_SECONDS)
    answers.all()
    reader = spark.read.format("penstock").options(url=urls_of(app), table="finished", columns=",".join(names))
    reader = reader.options(**choice.options())
    places: dict[int, Place] = {}
    frame: DataFrame | None = None
    folders: list[str] = []
    for number, (slices, identity) in answers.given.items():
        cold: set[int] = set()
        if lake is not None:
            target = opened_lake(spark, lake, number, identity, format)
            entries = target.entries()
            cold = {entry.slice for entry in entries}
            folders += [entry.folder for entry in entries if entry.folder is not None]
            reader = reader.options(lake=target.root, lake_format=format)
        hot = tuple(each for each in slices if each not in cold)
        places[number] = Place(identity, hot, tuple(sorted(cold)))
    if folders:
        # The folders of all shards lie side by side.
        frame = _chosen(target.read(folders), choice).select(*names)
    rows = reader.options(places=msgspec.json.encode(places).decode()).load()
    found = rows if frame is None else rows.unionByName(frame)
    if view is not None:
        found.createOrReplaceTempView(view)
    return found


def _chosen(rows: DataFrame, choice: Choice) -> DataFrame:
    """The rows of the lake that are asked for. A filter on the day leaves folders closed; it follows from the times."""
    for name in ("queue", "task", "outcome", "key"):
        value = getattr(choice, name)
        if value is not None:
            rows = rows.where(f.col(name) == f.lit(value))
    if choice.since is not None:
        rows = rows.where((f.col("day") >= f.lit(choice.since.date())) & (f.col("finished_at") >= f.lit(choice.since)))
    if choice.until is not None:
        last = (choice.until - timedelta(microseconds=1)).date()
        rows = rows.where((f.col("day") <= f.lit(last)) & (f.col("finished_at") < f.lit(choice.until)))
    return rows


def _checked(columns: Iterable[str] | None) -> list[str]:
    if columns is None:
        return list(HISTORY)
    names = [columns] if isinstance(columns, str) else list(columns)
    known = {**HISTORY, **MORE_HISTORY}
    for name in names:
        if name not in known:
            raise InvalidJob("columns", f"history has no column {name!r}; it has {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise InvalidJob("columns", "name at least one column, and each once")
    return names
