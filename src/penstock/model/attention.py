"""What needs a person's attention: each a fact with its figures, of which a page or a terminal makes a sentence.

The kinds, the most urgent first:

    shard-down        a database does not answer; `detail`: reason
    shard-read-only   a database takes no writes
    no-worker         jobs are ready, and no live worker serves the queue; count of jobs, since the oldest is ready
    unserved-task     jobs wait for a task that no live worker has, of a queue that some serve; since the oldest waits
    failing-duty      a duty of upkeep, `name`, fails again and again; `detail`: error
    halted-keys       keys wait for a person, since a job of theirs is a dead letter; count of keys, since the first
    stuck-jobs        jobs of a task run for far longer than they may; count, since the first started; `detail`: jobs,
                      has_timeout
    nearly-full       a queue may soon refuse jobs; count of ready jobs; `detail`: partition, max_length
    dead-letters      jobs became dead letters within the last hour; count of these; `detail`: dead (all there are),
                      last_at
    failed-cron       the last job of a cron, `name`, is a dead letter; since then; `detail`: job_id
    set-aside         jobs that cannot be read, or whose end cannot be written; count, since the first; `detail`: jobs,
                      reason
    long-wait         the oldest ready job of a queue waits for too long; count of ready jobs, since that one is ready
    growing           more comes into a queue than goes out; count of ready jobs; `detail`: in_per_minute,
                      out_per_minute
    paused-queue      a queue is paused, and jobs wait; count of these, since the oldest is ready
    paused-load       a load, `name`, is paused, and jobs of it wait
    paused-cron       a cron, `name`, is paused
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

__all__ = ["KINDS", "Attention", "AttentionKind"]

AttentionKind = Literal[
    "shard-down",
    "shard-read-only",
    "no-worker",
    "unserved-task",
    "failing-duty",
    "halted-keys",
    "stuck-jobs",
    "nearly-full",
    "dead-letters",
    "failed-cron",
    "set-aside",
    "long-wait",
    "growing",
    "paused-queue",
    "paused-load",
    "paused-cron",
]
KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One thing that needs attention. What `name`, `count`, `since` and `detail` tell depends on its `kind`.

    `shard` is given where it is about a shard as a whole. `name` is that of a duty, a cron or a load.
    """

    kind: AttentionKind
    queue: str | None = None
    shard: str | None = None
    task: str | None = None
    name: str | None = None
    count: int | None = None
    since: datetime | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
