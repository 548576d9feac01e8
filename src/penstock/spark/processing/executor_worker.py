"""A slot: a task of Spark that is a worker for a while.

It has a seat on one or several shards. At a seat it claims a batch, hands it to the handler and settles it together
with the next claim; where it has several seats it goes from one to the next, so that no shard starves, and passes over
those whose shard is away. It ends when its time is up, nothing is left to do, or its driver is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from penstock.clock import system
from penstock.errors import PartitionUnavailable
from penstock.policy.batch_rows import BatchRows
from penstock.spark.processing.shard_worker import Plan, Seat

__all__ = ["ENDS", "REPORT", "Plan", "Slot", "run_slot"]

SHORTEST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.25
# How long a slot stays at one of several seats while there is work.
TURN_SECONDS = 0.5
# A slot that has lost a seat ends soon, so that the next round finds out whether the shard is back.
SHORT_ROUND_SECONDS = 5.0
# The ways in which a job ends that a slot counts.
ENDS = ("succeeded", "retry", "failed", "discarded", "cancelled", "snooze", "lost")
# A row a slot: why it ended, and how many jobs ended in which way.
REPORT = pa.schema([pa.field("why", pa.string()), *(pa.field(end, pa.int64()) for end in ENDS)])


def run_slot(plan: Plan, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs as a task: one slot, by the number it is given; its report."""
    given = [number for batch in numbers for number in batch.column(0).to_pylist()]
    slot = Slot(plan, given[0])
    why = slot.run()
    counts = [pa.array([slot.counts[end]], pa.int64()) for end in ENDS]
    yield pa.RecordBatch.from_arrays([pa.array([why], pa.string()), *counts], schema=REPORT)


class Slot:
    """Used by one thread."""

    def __init__(self, plan: Plan, number: int = 0) -> None:
        self._plan = plan
        self._rows = BatchRows(plan.batch_size)
        shards = plan.shards_of(number)
        self._seats = [Seat(plan, shard, is_alone=len(shards) == 1) for shard in shards]
        self._ends_at = system.monotonic() + plan.budget_seconds
        # Why seats were given up.
        self._why: list[str] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> str:
        """Work; why it ended: idle, budget, stopped, dead, or away where a shard is."""
        untaken, self._seats = self._seats, []
        for seat in untaken:
            try:
                seat.take()
                self._seats.append(seat)
            except PartitionUnavailable:
                seat.close()
                self._gave_up("away")
        try:
            why = self._work() if self._seats else self._why[-1]
        finally:
            for seat in list(self._seats):
                self._leave(seat)
        return "away" if "away" in self._why and why in ("idle", "budget") else why

    def _work(self) -> str:
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            has_worked = False
            for seat in list(self._seats):
                has_worked |= self._serve(seat)
            if not self._seats:
                return self._why[-1]
            if self._is_over:
                return "budget"
            if has_worked:
                pause = SHORTEST_PAUSE_SECONDS
            elif self._plan.until_idle and self._is_idle():
                return "idle"
            else:
                system.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _serve(self, seat: Seat) -> bool:
        """Work at a seat, until nothing comes or others have waited for long enough; whether anything ran."""
        if len(self._seats) > 1 and seat.is_away:
            self._is_away(seat)
            return False
        others_wait_at = system.monotonic() + TURN_SECONDS
        has_worked = False
        try:
            while True:
                why = seat.reason_to_end
                is_last = why is not None or self._is_over or (len(self._seats) > 1 and self._is_past(others_wait_at))
                leases = seat.turn(self._rows.wanted, is_last=is_last)
                if not leases:
                    if why is not None:
                        self._gave_up(why, seat)
                    return has_worked
                batch = seat.read(leases)
                if not len(batch):
                    seat.pass_over()
                    continue
                seconds = seat.run(batch)
                if seconds is None:
                    self._gave_up("dead", seat)
                    return has_worked
                self._rows.observe(len(batch), seconds)
                has_worked = True
        except PartitionUnavailable:
            self._is_away(seat)
            return has_worked

    def _is_idle(self) -> bool:
        """Whether nothing is left to do at any seat."""
        for seat in list(self._seats):
            try:
                if not seat.is_idle(self._rows.wanted):
                    return False
            except PartitionUnavailable:
                self._is_away(seat)
                return False
        return True

    def _is_away(self, seat: Seat) -> None:
        """A seat alone is given up; beside others it is tried again, while what it holds is its own."""
        self._ends_at = min(self._ends_at, system.monotonic() + SHORT_ROUND_SECONDS)
        if "away" not in self._why:
            self._why.append("away")
        if len(self._seats) == 1:
            self._gave_up("away", seat)

    def _gave_up(self, why: str, seat: Seat | None = None) -> None:
        self._why.append(why)
        self._ends_at = min(self._ends_at, system.monotonic() + SHORT_ROUND_SECONDS)
        if seat is not None:
            self._leave(seat)

    def _leave(self, seat: Seat) -> None:
        self._seats.remove(seat)
        seat.leave()
        self.counts += seat.counts

    @property
    def _is_over(self) -> bool:
        return self._is_past(self._ends_at)

    def _is_past(self, moment: float) -> bool:
        return system.monotonic() > moment
