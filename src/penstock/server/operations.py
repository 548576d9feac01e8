"""All operations of the API, as one list."""

from __future__ import annotations

from penstock.server.attention import attention
from penstock.server.audit import audit
from penstock.server.causes import causes
from penstock.server.crons import crons
from penstock.server.doctor import doctor
from penstock.server.due import due
from penstock.server.events import events
from penstock.server.job_acts import job_acts
from penstock.server.jobs import jobs
from penstock.server.load_bodies import load_bodies
from penstock.server.loads import loads
from penstock.server.operation import Operation
from penstock.server.produce import produce
from penstock.server.queue_acts import queue_acts
from penstock.server.queues import queues
from penstock.server.remote_work import remote_work
from penstock.server.search import search
from penstock.server.shards import shards
from penstock.server.tokens import tokens
from penstock.server.worker_list import worker_list

__all__ = ["OPERATIONS"]

OPERATIONS: list[Operation] = [
    *produce,
    *load_bodies,
    *jobs,
    *job_acts,
    *remote_work,
    *queues,
    *queue_acts,
    *causes,
    *loads,
    *crons,
    *due,
    *attention,
    *search,
    *worker_list,
    *shards,
    *tokens,
    *audit,
    *doctor,
    *events,
]
