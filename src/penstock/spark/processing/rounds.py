"""The rounds of one call of `ps.process`: the driver's side.

A round is one job of Spark, each of whose tasks is an executor worker. It ends when nothing is left to do or its time
is up, and the driver starts the next. For the length of a round the driver has a row among the workers of each shard:
by that the executor workers know that they are still wanted.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engine.heartbeat import Heartbeat
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.spark.claiming.worker_row import register_worker
from penstock.spark.processing.executor_worker import ENDS, SHORT_ROUND_SECONDS, run_executor_worker
from penstock.spark.processing.work_plan import WorkPlan
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.upkeep import sweep
from penstock.storage.work import spark_workers, workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Rounds"]

log = logging.getLogger("penstock")

# Where a round found the database away, or its workers were declared dead, the next one waits this long.
PAUSE_SECONDS = 1.0
# How long a shard that does not answer is waited for, where there are others.
PATIENCE_SECONDS = 3.0
# A job that kills its process uses up its attempts over some rounds that Spark gives up; more of them in a row than
# this are not a job's doing.
MOST_FAILED_ROUNDS = 10
CRASHES = ("Python worker exited unexpectedly", "ExecutorLostFailure")
_REPORT_SCHEMA = "why string, breach string, " + ", ".join(f"{end} bigint" for end in ENDS)


class _ExecutorCrashed(Exception):
    """A job of Spark failed because a process died, whatever killed it, and not because anything was raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Rounds:
    """Starts rounds of executor workers; `counts` is what their jobs came to."""

    def __init__(
        self, spark: SparkSession, databases: Databases, queue: str, plan: WorkPlan, stop: threading.Event
    ) -> None:
        self._spark = spark
        self._databases = databases
        self._queue = queue
        self._plan = plan
        self._stop = stop
        # The shards that were away when the last round began.
        self._away: dict[int, PartitionUnavailable] = {}
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Start round after round, until there is no reason to."""
        failed_rounds = 0
        while not self._stop.is_set():
            try:
                with self._register_driver() as drivers:
                    reports = self._run_round(drivers)
            except PartitionUnavailable as error:
                if self._plan.until_idle:
                    raise
                log.warning("%s; the executor workers are started again when it does", error)
                self._stop.wait(PAUSE_SECONDS)
                continue
            except _ExecutorCrashed as crash:
                failed_rounds += 1
                if failed_rounds > MOST_FAILED_ROUNDS:
                    raise crash.error from None
                log.warning("Python processes of executors died; the executor workers are started again")
                self.remove_workers()
                continue
            failed_rounds = 0
            if reports is None:
                return
            reasons = {report["why"] for report in reports}
            for report in reports:
                self.counts.update({end: report[end] for end in ENDS})
            for breach in filter(None, (report["breach"] for report in reports)):
                raise InvalidInput("handler", breach)
            if self._plan.until_idle and reasons == {"idle"}:
                for away in self._away.values():
                    raise away
                return
            if reasons & {"away", "dead"}:
                self._stop.wait(PAUSE_SECONDS)

    def remove_workers(self) -> None:
        """Remove the rows of executor workers, whatever became of them, and rescue what they still held."""

        def remove(connection: Connection) -> None:
            spark_workers.remove_run(connection, self._plan.run)
            sweep.rescue(connection)

        for error in self._databases.each(remove, timeout=self._patience).missing.values():
            log.warning("what the executor workers still held goes to other workers later: %s", error)

    @property
    def _patience(self) -> float | None:
        return self._databases.patience(PATIENCE_SECONDS)

    def _run_round(self, drivers: dict[int, int]) -> list[Any] | None:
        """One job of Spark; what its executor workers report, or None where it was cancelled."""
        plan = replace(self._plan, urls={number: self._databases.of(number).url for number in drivers}, drivers=drivers)
        if self._away:
            # The next round, which comes soon then, finds out whether they are back.
            plan = replace(plan, budget_seconds=min(plan.budget_seconds, SHORT_ROUND_SECONDS))
        numbers = self._spark.range(0, plan.slots, 1, plan.slots)
        try:
            return numbers.mapInArrow(partial(run_executor_worker, plan), _REPORT_SCHEMA).collect()
        except Exception as error:  # What Spark raises differs between its kinds of sessions; the text does not.
            if "SPARK_JOB_CANCELLED" in str(error) or "cancelled" in str(error):
                return None
            if any(sign in str(error) for sign in CRASHES):
                raise _ExecutorCrashed(error) from error
            raise

    @contextmanager
    def _register_driver(self) -> Iterator[dict[int, int]]:
        """The driver's rows for the length of a block, on each shard that has partitions of the queue and answers."""
        entry = self._databases.read(lambda connection: find_queue(connection, self._queue))
        wanted = sorted({number for number in entry.partition_shards if number in self._databases})
        drivers: dict[int, int] = {}
        self._away = {}
        with ExitStack() as stack:
            for number in wanted:
                try:
                    drivers[number] = stack.enter_context(self._register_on(self._databases.of(number)))
                except PartitionUnavailable as error:
                    self._away[number] = error
            if not drivers:
                raise next(iter(self._away.values()))
            yield drivers

    @contextmanager
    def _register_on(self, database: Database) -> Iterator[int]:
        """The driver's row on one shard, renewed for the length of a block."""
        lease_seconds = self._plan.lease_seconds
        row = register_worker(
            database,
            f"{self._plan.run}driver ",
            concurrency=0,
            lease_seconds=lease_seconds,
            timeout=self._patience,
        )

        def renew(connection: Connection) -> workers.Renewal | None:
            if self._stop.is_set():
                workers.remove(connection, row.id)
            renewal = workers.renew(connection, row.id)
            if renewal is not None and renewal.is_asked_to_stop:
                # With the next beat its row is gone, and the executor workers hear that.
                self._stop.set()
            return renewal

        heartbeat = Heartbeat(database, lease_seconds, renew, row.registered_at)
        try:
            yield row.id
        finally:
            heartbeat.stop()
            # Where the shard is away its upkeep removes the row, which is not renewed any more.
            with suppress(PartitionUnavailable):
                database.run(lambda connection: workers.remove(connection, row.id), timeout=self._patience)
