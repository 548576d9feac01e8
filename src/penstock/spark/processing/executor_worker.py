"""An executor worker: a task of Spark that is a worker for a while. `ps.process` starts `slots` of them in a round.

On each shard it works on it has a shard worker. There it claims a batch, hands it to the handler and settles it
together with the next claim. Where it works on several shards it goes from one to the next, so that none starves, and
passes over those that do not answer. It ends when its time is up, nothing is left to do, its driver is gone, or the
handler broke its contract; then it removes the driver's rows, so that the others end too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from penstock.clock import system
from penstock.errors import PartitionUnavailable
from penstock.policy.batch_rows import BatchRows
from penstock.spark.processing.shard_worker import ShardWorker
from penstock.spark.processing.work_plan import WorkPlan

__all__ = ["ENDS", "REPORT", "SHORT_ROUND_SECONDS", "ExecutorWorker", "run_executor_worker"]

SHORTEST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.25
# How long it stays on one of several shards while there is work.
STAY_SECONDS = 0.5
# An executor worker that has lost a shard ends soon, so that the next round finds out whether the shard is back.
SHORT_ROUND_SECONDS = 5.0
# The ways in which a job ends that are counted.
ENDS = ("succeeded", "retry", "failed", "discarded", "cancelled", "snooze", "lost")
# A row for each executor worker: why it ended, how the handler broke its contract, if it did, and how many jobs ended
# in which way.
REPORT = pa.schema(
    [*(pa.field(name, pa.string()) for name in ("why", "breach")), *(pa.field(end, pa.int64()) for end in ENDS)]
)


def run_executor_worker(plan: WorkPlan, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs as a task: one executor worker, by the number it is given; its report."""
    given = [number for batch in numbers for number in batch.column(0).to_pylist()]
    worker = ExecutorWorker(plan, given[0])
    why = worker.run()
    counts = [pa.array([worker.counts[end]], pa.int64()) for end in ENDS]
    texts = [pa.array([text], pa.string()) for text in (why, worker.breach)]
    yield pa.RecordBatch.from_arrays([*texts, *counts], schema=REPORT)


class ExecutorWorker:
    """Used by one thread."""

    def __init__(self, plan: WorkPlan, number: int = 0) -> None:
        self._plan = plan
        self._rows = BatchRows(plan.batch_size)
        shards = plan.shards_of(number)
        self._shard_workers = [ShardWorker(plan, shard, has_others=shards != [shard]) for shard in shards]
        self._ends_at = system.monotonic() + plan.budget_seconds
        # Why shards were given up.
        self._reasons: list[str] = []
        # How the handler broke its contract, if it did.
        self.breach: str | None = None
        self.counts: Counter[str] = Counter()

    def run(self) -> str:
        """Work; why it ended: idle, budget, stopped, dead, broken by the handler, or away where a shard is."""
        unregistered, self._shard_workers = self._shard_workers, []
        for worker in unregistered:
            try:
                worker.register()
                self._shard_workers.append(worker)
            except PartitionUnavailable:
                worker.close()
                self._note_reason("away")
        try:
            why = self._work() if self._shard_workers else self._reasons[-1]
        finally:
            for worker in list(self._shard_workers):
                self._leave(worker)
        return "away" if "away" in self._reasons and why in ("idle", "budget") else why

    def _work(self) -> str:
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            has_worked = False
            for worker in list(self._shard_workers):
                has_worked |= self._serve(worker)
                if self.breach is not None:
                    self._end_run()
                    return "broken"
            if not self._shard_workers:
                return self._reasons[-1]
            if self._is_over:
                return "budget"
            if has_worked:
                pause = SHORTEST_PAUSE_SECONDS
            elif self._plan.until_idle and self._is_idle():
                return "idle"
            else:
                system.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _serve(self, worker: ShardWorker) -> bool:
        """Work on a shard, until nothing comes or others have waited for long enough; whether anything ran."""
        has_others = len(self._shard_workers) > 1
        if has_others and worker.is_unavailable:
            self._note_unavailable(worker)
            return False
        others_wait_at = system.monotonic() + STAY_SECONDS
        has_worked = False
        try:
            while True:
                why = worker.reason_to_end
                is_last = why is not None or self._is_over or (has_others and self._is_past(others_wait_at))
                leases = worker.take_turn(self._rows.wanted, is_last=is_last)
                if not leases:
                    if why is not None:
                        self._give_up(worker, why)
                    return has_worked
                batch = worker.read_batch(leases)
                if not len(batch):
                    worker.drop_unreadable()
                    continue
                seconds = worker.run_batch(batch)
                if seconds is None:
                    self._give_up(worker, "dead")
                    return has_worked
                has_worked = True
                self.breach = worker.breach
                if self.breach is not None:
                    return has_worked
                self._rows.observe(len(batch), seconds)
        except PartitionUnavailable:
            self._note_unavailable(worker)
            return has_worked

    def _end_run(self) -> None:
        """Let everybody hear that the run ends, on every shard that answers."""
        for worker in self._shard_workers:
            with suppress(PartitionUnavailable):
                worker.end_run()

    def _is_idle(self) -> bool:
        """Whether nothing is left to do on any shard."""
        for worker in list(self._shard_workers):
            try:
                if not worker.is_idle(self._rows.wanted):
                    return False
            except PartitionUnavailable:
                self._note_unavailable(worker)
                return False
        return True

    def _note_unavailable(self, worker: ShardWorker) -> None:
        """A shard does not answer: alone it is given up; beside others it is tried again while its leases last."""
        self._end_soon()
        if "away" not in self._reasons:
            self._reasons.append("away")
        if len(self._shard_workers) == 1:
            self._give_up(worker, "away")

    def _give_up(self, worker: ShardWorker, why: str) -> None:
        self._note_reason(why)
        self._leave(worker)

    def _note_reason(self, why: str) -> None:
        self._reasons.append(why)
        self._end_soon()

    def _end_soon(self) -> None:
        self._ends_at = min(self._ends_at, system.monotonic() + SHORT_ROUND_SECONDS)

    def _leave(self, worker: ShardWorker) -> None:
        self._shard_workers.remove(worker)
        worker.leave()
        self.counts += worker.counts

    @property
    def _is_over(self) -> bool:
        return self._is_past(self._ends_at)

    def _is_past(self, moment: float) -> bool:
        return system.monotonic() > moment
