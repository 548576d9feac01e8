"""A slot: a task of Spark that is a worker for a while.

It registers, and then claims a batch, hands it to the handler and settles it together with the next claim, until its
time is up, nothing is left to do, or its driver is gone. A pulse renews its row meanwhile. Declared dead, it settles
nothing and ends: what it held runs elsewhere, and the driver starts another in its place.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.clock import system, ticks
from penstock.errors import PartitionUnavailable
from penstock.policy.rows import BatchRows
from penstock.spark.batches import record_batch
from penstock.spark.conversation import Conversation
from penstock.spark.judging import Ended, Handler, HeldBatch, run_batch
from penstock.spark.pulse import Pulse
from penstock.spark.taking import OwnedTaking, PlainTaking, Taking
from penstock.spark.tasks import Tasks
from penstock.storage import slots, workers
from penstock.storage.claim import Lease
from penstock.storage.database import Connection, Database
from penstock.storage.exchange import ClaimWish, Turn
from penstock.storage.owner import Choice, read_partitions
from penstock.storage.settle import note_started
from penstock.storage.sweep import unblock
from penstock.upkeep import Upkeep
from penstock.version import __version__

__all__ = ["ENDS", "REPORT", "Plan", "run_slot"]

log = logging.getLogger("penstock")

SHORTEST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.25
# How often it is looked which tasks the queue has, and whether it has a limit.
LOOK_SECONDS = 1.0
# What has run for so long counts as started: a crash is charged to it.
STARTED_NANOSECONDS = 1_000_000_000
# The ways in which a job ends that a slot counts.
ENDS = ("succeeded", "retry", "failed", "discarded", "cancelled", "snooze", "lost")
# A row a slot: why it ended, and how many jobs ended in which way.
REPORT = pa.schema([pa.field("why", pa.string()), *(pa.field(end, pa.int64()) for end in ENDS)])


@dataclass(frozen=True, slots=True)
class Plan:
    """What every slot of a run is told; it travels to the executors."""

    url: str
    # What the names of the run's workers begin with, and the number of the driver's own row.
    run: str
    driver: int
    queue_id: int
    is_owned: bool
    handler: Handler
    tasks: Tasks
    # None: by how long batches take.
    batch_size: int | None
    lease_seconds: float
    until_idle: bool
    budget_seconds: float


def run_slot(plan: Plan, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs as a task: one slot, whatever numbers it is given; its report."""
    for _ in numbers:
        pass
    slot = Slot(plan)
    why = slot.run()
    counts = [pa.array([slot.counts[end]], pa.int64()) for end in ENDS]
    yield pa.RecordBatch.from_arrays([pa.array([why], pa.string()), *counts], schema=REPORT)


class Slot:
    """Used by one thread, but for the pulse."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._database = Database(plan.url, pool_size=2)
        self._tasks = plan.tasks
        self._taking: Taking = OwnedTaking(plan.queue_id, plan.tasks) if plan.is_owned else PlainTaking(plan.queue_id)
        # Only asked for whole rounds in this thread, never started.
        self._upkeep = Upkeep(self._database, None)
        self._ends_at = system.monotonic() + plan.budget_seconds
        self._looked_at = 0.0
        self._is_gated = False
        self._has_driver = True
        self._partitions: list[int] = []
        self._rows = BatchRows(plan.batch_size)
        # When a batch began, and its leases that were claimed ahead; the pulse notes that those have started, too.
        self._running: tuple[int, list[int]] | None = None
        self.counts: Counter[str] = Counter()

    def run(self) -> str:
        """Work; why it ended: idle, budget, stopped, dead, or away where the database is."""
        try:
            self._register()
            try:
                return self._work()
            finally:
                self._pulse.stop()
                self._leave()
        except PartitionUnavailable:
            return "away"
        finally:
            self._database.close()

    def _work(self) -> str:
        ended = Ended()
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            why = self._reason_to_end()
            leases = self._turn(ended, is_last=why is not None)
            ended = Ended()
            if leases:
                # A last turn asks for nothing; it holds what an answer that was lost had given it.
                batch = self._read(leases)
                if not self._pulse.wait_until_valid():
                    return "dead"
                ended = self._run(batch)
                self._rows.observe(len(batch), ended.seconds)
                pause = SHORTEST_PAUSE_SECONDS
            elif why is not None:
                return why
            elif self._plan.until_idle and self._is_idle():
                return "idle"
            else:
                system.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _run(self, batch: HeldBatch) -> Ended:
        ahead = sorted({lease.id for lease in batch.leases if lease.is_ahead})
        self._running = (ticks(), ahead) if ahead else None
        ended = run_batch(self._plan.handler, batch, self._tasks)
        self._running = None
        return ended

    def _reason_to_end(self) -> str | None:
        if self._pulse.is_lost:
            return "dead"
        if not self._has_driver:
            return "stopped"
        return "budget" if system.monotonic() > self._ends_at else None

    def _turn(self, ended: Ended, *, is_last: bool) -> list[Lease]:
        """Settle what ended and claim what comes next; the leases."""
        now = system.monotonic()
        wish: ClaimWish | None = None
        choices: list[Choice] = []
        if not is_last:
            self._conversation.surely(self._look)
        if ended.batch is not None:
            rows = zip(ended.batch.leases, ended.batch.positions, ended.verdicts, strict=True)
            for lease, position, verdict in rows:
                end = "succeeded" if verdict is None else verdict.end
                self._taking.ended(lease.partition_id, lease.range * 1024 + position, end, now)
        if not is_last:
            wish, choices = self._taking.wish(self._rows.wanted, now, is_gated=self._is_gated)
        if not ended and wish is None and not choices:
            return []
        turn = self._exchange(ended, wish, choices)
        self.counts += ended.counts(turn.lost)
        if turn.lost:
            log.warning("LeaseLost: %d jobs were no longer this slot's when they ended", len(turn.lost))
        if turn.children:
            self._conversation.surely(lambda connection: unblock(connection, turn.children))
        leases = self._taking.took(turn, choices, now)
        self._conversation.surely(lambda connection: self._taking.gave_up(connection, self._worker))
        return leases

    def _look(self, connection: Connection) -> None:
        now = system.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._is_gated = slots.is_gated(connection, self._plan.queue_id)
            self._partitions = [each for each, _ in read_partitions(connection, [self._plan.queue_id])]
            if new := self._tasks.look(connection, self._plan.queue_id):
                slots.add_tasks(connection, self._worker, self._plan.queue_id, new)
        self._taking.look(connection, self._worker, self._rows.wanted, now)

    def _read(self, leases: list[Lease]) -> HeldBatch:
        stored = self._conversation.surely(lambda connection: self._taking.read(connection, leases))
        lease_of = {lease.range * 1024 + position: lease for lease in leases for position in lease.positions}
        jobs = self._taking.order(list(lease_of))
        rows = [stored[job] for job in jobs]
        members = [lease_of[job] for job in jobs]
        tasks = [lease.task or row[4] for lease, row in zip(members, rows, strict=True)]
        attempts = [lease.attempt for lease in members]
        return HeldBatch(members, [job % 1024 for job in jobs], tasks, record_batch(rows, tasks, attempts))

    def _is_idle(self) -> bool:
        """Whether nothing is left for any slot of the run: what another holds may come back."""

        def is_busy(connection: Connection) -> bool:
            return slots.run_is_busy(connection, self._plan.run, self._worker, self._partitions)

        if self._conversation.surely(is_busy):
            return False
        self._upkeep.sweep()
        self._looked_at = 0.0
        self._conversation.surely(self._look)
        has_work = self._conversation.surely(
            lambda connection: self._taking.has_work(connection, self._worker, system.monotonic())
        )
        return not has_work and not self._conversation.surely(is_busy)

    def _exchange(self, ended: Ended, wish: ClaimWish | None, choices: list[Choice]) -> Turn:
        batch = ended.batch
        freed = sorted({lease.partition_id for lease in batch.leases}) if batch and self._is_gated else []
        return self._conversation.exchange(
            ended.succeeded,
            ended.ends,
            lambda: {} if batch is None else batch.attempts,
            wish,
            choices,
            freed,
            on_lost=self._taking.forget,
        )

    def _register(self) -> None:
        plan = self._plan
        host, pid = socket.gethostname(), os.getpid()
        registered_at = ticks()

        def register(connection: Connection) -> int:
            self._tasks.look(connection, plan.queue_id)
            return workers.register(
                connection,
                name=f"{plan.run}{host}:{pid}",
                host=host,
                pid=pid,
                version=__version__,
                concurrency=1,
                lease_seconds=plan.lease_seconds,
                tasks=[(plan.queue_id, task) for task in self._tasks],
            )

        self._worker = self._database.run(register)
        name = workers.full_name(f"{plan.run}{host}:{pid}", self._worker)
        self._conversation = Conversation(self._database, self._worker, name)
        self._pulse = Pulse(self._database, plan.lease_seconds, self._renew, registered_at)

    def _renew(self, connection: Connection) -> bool:
        has_driver = slots.renew(connection, self._worker, self._plan.driver)
        self._has_driver = bool(has_driver)
        running = self._running
        if running is not None and ticks() - running[0] > STARTED_NANOSECONDS:
            note_started(connection, self._worker, running[1])
            self._running = None
        return has_driver is not None

    def _leave(self) -> None:
        try:
            self._conversation.surely(lambda connection: self._taking.leave(connection, self._worker))
            self._conversation.surely(lambda connection: workers.remove(connection, self._worker))
        except Exception as error:  # The others find out by themselves: this slot does not renew any more.
            log.warning("the slot could not say that it left: %s", error)
        self._conversation.close()
