"""All pages, each subject in a file.

overview          what needs attention, and every queue in a line
queue             one queue: its figures, over time and by partition
queue_partitions  more of them, or one moved to another shard
queue_keys        its hot, held and halted keys
queue_rules       its limits, to be changed
queue_removal     its jobs purged, or all of it deleted, after a count
enqueue           a job by hand
new_queue         a queue by hand
jobs              jobs by any filters, page by page
chosen_jobs       those filters, and what may be done to all that match
held_queues       why jobs do not start, of whole queues and tasks
jobs_change       that is done, after a count
job               one job
job_arguments     a dead letter is retried with other arguments
dead_letters      dead letters by cause
search            what was typed into the box
schedules         what is enqueued by the calendar, and what is due when
workers           who is alive, and what each runs
loads             bulk writes, and how far they are
shards            the databases, and draining one
tokens            who may come in over HTTP
audit             who did what
history           the report that Spark made
"""

from penstock.server.dashboard.entry import Entry
from penstock.server.dashboard.pages.audit import audit
from penstock.server.dashboard.pages.dead_letters import dead_letters
from penstock.server.dashboard.pages.enqueue import enqueue
from penstock.server.dashboard.pages.history import history
from penstock.server.dashboard.pages.job import job
from penstock.server.dashboard.pages.job_arguments import job_arguments
from penstock.server.dashboard.pages.jobs import jobs
from penstock.server.dashboard.pages.jobs_change import jobs_change
from penstock.server.dashboard.pages.loads import loads
from penstock.server.dashboard.pages.new_queue import new_queue
from penstock.server.dashboard.pages.overview import overview
from penstock.server.dashboard.pages.queue import queue
from penstock.server.dashboard.pages.queue_keys import queue_keys
from penstock.server.dashboard.pages.queue_partitions import queue_partitions
from penstock.server.dashboard.pages.queue_removal import queue_removal
from penstock.server.dashboard.pages.queue_rules import queue_rules
from penstock.server.dashboard.pages.schedules import schedules
from penstock.server.dashboard.pages.search import search
from penstock.server.dashboard.pages.shards import shards
from penstock.server.dashboard.pages.tokens import tokens
from penstock.server.dashboard.pages.workers import workers

__all__ = ["PAGES"]

PAGES: list[Entry] = [
    *overview,
    *jobs,
    *jobs_change,
    *job,
    *job_arguments,
    *dead_letters,
    *search,
    *schedules,
    *workers,
    *loads,
    *shards,
    *tokens,
    *audit,
    *history,
    *queue,
    *queue_partitions,
    *queue_keys,
    *queue_rules,
    *queue_removal,
    *enqueue,
    *new_queue,
]
