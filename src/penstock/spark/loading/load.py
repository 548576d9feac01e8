"""`ps.load`: the rows of a DataFrame become jobs of a queue, all at the same moment, and once for each name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as f

from penstock.errors import InvalidInput, PenstockError
from penstock.loading.declared_tasks import check_tasks, find_declared_key, find_problems, raise_for_columns
from penstock.shards.decided_loads import publish_decided
from penstock.shards.load_commit import MapChanged
from penstock.shards.publishing import find_published
from penstock.shards.shard_urls import join_urls
from penstock.spark.data_source.error_codes import decode_errors
from penstock.spark.data_source.penstock_source import register
from penstock.spark.key_partition import partition_of
from penstock.spark.loading.load_plan import DECLARED, RUN, LoadPlan, plan_load

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.task.definition import TaskDefinition

__all__ = ["Loaded", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a load brought in: rows that are jobs now, those of them whose idempotency key was known, and bad rows that
    were put aside. `is_new` is False where it had been loaded before, and nothing was done."""

    name: str
    queue: str
    rows: int
    duplicates: int
    bad_rows: int
    published_at: datetime
    is_new: bool


def load(
    df: DataFrame,
    app: Any,
    queue: str,
    task: str | None = None,
    *,
    key: str | None = None,
    order_by: str | Sequence[str] | None = None,
    load: str | None = None,
    connections: int = 4,
    bad_rows: str = "fail",
) -> Loaded:
    """Enqueue the rows of a DataFrame: visible all at once, and once for each name `load`, however often it runs.

    Columns become arguments, and the column `key` names is the jobs' key (where it is not given, the argument that the
    task was declared with, if there is such a column); columns called task, args, key, priority, run_at,
    idempotency_key and tenant set the jobs' options. With `order_by` the rows are shuffled and sorted, so that the jobs
    of a key have that order; without it, the order is Spark's partitions, then their rows. At most `connections` tasks
    write at a time. A bad row ends the load, unless `bad_rows` names a folder to put them in. Where the app declares
    tasks of the queue, the task has to be one of them, and the columns have to fit its arguments: otherwise the load is
    refused before it starts.
    """
    spark = df.sparkSession
    register(spark)
    app.create_embedded()
    options = {
        "url": join_urls(app.databases),
        "queue": queue,
        "connections": str(connections),
        "bad_rows": str(bad_rows),
    }
    declared: Mapping[str, TaskDefinition] = app.tasks.get(queue, {})
    if key is None:
        key = find_declared_key(declared, task, df.columns)
    options |= {name: value for name, value in (("task", task), ("key", key), ("load", load)) if value is not None}
    plan = plan_load(options, df.schema, False, is_stream=False)
    options |= {"load": plan.name, RUN: secrets.token_hex(16)}
    columns = [order_by] if isinstance(order_by, str) else list(order_by or ())
    if plan.published is None:
        with app.sender.trace_load(queue) as trace:
            _write(df, columns, options | _check_declared(declared, plan) | trace, plan)
    else:
        publish_decided(app.databases, plan.name)
    published = find_published(app.databases, plan.name, queue, 0, is_stream=False)
    if published is None:
        raise PenstockError(f"load {plan.name!r} is not there though Spark said that it was written; load it again")
    return Loaded(
        name=plan.name,
        queue=queue,
        rows=published.rows,
        duplicates=published.duplicates,
        bad_rows=published.bad_rows,
        published_at=published.published_at,
        is_new=published.origin == options[RUN],
    )


def _write(df: DataFrame, order_by: list[str], options: dict[str, str], plan: LoadPlan) -> None:
    """Stage and publish; again where the queue's keys went to other shards in between."""
    for is_last in (False, False, True):
        rows = (
            _shuffle_and_sort(df, order_by, plan.columns.key or "key", len(plan.destination.partition_ids))
            if order_by
            else df
        )
        try:
            with decode_errors():
                rows.write.format("penstock").options(**options).mode("append").save()
            return
        except MapChanged:
            if is_last:
                raise
            plan = plan_load(options, df.schema, False, is_stream=False)


def _check_declared(declared: Mapping[str, TaskDefinition], plan: LoadPlan) -> dict[str, str]:
    """Refuse what the app's declarations know to be wrong; the option by which rows that name a task are checked."""
    if not declared:
        return {}
    columns = plan.columns
    if columns.task is None:
        problems = find_problems(declared, columns.schema, columns.key)
        return {DECLARED: msgspec.json.encode(problems).decode()}
    check_tasks(declared, plan.destination.queue, [columns.task])
    raise_for_columns(declared[columns.task], columns.schema, columns.key)
    return {}


def _shuffle_and_sort(df: DataFrame, order_by: list[str], key: str, partitions: int) -> DataFrame:
    """The rows of each partition of the queue in one Spark partition, sorted."""
    for column in order_by:
        if column not in df.columns:
            raise InvalidInput("order_by", f"there is no column {column!r}; there are {', '.join(sorted(df.columns))}")
    columns = [_column(df, column).asc_nulls_last() for column in order_by]
    if key not in df.columns:
        return df.repartition(1).sortWithinPartitions(*columns)
    # Rows without a key are sorted with partition 0: any place will do, since no order is promised among them.
    number = f.coalesce(partition_of(_column(df, key), partitions), f.lit(0))
    return df.repartitionById(partitions, number).sortWithinPartitions(*columns)


def _column(df: DataFrame, name: str) -> Column:
    """A column by its name, whatever that holds."""
    alike = [each for each in df.columns if each.lower() == name.lower()]
    if len(alike) > 1 and df.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        raise InvalidInput(name, f"Spark cannot tell {' and '.join(map(repr, alike))} apart; rename one")
    return f.col("`" + name.replace("`", "``") + "`")
