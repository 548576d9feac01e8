"""What a worker serves on one database: the queues it takes jobs from, which of them are withheld just now, and the
sources their jobs come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from penstock.engine.mixed_source import MixedSource
from penstock.engine.owned_source import OwnedSource
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import Source
from penstock.storage.connection.database import Connection
from penstock.storage.work import workers
from penstock.task.definition import TaskDefinition
from penstock.worker.claimed_job import ClaimedJob

__all__ = ["ServedQueue", "ServedQueues"]


@dataclass(frozen=True, slots=True)
class ServedQueue:
    """One queue a worker takes jobs from."""

    queue_id: int
    name: str
    partition_ids: tuple[int, ...]
    max_wait: float | None
    tasks: dict[str, TaskDefinition] = field(default_factory=dict)
    is_owned: bool = False
    is_limited: bool = False
    halts_on_dead: bool = False
    # How many of its jobs the worker may have at once; None: as many as it has slots.
    cap: int | None = None

    @property
    def is_async(self) -> bool:
        """Whether some of its jobs need the event loop."""
        return any(task.is_async for task in self.tasks.values())


class ServedQueues:
    """All of them. Used by the conductor."""

    def __init__(self, served: Sequence[ServedQueue]) -> None:
        self._served = served
        self.by_id = {queue.queue_id: queue for queue in served}
        self._numbers = {queue.name: queue.queue_id for queue in served}
        # By queue and task, where handlers are given several jobs together.
        self.batch_sizes = {
            queue.queue_id: sizes
            for queue in served
            if (sizes := {name: task.batch for name, task in queue.tasks.items() if task.batch is not None})
        }
        # Whether none has an owner, who would know what there is.
        self.are_plain = not any(queue.is_owned for queue in served)
        # Whether jobs are wanted with the trace context of the load that they came with.
        self.traces_loads = any(task.middleware.traces_loads for queue in served for task in queue.tasks.values())
        # No job of these is taken while the event loop is blocked.
        self._async = frozenset(queue.queue_id for queue in served if queue.is_async)
        # No job of these is taken now.
        self._withheld: Set[int] = frozenset()
        # The names of those with a limit, and the partitions where one job more may run by now.
        self._limited = {queue.name for queue in served if queue.is_limited}
        self._freed: set[int] = set()

    def source(self, worker: int) -> Source:
        """The source of these queues' jobs, for a worker that owns partitions and holds leases itself."""
        plain, owned = ([queue for queue in self._served if queue.is_owned is is_owned] for is_owned in (False, True))
        claims = PlainSource(worker, [queue.queue_id for queue in plain], _partitions(plain), self.batch_sizes)
        if not owned:
            return claims
        tasks = {queue.queue_id: frozenset(queue.tasks) for queue in owned}
        executors = {queue.queue_id: {name: _executor(task) for name, task in queue.tasks.items()} for queue in owned}
        choices = OwnedSource(worker, tasks, _partitions(owned), self.batch_sizes, executors)
        return MixedSource(claims, choices) if plain else choices

    def read_limits(self, connection: Connection) -> None:
        """See which of them have a limit."""
        limited = workers.limited_queues(connection)
        self._limited = {queue.name for queue in self._served if queue.queue_id in limited}

    @property
    def has_limits(self) -> bool:
        """Whether an end may let another job start."""
        return bool(self._limited) or any(queue.cap is not None for queue in self._served)

    def withhold(self, source: Source, paused: Set[int], *, is_loop_blocked: bool) -> None:
        """Let nothing be taken of those that are paused or refused, or need the event loop while that is blocked."""
        blocked = self._async if is_loop_blocked else frozenset()
        self._withheld = paused | blocked
        source.withhold(paused, blocked)

    @property
    def has_withheld(self) -> bool:
        return bool(self._withheld)

    def is_withheld(self, job: ClaimedJob) -> bool:
        """Whether a job that waits here has to go back."""
        return self._numbers[job.task.queue] in self._withheld

    def halts_on_dead(self, job: ClaimedJob) -> bool:
        """Whether a key of a job's queue waits for a person when one of its jobs runs out of attempts."""
        return self.by_id[self._numbers[job.task.queue]].halts_on_dead

    def note_freed(self, jobs: Iterable[ClaimedJob]) -> None:
        """Keep in mind in which partitions with a limit these jobs no longer run: others may wait to."""
        if self._limited:
            self._freed |= {job.lease.partition_id for job in jobs if job.task.queue in self._limited}

    def take_freed(self) -> list[int]:
        """The partitions with a limit where jobs ended since this was last asked."""
        freed, self._freed = sorted(self._freed), set()
        return freed


def _partitions(served: Sequence[ServedQueue]) -> dict[int, int]:
    return {partition: queue.queue_id for queue in served for partition in queue.partition_ids}


def _executor(task: TaskDefinition) -> int:
    """Tells apart what runs a task: threads, the event loop, processes."""
    return 2 if task.runs_in_process else int(task.is_async)
