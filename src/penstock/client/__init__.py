"""Producing jobs: declaring queues and tasks, and enqueuing."""

from penstock.client.pending import PendingJob
from penstock.client.producer import Producer
from penstock.client.task import Bound, Queue, Task

__all__ = ["Bound", "PendingJob", "Producer", "Queue", "Task"]
