"""The contexts that a worker gives to handlers that run in one of its threads, or on its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidInput, LeaseLost, PenstockError
from penstock.model.checks import checked_progress, key_from_bytes
from penstock.model.trace_context import TraceContext, trace_of
from penstock.storage.work.exchange import held_leases
from penstock.storage.work.settle import split_lease
from penstock.storage.work.settle_in_transaction import settle_in, settle_in_async
from penstock.task.batch_context import cannot_settle

if TYPE_CHECKING:
    from penstock.storage.connection.database import Database
    from penstock.worker.claimed_job import ClaimedJob
    from penstock.worker.stop_request import StopRequest

__all__ = ["Registration", "WorkerContext"]

# How often a handler that waits looks whether its job is still this worker's.
LOST_SECONDS = 0.2


class Registration:
    """Under which row of `worker`, on which database, jobs run here; who takes their progress; and who says stop."""

    __slots__ = ("database", "name", "progress", "stop_request", "worker_id")

    def __init__(
        self,
        database: Database,
        name: str,
        progress: Callable[[int, float | None, str | None], None],
        stop_request: StopRequest,
    ) -> None:
        self.database = database
        self.name = name
        self.progress = progress
        self.stop_request = stop_request
        self.worker_id = 0


class WorkerContext:
    """The `Context` of a job that runs in this process."""

    __slots__ = ("_job", "_registration")

    def __init__(self, job: ClaimedJob, registration: Registration) -> None:
        self._job = job
        self._registration = registration

    @property
    def job_id(self) -> int:
        return self._job.id

    @property
    def queue(self) -> str:
        return self._job.task.queue

    @property
    def task(self) -> str:
        return self._job.task.name

    @property
    def attempt(self) -> int:
        return self._job.lease.attempt

    @property
    def lease(self) -> int:
        return self._job.split_lease or self._job.lease.id

    @property
    def key(self) -> str | bytes | None:
        return None if self._job.key is None else key_from_bytes(self._job.key)

    @property
    def tags(self) -> list[str]:
        return list(self.attributes.get("tags", ()))

    @property
    def tenant(self) -> str | None:
        return self.attributes.get("tenant")

    @property
    def trace(self) -> TraceContext | None:
        return trace_of(self.attributes)

    @property
    def is_cancelled(self) -> bool:
        return self._job.is_cancelled or self._job.is_abandoned or self._job.is_late

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop, and waits for this handler as long as its `grace` lasts."""
        return self._registration.stop_request.is_made

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        self._registration.progress(self._job.id, *checked_progress(value, note))

    def settle(self, connection: Any, result: Any = None) -> None:
        lease = self._split_lease()
        job, registration = self._job, self._registration
        schema, worker, name = registration.database.schema, registration.worker_id, registration.name
        if not settle_in(connection, schema, worker, name, lease, job.lease.token, job.id, result):
            raise self._not_found(lease)

    async def asettle(self, connection: Any, result: Any = None) -> None:
        lease = await asyncio.to_thread(self._split_lease)
        job, worker, name = self._job, self._registration.worker_id, self._registration.name
        schema = self._registration.database.schema
        if not await settle_in_async(connection, schema, worker, name, lease, job.lease.token, job.id, result):
            raise await asyncio.to_thread(self._not_found, lease)

    @property
    def attributes(self) -> dict[str, Any]:
        """What else is kept with the job, as it is stored."""
        return msgspec.json.decode(self._job.attributes) if self._job.attributes else {}

    def _split_lease(self) -> int:
        job, worker = self._job, self._registration.worker_id
        if job.task.batch is not None:
            raise cannot_settle(job.id)
        with job.taking_away:
            if job.is_abandoned:
                raise self._lost()
            job.is_splitting = job.is_split = True
        try:
            # Looked at after that is set: who ran the handler looks after its end, in which a thread may be left over.
            if job.ended != job.started:
                raise self._lost()
            if job.split_lease is not None:
                return job.split_lease
            self._wait_for_run()
            own = self._registration.database.run(
                lambda connection: split_lease(connection, worker, job.lease.id, job.lease.token, job.id)
            )
            if own is None:
                raise self._lost()
            job.split_lease = own
            return own
        finally:
            job.is_splitting = False

    def _wait_for_run(self) -> None:
        """In a run every end before is settled first, and nothing of it follows: a crash would run those again, after
        this one is settled for good.
        """
        run = self._job.run
        slot = None if run is None else run.slot
        if run is not None and slot is not None:
            slot.backlog.end_run(run)
            slot.backlog.signal()
            while not run.wait_until_settled(LOST_SECONDS):
                if self._job.is_abandoned:
                    raise self._lost()

    def _not_found(self, lease: int) -> PenstockError:
        """The error where a transaction does not find the lease: its snapshot may be older, its database another."""
        worker = self._registration.worker_id
        held = self._registration.database.run(lambda connection: held_leases(connection, worker))
        if (lease, self._job.lease.token) not in {(each.id, each.token) for each in held}:
            return self._lost()
        return InvalidInput(
            "connection",
            f"its transaction does not find the lease of job {self._job.id}, which this worker has: settle once, on "
            "the database that holds the job, and above READ COMMITTED before any other statement of the transaction",
        )

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"job {self._job.id} is no longer this worker's: roll back what the handler did; another attempt has it"
        )
