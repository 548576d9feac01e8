"""The app of the demo, as any app is written: a queue, a task, and what it may do wrong.

penstock work orders:app
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from penstock import App, Context

__all__ = ["app", "ship"]

HASHING_ROUNDS = 60

# A worker that is silent for two seconds is dead: short, so that the demo need not wait.
app = App(lease=2.0)
orders = app.queue("orders", partitions=4)


class Journal:
    """Each run of a handler, noted by the process that runs it: eight bytes that outlive a SIGKILL."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(Path(folder) / f"{os.getpid()}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, job_id: int) -> None:
        """Note that a job's handler was called."""
        os.write(self._file, job_id.to_bytes(8, sys.byteorder))


journal = Journal(os.environ["ORDERS_JOURNAL"]) if "ORDERS_JOURNAL" in os.environ else None


@orders.task(max_attempts=3, backoff=1.0)
def ship(order: int, context: Context) -> str:
    """Ship an order: every hundredth fails at first, every ten thousandth always."""
    if journal is not None:
        journal.note(context.job_id)
    if order % 10_000 == 9_999:
        raise ValueError(f"order {order} has no address")
    if order % 100 == 50 and context.attempt == 1:
        raise ConnectionError("the carrier does not answer")
    return hashlib.pbkdf2_hmac("sha256", b"parcel", order.to_bytes(8, "big"), HASHING_ROUNDS).hex()[:12]
