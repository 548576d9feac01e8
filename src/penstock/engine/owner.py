"""The owner: what whoever runs jobs does for queues with rules about keys.

It owns its share of the partitions. Of each it keeps a roster of the jobs it has read, which says who may start next;
it reads ahead no further than that needs, and leases a job when it starts, in the same transaction that settles what
ended. A partition it lost is forgotten; one it takes over is read anew from what is stored, and what others still run
of it keeps its keys busy until it has ended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import TypeVar

from penstock.clock import system
from penstock.engine.owned_partition import FEWEST_ROWS, JOBS_A_LOOK, OwnedPartition
from penstock.engine.partition_watch import PartitionWatch
from penstock.engine.source import NO_BATCH_SIZES, NO_EXECUTORS, BatchSizes, Executors
from penstock.policy.batch_size import BatchSize
from penstock.policy.job_sequence import BATCH_MASK, BATCH_SHIFT, HAS_HANDLER
from penstock.policy.roster import Roster
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work import owner as storage
from penstock.storage.work.exchange import Turn
from penstock.storage.work.leases import Lease, LeasedJob
from penstock.storage.work.owner import ChosenJobs, Look, LookWish, Ownership

__all__ = ["Owner"]

T = TypeVar("T")

SHARE_SECONDS = 0.5
# With very many partitions that takes long, and is done so rarely that it takes a twentieth of the time; not rarer
# than this: it may have taken long for once, and what a dead worker owned waits for it.
SHARE_PART = 20
LONGEST_SHARE_SECONDS = 10.0
# With more partitions than this the owner does not go through all of them in each turn.
MANY_PARTITIONS = 64
# Nor does it then read so far ahead in each of them, while there is enough to start in others.
READ_OF_MANY = 128
# While jobs end and others follow, how often the owner looks for new jobs.
LOOK_SECONDS = 0.01
# How soon it looks again after it found some, where it hears of more: those that come meanwhile are found together.
HEARD_SECONDS = 0.005
# The same where enough could start as it is: what is new may go before all of that.
NEWS_SECONDS = 0.05
# How often the retries, halts and leases of others are looked at while there are any, and when none was seen.
OTHERS_SECONDS = 0.1
SWEEP_SECONDS = 1.0
# The same while jobs are leased to other holders, whose ends others may write.
FAR_SECONDS = 0.25
# A fair queue takes ahead only one job for so many that another queue would.
FAIR_DIVISOR = 5
# So many kinds of executors are told apart.
MOST_EXECUTORS = 8


class Owner:
    """Used by one thread."""

    def __init__(
        self,
        queues: Mapping[int, Container[str]],
        batch_sizes: BatchSizes = NO_BATCH_SIZES,
        executors: Executors = NO_EXECUTORS,
    ) -> None:
        # By queue: the tasks this worker has handlers for, those of which several jobs are started together, and what
        # runs the others.
        self._tasks = queues
        self._batch_sizes = batch_sizes
        self._executors = executors
        # The queues that have runs, or had.
        self._with_runs: set[int] = set()
        # So many jobs of a run may be taken now, where the queue allows as many.
        self.most_in_run = 1
        self._partitions: dict[int, OwnedPartition] = {}
        # Under which number it owns them.
        self._worker = 0
        self._shared_at = 0.0
        self._share_seconds = SHARE_SECONDS
        self._surplus: list[int] = []
        # The queues whose jobs may wait for a time: they have a rate, or batches.
        self._timed: set[int] = set()
        self._watch = PartitionWatch()
        self._must_look = True
        # Whether something may have come since the last look, and whether that waits for its time; when one found any.
        self._has_news = False
        self._must_look_soon = False
        self._found_at = 0.0
        self._suspect: int | None = None
        self.has_left = False
        # Queues of which nothing is started for now: what would run it cannot.
        self.withheld: Set[int] = frozenset()
        # By queue, how many more of its jobs may be chosen at the next turn; those that are not named: any number.
        self.left: Mapping[int, int] = {}
        self._turn = 0
        # Whether more could be started than was found so far.
        self._is_reading = False
        # Which server it looked at: snapshots mean nothing to another.
        self._server = ""

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def surplus(self) -> list[int]:
        """Partitions that others should have."""
        return [each for each in self._surplus if each in self._partitions]

    def look_again(self) -> None:
        """Look at everything at the next turn."""
        self._must_look = True
        if not self._has_many:
            self._shared_at = 0.0

    def note_news(self) -> None:
        """Something may have come: look for it at the next turn, if there is too little to start."""
        self._has_news = True

    def _read_anew(self, partition: int) -> None:
        """Forget a partition, and read it anew if it is still this owner's."""
        del self._partitions[partition]
        self._must_look = True
        self._shared_at = 0.0

    @property
    def _has_many(self) -> bool:
        return len(self._partitions) > MANY_PARTITIONS

    def forget(self) -> None:
        """Forget every partition, since nothing is certain any more: what it owns is read anew."""
        self._partitions.clear()
        self._watch = PartitionWatch()
        self._suspect = None
        self.look_again()

    def share(self, connection: Connection, worker: int, now: float) -> bool:
        """Take or keep this worker's share of the partitions, and learn the rules as they are now; whether it was time
        to.
        """
        if now - self._shared_at < self._share_seconds:
            return False
        self._shared_at = now
        started_at = system.monotonic()
        self._share(connection, worker, now)
        taken = SHARE_PART * (system.monotonic() - started_at) if self._has_many else 0.0
        self._share_seconds = min(max(SHARE_SECONDS, taken), LONGEST_SHARE_SECONDS)
        return True

    def _share(self, connection: Connection, worker: int, now: float) -> None:
        self._worker = worker
        ownerships = {each.partition_id: each for each in storage.share(connection, worker)}
        rules = storage.read_queue_rules(connection, self._tasks)
        self._with_runs |= {queue for queue, (each, _) in rules.items() if each.has_runs}
        self._timed = {
            queue
            for queue, (each, _) in rules.items()
            if each.rate or each.per_key_rate or each.total_rate or queue in self._batch_sizes
        }
        self._surplus = [each.partition_id for each in ownerships.values() if each.is_surplus]
        new: list[int] = []
        for partition_id in list(self._partitions):
            owned = ownerships.get(partition_id)
            if owned is None or owned.owner_epoch != self._partitions[partition_id].ownership.owner_epoch:
                del self._partitions[partition_id]
        for partition_id, ownership in ownerships.items():
            if ownership.queue_id not in rules:
                continue
            known = self._partitions.get(partition_id)
            now_rules, is_refused = rules[ownership.queue_id]
            if known is not None and known.roster.rules.has_runs != now_rules.has_runs:
                # Of what was read is not known what may be in a run.
                known = None
                self.look_again()
            if known is None:
                new.append(partition_id)
                sizes = list(self._batches_of(ownership.queue_id).values())
                roster = Roster(now_rules, partition_id, now, sizes)
                most = max((size.jobs for size in sizes), default=1)
                marks = self._marks(ownership.queue_id, has_runs=now_rules.has_runs)
                self._partitions[partition_id] = OwnedPartition(
                    ownership, roster, now_rules.is_fair, self._tasks[ownership.queue_id], marks, most
                )
            else:
                known.ownership = ownership
                known.roster.rules = now_rules
            self._partitions[partition_id].roster.permits = ownership.permits
            self._partitions[partition_id].roster.tokens = ownership.tokens
            self._partitions[partition_id].is_withheld = now_rules.paused or is_refused
        if not self._has_many:
            self._watch = PartitionWatch()
        else:
            for each in self._partitions.values():
                if each.as_of is not None:
                    self._note_change(each)
            self._watch.note_taken_from_again()
            self._watch.set_partitions(self._partitions)
            if len(new) > MANY_PARTITIONS:
                self._watch.list_anew()
            else:
                self._watch.add_fresh(new)

    def _marks(self, queue: int, *, has_runs: bool) -> dict[str, int]:
        """What a roster is told of a job of these tasks: batch by batch, and after them what runs the others."""
        batches = self._batches_of(queue)
        numbers = {task: number for number, task in enumerate(batches, 1)}
        if has_runs:
            others = self._executors.get(queue, {})
            numbers = {task: len(batches) + 1 + executor for task, executor in others.items()} | numbers
        return {task: HAS_HANDLER | number << BATCH_SHIFT for task, number in numbers.items()}

    def _batches_of(self, queue: int) -> dict[str, BatchSize]:
        """The tasks of which several jobs are started together, as many as a mark can tell apart."""
        return dict(islice(self._batch_sizes.get(queue, {}).items(), BATCH_MASK - MOST_EXECUTORS))

    @property
    def ownerships(self) -> list[Ownership]:
        """The partitions that are this worker's."""
        return [partition.ownership for partition in self._partitions.values()]

    def give_up(self, connection: Connection, worker: int, partitions: Iterable[int]) -> None:
        """Let others have these partitions at once."""
        given = [partition for partition in partitions if partition in self._partitions]
        if given:
            storage.give_up(connection, worker, given)
            for partition in given:
                del self._partitions[partition]

    def max_wait(self, partition_id: int) -> float | None:
        """For how many seconds jobs of a partition may wait before they start; None: for any time."""
        partition = self._partitions.get(partition_id)
        return None if partition is None else partition.roster.rules.max_wait

    def leave_queues(self, connection: Connection, worker: int, queues: Container[int]) -> None:
        """Let others have the partitions of these queues, of which it takes no share any more."""
        storage.leave_crews(connection, worker, [queue for queue in self._tasks if queue in queues])
        partitions = [id_ for id_, each in self._partitions.items() if each.ownership.queue_id in queues]
        self.give_up(connection, worker, partitions)

    def leave(self, connection: Connection, worker: int) -> None:
        """Let others have everything: this worker takes no share any more."""
        if not self.has_left:
            storage.leave_crews(connection, worker, self._tasks)
            self.give_up(connection, worker, list(self._partitions))
            self.has_left = True

    def look(self, connection: Connection, wanted: int, now: float) -> None:
        """Read ahead where fewer jobs could start than are wanted, and see what others do."""
        due = self._find_due_of_many(connection, wanted, now) if self._has_many else self._find_due(wanted, now)
        self._must_look_soon = self._has_news
        if due is None:
            return
        self._must_look = False
        if due:
            try:
                self._look_at(connection, due, now)
            except DatabaseError:
                # It is asked again, and does not find by itself any more what was due.
                self._must_look = True
                if self._has_many:
                    self._watch.add_fresh(each.ownership.partition_id for each, _ in due)
                raise

    def _look_at(self, connection: Connection, due: Sequence[tuple[OwnedPartition, bool]], now: float) -> None:
        wishes = [LookWish(p.ownership, p.as_of, p.read_to, p.rows, with_others) for p, with_others in due]
        looks = storage.look(connection, wishes)
        if looks[0].server != self._server:
            # A promoted standby, or a restored backup. Snapshots of another server do not show what was written since
            # the last look: everything is read anew.
            self._server = looks[0].server
            if self._watch.as_of is not None or any(each.as_of is not None for each in self._partitions.values()):
                self.forget()
                return
        for (partition, _), seen in zip(due, looks, strict=True):
            self._note_look(connection, partition, seen, now)

    def _find_due(self, wanted: int, now: float) -> list[tuple[OwnedPartition, bool]]:
        """The partitions to look at, and whether to see what others do there."""
        due = []
        is_put_off = False
        for each in self._partitions.values():
            if not self._takes_from(each):
                continue
            with_others = self._is_time_for_others(each, now)
            wants_more = each.lacks(wanted) or each.is_fair
            is_patient = each.is_read and not self._is_heard(now)
            seconds = NEWS_SECONDS if not wants_more else LOOK_SECONDS if is_patient else 0.0
            if self._must_look or with_others or now - each.looked_at >= seconds:
                due.append((each, with_others or self._must_look or each.as_of is None))
                if each.most_in_slot > 1:
                    # What is chosen next is to find batches that are full.
                    each.rows = max(each.rows, min(wanted * each.most_in_slot, JOBS_A_LOOK))
            else:
                is_put_off |= wants_more
        self._has_news &= is_put_off
        self._is_reading = any(each.lacks(wanted) for each in self._partitions.values())
        return due

    def _find_due_of_many(
        self, connection: Connection, wanted: int, now: float
    ) -> list[tuple[OwnedPartition, bool]] | None:
        """The same of very many: where something came, as one question tells; where hardly anything is left of what was
        read; where others keep jobs back; and some of the rest in turn. None: everything has to be read anew.
        """
        watch = self._watch
        if self._must_look or self._is_heard(now) or now - watch.asked_at >= LOOK_SECONDS:
            watch.asked_at = now
            self._has_news = False
            news = storage.read_news(connection, watch.as_of)
            if self._server not in ("", news.server):
                self._server = news.server
                self.forget()
                return None
            self._server, watch.as_of = news.server, news.as_of
            watch.add_fresh(each for each in news.partitions if each in self._partitions)
        # Whether to see what others do, by partition.
        numbers = dict.fromkeys(watch.take_due(), False)
        is_sweep_due = self._must_look or now - watch.swept_at >= NEWS_SECONDS
        for each in (*watch.take_held(), *watch.take_swept()) if is_sweep_due else ():
            partition = self._partitions.get(each)
            if partition is not None and partition.as_of is not None:
                ownership = partition.ownership
                is_counted = ownership.permits is not None or ownership.tokens is not None
                with_others = self._is_time_for_others(partition, now)
                if is_counted or with_others:
                    numbers[each] = with_others
        if is_sweep_due:
            watch.swept_at = now
        due = []
        for number, with_others in numbers.items():
            partition = self._partitions.get(number)
            if partition is not None and self._takes_from(partition):
                due.append((partition, with_others or partition.as_of is None))
                if partition.most_in_slot > 1:
                    partition.rows = max(partition.rows, min(wanted * partition.most_in_slot, JOBS_A_LOOK))
            elif partition is not None:
                watch.put_off(number)
        self._is_reading = watch.has_unread
        return due

    def _is_heard(self, now: float) -> bool:
        """Whether to look at once, since something may have come."""
        return self._has_news and now - self._found_at >= HEARD_SECONDS

    def _is_time_for_others(self, partition: OwnedPartition, now: float) -> bool:
        """Whether to see again what others do in a partition."""
        seconds = FAR_SECONDS if partition.leased_to_others else SWEEP_SECONDS
        return now - partition.others_at >= (OTHERS_SECONDS if partition.has_outside_holds else seconds)

    def stop_reading(self) -> None:
        """Do not hurry to read on: nothing more could be started."""
        self._is_reading = self._must_look_soon = False

    def starts_in_order(self, partition_id: int) -> bool:
        """Whether jobs of a partition that are started together must start one after the other, in their order."""
        partition = self._partitions.get(partition_id)
        rules = None if partition is None else partition.roster.rules
        return rules is None or rules.per_key != 1 or rules.limit is not None or rules.total_limit is not None

    def choose(self, slots: int, ahead: int, waiting: int, now: float) -> list[ChosenJobs]:
        """Choose who starts next: a job for each of `slots` at once, and `ahead` more that follow within moments, where
        `waiting` do already.
        """
        choices: list[ChosenJobs] = []
        left = dict(self.left)
        for each in self._partitions_in_turn():
            wanted = slots + ahead
            queue = each.ownership.queue_id
            if wanted <= 0 and not self._with_runs and self._has_many:
                break
            if (wanted <= 0 and not each.roster.has_runs) or not self._takes_from(each):
                continue
            each.roster.most_in_run = self.most_in_run
            # What follows at the tail of a run takes no slot.
            more = each.roster.extend_runs(now)
            jobs: list[int] = []
            if wanted > 0 and left.get(queue, 1) > 0:
                if each.is_fair:
                    # What waits here was chosen by the shares as they were: a tenant that comes now waits behind all of
                    # it.
                    wanted = max((wanted + waiting) // FAIR_DIVISOR - waiting, slots)
                jobs = self._pick(each, slots, min(wanted, left.get(queue, wanted)), now)
            if jobs or more:
                if queue in left:
                    left[queue] -= len(jobs)
                each.is_noted_idle = False
                choices.append(self._make_choice(each, jobs, slots, more))
                used = min(slots, len(jobs))
                slots -= used
                ahead -= len(jobs) - used
            if self._has_many:
                self._note_picked(each)
        self._watch.has_free_slots = slots + ahead > 0
        return choices

    @property
    def has_runs(self) -> bool:
        """Whether jobs may follow at the tail of a run."""
        if self._has_many and not self._with_runs:
            return False
        return any(each.roster.has_runs for each in self._partitions.values())

    @property
    def has_startable(self) -> bool:
        """Whether a job could start that was not chosen, as far as was read."""
        return any(each.roster.startable > 0 and self._takes_from(each) for each in self._partitions.values())

    def _partitions_in_turn(self) -> Iterable[OwnedPartition]:
        """Each time begin with another queue, and with another partition of it: none waits behind a full one."""
        if self._has_many:
            self._watch.turn()
            return self._stocked_partitions()
        by_queue: dict[int, list[OwnedPartition]] = {}
        for each in self._partitions.values():
            by_queue.setdefault(each.ownership.queue_id, []).append(each)
        queues = list(by_queue.values())
        self._turn += 1
        ordered: list[OwnedPartition] = []
        for partitions in _turned(queues, self._turn):
            ordered += _turned(partitions, self._turn // len(queues))
        return ordered

    def _stocked_partitions(self, queues: Iterable[int] | None = None) -> Iterator[OwnedPartition]:
        """Of very many, those in which something may start."""
        for number in self._watch.stocked(queues):
            partition = self._partitions.get(number)
            if partition is not None:
                yield partition

    def _note_picked(self, partition: OwnedPartition) -> None:
        """After jobs were picked from one of very many: whether it has more, and whether more is to be read."""
        roster, ownership = partition.roster, partition.ownership
        if not (roster.startable > 0 or partition.postponed or roster.has_runs) or not self._takes_from(partition):
            self._watch.unstock(ownership.queue_id, ownership.partition_id)
        self._note_hunger(partition)

    def _make_choice(
        self, partition: OwnedPartition, jobs: Sequence[int], slots: int, more: Sequence[int]
    ) -> ChosenJobs:
        known = partition.roster.batches
        together = {job: known.pop(job) for job in jobs if job in known} if known else {}
        runs = {job: jobs for job, jobs in together.items() if partition.roster.is_run(job)}
        batches = {job: jobs for job, jobs in together.items() if job not in runs} if runs else together
        return ChosenJobs.of(self._worker, partition.ownership, self._server, jobs, slots, batches, runs, more)

    def close_runs(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Let no more follow in the runs of these keys, by partition: they are over."""
        for partition_id, key in keys:
            partition = self._partitions.get(partition_id)
            if partition is not None:
                partition.roster.close_run(key)

    def may_have_runs(self, queue: int) -> bool:
        """Whether jobs of a key that are leased start one after the other, in one slot: its queue has runs, or had."""
        return queue in self._with_runs

    def _takes_from(self, partition: OwnedPartition) -> bool:
        """Whether jobs of it are to be started: its queue is not withheld, and it is no surplus."""
        ownership = partition.ownership
        return not (partition.is_withheld or ownership.is_surplus or ownership.queue_id in self.withheld)

    def note_leased(self, choices: Sequence[ChosenJobs], turn: Turn, now: float) -> None:
        """Note which jobs of a turn's choices were leased."""
        got: dict[int, set[int]] = {}
        for lease in turn.chosen:
            base = lease.range * RANGE
            got.setdefault(lease.partition_id, set()).update(base + position for position in lease.positions)
        for choice in choices:
            partition = self._partitions.get(choice.partition_id)
            if partition is None:
                continue
            leased = got.get(choice.partition_id, set())
            partition.out |= leased
            if turn.holder != self._worker:
                partition.leased_to_others |= leased
                self._note_change(partition)
            if choice.partition_id in turn.short_of_permits and not choice.has_batches:
                # Fewer may run than it had seen: all of them are still ready, and are chosen again when there is room.
                partition.postponed = choice.jobs + partition.postponed
                self._note_change(partition)
                self._shared_at = 0.0
            elif not leased.issuperset(choice.jobs):
                # The partition is another's by now; or somebody took jobs out of the order: cancelled one, paused a
                # load. Which others are gone is not known, and what comes back stands elsewhere in the order. So the
                # partition is forgotten, and read anew if it is still this owner's. So it is where there are fewer
                # permits than a batch has jobs: a smaller one is made then.
                self._read_anew(choice.partition_id)

    def take_read_ahead(self, leases: Iterable[Lease]) -> dict[int, LeasedJob]:
        """Give out the jobs of these leases that were read ahead with their arguments."""
        found: dict[int, LeasedJob] = {}
        for lease, partition in self._with_partitions(leases):
            found |= partition.take_read_ahead(lease)
        return found

    def has_unread(self, leases: Iterable[Lease]) -> bool:
        """Whether jobs of these leases are of ranges that were not read job by job."""
        return any(partition.has_unread(lease) for lease, partition in self._with_partitions(leases))

    def read_on(self, connection: Connection, leases: Iterable[Lease]) -> None:
        """Read jobs of such ranges ahead, from the first that is leased on."""
        for lease, partition in self._with_partitions(leases):
            partition.read_on(connection, lease)

    def _with_partitions(self, leases: Iterable[Lease]) -> Iterator[tuple[Lease, OwnedPartition]]:
        for lease in leases:
            partition = self._partitions.get(lease.partition_id)
            if partition is not None:
                yield lease, partition

    def note_end(self, partition_id: int, job: int, end: str, now: float) -> None:
        """Note how a job ended, or that it went back."""
        partition = self._partitions.get(partition_id)
        if job == self._suspect:
            self._suspect = None
        if partition is not None:
            if partition.rescued:
                partition.rescued.pop(job, None)
            partition.out.discard(job)
            partition.leased_to_others.discard(job)
            partition.roster.note_end(job, end, now)
            if end in ("retry", "snooze"):
                partition.has_outside_holds = True
            self._note_change(partition)

    def _note_change(self, partition: OwnedPartition) -> None:
        """Something about a partition is another than it was: with very many, it is noted that something may start."""
        if not self._has_many:
            return
        roster, ownership = partition.roster, partition.ownership
        if roster.startable > 0 or partition.postponed or roster.has_runs:
            self._watch.stock(ownership.queue_id, ownership.partition_id)
        is_counted = ownership.permits is not None or ownership.tokens is not None
        wants_permits = is_counted and (roster.waiting > 0 or bool(partition.postponed))
        is_held = partition.has_outside_holds or roster.has_holds or wants_permits
        self._watch.note_held(
            ownership.partition_id, is_held=is_held or bool(partition.leased_to_others or partition.unknown)
        )
        self._note_hunger(partition)

    def _note_hunger(self, partition: OwnedPartition) -> None:
        """Of very many: whether to read on in one. A fair one is read to its end, for the sake of all tenants."""
        is_low = self._watch.is_short or partition.roster.waiting < READ_OF_MANY
        if not partition.is_read and (partition.is_fair or (is_low and partition.lacks(FEWEST_ROWS))):
            self._watch.note_hungry(partition.ownership.partition_id)

    def note_succeeded(self, partition_id: int, jobs: Sequence[int], now: float) -> None:
        """Note that these jobs of a partition succeeded."""
        partition = self._partitions.get(partition_id)
        if self._suspect is not None and self._suspect in jobs:
            self._suspect = None
        if partition is not None:
            for job in jobs if partition.rescued else ():
                partition.rescued.pop(job, None)
            partition.out.difference_update(jobs)
            partition.leased_to_others.difference_update(jobs)
            partition.roster.note_succeeded(jobs, now)
            self._note_change(partition)

    def is_idle(self, now: float) -> bool:
        """Whether nothing of its partitions could start, now or after a moment."""
        return not (self._must_look or self._watch.has_unread) and all(
            each.is_withheld or self._is_without_work(each, now) for each in self._partitions.values()
        )

    def _is_without_work(self, partition: OwnedPartition, now: float) -> bool:
        """Whether nothing of a partition could start; of very many, one is not even looked at where nothing is."""
        if partition.as_of is None:
            return self._has_many and self._watch.is_empty(partition.ownership.partition_id)
        return partition.is_read and not partition.postponed and partition.roster.is_idle(now)

    def note_idle(self, connection: Connection, worker: int, now: float) -> None:
        """Note in the database which partitions have nothing that could start: other workers go by it."""
        idle: list[tuple[Ownership, str]] = []
        for each in self._partitions.values():
            as_of = each.as_of or self._watch.as_of
            if as_of is not None and not each.is_noted_idle and self._is_without_work(each, now):
                idle.append((each.ownership, as_of))
                each.is_noted_idle = True
        if idle:
            storage.note_idle(connection, worker, idle, self._server)

    def patience(self, now: float) -> float:
        """Seconds after which to look again, whatever happens."""
        patience = HEARD_SECONDS if self._must_look_soon else SHARE_SECONDS
        partitions: Iterable[OwnedPartition] = self._partitions.values()
        if self._has_many:
            if self._is_reading:
                return 0.0
            if self._watch.has_held:
                patience = min(patience, OTHERS_SECONDS)
            partitions = self._stocked_partitions(self._timed)
        for each in partitions:
            if not self._takes_from(each):
                continue
            if self._is_reading and not each.is_read:
                return 0.0
            if each.has_outside_holds:
                patience = min(patience, OTHERS_SECONDS)
            elif each.leased_to_others:
                patience = min(patience, FAR_SECONDS)
            next_at = each.roster.next_at(now)
            if next_at is not None:
                patience = min(patience, max(next_at - now, 0.001))
        return patience

    def _pick(self, partition: OwnedPartition, slots: int, wanted: int, now: float) -> list[int]:
        tokens = partition.roster.tokens
        wanted = wanted if tokens is None else min(wanted, tokens)
        jobs, partition.postponed = partition.postponed[:wanted], partition.postponed[wanted:]
        if tokens is not None:
            partition.roster.tokens = max(tokens - partition.count(jobs), 0)
        jobs = jobs + partition.roster.take(max(wanted - len(jobs), 0), now, max(slots - len(jobs), 0))
        if (permits := partition.roster.permits) is not None:
            # What was put off counts as out in the roster, and runs nowhere.
            chosen = partition.count(jobs)
            room = max(permits - partition.roster.running + chosen + partition.count(partition.postponed), 0)
            if chosen > room and partition.roster.batches:
                # There are fewer permits than when a batch was made: read anew, it is made smaller.
                self._read_anew(partition.ownership.partition_id)
                return []
            jobs, partition.postponed = jobs[:room], jobs[room:] + partition.postponed
        if not partition.rescued:
            return jobs
        over, partition.postponed = partition.postponed, []
        picked: list[int] = []
        waiting: set[bytes] = set()
        for job in jobs:
            rescues = partition.rescued.get(job, 0)
            key = partition.roster.key_of(job)
            # What was rescued runs only in a slot that is free now, and of what was rescued twice one at a time: one
            # of them may be what kills workers, and must not take others with it. Nothing of its key passes it.
            if (rescues and len(picked) >= slots) or (rescues > 1 and self._suspect is not None) or key in waiting:
                partition.postponed.append(job)
                if key is not None:
                    waiting.add(key)
                continue
            if rescues > 1:
                self._suspect = job
            picked.append(job)
        partition.postponed += over
        return picked

    def _note_look(self, connection: Connection, partition: OwnedPartition, seen: Look, now: float) -> None:
        if (
            partition.leased_to_others
            and seen.running is not None
            and not partition.leased_to_others.issubset(job for job, _ in seen.running)
        ):
            # Somebody else wrote their ends, or rescued them from a holder that died. What became of them is not known:
            # the partition is read anew.
            if self._suspect in partition.leased_to_others:
                self._suspect = None
            self._read_anew(partition.ownership.partition_id)
            return
        if seen.rows:
            self._found_at = now
        partition.note_look(connection, seen, now)
        self._note_change(partition)


def _turned(items: list[T], number: int) -> list[T]:
    first = number % max(len(items), 1)
    return items[first:] + items[:first]
