"""Every metric there is: its name, type, labels and meaning. The reference and the texts that are scraped are made of
these.

Labels are names of the catalogue: a queue, a partition, a task, the number of a shard. What a producer makes up, such
as a key or a tenant, is never one: there would be a series for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["OF_SYSTEM", "OF_WORKER", "Metric"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What Prometheus is told of a metric beside its values. Of a histogram the name is without `_bucket`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str


PARTITION = ("queue", "partition", "shard")
TASK = ("queue", "task")

WAITING = Metric("penstock_jobs_waiting", "gauge", PARTITION, "Jobs that are ready and that no worker has.")
RUNNING = Metric("penstock_jobs_running", "gauge", PARTITION, "Jobs that a worker has: they run, or are about to.")
SCHEDULED = Metric("penstock_jobs_scheduled", "gauge", PARTITION, "Jobs that are due later: delayed, or retried.")
BLOCKED = Metric("penstock_jobs_blocked", "gauge", PARTITION, "Jobs that wait for other jobs.")
DEAD = Metric("penstock_jobs_dead", "gauge", PARTITION, "Dead letters: jobs out of attempts, which wait for a person.")
OLDEST_WAIT = Metric(
    "penstock_oldest_wait_seconds",
    "gauge",
    PARTITION,
    "For how long the oldest of the next jobs has been ready; 0 where none is.",
)
ENQUEUED = Metric("penstock_jobs_enqueued_total", "counter", PARTITION, "Jobs enqueued.")
COMPLETED = Metric("penstock_jobs_completed_total", "counter", PARTITION, "Jobs that succeeded.")
FAILED = Metric("penstock_jobs_failed_total", "counter", PARTITION, "Jobs that became dead letters.")
CANCELLED = Metric("penstock_jobs_cancelled_total", "counter", PARTITION, "Jobs that were cancelled or purged.")
DISCARDED = Metric("penstock_jobs_discarded_total", "counter", PARTITION, "Jobs whose handler discarded them.")
EXPIRED = Metric("penstock_jobs_expired_total", "counter", PARTITION, "Jobs that waited longer than max_wait.")

RUNNING_LIMIT = Metric(
    "penstock_running_limit",
    "gauge",
    PARTITION,
    "How many jobs may run in the partition: its limit, or its permits of a total_limit. penstock_jobs_running says how"
    " much of it is used. Missing where there is none.",
)
WAITING_LIMIT = Metric(
    "penstock_waiting_limit",
    "gauge",
    PARTITION,
    "How many jobs may wait in the partition: its max_length. penstock_jobs_waiting says how much of it is used."
    " Missing where there is none.",
)
RATE_LIMIT = Metric(
    "penstock_rate_limit_per_second",
    "gauge",
    PARTITION,
    "How many jobs may start in a second in the partition: its rate. Missing where there is none.",
)
RATE_STARTS = Metric(
    "penstock_rate_starts_total",
    "counter",
    PARTITION,
    "Jobs that have started by a rate or a total_rate: how much of these is used. Missing where there is neither.",
)
TOTAL_RUNNING_LIMIT = Metric(
    "penstock_total_running_limit",
    "gauge",
    ("queue",),
    "How many jobs of the queue may run, in all partitions and shards: its total_limit. Missing where there is none.",
)
TOTAL_RATE_LIMIT = Metric(
    "penstock_total_rate_limit_per_second",
    "gauge",
    ("queue",),
    "How many jobs of the queue may start in a second, in all partitions and shards: its total_rate. Missing where"
    " there is none.",
)
PAUSED = Metric("penstock_queue_paused", "gauge", ("queue",), "1 where the queue is paused, else 0.")
HALTED_KEYS = Metric(
    "penstock_halted_keys", "gauge", ("queue", "shard"), "Keys that wait for a person, after a dead letter of theirs."
)
HALTED_SECONDS = Metric(
    "penstock_halted_seconds",
    "gauge",
    ("queue", "shard"),
    "For how long the first halted key of the queue has waited for a person; 0 where none does.",
)
QUEUE_WORKERS = Metric(
    "penstock_queue_workers", "gauge", ("queue", "shard"), "Live workers that have a handler for a task of the queue."
)
UNSERVED_TASKS = Metric(
    "penstock_tasks_without_worker",
    "gauge",
    ("queue", "shard"),
    "Tasks of which a job is next, or was parked, and that no live worker has a handler for.",
)
UNSERVED_SECONDS = Metric(
    "penstock_task_without_worker_seconds",
    "gauge",
    ("queue", "task", "shard"),
    "For how long the first of the task's jobs has waited without a live worker that has a handler for it. Missing"
    " where there is such a worker, where none waits, and of a task that no app has announced.",
)
WORKERS = Metric(
    "penstock_workers",
    "gauge",
    ("shard",),
    "Workers that have renewed their lease in time, also those in other languages; not servers.",
)
SILENT_WORKERS = Metric(
    "penstock_workers_silent",
    "gauge",
    ("shard",),
    "Workers and servers whose lease has run out and that nobody has removed yet.",
)
CONCURRENCY = Metric("penstock_workers_concurrency", "gauge", ("shard",), "Slots of all live workers together.")
OVERDUE = Metric(
    "penstock_overdue_seconds",
    "gauge",
    ("shard",),
    "How late the scheduled job is that was due first: upkeep makes it ready; 0 where none is late.",
)
FAILING_DUTIES = Metric(
    "penstock_failing_duties", "gauge", ("shard",), "Duties of upkeep that fail again and again: see penstock doctor."
)
SHARD_UP = Metric(
    "penstock_shard_up", "gauge", ("shard",), "1 where the shard answered this scrape, else 0: then it tells no more."
)
SHARD_WRITABLE = Metric("penstock_shard_writable", "gauge", ("shard",), "1 where the shard takes writes, else 0.")
SHARD_DRAINING = Metric("penstock_shard_draining", "gauge", ("shard",), "1 where the shard is being drained, else 0.")
FOLDED_PARTITIONS = Metric(
    "penstock_folded_partitions",
    "gauge",
    (),
    "Partitions that have no series of their own, to keep to the bound: they are in one of their queue.",
)
FOLDED_QUEUES = Metric(
    "penstock_folded_queues",
    "gauge",
    (),
    "Queues that have no series of their own, to keep to the bound: their jobs are in one without a queue.",
)
LEFT_OUT_TASKS = Metric(
    "penstock_left_out_tasks",
    "gauge",
    (),
    "Tasks without a worker that have no series of their own, to keep to the bound or since no app has announced them.",
)
READ_SECONDS = Metric("penstock_read_seconds", "gauge", (), "How long it took to read these from the databases.")

OF_SYSTEM = (
    WAITING,
    RUNNING,
    SCHEDULED,
    BLOCKED,
    DEAD,
    OLDEST_WAIT,
    ENQUEUED,
    COMPLETED,
    FAILED,
    CANCELLED,
    DISCARDED,
    EXPIRED,
    RUNNING_LIMIT,
    WAITING_LIMIT,
    RATE_LIMIT,
    RATE_STARTS,
    TOTAL_RUNNING_LIMIT,
    TOTAL_RATE_LIMIT,
    PAUSED,
    HALTED_KEYS,
    HALTED_SECONDS,
    QUEUE_WORKERS,
    UNSERVED_TASKS,
    UNSERVED_SECONDS,
    WORKERS,
    SILENT_WORKERS,
    CONCURRENCY,
    OVERDUE,
    FAILING_DUTIES,
    SHARD_UP,
    SHARD_WRITABLE,
    SHARD_DRAINING,
    FOLDED_PARTITIONS,
    FOLDED_QUEUES,
    LEFT_OUT_TASKS,
    READ_SECONDS,
)

WAIT_SECONDS = Metric(
    "penstock_worker_wait_seconds",
    "histogram",
    TASK,
    "How long jobs had been ready when their handler was called here; its count is how many attempts have started and"
    " ended.",
)
RUN_SECONDS = Metric(
    "penstock_worker_run_seconds", "histogram", TASK, "How long handlers ran here; each job of a batch has its part."
)
WORKER_SUCCEEDED = Metric("penstock_worker_succeeded_total", "counter", TASK, "Attempts here that succeeded.")
WORKER_RETRIED = Metric("penstock_worker_retried_total", "counter", TASK, "Attempts here that failed and are retried.")
WORKER_SNOOZED = Metric("penstock_worker_snoozed_total", "counter", TASK, "Attempts here that were put off: Snooze.")
WORKER_FAILED = Metric("penstock_worker_failed_total", "counter", TASK, "Attempts here that made a dead letter.")
WORKER_DISCARDED = Metric("penstock_worker_discarded_total", "counter", TASK, "Jobs that their handler here discarded.")
WORKER_CANCELLED = Metric("penstock_worker_cancelled_total", "counter", TASK, "Jobs that were cancelled here.")
WORKER_EXPIRED = Metric(
    "penstock_worker_expired_total", "counter", TASK, "Jobs whose max_wait was over before they started here."
)
WORKER_LATE = Metric(
    "penstock_worker_late_ends_total",
    "counter",
    TASK,
    "Ends that came too late: the job was no longer this worker's, and nothing was written.",
)
LEASES_LOST = Metric(
    "penstock_worker_leases_lost_total",
    "counter",
    ("shard",),
    "Leases that others took over, as this worker was silent.",
)
RESCUED = Metric("penstock_worker_rescued_total", "counter", (), "Jobs of dead workers that this worker rescued.")
SLOTS = Metric("penstock_worker_slots", "gauge", (), "Slots of this worker: its concurrency.")
SLOTS_USED = Metric("penstock_worker_slots_used", "gauge", (), "Slots that run a job.")
LEFT_BEHIND = Metric(
    "penstock_worker_left_behind", "gauge", (), "Handlers that ran past their timeout and have not returned."
)
LOOP_BLOCKED = Metric("penstock_worker_loop_blocked", "gauge", (), "1 where a handler blocks the event loop, else 0.")
PROCESSES = Metric("penstock_worker_processes", "gauge", (), "Handler processes that run.")
BACKLOG = Metric("penstock_worker_backlog", "gauge", ("shard",), "Jobs that this worker has and that have not started.")
DATABASE_READY = Metric(
    "penstock_worker_database_ready", "gauge", ("shard",), "1 where this worker can claim from the shard, else 0."
)
WORKER_READY = Metric("penstock_worker_ready", "gauge", (), "1 where this worker can claim, else 0.")
WORKER_LIVE = Metric("penstock_worker_live", "gauge", (), "1 where this worker's threads turn, else 0.")

# What became of an attempt, as settles name it.
ENDS = {
    "succeeded": WORKER_SUCCEEDED,
    "retry": WORKER_RETRIED,
    "snooze": WORKER_SNOOZED,
    "failed": WORKER_FAILED,
    "discarded": WORKER_DISCARDED,
    "cancelled": WORKER_CANCELLED,
    "expired": WORKER_EXPIRED,
}

OF_WORKER = (
    WAIT_SECONDS,
    RUN_SECONDS,
    *ENDS.values(),
    WORKER_LATE,
    LEASES_LOST,
    RESCUED,
    SLOTS,
    SLOTS_USED,
    LEFT_BEHIND,
    LOOP_BLOCKED,
    PROCESSES,
    BACKLOG,
    DATABASE_READY,
    WORKER_READY,
    WORKER_LIVE,
)
