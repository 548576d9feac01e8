"""`ps.process`: the jobs of a queue run as Arrow batches on Spark's executors.

The driver starts rounds of executor workers, and does upkeep meanwhile, as any worker does.

    driver     round ──► worker, worker, worker … ──► round …
               upkeep    claim ► handler ► settle and claim ► …
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import uuid4

from penstock.errors import InvalidInput
from penstock.model.checks import checked_count, checked_name, checked_seconds
from penstock.shards.databases import Databases
from penstock.spark.claiming.known_tasks import KnownTasks
from penstock.spark.processing.batch_run import Handler
from penstock.spark.processing.rounds import Rounds
from penstock.spark.processing.work_plan import WorkPlan
from penstock.storage.catalogue.queues import QueueEntry, find_queue
from penstock.task.definition import TaskDefinition, is_async_function
from penstock.upkeep import SharedUpkeep, Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Processed", "process"]

MOST_SLOTS = 10_000
MOST_JOBS_A_BATCH = 100_000


class ProcessingApp(Protocol):
    """An app, as far as processing uses it."""

    @property
    def databases(self) -> Databases: ...
    @property
    def tasks(self) -> dict[str, dict[str, TaskDefinition]]: ...
    @property
    def lease_seconds(self) -> float: ...
    @property
    def retention(self) -> dict[str, float]: ...
    def create_embedded(self) -> None: ...


class Processed(NamedTuple):
    """What came of one call: attempts by their end, the jobs of dead workers that were rescued meanwhile, and attempts
    that ended when another worker had their job already. What a killed executor worker had settled before is not
    counted here.
    """

    succeeded: int
    retried: int
    failed: int
    rescued: int
    lost: int


def process(
    spark: SparkSession,
    app: ProcessingApp,
    queue: str,
    handler: Handler,
    *,
    until_idle: bool = True,
    tasks: Iterable[str] | None = None,
    batch_size: int | None = None,
    slots: int | None = None,
    budget: float = 60.0,
    stop: threading.Event | None = None,
) -> Processed:
    """Run a queue's jobs on the executors: `handler` is given Arrow batches, and gives an outcome for each row.

    It is called with jobs of the given `tasks`, or of any, and says `ps.Ok(result)`, `ps.RetryAfter(seconds,
    error)` or `ps.Dead(reason)` of each, or None where all went well; anything else ends the run with
    `InvalidInput`, and the jobs of that batch are as they were. It is called with at most `batch_size` of them, or
    else with few at first and with more, up to 4,096, while it is quick. `slots` tasks of Spark run at once, one a
    core unless told otherwise; each is started anew after `budget` seconds. Returns when nothing is left to do or,
    with `until_idle=False`, once `stop` is set or the job of Spark is cancelled. A shard that is away does not keep
    it from the jobs of the others; with `until_idle`, when these are done, `PartitionUnavailable` names it.
    """
    named_tasks = _check_arguments(handler, tasks, batch_size, budget)
    app.create_embedded()
    databases = app.databases
    entry = databases.read(lambda connection: find_queue(connection, checked_name("queue", queue)))
    plan = WorkPlan(
        urls={},
        drivers={},
        run=f"spark/{uuid4().hex[:8]}/",
        slots=_count_slots(spark, slots, entry),
        queue_id=entry.id,
        is_owned=entry.is_owned,
        handler=handler,
        tasks=KnownTasks(entry.name, app.tasks.get(entry.name, {}), named_tasks),
        batch_size=batch_size,
        lease_seconds=app.lease_seconds,
        until_idle=until_idle,
        budget_seconds=budget,
    )
    rounds = Rounds(spark, databases, entry.name, plan, stop or threading.Event())
    rescued: list[int] = []
    upkeeps: list[SharedUpkeep | Upkeep] = [
        SharedUpkeep(databases),
        *(Upkeep(database, app.retention, rescued.append) for database in databases),
    ]
    for upkeep in upkeeps:
        upkeep.start()
    try:
        rounds.run()
    finally:
        rounds.remove_workers()
        for upkeep in upkeeps:
            upkeep.stop()
    counts = rounds.counts
    return Processed(counts["succeeded"], counts["retry"], counts["failed"], sum(rescued), counts["lost"])


def _check_arguments(handler: object, tasks: object, batch_size: object, budget: object) -> list[str] | None:
    if not callable(handler):
        raise InvalidInput("handler", f"a function of a batch is needed, not {type(handler).__name__}")
    if is_async_function(handler):
        raise InvalidInput(
            "handler", "an executor has no event loop; give a plain function, which may call asyncio.run"
        )
    if batch_size is not None:
        checked_count("batch_size", batch_size, most=MOST_JOBS_A_BATCH)
    checked_seconds("budget", budget)
    if tasks is None:
        return None
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise InvalidInput("tasks", "a list of names is needed; write tasks=['ship']")
    return [checked_name("tasks", task) for task in tasks]


def _count_slots(spark: SparkSession, given: int | None, entry: QueueEntry) -> int:
    if given is not None:
        return checked_count("slots", given, most=MOST_SLOTS)
    try:
        cores = int(spark.sparkContext.defaultParallelism)
    except Exception:  # A session of Spark Connect does not know what its cluster has.
        raise InvalidInput("slots", "this session cannot say how many cores there are; give slots=…") from None
    # A partition that has an owner has one: more slots than partitions would have nothing to do.
    return max(1, min(cores, len(entry.partition_ids)) if entry.is_owned else cores)
