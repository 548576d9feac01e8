"""Quick runs: the jobs of a bunch that need nothing but their handler, one after the other.

Most jobs are of a function in this process that takes its arguments as they are stored, while nobody watches its start
and nothing is around it. What `running` does step by step is one loop here: with handlers that do little, calling a
function for each step took as long as the handler and its arguments together. Any other job is handed back to whoever
has the slot. What holds for all of them is the same as there, in the same order.
"""

from __future__ import annotations

import logging

from penstock.clock import ticks
from penstock.log_records import current_job
from penstock.worker.backlog import SETTLED_TOGETHER
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import WorkerContext
from penstock.worker.hooks import Hooks
from penstock.worker.running import arguments_of, note_error, note_result
from penstock.worker.slot_pool import Slot

__all__ = ["run_quickly"]

log = logging.getLogger("penstock")


def run_quickly(slot: Slot, hooks: Hooks) -> ClaimedJob | None:
    """Run what comes next of a slot's bunch, up to a job that has to be run otherwise: that one; None at the end."""
    if hooks.wants_started or current_job.is_wanted or log.isEnabledFor(logging.DEBUG):
        return slot.next()
    backlog = slot.backlog
    registration, done, take_next = backlog.registration, backlog.done, slot.next
    while (job := take_next()) is not None:
        task = job.task
        decode = task.arguments.decode_positional
        if (
            decode is None
            or task.middleware.functions
            or task.runs_in_process
            or job.members is not None
            or job.expires_at
            or backlog.asked_to_stop
        ):
            return job
        job.started = job.ended = started = ticks()
        if started > backlog.valid_until:
            return job
        try:
            values = decode(job.args)
            if values is None:
                result = task.function(**arguments_of(job, registration))
            elif task.arguments.context_parameter is None:
                result = task.function(*values)
            else:
                result = task.function(WorkerContext(job, registration), *values)
            if result is not None:
                note_result(job, result)
        except BaseException as error:  # Whatever a handler raises, SystemExit too, is the end of its job.
            note_error(job, error)
        job.ended = ticks()
        if job.is_split:
            if backlog.split_leases.settle(job):
                backlog.end(job)
        elif job.run is not None:
            backlog.end(job)
        else:
            done.append(job)
            if not backlog.waiting or not backlog.is_fast or len(done) == SETTLED_TOGETHER:
                backlog.signal()
    return None
