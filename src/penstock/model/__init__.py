"""What Penstock speaks of, as plain values.

job, job_state, explanation     a job as it is read back, the states it can be in, why it does not run
job_filters, job_page           by what jobs are chosen; a page of them
job_act                         what became of an act on one of several
history, dead_letter            figures minute by minute; what watchers are told of a dead letter
cause                           why jobs fail: what dead letters have in common, how often attempts failed of it
attention, search_hit           what needs a person's attention; what a search found
records                         what is read back, as JSON carries it
token                           who may use the HTTP API
queue, rules, option, rate      what an app declares of a queue; its rules, and what is known of each option; rates
overview                        all queues at one look, for whoever looks again and again
stats, worker                   figures of queues; a worker as others see it
blocked_key, hot_key            a key that waits; one that many jobs wait for
cron, load, resize, shard, drain   these, as they are read back
due                             what of the scheduled jobs is due when
token, audit_entry              by what a program comes in that has no password; what somebody did
catalogue_states                the states of shards, key maps and partitions, and every legal step
handler_signals                 what a handler may say of its own job, by raising it
checks                          the bounds of everything a user may hand in
wrong_calls                     what is said to a call with an option that there is not, or without what it needs
check                           what the doctor found
encoding                        values as JSON
trace_context                   where a job comes from, in a distributed trace
unique_key                      what jobs that are unique while they wait have in common
short_repr                      what a REPL shows of these
error_text                      an exception as the text that is stored, with the lines of code that it came from

Nothing here does I/O or knows a clock. Every object is frozen: what a call returned stays what it was.
"""

from penstock.model.attention import Attention
from penstock.model.audit_entry import AuditEntry
from penstock.model.blocked_key import BlockedKey
from penstock.model.cause import Cause, FailureHistory, FailuresOfCause
from penstock.model.check import Check
from penstock.model.cron import Cron
from penstock.model.drain import Drain, DrainRest
from penstock.model.due import Due, DueSpan
from penstock.model.explanation import Explanation
from penstock.model.handler_signals import Discard, Retry, Snooze
from penstock.model.history import History, Minute, Percentiles
from penstock.model.hot_key import HotKey, HotKeys
from penstock.model.job import Edit, Failure, Job
from penstock.model.job_act import JobAct
from penstock.model.job_page import JobPage
from penstock.model.job_state import State
from penstock.model.load import Load
from penstock.model.queue import QueueDefinition
from penstock.model.resize import Resize
from penstock.model.rules import QueueRules
from penstock.model.search_hit import SearchHit
from penstock.model.shard import Shard
from penstock.model.stats import PartitionStats, Stats
from penstock.model.token import Role, Token
from penstock.model.trace_context import TraceContext
from penstock.model.worker import RunningJob, WorkerInfo

__all__ = [
    "Attention",
    "AuditEntry",
    "BlockedKey",
    "Cause",
    "Check",
    "Cron",
    "Discard",
    "Drain",
    "DrainRest",
    "Due",
    "DueSpan",
    "Edit",
    "Explanation",
    "Failure",
    "FailureHistory",
    "FailuresOfCause",
    "History",
    "HotKey",
    "HotKeys",
    "Job",
    "JobAct",
    "JobPage",
    "Load",
    "Minute",
    "PartitionStats",
    "Percentiles",
    "QueueDefinition",
    "QueueRules",
    "Resize",
    "Retry",
    "Role",
    "RunningJob",
    "SearchHit",
    "Shard",
    "Snooze",
    "State",
    "Stats",
    "Token",
    "TraceContext",
    "WorkerInfo",
]
