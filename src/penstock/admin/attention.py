"""What needs a person's attention, judged from what all shards say. It costs the same at any backlog.

A queue is one thing on however many shards it lies; whatever is found of it on several is added up. From when on
something is wrong is decided in `penstock.policy.judgements`, for the doctor too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from penstock.errors import PenstockError
from penstock.model.attention import KINDS, Attention
from penstock.policy.judgements import LONG_WAIT_SECONDS, NEARLY_FULL, grows
from penstock.shards.databases import Databases
from penstock.storage import Database
from penstock.storage.connection.error_meaning import DatabaseError, first_line
from penstock.storage.inspect.attention import AttentionFacts, read_attention_facts
from penstock.storage.inspect.system_figures import PartitionFigures

__all__ = ["attention"]

# Who asks looks at a page: a shard that does not answer in that time is told as one that does not.
PATIENCE_SECONDS = 3.0
# Of tasks that nobody has: who enqueues from SQL may name any.
MOST_TASKS_OF_QUEUE = 100
MOST_JOBS = 20


def attention(databases: Databases, queues: Collection[str] | None = None) -> list[Attention]:
    """What needs attention, the most urgent first: of these queues only, or of all and of what is no queue's."""
    told, silent = _ask(databases)
    found = [each for judge in _OF_SHARDS for each in judge(told)] + silent if queues is None else []
    found += [each for judge in _OF_QUEUES for each in judge(told) if queues is None or each.queue in queues]
    return sorted(
        found, key=lambda each: (KINDS.index(each.kind), -(each.count or 0), each.queue or "", each.name or "")
    )


Told = Mapping[int, AttentionFacts]


def _ask(databases: Databases) -> tuple[Told, list[Attention]]:
    told: dict[int, AttentionFacts] = {}
    reasons: dict[int, str] = {}

    def read(database: Database) -> None:
        try:
            told[database.shard] = databases.ask(database, read_attention_facts, timeout=PATIENCE_SECONDS, writes=False)
        except (PenstockError, DatabaseError) as error:
            reasons[database.shard] = database.breaker.reason or first_line(error)

    databases.each_database(read)
    return told, [
        Attention(kind="shard-down", shard=str(number), detail={"reason": reasons[number]})
        for number in sorted(reasons)
        if number not in databases.drained
    ]


@dataclass(slots=True)
class _Sum:
    """What is found of a queue, or a task of it, on one shard after another."""

    count: int = 0
    since: datetime | None = None

    def add(self, count: int, since: datetime | None) -> None:
        self.count += count
        if since is not None and (self.since is None or since < self.since):
            self.since = since


def _read_only(told: Told) -> Iterator[Attention]:
    for number, facts in told.items():
        if not facts.figures.takes_writes:
            yield Attention(kind="shard-read-only", shard=str(number))


def _duties(told: Told) -> Iterator[Attention]:
    for number, facts in told.items():
        for each in facts.troubles:
            yield Attention(
                kind="failing-duty",
                shard=str(number),
                name=each.duty,
                since=_ago(facts, each.seconds),
                detail={"error": each.error},
            )


def _backlogs(told: Told) -> Iterator[Attention]:
    """Queues of which jobs are ready and do not run: nobody serves them, they are paused, or it takes too long."""
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    for facts in told.values():
        states = {queue.queue: queue for queue in facts.figures.queues}
        for name, partitions in _by_queue(facts):
            waiting = sum(each.waiting for each in partitions)
            seconds = max(each.oldest_wait_seconds for each in partitions)
            in_line = max(each.oldest_in_line_seconds for each in partitions)
            if waiting <= 0 or name not in states:
                continue
            since = _ago(facts, seconds)
            if states[name].is_paused:
                sums["paused-queue", name].add(waiting, since)
            elif not states[name].workers:
                sums["no-worker", name].add(waiting, since)
            elif in_line > LONG_WAIT_SECONDS:
                # What is parked waits for a worker that has its task, and is told as that.
                sums["long-wait", name].add(waiting, _ago(facts, in_line))
    for (kind, name), found in sums.items():
        yield Attention(kind=kind, queue=name, count=found.count, since=found.since)  # type: ignore[arg-type]


def _tasks(told: Told) -> Iterator[Attention]:
    """Tasks that wait and that nobody has, of queues that are served."""
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    for facts in told.values():
        served = {queue.queue for queue in facts.figures.queues if queue.workers and not queue.is_paused}
        for each in facts.figures.unserved:
            if each.queue in served:
                sums[each.queue, each.task].add(0, _ago(facts, each.waited_seconds))
    for _, tasks in groupby(sorted(sums), key=lambda pair: pair[0]):
        for queue, task in list(tasks)[:MOST_TASKS_OF_QUEUE]:
            yield Attention(kind="unserved-task", queue=queue, task=task, since=sums[queue, task].since)


def _halted(told: Told) -> Iterator[Attention]:
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for facts in told.values():
        for each in facts.figures.queues:
            if each.halted_keys:
                sums[each.queue].add(each.halted_keys, _ago(facts, each.halted_seconds))
    for queue, found in sums.items():
        yield Attention(kind="halted-keys", queue=queue, count=found.count, since=found.since)


def _stuck(told: Told) -> Iterator[Attention]:
    sums: dict[tuple[str, str, bool], _Sum] = defaultdict(_Sum)
    jobs: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
    for facts in told.values():
        for each in facts.stuck:
            key = each.queue, each.task, each.has_timeout
            sums[key].add(1, _ago(facts, each.seconds))
            jobs[key].append(each.job_id)
    for key, found in sums.items():
        queue, task, has_timeout = key
        yield Attention(
            kind="stuck-jobs",
            queue=queue,
            task=task,
            count=found.count,
            since=found.since,
            detail={"jobs": jobs[key][:MOST_JOBS], "has_timeout": has_timeout},
        )


def _full(told: Told) -> Iterator[Attention]:
    """Queues with a partition that is nearly as long as it may be; the fullest of them is told."""
    for name, partitions in _of_queues(told):
        full = [each for each in partitions if each.max_length and each.waiting >= NEARLY_FULL * each.max_length]
        if full:
            fullest = max(full, key=lambda each: each.waiting / (each.max_length or 1))
            detail = {"partition": fullest.partition, "max_length": fullest.max_length}
            yield Attention(kind="nearly-full", queue=name, count=fullest.waiting, detail=detail)


def _letters(told: Told) -> Iterator[Attention]:
    """Queues with new dead letters. They are counted by what was noted an hour ago; where nobody noted that, among
    those that are looked at.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    dead: dict[str, int] = defaultdict(int)
    last: dict[str, datetime] = {}
    for facts in told.values():
        before = {each.partition: each.failed for each in facts.failures}
        newest = {each.partition: each for each in facts.letters}
        for each in facts.figures.partitions:
            dead[each.queue] += each.dead
            if not each.dead or each.partition not in newest:
                continue
            seen = newest[each.partition]
            counted = each.failed - before[each.partition] if each.partition in before else 0
            # One that was retried since is none any more.
            sums[each.queue].add(min(max(counted, seen.letters), each.dead), None)
            last_at = _ago(facts, seen.last_seconds)
            last[each.queue] = max(last.get(each.queue, last_at), last_at)
    for queue, found in sums.items():
        detail = {"dead": dead[queue], "last_at": last[queue]}
        yield Attention(kind="dead-letters", queue=queue, count=found.count, detail=detail)


def _aside(told: Told) -> Iterator[Attention]:
    sums: dict[str, _Sum] = defaultdict(_Sum)
    jobs: dict[str, list[int]] = defaultdict(list)
    reasons: dict[str, str] = {}
    for facts in told.values():
        for each in facts.set_aside:
            sums[each.queue].add(each.count, each.since)
            jobs[each.queue] += each.jobs
            reasons.setdefault(each.queue, each.reason)
    for queue, found in sums.items():
        detail = {"jobs": jobs[queue][:MOST_JOBS], "reason": reasons[queue]}
        yield Attention(kind="set-aside", queue=queue, count=found.count, since=found.since, detail=detail)


def _growing(told: Told) -> Iterator[Attention]:
    """Queues that grow: what came and went in each partition since a note of the last minutes."""
    flows: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    idle = {
        queue.queue for facts in told.values() for queue in facts.figures.queues if queue.is_paused or not queue.workers
    }
    for facts in told.values():
        before = {each.partition: each for each in facts.flows}
        for each in facts.figures.partitions:
            flow = flows[each.queue]
            flow[0] += each.waiting
            if (noted := before.get(each.partition)) is not None and noted.seconds > 0:
                flow[1] += (each.enqueued - noted.enqueued) / noted.seconds * 60
                flow[2] += (_ended(each) - noted.ended) / noted.seconds * 60
    for queue, (waiting, in_per_minute, out_per_minute) in flows.items():
        if queue not in idle and grows(int(waiting), in_per_minute, out_per_minute):
            detail = {"in_per_minute": round(in_per_minute, 1), "out_per_minute": round(out_per_minute, 1)}
            yield Attention(kind="growing", queue=queue, count=int(waiting), detail=detail)


def _loads(told: Told) -> Iterator[Attention]:
    found = {(each.load, each.queue) for facts in told.values() for each in facts.loads}
    for load, queue in sorted(found):
        yield Attention(kind="paused-load", queue=queue, name=load)


def _crons(told: Told) -> Iterator[Attention]:
    for facts in told.values():
        for each in facts.crons:
            if each.is_paused:
                yield Attention(kind="paused-cron", queue=each.queue, task=each.task, name=each.cron)
            if each.job_id is not None and each.failed_seconds is not None:
                yield Attention(
                    kind="failed-cron",
                    queue=each.queue,
                    task=each.task,
                    name=each.cron,
                    since=_ago(facts, each.failed_seconds),
                    detail={"job_id": each.job_id},
                )


Judge = Callable[[Told], Iterable[Attention]]
_OF_SHARDS: tuple[Judge, ...] = (_read_only, _duties)
_OF_QUEUES: tuple[Judge, ...] = (
    *(_backlogs, _tasks, _halted, _stuck, _full),
    *(_letters, _aside, _growing, _loads, _crons),
)


def _ago(facts: AttentionFacts, seconds: float) -> datetime:
    return facts.now - timedelta(seconds=seconds)


def _ended(each: PartitionFigures) -> int:
    return each.completed + each.failed + each.cancelled + each.discarded + each.expired


def _by_queue(facts: AttentionFacts) -> Iterator[tuple[str, list[PartitionFigures]]]:
    found: dict[str, list[PartitionFigures]] = defaultdict(list)
    for each in facts.figures.partitions:
        found[each.queue].append(each)
    yield from found.items()


def _of_queues(told: Told) -> Iterator[tuple[str, list[PartitionFigures]]]:
    found: dict[str, list[PartitionFigures]] = defaultdict(list)
    for facts in told.values():
        for name, partitions in _by_queue(facts):
            found[name] += partitions
    yield from found.items()
