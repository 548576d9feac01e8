"""What a turn committed is reported: in the worker's counts, to the log and the hooks, to upkeep, and to the children
that waited for what ended.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from penstock.engine.conversation import Conversation
from penstock.storage.connection.error_meaning import DatabaseError, first_line, is_about_data
from penstock.storage.upkeep.sweep import unblock_next
from penstock.storage.work.exchange import Turn
from penstock.storage.work.workers import Ended
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.end_log import EndLog
from penstock.worker.ended_jobs import EndedJobs
from penstock.worker.hooks import Event, Hooks
from penstock.worker.job_figures import JobFigures
from penstock.worker.settled_times import SettledTimes

__all__ = ["Reports"]

log = logging.getLogger("penstock")

# So many children of what ended are looked at in one turn.
CHILDREN_A_TURN = 1_024


class Reports:
    """Used by the conductor; others read `counts`.

    `times` are of every job, `figures` are kept where somebody wants them. `on_due` is called when a job was put off
    for so many seconds, so that upkeep looks in time; `on_children` with children that are to be looked at, and would
    keep a turn for too long.
    """

    def __init__(
        self,
        hooks: Hooks,
        end_log: EndLog,
        on_due: Callable[[float], None],
        on_children: Callable[[list[int]], None],
        times: SettledTimes,
        figures: JobFigures | None = None,
    ) -> None:
        self._hooks = hooks
        self._end_log = end_log
        self._on_due = on_due
        self._on_children = on_children
        self._times = times
        self._figures = figures
        # What ended here so far, by its end.
        self.counts: Counter[str] = Counter()
        # How many jobs ended here, also those that their handlers settled themselves.
        self._ended_jobs = 0

    @property
    def ended(self) -> Ended:
        """What ended here so far."""
        return Ended(self._ended_jobs, self.counts["retry"] + self.counts["failed"])

    def report(self, ended: EndedJobs, turn: Turn, conversation: Conversation, collected_at: float) -> None:
        """Report what came of a turn that settled this, collected at that monotonic time."""
        _log_not_held(turn.not_held)
        _count_ends(self.counts, ended, turn.unsettled)
        self._ended_jobs += len(ended.jobs)
        self._times.note(ended, collected_at)
        if self._figures is not None:
            self._figures.note(ended, turn.unsettled, collected_at)
        if ended.ends or log.isEnabledFor(logging.DEBUG):
            self._end_log.note(_committed(ended, turn.unsettled))
        _tell_hooks(self._hooks, ended, turn.unsettled)
        if ended.soonest_due is not None:
            self._on_due(ended.soonest_due)
        if turn.children:
            self._unblock(turn.children, conversation)

    def _unblock(self, children: list[int], conversation: Conversation) -> None:
        """Let go what waited for jobs that ended, one generation and not many of it. The rest is upkeep's: a long chain
        that is cancelled would keep every other job waiting.
        """
        some, rest = children[:CHILDREN_A_TURN], children[CHILDREN_A_TURN:]
        try:
            _, next_ones = conversation.ask(lambda connection: unblock_next(connection, some))
        except DatabaseError as error:
            if not is_about_data(error):
                raise
            log.warning("children could not be looked at, upkeep goes on trying: %s", first_line(error))
            next_ones = some
        if rest or next_ones:
            self._on_children(rest + next_ones)


def _committed(ended: EndedJobs, not_held: list[tuple[int, int]]) -> list[ClaimedJob]:
    """The jobs that ended, but those that were not this worker's any more."""
    not_ours = set(not_held)
    return [job for job in ended.jobs if (job.lease.id, job.position) not in not_ours]


def _count_ends(counts: Counter[str], ended: EndedJobs, not_held: list[tuple[int, int]]) -> None:
    """Add what was committed to a worker's own counts, by how it ended."""
    for group in ended.succeeded.values():
        counts["succeeded"] += len(group.positions)
    for end in ended.ends:
        counts[end.end] += 1
    for lease, position in not_held:
        how = next((end.end for end in ended.ends if (end.lease, end.position) == (lease, position)), "succeeded")
        counts[how] -= 1


def _tell_hooks(hooks: Hooks, ended: EndedJobs, not_held: list[tuple[int, int]]) -> None:
    """Tell the hooks what was committed."""
    if not (hooks.wants("succeeded") or hooks.wants("retried") or hooks.wants("failed")):
        return
    for job in _committed(ended, not_held):
        name = {"succeeded": "succeeded", "retry": "retried", "failed": "failed"}.get(job.end)
        if name is not None:
            hooks.tell(
                Event(
                    name=name,  # type: ignore[arg-type]
                    job_id=job.id,
                    queue=job.task.queue,
                    task=job.task.name,
                    attempt=job.lease.attempt,
                    error=None if job.verdict is None else job.verdict.error,
                )
            )


def _log_not_held(not_held: list[tuple[int, int]]) -> None:
    """Log what was not this worker's at its end."""
    if not_held:
        lease, position = not_held[0]
        log.warning(
            "LeaseLost: %s no longer this worker's at the end (lease %d, position %d ...): nothing was written",
            "1 job was" if len(not_held) == 1 else f"{len(not_held)} jobs were",
            lease,
            position,
        )
