"""A turn for a remote worker on one database, whichever lane it goes: what it is for, and what comes of it.

plain lane   queues without an owner: a claim, over any connection
owned lane   queues with one: this server's owner chooses, in the one thread that is its own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from penstock.clock import system
from penstock.engine.conversation import Holder
from penstock.model.trace_context import TRACEPARENT, trace_of
from penstock.server.remote.ends import SettledEnds
from penstock.server.remote.job_names import key_text, lease_text, lost_job
from penstock.server.remote.messages import GivenJob, LostJob
from penstock.server.remote.registered_worker import RegisteredWorker
from penstock.storage import Connection
from penstock.storage.connection.error_meaning import DatabaseError, may_repeat
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work.leases import LeasedJob, read_jobs
from penstock.storage.work.remote_workers import (
    Greeting,
    HeldLease,
    Opening,
    PollRecord,
    RemoteTurn,
    is_gone,
    is_superseded,
)

__all__ = [
    "Asker",
    "Order",
    "RemoteGone",
    "Superseded",
    "Taken",
    "Unsure",
    "explain_failure",
    "give",
    "read_given",
    "read_tasks",
]

T = TypeVar("T")


class Superseded(Exception):
    """Something is another than was seen: another request acts for the worker, or what it holds has changed."""


class RemoteGone(Exception):
    """The worker was declared dead on this database."""


class Unsure(Exception):
    """The answer to a turn was lost. It is certain that it is never committed, or known what it did, once another
    request has taken the place of the one that sent it: `request`.
    """

    def __init__(self, request: int) -> None:
        super().__init__(request)
        self.request = request


@dataclass(frozen=True, slots=True)
class Order:
    """What a turn is for. `settled`: it begins the poll, with these ends; None: it tries to get more for one.

    `is_last`: nothing more is tried on this database.
    """

    remote: int
    number: int
    request: int
    greeting: Greeting
    registered: RegisteredWorker
    want: int
    is_last: bool
    settled: SettledEnds | None = None
    without: Mapping[int, int] = field(default_factory=dict)
    is_untold: bool = False

    @property
    def holder(self) -> Holder:
        return Holder(self.greeting.worker, self.greeting.name)

    @property
    def has_suspect(self) -> bool:
        """Whether the worker has a job that was rescued twice: it may be one that kills workers."""
        ended = set() if self.settled is None else {named.lease for named in self.settled.named}
        return any(lease.rescues > 1 and lease.id not in ended for lease in self.greeting.held.values())

    def turn(self, wake: Sequence[int] = ()) -> RemoteTurn:
        """The same for the storage."""
        opening, settled = None, self.settled
        if settled is not None:
            opening = Opening(
                self.greeting.number,
                self.greeting.request,
                settled.named,
                len(settled.lost),
                settled.ended_jobs,
                settled.failed_jobs,
                self.without,
                self.is_untold,
            )
            wake = [*settled.wake, *wake]
        return RemoteTurn(self.remote, self.number, self.request, self.is_last, opening, sorted(set(wake)))


@dataclass(slots=True)
class Taken:
    """What came of a turn. `is_done`: the poll is over on this database."""

    jobs: list[GivenJob] = field(default_factory=list)
    lost: list[LostJob] = field(default_factory=list)
    is_done: bool = False
    # How many ends the poll named there, and how many of them were not taken.
    ends: int = 0
    ends_lost: int = 0
    # Seconds after which something may start that could not now.
    again_in: float | None = None
    # How long what was given had waited, by queue; in microseconds.
    waits: Mapping[int, list[int]] = field(default_factory=dict)
    # Whether this server owns a partition of any of the queues that were asked for; None: none of them has an owner.
    owns: bool | None = None


class Asker(NamedTuple):
    """Who asks for a holder of leases what may be repeated."""

    holder: Holder
    run: Callable[[Callable[[Connection], object]], object]

    def ask(self, act: Callable[[Connection], T]) -> T:
        return self.run(act)  # type: ignore[return-value]


def explain_failure(error: DatabaseError) -> Exception:
    """What an error means for whoever sent a turn."""
    if is_superseded(error):
        return Superseded()
    if is_gone(error):
        return RemoteGone()
    return Unsure(system.random_token()) if may_repeat(error) else error


def read_tasks(connection: Connection, leases: Sequence[HeldLease]) -> dict[int, str]:
    """The tasks of jobs whose lease does not tell."""
    return {job: row[4] for job, row in read_jobs(connection, leases, with_task=True).items()}


def read_given(connection: Connection, record: PollRecord) -> dict[int, LeasedJob]:
    """The jobs that a poll was given, read again."""
    leases = [each.as_lease() for each in record.claimed]
    rows: dict[int, LeasedJob] = {}
    if plain := [lease for lease in leases if lease.task]:
        rows |= read_jobs(connection, plain)
    if mixed := [lease for lease in leases if not lease.task]:
        rows |= read_jobs(connection, mixed, with_task=True)
    return rows


def _trace_of(attributes: str) -> Mapping[str, str]:
    """The trace context among a job's attributes, as they are stored."""
    if f'"{TRACEPARENT}"' not in attributes:
        return {}
    trace = trace_of(msgspec.json.decode(attributes))
    return {} if trace is None else trace.headers


def give(shard: int, registered: RegisteredWorker, record: PollRecord | None, rows: Mapping[int, LeasedJob]) -> Taken:
    """What is kept of a poll, as its worker is told; of the jobs those that could be read. None: nothing was done."""
    if record is None:
        return Taken()
    jobs = []
    for lease in record.claimed:
        name = lease_text(shard, lease.id, lease.token)
        queue = registered.by_queue.get(lease.queue_id)
        queue_name = "" if queue is None else queue.name
        timeouts: dict[str, float | None] = {}
        for position in lease.positions:
            row = rows.get(lease.range * RANGE + position)
            if row is None:
                continue
            task = lease.task or row[4]
            if task not in timeouts:
                timeouts[task] = registered.task(lease.queue_id, task).timeout
            jobs.append(
                GivenJob(
                    id=str(row[0]),
                    lease=name,
                    queue=queue_name,
                    task=task,
                    args=msgspec.Raw(row[1].encode()),
                    key=key_text(row[2]),
                    attempt=lease.attempt,
                    timeout=timeouts[task],
                    **(_trace_of(row[3]) if row[3] else {}),
                )
            )
    lost = [lost_job(shard, named) for named in (*record.lost, *record.taken_away)]
    return Taken(jobs, lost, record.is_done, record.ends, len(record.lost))
