"""A queue with owned partitions in miniature: tables, producers, workers and their rosters, on a clock of its own.

The tables are dictionaries and every act on them is a transaction by itself, numbered by `tick`. Whatever a roster
gives out is judged at once by what the tables say of the whole queue: order and overlap per key (G5), limits and rates
(G6). A seed decides the rules and everything that happens, so a run that fails can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from penstock.model import QueueRules
from penstock.policy import Roster, WaitingJob
from penstock.policy.job_sequence import BATCH_SHIFT, HAS_HANDLER
from penstock.policy.rate import Rate
from penstock.routing.key_hash import partition_of

IN_RUNS = HAS_HANDLER | 1 << BATCH_SHIFT
ENDS = ["succeeded"] * 12 + ["retry", "retry", "retry at once", "snooze", "failed", "discarded", "cancelled", "release"]


@dataclass(slots=True)
class Job:
    id: int
    key: bytes | None
    priority: int
    tenant: str
    is_rare: bool
    # When it entered its key's order, and when others could see that it had.
    entered: int
    visible: float = inf
    is_retried_dead_letter: bool = False
    # Whether it came back without having started.
    is_handed_back: bool = False
    # Whether it failed, was put off, or its worker died: it is in no run any more.
    is_tried: bool = False


@dataclass(slots=True)
class Row:
    """Of ready, of lease and of scheduled: the columns that decide."""

    partition: int
    epoch: int
    pos: int | None
    ready_at: float
    changed: int
    owner: Owner | None = None
    due_at: float = 0.0
    # Of a lease: claimed beyond the free slots, so that it may not have started.
    is_ahead: bool = False
    # Of a lease: which run it is in, and whether one before it has not ended.
    run: bytes | None = None
    is_waiting: bool = False


@dataclass(slots=True)
class Owner:
    worker: int
    roster: Roster
    looked: int = -1
    places: list[int] = field(default_factory=lambda: [0, 0, 0])
    # The keys whose runs go on: what is leased of one follows what is.
    runs: set[bytes] = field(default_factory=set)

    def close_run(self, key: bytes) -> None:
        self.runs.discard(key)
        self.roster.close_run(key)


@dataclass(slots=True)
class Snapshot:
    tick: int
    rows: list[WaitingJob]
    ends: list[int]
    elsewhere: list[tuple[int, bytes | None]]
    unstarted: set[int]
    held: list[tuple[int, bytes | None]]
    halted: list[bytes]
    maps: tuple[dict[int, list[int]], set[tuple[int, int]], set[tuple[int, bytes]]]


class Meter:
    """What a rate would have allowed to a bucket that was full in the beginning."""

    def __init__(self, rate: float) -> None:
        self.rate, self.burst = rate, Rate(rate).burst
        self.level, self.at = float(self.burst), 0.0

    def start(self, now: float) -> None:
        self.level = min(self.burst, self.level + (now - self.at) * self.rate) - 1
        self.at = now
        assert self.level > -1e-3, "G6: a rate was exceeded"


def rules_of(random: Random) -> QueueRules:
    def sometimes(value: str) -> str | None:
        return value if random.random() < 0.2 else None

    limit = random.choice([None, None, 1, 2, 5])
    rules = QueueRules(
        per_key=random.choice([1, 1, 1, 2, 3, None]),
        limit=limit,
        rate=sometimes(random.choice(["30/m", "3/s", "40/s"])),
        per_key_rate=sometimes(random.choice(["30/m", "114/m", "6/s"])),
        on_retry="hold" if random.random() < 0.7 else "pass",
        on_dead="halt" if random.random() < 0.4 else "continue",
        fair_by="tenant" if random.random() < 0.2 else None,
        weights={"t0": 5.0, "t1": 0.5},
    )
    if random.random() < 0.75:
        return rules
    return replace(rules, per_key=1, run=random.choice([2, 3, 8]), limit=None, rate=None, per_key_rate=None)


class World:
    """Everything there is. `events` counts what happened, to see that a run got into trouble."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.has_rare_task = self.random.random() < 0.3
        self.rules = rules_of(self.random)
        self.now, self.tick, self.pos, self.starts = 0.0, 0, 0, 0
        self.jobs: dict[int, Job] = {}
        self.ready: dict[int, Row] = {}
        self.leases: dict[int, Row] = {}
        self.scheduled: dict[int, Row] = {}
        self.halted: dict[bytes, tuple[int, int]] = {}
        # By epoch: the partition of each number. One that was moved has another at its place.
        self.maps = {1: list(range(self.random.randint(1, 3)))}
        self.partitions = 10
        self.closed: set[int] = set()
        self.unwritten: list[tuple[int, list[tuple[Job, Row]]]] = []
        self.owners: dict[int, Owner] = {}
        # Whether each has a handler for the rare task.
        self.workers: dict[int, bool] = {}
        self.dead: set[int] = set()
        self.meters: dict[object, Meter] = {}
        self.events: dict[str, int] = {}
        for _ in range(2):
            self.hire(knows_rare=self.random.random() < 0.5)

    def count(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    @property
    def epoch(self) -> int:
        return max(self.maps)

    def place(self, key: bytes | None, epoch: int) -> int:
        partitions = self.maps[epoch]
        return self.random.choice(partitions) if key is None else partitions[partition_of(key, len(partitions))]

    # Producers

    def enqueue(self) -> None:
        """Write some jobs; the transaction commits now or some time later."""
        written = []
        for _ in range(self.random.choice([1, 1, 2, 5, 20])):
            self.tick += 1
            self.pos += 1
            key = None if self.random.random() < 0.1 else b"k%d" % min(int(self.random.expovariate(0.4)), 9)
            job = Job(
                self.pos * 1_024 + self.random.randrange(1_024),
                key,
                self.random.choice([0, 1, 1, 1, 2]),
                f"t{self.random.randrange(3)}",
                self.has_rare_task and self.random.random() < 0.03,
                self.tick,
            )
            self.jobs[job.id] = job
            written.append((job, Row(self.place(key, self.epoch), self.epoch, self.pos, 0.0, 0)))
        self.unwritten.append((self.epoch, written))
        if self.random.random() < 0.8:
            self.commit(len(self.unwritten) - 1)

    def commit(self, index: int) -> None:
        self.tick += 1
        for job, row in self.unwritten.pop(index)[1]:
            job.visible = row.changed = self.tick
            row.ready_at = self.now
            self.ready[job.id] = row

    def enter_anew(self, job: Job, pos: int | None = None) -> None:
        """Become ready by the map as it is now."""
        self.tick += 1
        self.pos += 1
        job.entered = job.visible = self.tick
        place = self.place(job.key, self.epoch)
        self.ready[job.id] = Row(place, self.epoch, self.pos if pos is None else pos, self.now, self.tick)

    def put_back(self, number: int, row: Row) -> None:
        """Become ready in the same place of the same map."""
        self.tick += 1
        self.ready[number] = Row(row.partition, row.epoch, row.pos, self.now, self.tick)

    # People and upkeep

    def promote(self) -> None:
        for number in [number for number, row in self.scheduled.items() if row.due_at <= self.now]:
            row = self.scheduled.pop(number)
            if row.pos is None:
                self.enter_anew(self.jobs[number])
            else:
                self.put_back(number, row)

    def cancel(self) -> None:
        table = self.random.choice([self.ready, self.scheduled])
        if table:
            number = self.random.choice(sorted(table))
            del table[number], self.jobs[number]
            self.count("cancelled")

    def reschedule(self) -> None:
        """A ready job is put off by a person: it leaves its place, nothing waits for it, and its owner reads anew."""
        if self.ready:
            number = self.random.choice(sorted(self.ready))
            row = self.ready.pop(number)
            job = self.jobs[number]
            job.visible = inf
            self.owners.pop(row.partition, None)
            self.scheduled[number] = Row(row.partition, row.epoch, None, 0.0, 0, due_at=self.now + self.random.random())
            self.count("rescheduled")

    def settle_halt(self) -> None:
        """A person lets a halted key go on, or tries its dead letter again first."""
        if self.halted:
            key = self.random.choice(sorted(self.halted))
            number, _ = self.halted.pop(key)
            if self.random.random() < 0.5:
                self.jobs[number].is_retried_dead_letter = True
                self.enter_anew(self.jobs[number], pos=number // 1_024)
                self.count("dead letter retried")
            else:
                del self.jobs[number]

    def resize(self) -> None:
        self.tick += 1
        before, wanted = self.maps[self.epoch], self.random.randint(1, 4)
        partitions = [before[n] if n < len(before) else n for n in range(wanted)]
        if self.random.random() < 0.4:
            partitions[self.random.randrange(wanted)] = self.partitions
            self.partitions += 1
            self.count("moved")
        self.maps[self.epoch + 1] = partitions
        self.count("resized")

    def close_maps(self) -> None:
        written = {epoch for epoch, _ in self.unwritten}
        self.closed |= {epoch for epoch in self.maps if epoch < self.epoch and epoch not in written}
        used = {row.epoch for table in (self.ready, self.leases) for row in table.values()}
        used |= {row.epoch for row in self.scheduled.values() if row.pos is not None}
        used |= {epoch for _, epoch in self.halted.values()}
        for epoch in [epoch for epoch in self.maps if epoch in self.closed and epoch not in used]:
            del self.maps[epoch]

    def change_limit(self) -> None:
        """Raise or lower what is limited; a queue keeps the kinds of rules that it has."""
        if self.rules.limit is not None:
            self.rules = replace(self.rules, limit=self.random.choice([1, 2, 3, 8]))
            for owner in self.owners.values():
                owner.roster.rules = self.rules

    # Workers

    def hire(self, *, knows_rare: bool) -> None:
        self.workers[len(self.workers) + 1] = knows_rare

    @property
    def alive(self) -> list[int]:
        return [worker for worker in self.workers if worker not in self.dead]

    @property
    def owned(self) -> list[int]:
        """Partitions whose owner lives: the tables refuse what a dead one asks for."""
        return sorted(partition for partition, owner in self.owners.items() if owner.worker not in self.dead)

    def is_alive(self, lease: Row) -> bool:
        return lease.owner is not None and lease.owner.worker not in self.dead

    def kill(self) -> None:
        self.dead.add(self.random.choice(self.alive))
        self.hire(knows_rare=self.random.random() < 0.5)
        self.count("killed")

    def rescue(self, partition: int | None = None) -> None:
        for number, row in list(self.leases.items()):
            if not self.is_alive(row) and partition in (None, row.partition):
                del self.leases[number]
                self.jobs[number].is_tried = True
                self.hand_back(number, row) if row.is_ahead else self.put_back(number, row)
                self.count("rescued")

    def hand_over(self) -> None:
        """Give a partition up; what runs goes on."""
        if self.owners:
            partition = self.random.choice(sorted(self.owners))
            self.end_runs(partition)
            del self.owners[partition]
            self.count("handed over")

    def end_runs(self, partition: int | None = None) -> None:
        """Give back what of runs has not started, of a partition or of all."""
        for number, row in list(self.leases.items()):
            if row.is_waiting and self.is_alive(row) and partition in (None, row.partition):
                self.give_back(number)

    def give_back(self, number: int) -> None:
        row = self.leases.pop(number)
        assert row.owner is not None and row.run is not None  # noqa: PT018
        row.owner.close_run(row.run)
        self.hand_back(number, row)
        self.tell(row, number, "release")
        self.count("run cut")

    def own(self) -> None:
        """Partitions without an owner that lives get one."""
        for partition, owner in list(self.owners.items()):
            if owner.worker in self.dead:
                del self.owners[partition]
        used = {row.partition for table in (self.ready, self.leases, self.scheduled) for row in table.values()}
        for partition in used | set(self.maps[self.epoch]):
            if partition not in self.owners:
                self.rescue(partition)
                roster = Roster(self.rules, partition, self.now)
                roster.most_in_run = 1_000
                self.owners[partition] = Owner(self.random.choice(self.alive), roster)
                self.look(partition, is_full=True)

    def look(self, partition: int, *, is_full: bool) -> None:
        """Read a snapshot and tell the roster; jobs may end in between."""
        owner = self.owners[partition]
        snapshot = self.read(partition, owner)
        if self.random.random() < 0.3:
            self.end_some()
        if partition not in self.owners:
            return
        roster = owner.roster
        roster.add(snapshot.rows)
        owner.looked, owner.places = snapshot.tick, snapshot.ends
        if is_full:
            roster.set_elsewhere(snapshot.elsewhere, snapshot.unstarted)
            roster.set_held(snapshot.held)
            roster.set_halted(snapshot.halted)
            roster.set_key_maps(*snapshot.maps)
        assert roster.startable <= roster.waiting

    def read(self, partition: int, owner: Owner) -> Snapshot:
        places, rows, room = list(owner.places), [], [self.random.choice([3, 50]) for _ in range(3)]
        here = sorted((row.pos or 0, number) for number, row in self.ready.items() if row.partition == partition)
        for pos, number in here:
            priority = self.jobs[number].priority
            if pos < owner.places[priority]:
                if self.ready[number].changed > owner.looked:
                    rows.append(number)
            elif room[priority]:
                room[priority] -= 1
                rows.append(number)
                places[priority] = pos + 1
        self.random.shuffle(rows)
        earlier = {epoch for epoch in self.maps if epoch != self.epoch}
        open_ = {(row.epoch, row.partition) for table in (self.ready, self.leases) for row in table.values()}
        open_ |= {(e, p) for e, partitions in self.maps.items() if e not in self.closed for p in partitions}
        holding = [(number, row) for number, row in self.scheduled.items() if row.pos is not None]
        held = {(row.epoch, self.jobs[number].key or b"") for number, row in holding if row.epoch in earlier}
        held |= {(epoch, key) for key, (_, epoch) in self.halted.items() if epoch in earlier}
        return Snapshot(
            self.tick,
            [self.waiting(number, owner) for number in rows],
            places,
            [
                (number, self.jobs[number].key)
                for number, row in self.leases.items()
                if row.partition == partition and row.owner is not owner
            ],
            {number for number, row in self.leases.items() if row.is_ahead or not self.is_alive(row)},
            [(number, self.jobs[number].key) for number, row in holding if row.partition == partition],
            list(self.halted),
            (dict(self.maps), open_, held),
        )

    def waiting(self, number: int, owner: Owner) -> WaitingJob:
        job, row = self.jobs[number], self.ready[number]
        is_known: int = self.workers[owner.worker] or not job.is_rare
        if is_known and self.rules.has_runs and not job.is_tried:
            is_known = IN_RUNS
        rank = row.ready_at + 60.0 * job.priority
        return WaitingJob(number, job.key, job.priority, row.pos or 0, rank, job.tenant, row.epoch, is_known)

    def take(self, partition: int) -> int:
        """Let a roster choose, and lease what it chose."""
        owner = self.owners[partition]
        is_idle = owner.roster.is_idle(self.now)
        extended = owner.roster.extend_runs(self.now)
        chosen = owner.roster.take(self.random.choice([1, 3, 10, 200]), self.now)
        assert not (is_idle and chosen), "what was said to be idle has started something"
        batches = {number: owner.roster.batches.pop(number, [number]) for number in chosen}
        chosen = [*extended, *(number for numbers in batches.values() for number in numbers)]
        return sum([self.lease(partition, number) for number in chosen])

    def lease(self, partition: int, number: int) -> bool:
        """Lease a job that was chosen, if it is there; it starts, unless one before it in its run has not ended."""
        owner, row = self.owners[partition], self.ready.get(number)
        if row is None or row.partition != partition:
            owner.roster.note_end(number, "gone", self.now)
            self.count("gone")
            return False
        del self.ready[number]
        self.jobs[number].is_handed_back = False
        run = self.jobs[number].key if self.rules.has_runs else None
        follows = run is not None and run in owner.runs and any(other.run == run for other in self.leases.values())
        if run is not None:
            owner.runs.add(run)
        self.starts += 1
        self.leases[number] = Row(
            *(partition, row.epoch, row.pos, row.ready_at, self.starts, owner),
            is_ahead=follows or self.random.random() < 0.3,
            run=run,
            is_waiting=follows,
        )
        if follows:
            self.count("followed")
        else:
            self.judge_order(number)
            self.judge_limits(number)
        return True

    def follow(self, ended: Row, end: str) -> None:
        """After a job of a run: the next starts, or all that follow go back."""
        if ended.run is None or ended.owner is None:
            return
        waiting = [number for number, row in self.leases.items() if row.is_waiting and row.run == ended.run]
        if end in ("succeeded", "discarded", "cancelled") or (end == "failed" and not self.rules.halts_on_dead):
            if waiting:
                self.leases[waiting[0]].is_waiting = False
                self.judge_order(waiting[0])
            return
        ended.owner.close_run(ended.run)
        for number in waiting:
            self.give_back(number)

    def end_some(self) -> None:
        running = sorted(number for number, row in self.leases.items() if self.is_alive(row) and not row.is_waiting)
        if running:
            self.end(self.random.choice(running), self.random.choice(ENDS))

    def end(self, number: int, end: str) -> None:
        """Settle what runs, and tell the roster if its owner is the same still."""
        row = self.leases.pop(number)
        self.tick += 1
        job = self.jobs[number]
        if end == "release" and not row.is_ahead and self.owners.get(row.partition) is not row.owner:
            end = "succeeded"  # A partition is given up when what was claimed for its slots has started or is back.
        told = "retry" if end == "retry at once" else end
        if end == "release":
            self.hand_back(number, row)
        elif end in ("retry", "snooze", "retry at once"):
            self.retry(job, row, self.now + (0.0 if end == "retry at once" else self.random.expovariate(1.0)))
        elif end == "failed" and self.rules.halts_on_dead and job.key is not None and job.key not in self.halted:
            self.halted[job.key] = (number, row.epoch)
            self.count("halted")
        else:
            del self.jobs[number]
        self.tell(row, number, told)
        self.follow(row, told)

    def hand_back(self, number: int, row: Row) -> None:
        """Put back what has not started: no other owner may have started a later one of its key meanwhile."""
        job = self.jobs[number]
        job.is_handed_back = True
        for other, lease in self.leases.items():
            later = self.jobs[other]
            if later.key == job.key is not None and later.priority == job.priority and self.rules.per_key is not None:
                is_since = lease.owner is not row.owner and lease.changed > row.changed and job.visible < later.entered
                assert not is_since or later.is_retried_dead_letter, "G5: a job was overtaken before it had started"
        self.put_back(number, row)

    def retry(self, job: Job, row: Row, due_at: float) -> None:
        self.count("retried")
        job.is_tried = True
        if self.rules.holds_on_retry:
            if due_at <= self.now:
                self.put_back(job.id, row)
            else:
                self.scheduled[job.id] = Row(row.partition, row.epoch, row.pos, 0.0, 0, due_at=due_at)
        elif due_at <= self.now:
            self.enter_anew(job)
        else:
            job.visible = inf
            self.scheduled[job.id] = Row(row.partition, row.epoch, None, 0.0, 0, due_at=due_at)

    def tell(self, row: Row, number: int, end: str) -> None:
        if row.owner is not None and self.owners.get(row.partition) is row.owner:
            if end == "succeeded" and self.random.random() < 0.5:
                row.owner.roster.note_succeeded([number], self.now)
            else:
                row.owner.roster.note_end(number, end, self.now)

    # What is promised

    def judge_order(self, number: int) -> None:
        job, per_key, owner = self.jobs[number], self.rules.per_key, self.leases[number].owner
        if job.key is None or owner is None:
            return
        # Where several of a key may run, one that ran elsewhere counts as running until its end was seen; one that was
        # handed back unstarted does not.
        unseen = () if per_key == 1 else owner.roster._elsewhere
        assert job.key not in self.halted or self.halted[job.key][0] in unseen, "a halted key has started a job"
        if per_key is None:
            return
        alike = [other for other in self.jobs.values() if other.key == job.key]
        leased = [self.leases[other.id] for other in alike if other.id in self.leases]
        running = sum(not lease.is_waiting for lease in leased)
        assert running <= per_key, "G5: too many jobs of a key run at a time"
        for other in alike:
            waits = other.id in self.ready or (other.id in self.scheduled and self.scheduled[other.id].pos is not None)
            waits |= other.id in self.leases and self.leases[other.id].is_waiting
            is_unseen = other.id in unseen and not other.is_handed_back
            if waits and not is_unseen and other.priority == job.priority and not job.is_retried_dead_letter:
                assert not other.visible < job.entered, "G5: a job was overtaken"

    def judge_limits(self, number: int) -> None:
        row, rules = self.leases[number], self.rules
        leased = sum(other.partition == row.partition for other in self.leases.values())
        assert rules.limit is None or leased <= rules.limit, "G6: a limit was exceeded"
        if rules.limit is not None and leased == rules.limit:
            self.count("limit reached")
        if (rate := rules.starts_a_second) is not None:
            self.meters.setdefault(row.partition, Meter(rate)).start(self.now)
        key_rate = rules.starts_of_key_a_second
        if key_rate is not None and (key := self.jobs[number].key) is not None:
            self.meters.setdefault(key, Meter(key_rate)).start(self.now)

    # A run

    def step(self) -> None:
        act = self.random.random()
        if act < 0.15:
            self.enqueue()
        elif act < 0.18 and self.unwritten:
            self.commit(self.random.randrange(len(self.unwritten)))
        elif act < 0.40:
            self.end_some()
        elif act < 0.62 and self.owned:
            self.look(self.random.choice(self.owned), is_full=self.random.random() < 0.6)
        elif act < 0.85 and self.owned:
            self.take(self.random.choice(self.owned))
        elif act < 0.90:
            self.now += self.random.expovariate(3.0)
            self.promote()
        else:
            self.mishap()

    def mishap(self) -> None:
        acts = {
            self.own: 10,
            self.close_maps: 6,
            self.rescue: 3,
            self.cancel: 3,
            self.settle_halt: 8,
            self.hand_over: 2,
            self.end_runs: 1,
            self.kill: 1,
            self.resize: 1,
            self.change_limit: 1,
            self.reschedule: 1,
        }
        self.random.choices(list(acts), list(acts.values()))[0]()

    def drain(self) -> None:
        """Let everything end well; what does not end was stuck, or told wrongly when to come back."""
        if self.has_rare_task:
            self.dead.update(self.workers)
            self.hire(knows_rare=True)
        while self.unwritten:
            self.commit(0)
        moved = 0
        for entry in range(20_000):
            while self.halted:
                self.settle_halt()
            self.close_maps()
            self.rescue()
            self.own()
            if not moved or entry % 8 == 0:
                for partition in list(self.owners):
                    self.look(partition, is_full=True)
            moved = sum(self.take(partition) for partition in list(self.owners))
            for number in sorted(self.leases):
                while number in self.leases and not self.leases[number].is_waiting:
                    self.end(number, "succeeded")
            if not self.jobs:
                break
            if not moved:
                times = [owner.roster.next_at(self.now) for owner in self.owners.values()]
                times += [row.due_at for row in self.scheduled.values()]
                self.now = max(self.now, min((at for at in times if at is not None), default=self.now))
                self.promote()
        assert not self.jobs, f"{len(self.jobs)} jobs never ended"
        for owner in self.owners.values():
            self.forget_gone(owner)

    def forget_gone(self, owner: Owner) -> None:
        """What a roster still believes to wait was cancelled; after that it is empty."""
        roster = owner.roster
        roster.set_elsewhere([])
        roster.set_key_maps({self.epoch: self.maps[self.epoch]}, (), ())
        for _ in range(1_000):
            self.now = max(self.now, roster.next_at(self.now) or self.now)
            chosen = roster.take(1_000, self.now)
            for number in chosen:
                roster.note_end(number, "gone", self.now)
            for _ in range(2):
                roster.set_held([])
                roster.set_halted([])
            if not chosen and roster.next_at(self.now) is None:
                break
        assert (roster.waiting, roster.startable, len(roster._keys)) == (0, 0, 0)
        assert roster.is_idle(self.now)
