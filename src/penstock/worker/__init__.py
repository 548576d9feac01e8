"""Running jobs: see `penstock.worker.worker`."""

from penstock.worker.context import Context
from penstock.worker.hooks import Event, Hooks
from penstock.worker.served_queues import ServedQueue
from penstock.worker.worker import ServedDatabase, Worked, Worker

__all__ = ["Context", "Event", "Hooks", "ServedDatabase", "ServedQueue", "Worked", "Worker"]
