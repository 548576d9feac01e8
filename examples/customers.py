"""The app of the demo, as any app is written: a queue that keeps order per customer, a task, and what may go wrong.

penstock work customers:app
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from pathlib import Path

from penstock import App, Context

__all__ = ["QUEUE", "RUN", "app", "apply_event"]

QUEUE = "customer-events"
HASHING_ROUNDS = 40

# A worker that is silent for two seconds is dead: short, so that the demo need not wait.
app = App(lease=2.0)
# A few customers have many of the events. Up to a hundred of a customer's are taken in one go and run one by one,
# without a commit between two. After a crash the last of them run again, in order: `apply_event` can live with that.
# With run=1 each waits until the end of the one before is written, and the drain ends with the busiest customer alone.
events = app.queue(QUEUE, partitions=4, order="key", run=100)

# A run of the handler: the job, the customer's number, the event's, and when it began on the machine's own clock.
RUN = struct.Struct("=qiiq")


class Journal:
    """Each run of a handler, noted by the process that runs it: a few bytes that outlive a SIGKILL."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(Path(folder) / f"{os.getpid()}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, job_id: int, customer: str, number: int) -> None:
        """Note that a job's handler was called."""
        os.write(self._file, RUN.pack(job_id, int(customer.removeprefix("c-")), number, time.monotonic_ns()))


journal = Journal(os.environ["DEMO_JOURNAL"]) if "DEMO_JOURNAL" in os.environ else None


@events.task(key="customer", max_attempts=3, backoff=0.2)
def apply_event(context: Context, customer: str, number: int, amount: float) -> str:
    """Apply an event to a customer's account: some fail at first, a few always."""
    if journal is not None:
        journal.note(context.job_id, customer, number)
    if number % 10_000 == 9_999:
        raise ValueError(f"event {number} is about an account that does not exist")
    if number % 500 == 250 and context.attempt == 1:
        raise ConnectionError("the ledger does not answer")
    return hashlib.pbkdf2_hmac("sha256", customer.encode(), str(amount).encode(), HASHING_ROUNDS).hex()[:12]
