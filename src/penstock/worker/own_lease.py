"""After a handler used context.settle: did its transaction commit?

The job has a lease of its own, which that transaction deletes. If the lease is gone, the job is settled. If it is
still there, the transaction was rolled back: a handler that raised is judged as usual, and one that returned all the
same is retried, since what it did is undone.
"""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.storage.exchange import held_leases
from penstock.task.verdict import Verdict
from penstock.worker.context import Workplace
from penstock.worker.job import HeldJob

__all__ = ["settle_own_lease"]


def settle_own_lease(job: HeldJob, workplace: Workplace) -> None:
    """Find out, and leave the job to be settled under the lease it has, if it still has one."""
    try:
        leases = workplace.database.run(lambda connection: held_leases(connection, workplace.worker_id))
        is_held = any(lease.id == job.own_lease for lease in leases)
    except PenstockError:
        # The database is away. Settled as not committed it goes on, once that can be said: where the transaction did
        # commit the lease is gone, and nothing is changed by it.
        is_held = True
    if is_held:
        if job.verdict is None:
            exhausted = job.lease.attempt >= job.task.max_attempts
            text = "the transaction that settled the job was rolled back"
            job.verdict = Verdict("failed" if exhausted else "retry", text)
    else:
        job.verdict = None
        job.is_settled = True
