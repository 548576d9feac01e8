"""The whole system's metrics, from its databases: one statement on each, side by side.

Every server tells the same system: whoever adds up over several of them counts it twice, so alerts and dashboards take
the largest by its labels. A database that does not answer is told as down, and the others are told all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from penstock.clock import system
from penstock.errors import PenstockError
from penstock.metrics import definitions as metrics
from penstock.metrics.cached import Cached
from penstock.metrics.definitions import Metric
from penstock.metrics.exposition import Exposition, labelled
from penstock.metrics.series_bound import MOST_TASKS, bound_series
from penstock.shards.databases import Databases
from penstock.storage import Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.inspect.system_figures import SystemFigures, read_system_figures

__all__ = ["CachedMetrics", "expose", "system_metrics"]

# Who scrapes waits for ten seconds, if nothing else was said.
PATIENCE_SECONDS = 3.0

# Metrics of a partition, and which of its figures they tell.
_OF_PARTITION: tuple[tuple[Metric, str], ...] = (
    (metrics.WAITING, "waiting"),
    (metrics.RUNNING, "running"),
    (metrics.SCHEDULED, "scheduled"),
    (metrics.BLOCKED, "blocked"),
    (metrics.DEAD, "dead"),
    (metrics.OLDEST_WAIT, "oldest_wait_seconds"),
    (metrics.ENQUEUED, "enqueued"),
    (metrics.COMPLETED, "completed"),
    (metrics.FAILED, "failed"),
    (metrics.CANCELLED, "cancelled"),
    (metrics.DISCARDED, "discarded"),
    (metrics.EXPIRED, "expired"),
    (metrics.RUNNING_LIMIT, "running_limit"),
    (metrics.WAITING_LIMIT, "max_length"),
    (metrics.RATE_LIMIT, "rate"),
    (metrics.RATE_STARTS, "rate_starts"),
)
_OF_SHARD: tuple[tuple[Metric, Callable[[SystemFigures], float]], ...] = (
    (metrics.WORKERS, lambda each: each.workers_alive),
    (metrics.SILENT_WORKERS, lambda each: each.workers_silent),
    (metrics.CONCURRENCY, lambda each: each.concurrency),
    (metrics.OVERDUE, lambda each: each.overdue_seconds),
    (metrics.FAILING_DUTIES, lambda each: each.failing_duties),
    (metrics.SHARD_WRITABLE, lambda each: int(each.takes_writes)),
    (metrics.SHARD_DRAINING, lambda each: int(each.state == "draining")),
)


def system_metrics(databases: Databases) -> bytes:
    """The text that Prometheus scrapes. It never raises for a database that is away: that is among what is told."""
    began_at = system.monotonic()
    figures: dict[int, SystemFigures | None] = {
        database.shard: None for database in databases if database.shard not in databases.drained
    }

    def read(database: Database) -> None:
        try:
            figures[database.shard] = databases.ask(
                database, read_system_figures, timeout=PATIENCE_SECONDS, writes=False
            )
        except (PenstockError, DatabaseError):
            # Down, or of a schema that this program does not know: told as not up.
            return

    databases.each_database(read)
    return expose(figures, seconds=system.monotonic() - began_at)


class CachedMetrics:
    """The same, at most a second old. Safe to use from any number of threads; one of them reads at a time."""

    def __init__(self, databases: Databases) -> None:
        self._cached = Cached(lambda: system_metrics(databases))

    def text(self) -> bytes:
        """The text that Prometheus scrapes."""
        return self._cached.get()


def expose(figures: Mapping[int, SystemFigures | None], *, seconds: float) -> bytes:
    """The text of what each shard said; None where it said nothing."""
    told = {shard: each for shard, each in figures.items() if each is not None}
    bounded = bound_series(
        ((shard, partition) for shard, each in told.items() for partition in each.partitions),
        (queue.queue for each in told.values() for queue in each.queues),
    )
    text = Exposition()
    partitions = [
        (labelled(queue=each.queue, partition=each.partition, shard=str(shard)), each)
        for shard, each in bounded.partitions
    ]
    for metric, name in _OF_PARTITION:
        figure = attrgetter(name)
        text.add(metric, [(label, value) for label, each in partitions if (value := figure(each)) is not None])
    _add_queues(text, told, bounded.queues)
    left_out = _add_tasks(text, told, bounded.queues)
    for metric, of_shard in _OF_SHARD:
        text.add(metric, [(labelled(shard=str(shard)), of_shard(each)) for shard, each in told.items()])
    text.add(metrics.SHARD_UP, [(labelled(shard=str(shard)), int(shard in told)) for shard in figures])
    text.add(metrics.FOLDED_PARTITIONS, [("", bounded.folded_partitions)])
    text.add(metrics.FOLDED_QUEUES, [("", bounded.folded_queues)])
    text.add(metrics.LEFT_OUT_TASKS, [("", left_out)])
    text.add(metrics.READ_SECONDS, [("", seconds)])
    return text.text()


def _add_queues(text: Exposition, told: Mapping[int, SystemFigures], named: frozenset[str]) -> None:
    """What concerns a queue as a whole: options are the same everywhere, the rest is each shard's."""
    queues = [(shard, queue) for shard, each in told.items() for queue in each.queues if queue.queue in named]
    known = {queue.queue: queue for _, queue in queues}
    limits = [(labelled(queue=name), each) for name, each in known.items()]
    text.add(metrics.TOTAL_RUNNING_LIMIT, _present((label, each.total_limit) for label, each in limits))
    text.add(metrics.TOTAL_RATE_LIMIT, _present((label, each.total_rate) for label, each in limits))
    text.add(metrics.PAUSED, [(label, int(each.is_paused)) for label, each in limits])
    labels = [(labelled(queue=queue.queue, shard=str(shard)), queue) for shard, queue in queues]
    text.add(metrics.HALTED_KEYS, [(label, each.halted_keys) for label, each in labels])
    text.add(metrics.HALTED_SECONDS, [(label, each.halted_seconds) for label, each in labels])
    text.add(metrics.QUEUE_WORKERS, [(label, each.workers) for label, each in labels])


def _add_tasks(text: Exposition, told: Mapping[int, SystemFigures], named: frozenset[str]) -> int:
    """The tasks that wait without a worker; how many of them are not told one by one."""
    found = [(shard, task) for shard, each in told.items() for task in each.unserved]
    counts = {(queue.queue, shard): 0 for shard, each in told.items() for queue in each.queues if queue.queue in named}
    for shard, task in found:
        if task.queue in named:
            counts[task.queue, shard] += 1
    text.add(
        metrics.UNSERVED_TASKS,
        [(labelled(queue=queue, shard=str(shard)), count) for (queue, shard), count in counts.items()],
    )
    shown = [(shard, task) for shard, task in found if task.is_announced and task.queue in named][:MOST_TASKS]
    text.add(
        metrics.UNSERVED_SECONDS,
        [(labelled(queue=task.queue, task=task.task, shard=str(shard)), task.waited_seconds) for shard, task in shown],
    )
    return len(found) - len(shown)


def _present(series: Iterable[tuple[str, float | None]]) -> Iterator[tuple[str, float]]:
    return ((label, value) for label, value in series if value is not None)
