"""What a person asks and does: figures, jobs, why one does not run, cancel, retry, purge, and the health of it all.

answers       what several shards said, as one answer
jobs          read, cancel, retry, reschedule, purge, pause
named_jobs    cancel and retry jobs that are named, each told what became of it
edits         a dead letter's arguments are changed
explain       why a job is not running
key_reasons   the rule about keys that holds a job back, in words
blocked_keys  keys that wait for a retry or for a person
hot_keys      keys that most jobs wait for
loads         bulk writes as a whole
draining      taking everything off a shard
deleting      deleting a queue
resize        another number of partitions, or another shard for one of them
naming_shards       how a person names a shard
naming_partitions   how a person names a partition
overview      all queues at one look, for whoever looks again and again
figures       stats of queues, their minutes, the shards
workers       the workers, what each runs, and to stop one
causes        dead letters by why they failed, and how often attempts failed of which cause
watching      which jobs have ended, which became dead letters: for whoever asks again and again
crons         cron entries
due           what of the scheduled jobs is due when
roles         what other database roles may do
tokens        access tokens: made, listed, revoked
token_book    the same, as a server goes by them
audit         who did what
doctor        what is wrong with the database, and what to do about it
attention     what needs a person's attention now, in all of the system
search        a text among everything that has an id, a name, a key or a tag
"""

from penstock.admin.answers import left_out
from penstock.admin.attention import attention
from penstock.admin.audit import audit
from penstock.admin.blocked_keys import blocked_keys, release
from penstock.admin.causes import causes, failures
from penstock.admin.crons import (
    CronDefinition,
    has_cron,
    knows_cron,
    pause_cron,
    read_crons,
    remove_cron,
    resume_cron,
    run_cron,
    write_cron,
)
from penstock.admin.deleting import delete_queue
from penstock.admin.doctor import doctor
from penstock.admin.draining import drain_progress, drain_shard
from penstock.admin.due import due
from penstock.admin.explain import explain
from penstock.admin.figures import (
    all_stats,
    answers,
    histories,
    history,
    queue_names,
    shards,
    silent_shard,
    stats,
)
from penstock.admin.hot_keys import hot_keys
from penstock.admin.jobs import (
    cancel,
    children,
    job,
    job_page,
    jobs,
    known_jobs,
    newest_dead_letters,
    pause,
    purge,
    reschedule,
    resume,
    retry,
)
from penstock.admin.loads import cancel_load, loads, pause_load, resume_load
from penstock.admin.named_jobs import cancel_jobs, retry_jobs
from penstock.admin.overview import overview
from penstock.admin.resize import move_partition, resize, resize_progress
from penstock.admin.roles import grant
from penstock.admin.search import search
from penstock.admin.token_book import TokenBook
from penstock.admin.tokens import check_token, create_token, revoke_token, tokens
from penstock.admin.watching import DeadLetters, DeadLettersSeen, dead_letters, ended_jobs
from penstock.admin.workers import stop_worker, worker, workers

__all__ = [
    "CronDefinition",
    "DeadLetters",
    "DeadLettersSeen",
    "TokenBook",
    "all_stats",
    "answers",
    "attention",
    "audit",
    "blocked_keys",
    "cancel",
    "cancel_jobs",
    "cancel_load",
    "causes",
    "check_token",
    "children",
    "create_token",
    "dead_letters",
    "delete_queue",
    "doctor",
    "drain_progress",
    "drain_shard",
    "due",
    "ended_jobs",
    "explain",
    "failures",
    "grant",
    "has_cron",
    "histories",
    "history",
    "hot_keys",
    "job",
    "job_page",
    "jobs",
    "known_jobs",
    "knows_cron",
    "left_out",
    "loads",
    "move_partition",
    "newest_dead_letters",
    "overview",
    "pause",
    "pause_cron",
    "pause_load",
    "purge",
    "queue_names",
    "read_crons",
    "release",
    "remove_cron",
    "reschedule",
    "resize",
    "resize_progress",
    "resume",
    "resume_cron",
    "resume_load",
    "retry",
    "retry_jobs",
    "revoke_token",
    "run_cron",
    "search",
    "shards",
    "silent_shard",
    "stats",
    "stop_worker",
    "tokens",
    "worker",
    "workers",
    "write_cron",
]
