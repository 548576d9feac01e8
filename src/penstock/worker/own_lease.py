"""After a handler used context.settle: did its transaction commit?

The job has a lease of its own, which that transaction deletes. If the lease is gone, the job is settled. If it is
still there, the transaction was rolled back: a handler that raised is judged as usual, and one that returned all the
same is retried, since what it did is undone. Where a transaction that is still open holds the lease's row, or the
database is away, the slot does not wait: a thread of the site's own asks again until it is known. So it does for a
handler that ran past its timeout, whether that returns or not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from copy import copy

from penstock.clock import ticks
from penstock.errors import PenstockError
from penstock.storage.database import DatabaseError
from penstock.storage.settle import End, settle_alone
from penstock.task.verdict import Verdict
from penstock.worker.context import Workplace
from penstock.worker.job import HeldJob

__all__ = ["OwnLeases"]

log = logging.getLogger("penstock")

AGAIN_SECONDS = 0.2
# How long a slot may wait for an answer.
ANSWER_SECONDS = 0.5


class OwnLeases:
    """The ends of one site's jobs that have leases of their own. `hand_in` takes a job whose end was written later."""

    def __init__(self, workplace: Workplace, hand_in: Callable[[HeldJob], None]) -> None:
        self._workplace = workplace
        self._hand_in = hand_in
        self._open: list[HeldJob] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def open(self) -> list[HeldJob]:
        """Jobs whose end could not be written yet."""
        return list(self._open)

    def settle(self, job: HeldJob) -> bool:
        """Write the end of a job, unless its handler's transaction has; False where that is done later."""
        with self._lock:
            if job.is_late:
                return False
        end = _end_where_rolled_back(job)
        if not self._workplace.database.breaker.is_down and self._has_ended(job, end):
            return True
        with self._lock:
            self._settle_later(job)
        return False

    def time_out(self, job: HeldJob, verdict: Verdict) -> None:
        """End a job that runs for too long once the transaction it is settled in has ended, without its handler."""
        with self._lock:
            if job.ended != job.started:
                return
            job.is_late = True
            # What the handler still does to the job counts for nothing.
            late = copy(job)
            late.verdict, late.ended = verdict, ticks()
            self._settle_later(late)

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _settle_later(self, job: HeldJob) -> None:
        self._open.append(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._ask_again, name="penstock-own-leases", daemon=True)
            self._thread.start()

    def _ask_again(self) -> None:
        while not self._stop.wait(AGAIN_SECONDS):
            for job in self.open:
                if self._stop.is_set():
                    return
                if job.is_abandoned or self._has_ended(job, _end_where_rolled_back(job)):
                    with self._lock:
                        self._open.remove(job)
                    self._hand_in(job)

    def _has_ended(self, job: HeldJob, end: End) -> bool:
        workplace = self._workplace
        try:
            found = workplace.database.run(
                lambda connection: settle_alone(connection, workplace.worker_id, workplace.name, end),
                timeout=ANSWER_SECONDS,
            )
        except PenstockError:
            # The database is away; the heart finds out whether the worker is still alive when it is back.
            return False
        except DatabaseError as error:
            log.warning("the end of job %d could not be written yet, and is tried again: %s", job.id, error)
            return False
        if found == "busy":
            return False
        job.is_settled = True
        if found == "not held":
            job.verdict = None
        return True


def _end_where_rolled_back(job: HeldJob) -> End:
    if job.verdict is None:
        exhausted = job.lease.attempt >= job.task.max_attempts
        text = "the transaction that settled the job was rolled back"
        job.verdict = Verdict("failed" if exhausted else "retry", text)
    assert job.own_lease is not None  # noqa: S101
    verdict, now = job.verdict, ticks()
    return End(
        lease=job.own_lease,
        token=job.lease.token,
        position=job.position,
        range=job.lease.range,
        end=verdict.end,
        error=verdict.error,
        due_in=verdict.due_in,
        age=(now - job.started) // 1000,
        run=(job.ended - job.started) // 1000,
    )
