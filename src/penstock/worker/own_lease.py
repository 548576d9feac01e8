"""After a handler used context.settle: did its transaction commit?

The job has a lease of its own, which that transaction deletes. If the lease is gone, the job is settled. If it is
still there, the transaction was rolled back: a handler that raised is judged as usual, and one that returned all the
same is retried, since what it did is undone. A transaction that is still open holds the lease's row, so the end is
written from here, where only the handler's own slot waits for it.
"""

from __future__ import annotations

from penstock.clock import system, ticks
from penstock.errors import PenstockError
from penstock.storage.settle import End, settle_alone
from penstock.task.verdict import Verdict
from penstock.worker.context import Workplace
from penstock.worker.job import HeldJob

__all__ = ["settle_own_lease"]


def settle_own_lease(job: HeldJob, workplace: Workplace) -> None:
    """Write the end of a job under the lease of its own, unless its handler's transaction has."""
    end = _end_where_rolled_back(job)
    while True:
        try:
            found = workplace.database.run(
                lambda connection: settle_alone(connection, workplace.worker_id, workplace.name, end)
            )
        except PenstockError:
            # The database is away; the heart finds out whether the worker is still alive when it is back.
            found = "busy"
        if found != "busy":
            break
        if job.is_abandoned:
            return
        system.sleep(0.2)
    job.is_settled = True
    if found == "not held":
        job.verdict = None


def _end_where_rolled_back(job: HeldJob) -> End:
    if job.verdict is None:
        exhausted = job.lease.attempt >= job.task.max_attempts
        text = "the transaction that settled the job was rolled back"
        job.verdict = Verdict("failed" if exhausted else "retry", text)
    assert job.own_lease is not None  # noqa: S101
    verdict, now = job.verdict, ticks()
    return End(
        lease=job.own_lease,
        position=job.position,
        range=job.lease.range,
        end=verdict.end,
        error=verdict.error,
        due_in=verdict.due_in,
        age=(now - job.started) // 1000,
        run=(job.ended - job.started) // 1000,
    )
