"""Running jobs: see `penstock.worker.worker`."""

from penstock.worker.context import Context
from penstock.worker.hooks import Event, Hooks
from penstock.worker.served_queues import Served
from penstock.worker.worker import FoundSite, Worked, Worker

__all__ = ["Context", "Event", "FoundSite", "Hooks", "Served", "Worked", "Worker"]
