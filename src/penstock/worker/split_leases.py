"""Split leases: after a handler used context.settle, did its transaction commit?

The job was split off into a lease that has only this job, and the handler's transaction deletes that lease. If the
lease is gone, the job is settled. If it is still there, the transaction was rolled back: a handler that raised is
judged as usual, and one that returned all the same is retried, since what it did is undone.

A handler may end before it heard which lease that is: it timed out, or the answer was lost. Then the lease is asked for
again first, since nothing else ends what a living worker holds. Where a transaction that is still open has locked the
lease's row, or the database is away, the slot does not wait: a thread of its own asks again until the outcome is known.
The same thread does so for a handler that ran past its timeout, whether that returns or not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from copy import copy
from typing import Literal

from penstock.clock import ticks
from penstock.errors import PenstockError
from penstock.log_records import log_about
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.work.exchange import settled_by
from penstock.storage.work.settle import End, settle_alone, split_alone
from penstock.task.verdict import Verdict
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Registration

__all__ = ["SplitLeases"]

log = logging.getLogger("penstock")

AGAIN_SECONDS = 0.2
# How long a slot may wait for an answer.
ANSWER_SECONDS = 0.5


class SplitLeases:
    """The ends of one database's jobs that were split off. `hand_in` takes a job whose end was written later."""

    def __init__(self, registration: Registration, hand_in: Callable[[ClaimedJob], None]) -> None:
        self._registration = registration
        self._hand_in = hand_in
        self._open: list[ClaimedJob] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def open(self) -> list[ClaimedJob]:
        """Jobs whose end could not be written yet."""
        return list(self._open)

    def settle(self, job: ClaimedJob) -> bool:
        """Write the end of a job, unless its handler's transaction has; False where that is done later."""
        with self._lock:
            if job.is_late:
                return False
        if not self._registration.database.breaker.is_down and self._has_ended(job):
            return True
        with self._lock:
            self._settle_later(job)
        return False

    def time_out(self, job: ClaimedJob, verdict: Verdict) -> None:
        """End a job that runs for too long once the transaction it is settled in has ended, without its handler."""
        with self._lock:
            if job.ended != job.started:
                return
            job.is_late = True
            # A copy, so that nothing the handler still does to the job counts.
            late = copy(job)
            late.verdict, late.ended = verdict, ticks()
            self._settle_later(late)

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _settle_later(self, job: ClaimedJob) -> None:
        self._open.append(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._ask_again, name="penstock-split-leases", daemon=True)
            self._thread.start()

    def _ask_again(self) -> None:
        while not self._stop.wait(AGAIN_SECONDS):
            for job in self.open:
                if self._stop.is_set():
                    return
                if job.is_abandoned or self._has_ended(job):
                    with self._lock:
                        self._open.remove(job)
                    self._hand_in(job)

    def _has_ended(self, job: ClaimedJob) -> bool:
        try:
            found = self._registration.database.run(
                lambda connection: self._write_end(connection, job), timeout=ANSWER_SECONDS
            )
        except PenstockError:
            # The database is away; the heartbeat finds out whether the worker is still alive when it is back.
            return False
        except DatabaseError as error:
            said = "the end of job %d could not be written yet, and is tried again: %s"
            log_about(job.log_fields, logging.WARNING, said, job.id, error)
            return False
        if found == "busy":
            return False
        # A job whose lease was lost is handed in unsettled: the conductor logs it.
        job.is_settled = found != "lease lost"
        if found == "not held":
            job.verdict = None
        return True

    def _write_end(
        self, connection: Connection, job: ClaimedJob
    ) -> Literal["settled", "not held", "busy", "lease lost"]:
        worker, name = self._registration.worker_id, self._registration.name
        own = job.split_lease
        if own is None:
            found = split_alone(connection, worker, job.lease.id, job.lease.token, job.id)
            if found == "busy":
                return "busy"
            if found is None:
                # Its handler may have heard of it late, and settled.
                return "not held" if settled_by(connection, name, [(job.id, job.lease.attempt)]) else "lease lost"
            own = job.split_lease = found
        return settle_alone(connection, worker, name, _end_if_rolled_back(job, own))


def _end_if_rolled_back(job: ClaimedJob, split_lease: int) -> End:
    if job.verdict is None:
        exhausted = job.lease.attempt >= job.task.max_attempts
        text = "the transaction that settled the job was rolled back"
        job.verdict = Verdict("failed" if exhausted else "retry", text)
    verdict, now = job.verdict, ticks()
    return End(
        lease=split_lease,
        token=job.lease.token,
        position=job.position,
        range=job.lease.range,
        end=verdict.end,
        error=verdict.error,
        due_in=verdict.due_in,
        age=(now - job.started) // 1000,
        run=(job.ended - job.started) // 1000,
    )
