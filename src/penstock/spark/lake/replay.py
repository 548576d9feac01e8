"""`replay`: jobs of the past, chosen by SQL, are enqueued again as a load.

Each becomes a new job with the same task, arguments, key, priority and tenant; those of a key keep the order they were
enqueued in. A load has a name and is enqueued once, so a replay that is run again under its name does nothing: also
where the jobs it brought have ended meanwhile, and would be chosen too. A queue is loaded at a time; where several are
chosen, each has a load of its own, `name/queue`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from penstock.errors import InvalidInput
from penstock.loading.declared_tasks import check_tasks
from penstock.model.checks import checked_name
from penstock.spark.data_source.error_codes import decode_errors
from penstock.spark.lake.history import history
from penstock.spark.loading.load import Loaded
from penstock.spark.loading.load import load as load_rows
from penstock.spark.tables.columns import HISTORY
from penstock.storage.loads.loads import read_loads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from penstock.model.short_repr import ShortRepr

__all__ = ["Chosen", "Replayed", "replay"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """How many jobs of a task were chosen."""

    queue: str
    task: str
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Replayed(ShortRepr):
    """What was chosen, by queue and task, and the loads it became; none of them in a dry run."""

    jobs: int
    chosen: list[Chosen]
    loads: list[Loaded] = field(default_factory=list)


def replay(
    spark: SparkSession,
    app: Any,
    lake: str | PathLike[str] | None,
    where: str,
    load: str,
    *,
    dry_run: bool = False,
    format: str = "parquet",  # noqa: A002
    on_progress: Callable[[str], None] = lambda _: None,
) -> Replayed:
    """Enqueue jobs of the past again: those for which `where`, Spark SQL over the columns of history, is true.

    They become the load `load`, or one for each queue where there are several. With `dry_run` they are only counted.
    A task that the app does not declare is refused, where it has tasks of that queue.
    """
    name = checked_name("load", load)
    rows = _filter_rows(history(spark, app, lake, [*HISTORY, "priority", "key_bytes"], format=format), where)
    on_progress("choosing")
    with decode_errors():
        counted = rows.groupBy("queue", "task").count().orderBy("queue", "task").collect()
    chosen = [Chosen(row["queue"], row["task"], row["count"]) for row in counted]
    queues = sorted({each.queue for each in chosen})
    loads = []
    if not dry_run:
        for queue in queues:
            check_tasks(app.tasks.get(queue, {}), queue, [each.task for each in chosen if each.queue == queue])
        for queue in queues:
            on_progress(f"loading what was chosen of {queue}")
            named = _name_load(app, name, queue, is_alone=len(queues) == 1)
            loads.append(load_rows(_select_jobs(rows, queue), app, queue, load=named))
    return Replayed(jobs=sum(each.jobs for each in chosen), chosen=chosen, loads=loads)


def _filter_rows(rows: DataFrame, where: object) -> DataFrame:
    if not isinstance(where, str) or not where.strip():
        raise InvalidInput("where", "a condition is needed, such as \"outcome = 'failed' and queue = 'emails'\"")
    try:
        return rows.where(where)
    except PySparkException as error:
        said = str(error).strip().splitlines()[0][:300]
        raise InvalidInput("where", f"Spark cannot read it: {said}") from None


def _select_jobs(rows: DataFrame, queue: str) -> DataFrame:
    """Rows as a load takes them, in the order they started in, which is that of each key."""
    key = f.coalesce(f.col("key_bytes"), f.col("key").cast("binary")).alias("key")
    order = f.coalesce("started_at", "enqueued_at"), f.col("id")
    return rows.where(f.col("queue") == queue).orderBy(*order).select("task", "args", key, "priority", "tenant")


def _name_load(app: Any, name: str, queue: str, *, is_alone: bool) -> str:
    """The name of a queue's load: as it was called before, whatever else is chosen by now."""
    long = f"{name}/{queue}"
    for known in (name, long):
        found = app.databases.each(lambda connection: read_loads(connection, [known]))  # noqa: B023
        if any(each.queue == queue for loads in found for each in loads):
            return known
    return name if is_alone else long
