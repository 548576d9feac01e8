"""Process: the jobs of a queue run as Arrow batches on Spark's executors.

One job of Spark is a round of slots, each a long task that works through many batches; a round ends when nothing is
left to do or its time is up, and the driver starts the next. The driver does upkeep meanwhile, as any worker does, and
has a row among the workers of each shard by which slots know that they are still wanted.

    driver     round ──► slot, slot, slot … ──► round …
               upkeep    claim ► handler ► settle and claim ► …
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

from penstock.clock import ticks
from penstock.engine.heartbeat import Heartbeat
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.model.limits import checked_count, checked_name, checked_seconds
from penstock.shards.databases import Shards
from penstock.spark.claiming.known_tasks import Tasks
from penstock.spark.processing.batch_run import Handler
from penstock.spark.processing.executor_worker import ENDS, SHORT_ROUND_SECONDS, Plan, run_slot
from penstock.storage import Connection, Database, slots, sweep, workers
from penstock.storage.catalogue import QueueEntry, find_queue
from penstock.task.definition import TaskDefinition
from penstock.upkeep import SharedUpkeep, Upkeep
from penstock.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Processed", "process"]

log = logging.getLogger("penstock")

MOST_SLOTS = 10_000
MOST_JOBS_A_BATCH = 100_000
# Round after round may find the database away, or its slots declared dead: then it is not started again at once.
PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 3.0
# A job that kills its process uses up its attempts over some rounds that Spark gives up; more of them in a row than
# this are not a job's doing.
MOST_FAILED_ROUNDS = 10
CRASHES = ("Python worker exited unexpectedly", "ExecutorLostFailure")
_SCHEMA = "why string, " + ", ".join(f"{end} bigint" for end in ENDS)


class ProcessingApp(Protocol):
    """An app, as far as processing uses it."""

    @property
    def databases(self) -> Shards: ...
    @property
    def tasks(self) -> dict[str, dict[str, TaskDefinition]]: ...
    @property
    def lease_seconds(self) -> float: ...
    @property
    def retention(self) -> dict[str, float]: ...


class Processed(NamedTuple):
    """What came of one call: attempts by their end, the jobs of dead workers that were rescued meanwhile, and attempts
    that ended when another worker had their job already. What a killed slot had settled before is not counted here.
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

    It is called with jobs of the given `tasks`, or of any, and says `ps.Ok(result)`, `ps.RetryAfter(seconds, error)` or
    `ps.Dead(reason)` of each; with at most `batch_size` of them, or else with few at first and with more, up to 4,096,
    while it is quick. `slots` tasks of Spark run at once, one a core unless told otherwise; each is started anew after
    `budget` seconds. Returns when nothing is left to do or, with `until_idle=False`, once `stop` is set or the job of
    Spark is cancelled. A shard that is away does not keep it from the jobs of the others; with `until_idle`, when these
    are done, `PartitionUnavailable` names it.
    """
    checked = _checked(handler, tasks, batch_size, budget)
    shards = app.databases
    entry = shards.read(lambda connection: find_queue(connection, checked_name("queue", queue)))
    plan = partial(
        Plan,
        queue_id=entry.id,
        is_owned=entry.is_owned,
        handler=handler,
        tasks=Tasks(entry.name, app.tasks.get(entry.name, {}), checked),
        batch_size=batch_size,
        lease_seconds=app.lease_seconds,
        until_idle=until_idle,
    )
    count = _slots(spark, slots, entry)
    run = _Run(spark, shards, entry.name, plan, count, budget, app.lease_seconds, stop or threading.Event())
    rescued: list[int] = []
    upkeeps: list[SharedUpkeep | Upkeep] = [
        SharedUpkeep(shards),
        *(Upkeep(database, app.retention, rescued.append) for database in shards),
    ]
    for upkeep in upkeeps:
        upkeep.start()
    try:
        run.rounds(until_idle=until_idle)
    finally:
        run.clear_away()
        for upkeep in upkeeps:
            upkeep.stop()
    counts = run.counts
    return Processed(counts["succeeded"], counts["retry"], counts["failed"], sum(rescued), counts["lost"])


class _Crashed(Exception):
    """A job of Spark failed because a process died, whatever killed it, and not because anything was raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Run:
    """One call of `process`: its rounds, and what they came to."""

    def __init__(
        self,
        spark: SparkSession,
        shards: Shards,
        queue: str,
        plan: Callable[..., Plan],
        slot_count: int,
        budget: float,
        lease_seconds: float,
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._shards = shards
        self._queue = queue
        self._plan = plan
        self._slots = slot_count
        self._budget = budget
        self._lease_seconds = lease_seconds
        self._stop = stop
        self._name = f"spark/{uuid4().hex[:8]}/"
        # The shards that were away when the last round began.
        self._away: dict[int, PartitionUnavailable] = {}
        self.counts: Counter[str] = Counter()

    def rounds(self, *, until_idle: bool) -> None:
        """Start slots again and again, until there is no reason to."""
        failed_rounds = 0
        while not self._stop.is_set():
            try:
                with self._registered() as drivers:
                    reports = self._round(drivers)
            except PartitionUnavailable as error:
                if until_idle:
                    raise
                log.warning("%s; the slots are started again when it does", error)
                self._stop.wait(PAUSE_SECONDS)
                continue
            except _Crashed as crash:
                failed_rounds += 1
                if failed_rounds > MOST_FAILED_ROUNDS:
                    raise crash.error from None
                log.warning("Python processes of executors died; the slots are started again")
                self.clear_away()
                continue
            failed_rounds = 0
            if reports is None:
                return
            ends = {report["why"] for report in reports}
            for report in reports:
                self.counts.update({end: report[end] for end in ENDS})
            if until_idle and ends == {"idle"}:
                for away in self._away.values():
                    raise away
                return
            if ends & {"away", "dead"}:
                self._stop.wait(PAUSE_SECONDS)

    def clear_away(self) -> None:
        """Whatever became of the slots, they hold nothing any more."""

        def clear(connection: Connection) -> None:
            slots.remove_run(connection, self._name)
            sweep.rescue(connection)

        for error in self._shards.each(clear, timeout=self._patience).missing.values():
            log.warning("what the slots still held goes to other workers later: %s", error)

    @property
    def _patience(self) -> float | None:
        """How long a shard is waited for: where there are others, only a moment."""
        return None if len(self._shards) == 1 else PATIENCE_SECONDS

    def _round(self, drivers: dict[int, int]) -> list[Any] | None:
        """One job of Spark; what its slots report, or None where it was cancelled."""
        plan = self._plan(
            urls={number: self._shards.of(number).url for number in drivers},
            drivers=drivers,
            run=self._name,
            slots=self._slots,
            # Where a shard is away the next round looks again soon.
            budget_seconds=min(self._budget, SHORT_ROUND_SECONDS) if self._away else self._budget,
        )
        act = partial(run_slot, plan)
        numbers = self._spark.range(0, self._slots, 1, self._slots)
        try:
            return numbers.mapInArrow(act, _SCHEMA).collect()
        except Exception as error:  # What Spark raises differs between its kinds of sessions; the text does not.
            if "SPARK_JOB_CANCELLED" in str(error) or "cancelled" in str(error):
                return None
            if any(sign in str(error) for sign in CRASHES):
                raise _Crashed(error) from error
            raise

    @contextmanager
    def _registered(self) -> Iterator[dict[int, int]]:
        """The driver's rows for the length of a block, on each shard that has partitions of the queue and answers."""
        entry = self._shards.read(lambda connection: find_queue(connection, self._queue))
        wanted = sorted({number for number in entry.partition_shards if number in self._shards})
        drivers: dict[int, int] = {}
        self._away = {}
        with ExitStack() as stack:
            for number in wanted:
                try:
                    drivers[number] = stack.enter_context(self._registered_on(self._shards.of(number)))
                except PartitionUnavailable as error:
                    self._away[number] = error
            if not drivers:
                raise next(iter(self._away.values()))
            yield drivers

    @contextmanager
    def _registered_on(self, database: Database) -> Iterator[int]:
        host, pid, registered_at = socket.gethostname(), os.getpid(), ticks()

        def register(connection: Connection) -> int:
            driver = workers.register(
                connection,
                name=f"{self._name}driver {host}:{pid}",
                host=host,
                pid=pid,
                version=__version__,
                concurrency=0,
                lease_seconds=self._lease_seconds,
                tasks=(),
            )
            workers.begin(connection, driver)
            return driver

        driver = database.run(register, timeout=self._patience)

        def renew(connection: Connection) -> workers.Renewal | None:
            if self._stop.is_set():
                workers.remove(connection, driver)
            return workers.renew(connection, driver)

        pulse = Heartbeat(database, self._lease_seconds, renew, registered_at)
        try:
            yield driver
        finally:
            pulse.stop()
            # A shard that is away finds out by itself: the row is not renewed any more.
            with suppress(PartitionUnavailable):
                database.run(lambda connection: workers.remove(connection, driver), timeout=self._patience)


def _checked(handler: object, tasks: object, batch_size: object, budget: object) -> list[str] | None:
    if not callable(handler):
        raise InvalidInput("handler", f"a function of a batch is needed, not {type(handler).__name__}")
    if batch_size is not None:
        checked_count("batch_size", batch_size, most=MOST_JOBS_A_BATCH)
    checked_seconds("budget", budget)
    if tasks is None:
        return None
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise InvalidInput("tasks", "a list of names is needed; write tasks=['ship']")
    return [checked_name("tasks", task) for task in tasks]


def _slots(spark: SparkSession, given: int | None, entry: QueueEntry) -> int:
    if given is not None:
        return checked_count("slots", given, most=MOST_SLOTS)
    try:
        cores = int(spark.sparkContext.defaultParallelism)
    except Exception:  # A session of Spark Connect does not know what its cluster has.
        raise InvalidInput("slots", "this session cannot say how many cores there are; give slots=…") from None
    # Where a partition has one owner, more slots than partitions would have nothing to do.
    return max(1, min(cores, len(entry.partition_ids)) if entry.is_owned else cores)
