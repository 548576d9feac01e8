"""The log of how jobs end: every end for whoever debugs, and for all others what they must know, once a second.

Dead letters are errors, attempts that are repeated warnings, and discarded jobs worth a line. The first of each kind is
told at once; then one line a second tells how many came since, and about the first of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from penstock.log_records import log_about
from penstock.worker.claimed_job import ClaimedJob

__all__ = ["EndLog"]

log = logging.getLogger("penstock")

TOGETHER_SECONDS = 1.0
# By its end: the level of a line, and what it begins with. A job is repeated before it is a dead letter.
KINDS = {
    "discarded": (logging.INFO, "discarded"),
    "retry": (logging.WARNING, "attempts that failed and are repeated"),
    "failed": (logging.ERROR, "dead letters"),
}


class EndLog:
    """One for each worker, used by all its conductors."""

    def __init__(self) -> None:
        # By its end: the first that was not told, and how many.
        self._waiting: dict[str, tuple[ClaimedJob, int]] = {}
        # Those of which a line was written less than a second ago.
        self._told: set[str] = set()
        # While it runs, what comes is only counted: it tells of it.
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()

    def note(self, jobs: Iterable[ClaimedJob]) -> None:
        """Take in what a turn committed."""
        is_debugged = log.isEnabledFor(logging.DEBUG)
        with self._lock:
            for job in jobs:
                if is_debugged:
                    _log_end(job)
                if job.end in KINDS:
                    first, count = self._waiting.get(job.end, (job, 0))
                    self._waiting[job.end] = first, count + 1
            if self._waiting.keys() - self._told:
                # With what was only counted so far, so that no dead letter stands before its earlier attempts.
                self._write()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._write_later, name="penstock-ends", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Tell the rest."""
        self._is_over.set()
        with self._lock:
            self._write()

    def _write_later(self) -> None:
        """Tell once a second of what came, until a second passes without any."""
        while not self._is_over.wait(TOGETHER_SECONDS):
            with self._lock:
                self._told.clear()
                if not self._waiting:
                    self._thread = None
                    return
                self._write()

    def _write(self) -> None:
        for end in [each for each in KINDS if each in self._waiting]:
            job, count = self._waiting.pop(end)
            self._told.add(end)
            level, what = KINDS[end]
            verdict = job.verdict
            said = "" if verdict is None or not verdict.error else verdict.error.partition("\n")[0]
            again = f", again in {verdict.due_in:.3g} s" if verdict is not None and end == "retry" else ""
            log_about(
                {**job.log_fields, "jobs": count},
                level,
                "%s: %d, the first is job %d (%s/%s), attempt %s%s: %s",
                *(what, count, job.id, job.task.queue, job.task.name, _count_attempt(job), again, said),
            )


def _count_attempt(job: ClaimedJob) -> str:
    attempt, most = job.lease.attempt, job.task.max_attempts
    # A dead letter that a person retried has had all its attempts before.
    return f"{attempt} of {most}" if attempt <= most else f"{attempt}, after a retry by hand"


def _log_end(job: ClaimedJob) -> None:
    ended = {"retry": "failed, and is repeated", "failed": "is a dead letter", "snooze": "was snoozed"}
    log_about(
        job.log_fields,
        logging.DEBUG,
        "job %d (%s/%s) %s after %.3f s, attempt %d",
        *(job.id, job.task.queue, job.task.name, ended.get(job.end, job.end)),
        *((job.ended - job.started) / 1e9, job.lease.attempt),
    )
