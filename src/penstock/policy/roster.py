"""What may start next in one owned partition.

The worker that owns a partition reads its waiting jobs once and keeps them here, a few bytes each; which of them may
start is decided in memory, at a cost that does not grow with how deep a key is.

    add ──► waiting ──take──► out ──note_end──► over
               ▲               │
               └───add── held ◄┘  a retry or snooze that holds its key, or a release that was not read again yet

A key's jobs start in order, at most `per_key` of them out at a time, those leased by another worker included; while
one of them is held, or the key is halted or waits for an older key map, none starts.

Where a task's handler is given several jobs together, those that follow each other in a key start as one *batch*: it is
out until the last of them has ended, and counts as one for `per_key`, as its jobs for limits, rates and shares.

Where the queue has *runs*, jobs that follow each other in a key are taken out together too, to start one after the
other in one slot. As those at its head end, more of the key follow at its tail, as long as none is on its way back.

Nothing here asks for the time or for the database. After each read of one snapshot the owner passes on what the tables
say: `add` first, then `set_elsewhere`, `set_held`, `set_halted` and `set_key_maps`. Before it reads the next snapshot
it has leased what it took and passed on what ended: a job in `ready` is one that waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from penstock.model.rules import QueueRules
from penstock.policy.allowance import Allowance
from penstock.policy.batch_size import MOST_TOGETHER, BatchSize
from penstock.policy.job_sequence import (
    BATCH_MASK,
    BATCH_SHIFT,
    BEHIND,
    HAS_HANDLER,
    ID,
    MARK,
    RANK,
    TENANT_SHIFT,
    JobSequence,
)
from penstock.policy.key import AWAY, BUSY, DRAINING, EMPTY, INERT, READY, Key
from penstock.policy.key_holds import KeyHalts, KeyHolds
from penstock.policy.key_maps import KeyMaps
from penstock.policy.ready_keys import FairReadyKeys, ReadyKeys
from penstock.policy.waiting_job import WaitingJob

__all__ = ["JobTuple", "Roster", "WaitingJob"]

# A `WaitingJob`, or a plain tuple of the same: there are many, and they are made quicker.
JobTuple: TypeAlias = tuple[int, bytes | None, int, int, float, str, int, int]
RETURNING_ENDS = frozenset({"retry", "snooze"})
FINAL_ENDS = frozenset({"succeeded", "failed", "cancelled", "discarded", "expired", "gone"})


class Run(NamedTuple):
    """A run that is out: its mark and how many of it are out, and where its jobs stood."""

    together: list[int]
    sequence: JobSequence


class Roster:
    """The jobs of one owned partition. Used by one thread at a time.

    `waiting`: jobs that are known and not out. `startable`: how many of them could start now, were there neither
    limit nor rate; a bound where a key has jobs without a handler or of several key maps behind its next.
    """

    def __init__(self, rules: QueueRules, partition: int, now: float, batch_sizes: Sequence[BatchSize] = ()) -> None:
        self._rules = rules
        # Those of the task with number 1, number 2, and so on; whether any has to wait for a fuller batch.
        self._batch_sizes = batch_sizes
        self._has_batch_waits = any(size.wait_seconds for size in batch_sizes)
        # By their first job: the batches and runs that were given out, until the owner takes them from here.
        self.batches: dict[int, list[int]] = {}
        # The runs that are out. So many jobs one may have, where the queue allows as many: those that start soon.
        self._runs: dict[Key, Run] = {}
        self.most_in_run = 1
        # Of each job that is out in a batch or a run: how many of that are. Of keys that wait for a fuller batch: since
        # which job was next, and until when.
        self._out_with: dict[int, list[int]] = {}
        self._fuller_at: dict[Key, tuple[int, float]] = {}
        self._is_fair = rules.is_fair
        self._ready_keys = FairReadyKeys(rules.weights or {}) if rules.is_fair else ReadyKeys()
        self._allowance = Allowance(rules, now)
        self._has_new_rules = False
        self._key_maps = KeyMaps(partition)
        self._holds = KeyHolds()
        self._halts = KeyHalts()
        # By name; those of jobs without a key by their tenant.
        self._keys: dict[bytes | str, Key] = {}
        # Of the jobs without a key those without a handler: nothing waits behind them.
        self._unhandled = Key(None)
        self._out: dict[int, Key] = {}
        self._elsewhere: dict[int, Key] = {}
        # Of those, the ones that may come back without having started.
        self._unstarted: set[int] = set()
        self._draining: set[Key] = set()
        # Whether any keys may have come from other partitions since the last take, and which ones surely have.
        self._has_moves = False
        self._arrived: set[bytes] = set()
        # How many jobs may run here, where the queue has a total_limit.
        self.permits: int | None = None
        # How many jobs may start, where it has a total_rate, as of the last look.
        self.tokens: int | None = None
        # Where the job stood that was taken out last.
        self._started_from: JobSequence | None = None
        # Keys with something that will start without anyone's doing.
        self._hopeful = 0
        self.waiting = 0
        self.startable = 0

    @property
    def rules(self) -> QueueRules:
        return self._rules

    @rules.setter
    def rules(self, rules: QueueRules) -> None:
        """Go by other limits, rates and weights from now on; what is out stays out."""
        if rules == self._rules:
            return
        if rules.is_fair != self._is_fair:
            raise ValueError("whether a queue is fair cannot change while its partitions are owned")
        self._rules = rules
        self._has_new_rules = True
        if isinstance(self._ready_keys, FairReadyKeys):
            self._ready_keys.weights = rules.weights or {}
        for key in list(self._keys.values()):
            key.entry = None
            self._reclassify(key)

    def add(self, jobs: Iterable[JobTuple]) -> None:
        """Take over jobs read from `ready`; one that is out or held waits again where it stood in the order."""
        keys, out, holds = self._keys, self._out, self._holds
        has_holds, is_single = bool(holds), self._rules.per_key == 1
        out_with, fuller_at = self._out_with, self._fuller_at
        number_of = self._ready_keys.add_jobs if self._is_fair else None
        oldest, halted = self._key_maps.oldest, self._halts.names
        enter = self._ready_keys.enter
        changed: set[Key] = set()
        ready = 0
        seconds, microseconds = 0.0, 0
        for job, name, priority, pos, rank, tenant, epoch, is_known in jobs:
            if job in out:
                key = out.pop(job)
                if out_with:
                    self._note_back(job, key)
                else:
                    key.out -= 1
                changed.add(key)
            if has_holds and job in holds:
                changed.add(holds.end(job))
            mark = number_of(tenant) << TENANT_SHIFT | is_known if number_of else is_known
            if rank != seconds:
                # Most come with others of their row.
                seconds, microseconds = rank, int(rank * 1_000_000)
            if name is None and not is_known:
                key = self._unhandled
            else:
                name_or_tenant = tenant if name is None else name
                known = keys.get(name_or_tenant)
                if known is None:
                    known = keys[name_or_tenant] = Key(name, tenant)
                    if (
                        name is not None
                        and is_single
                        and epoch <= oldest
                        and is_known & HAS_HANDLER
                        and name not in halted
                    ):
                        # What `_reclassify` would find of a key that has this job and nothing else, at less cost.
                        known.sequence = JobSequence(epoch, priority)
                        known.sequence.add(pos, job, microseconds, mark)
                        known.waiting = known.startable = 1
                        known.standing = READY
                        entry = known.entry = (microseconds, job, known)
                        enter(entry, mark >> TENANT_SHIFT)
                        ready += 1
                        continue
                key = known
            sequence = key.sequence
            if (
                sequence is not None
                and key.others is None
                and sequence.priority == priority
                and sequence.epoch == epoch
            ):
                where = sequence.add(pos, job, microseconds, mark)
                if where:
                    key.waiting += 1
            else:
                where = key.add(epoch, priority, pos, job, microseconds, mark)
            if where:
                self.waiting += 1
            elif number_of:
                self._ready_keys.remove_job(mark >> TENANT_SHIFT)
            # Where one job of a key starts at a time, a job behind its next changes nothing.
            if (
                where != BEHIND
                or (key.standing == READY and not (is_single and name is not None))
                or (fuller_at and key in fuller_at)
            ):
                changed.add(key)
        self.waiting += ready
        self.startable += ready
        self._hopeful += ready
        for key in changed:
            if key is not self._unhandled:
                self._reclassify(key)

    def add_alike(
        self,
        jobs: range,
        name: bytes | None,
        priority: int,
        pos: int,
        rank: float,
        tenant: str,
        epoch: int,
        is_known: int,
    ) -> None:
        """Take over jobs that are alike but for their ids, at once: a key may be a million of them deep."""
        if not jobs:
            return
        key = self._unhandled if name is None and not is_known else self._key(name, tenant)
        sequence = None if self._has_any(jobs) else key.sequence_before(epoch, priority, pos, jobs[0])
        if sequence is None:
            self.add((job, name, priority, pos, rank, tenant, epoch, is_known) for job in jobs)
            return
        mark = self._ready_keys.add_jobs(tenant, len(jobs)) << TENANT_SHIFT | is_known
        sequence.append_alike(pos, jobs, int(rank * 1_000_000), mark)
        key.waiting += len(jobs)
        self.waiting += len(jobs)
        if key is not self._unhandled:
            self._reclassify(key)

    def take(self, wanted: int, now: float, slots: int | None = None) -> list[int]:
        """Give out at most so many jobs, in the order in which they start; of a batch or a run the first: `batches` has
        all. A batch counts as one, and so does a run that has one of the `slots`; of the other runs every job counts.
        """
        allowance = self._allowance_at(now)
        room = allowance.room(self.running, self.permits, now)
        if self.tokens is not None:
            room = self.tokens if room is None else min(room, self.tokens)
        most = wanted if room is None else min(wanted, room)
        taken: list[int] = []
        # Jobs of batches but for the first of each.
        further = 0
        is_fair, is_single = self._is_fair, self._rules.per_key == 1
        has_batches = bool(self._batch_sizes) or self._rules.has_runs
        has_waits = allowance.has_key_rate or self._has_batch_waits
        if is_single and not (has_batches or has_waits or is_fair):
            self._take_singly(taken, most)
        while len(taken) < most:
            key = self._next(now) if has_waits else self._ready_keys.next()
            if key is None:
                break
            job = self._start(key)
            if job is not None:
                taken.append(job)
                if allowance.has_key_rate:
                    allowance.spend_of_key(key, now)
                jobs = 1
                if has_batches and self._out_with.get(job):
                    left = MOST_TOGETHER if room is None else min(MOST_TOGETHER, room)
                    jobs = self._fill_batch(job, key, left - len(taken) - further + 1, now)
                    further += jobs - 1
                    most = min(most, left - further)
                    if slots is not None and key in self._runs and len(taken) > slots:
                        most -= jobs - 1
                if is_fair:
                    self._ready_keys.note_start(jobs)
            if is_single and key.out and key.name is not None:
                # What `_reclassify` would find, at less cost: nothing more of it starts before this one has ended.
                key.standing = BUSY
                self.startable -= key.startable
                key.startable = 0
            else:
                self._reclassify(key)
        allowance.spend(len(taken) + further, now)
        if self.tokens is not None:
            self.tokens -= len(taken) + further
        return taken

    def _take_singly(self, taken: list[int], most: int) -> None:
        """The same at less cost, for most queues: while each key that is next has one job to start, and no rate, batch,
        run or tenant counts.
        """
        next_key, out = self._ready_keys.next, self._out
        started = 0
        while len(taken) < most and (key := next_key()) is not None:
            sequence = key.sequence
            # What is next of a key that is ready may start: whatever changes that, `_reclassify` is asked.
            if sequence is None or key.name is None or (job := sequence.first[sequence.at + ID]) in out:
                # Anything but the usual: as others are.
                self._reclassify(key)
                break
            if key.waiting == 1:
                # The last of its key that is known.
                key.sequence = None
                key.waiting = 0
            else:
                key.pop()
            out[job] = key
            key.out += 1
            taken.append(job)
            # What `_reclassify` would find: nothing more of it starts before this one has ended.
            key.standing = BUSY
            started += key.startable
            key.startable = 0
        self.waiting -= len(taken)
        self.startable -= started

    def extend_runs(self, now: float) -> list[int]:
        """Give out the jobs that follow at the tail of runs that have room."""
        extended: list[int] = []
        most = min(self._rules.run or 1, self.most_in_run)
        for key, run in list(self._runs.items()):
            if not run.together[1]:
                del self._runs[key]
            # Half of it at a time. In a fair queue every start is a tenant's turn.
            elif 2 * run.together[1] <= most and not self._is_fair and self._may_follow(key):
                followers = self._take_followers(key, run.together, run.sequence, most - run.together[1], now)
                if followers:
                    run.together[1] += len(followers)
                    extended += followers
                    self._reclassify(key)
        return extended

    def close_run(self, name: bytes) -> None:
        """Let no more follow in the run of a key, which is over: the next of it starts when all of that have ended."""
        if (key := self._keys.get(name)) is not None:
            self._runs.pop(key, None)

    def is_run(self, job: int) -> bool:
        """Whether a job that is out with others is in a run; else they are a batch."""
        together = self._out_with.get(job)
        return together is not None and (together[0] >> BATCH_SHIFT & BATCH_MASK) > len(self._batch_sizes)

    @property
    def has_runs(self) -> bool:
        """Whether any run is out that more jobs could follow."""
        return bool(self._runs)

    @property
    def has_holds(self) -> bool:
        """Whether a key waits for a job to come back, or for a person: the tables say when that is over."""
        return bool(self._holds or self._halts.names)

    @property
    def running(self) -> int:
        """How many jobs were taken and have not ended, here or by others."""
        return len(self._out) + len(self._elsewhere)

    def key_of(self, job: int) -> bytes | None:
        """The key of a job that is out; None where it has none, or none that has an order."""
        key = self._out.get(job)
        return None if key is None or self._rules.per_key is None else key.name

    def note_end(self, job: int, end: str, now: float) -> None:
        """Note how a job that was taken ended: it is no longer out. One that came back by `add` meanwhile stays."""
        key = self._out.pop(job, None)
        if key is not None:
            if self._out_with:
                self._note_back(job, key)
            else:
                key.out -= 1
        elif job in self._elsewhere:
            # Taken here before everything was read anew: the next snapshot shows that it is not out any more.
            key = self._elsewhere[job]
        else:
            return
        if end != "succeeded":
            self._note_unsuccessful_end(job, key, end)
        self._reclassify(key)

    def note_succeeded(self, jobs: Iterable[int], now: float) -> None:
        """Note that these jobs ended well, which most do."""
        out, keys, oldest, halted = self._out, self._keys, self._key_maps.oldest, self._halts.names
        enter = self._ready_keys.enter
        is_usual = self._rules.per_key == 1 and not (self._out_with or self._fuller_at)
        ready = gone = 0
        for job in jobs:
            key = out.get(job)
            if (
                key is None
                or key.standing != BUSY
                or key.out != 1
                or key.holds
                or key.elsewhere
                or key.name is None
                or not is_usual
            ):
                self.note_end(job, "succeeded", now)
                continue
            del out[job]
            key.out = 0
            sequence = key.sequence
            # What `_reclassify` would find, at less cost: either there is no more of the key, or its next is ready.
            if sequence is None:
                key.standing = EMPTY
                gone += 1
                keys.pop(key.name, None)
            elif (
                sequence.epoch <= oldest
                and (mark := sequence.first[sequence.at + MARK]) & HAS_HANDLER
                and key.name not in halted
            ):
                key.standing = READY
                key.startable = 1
                ready += 1
                first, at = sequence.first, sequence.at
                entry = key.entry = (first[at + RANK], first[at + ID], key)
                enter(entry, mark >> TENANT_SHIFT)
            else:
                self._reclassify(key)
        self._hopeful -= gone
        self.startable += ready

    def set_elsewhere(self, jobs: Iterable[tuple[int, bytes | None]], unstarted: Collection[int] = ()) -> None:
        """Replace what other workers have leased of this partition; the unstarted may come back as they were."""
        named = {job: name for job, name in jobs if job not in self._out}
        changed: set[Key] = set()
        for job in self._elsewhere.keys() - named.keys():
            key = self._elsewhere.pop(job)
            key.elsewhere -= 1
            key.unstarted -= job in self._unstarted
            self._unstarted.discard(job)
            changed.add(key)
        for job in named.keys() - self._elsewhere.keys():
            key = self._elsewhere[job] = self._key(named[job])
            key.elsewhere += 1
            changed.add(key)
        unsure = {job for job in unstarted if job in self._elsewhere}
        for job in unsure ^ self._unstarted:
            key = self._elsewhere[job]
            key.unstarted += 1 if job in unsure else -1
            changed.add(key)
        self._unstarted = unsure
        for key in changed:
            self._reclassify(key)

    def set_held(self, jobs: Iterable[tuple[int, bytes | None]]) -> None:
        """Replace which retries and snoozes wait and hold their key; one that is gone and was not added is over."""
        for key in self._holds.replace({job: self._key(name) for job, name in jobs if name is not None}):
            self._reclassify(key)

    def set_halted(self, keys: Collection[bytes]) -> None:
        """Replace which keys wait for a person."""
        for name in self._halts.replace(frozenset(keys)) & self._keys.keys():
            self._reclassify(self._keys[name])

    def set_key_maps(
        self, maps: Mapping[int, Sequence[int]], open_: Collection[tuple[int, int]], held: Collection[tuple[int, bytes]]
    ) -> None:
        """Replace what is known of the key maps: the partitions of each epoch, which are open, which keys are held."""
        change = self._key_maps.change(maps, open_, held)
        self._has_moves |= change.may_have_moved
        for key in list(self._keys.values() if change.may_wait_anew else self._draining):
            self._reclassify(key)

    def next_at(self, now: float) -> float | None:
        """When a rate lets the next job start; None where one could now, or it is not a rate that it waits for."""
        allowance = self._allowance_at(now)
        if allowance.free(self.running, self.permits) == 0:
            return None
        key = self._next(now)
        if key is not None:
            self._reclassify(key)
        key_at = allowance.next_token_at() if key is None else now
        if key_at is None:
            return None
        at = max(key_at, allowance.bucket_at(now))
        return at if at > now else None

    def is_idle(self, now: float) -> bool:
        """Whether nothing is out, and nothing will start unless a retry returns, a person acts, or jobs come."""
        return not (self._out or self._hopeful or self._holds.releases)

    def _allowance_at(self, now: float) -> Allowance:
        if self._has_new_rules:
            self._allowance.change(self._rules, now)
            self._has_new_rules = False
        if self._has_moves or self._arrived:
            self._allowance.empty_keys(None if self._has_moves else self._arrived, now)
            self._has_moves = False
            self._arrived.clear()
        return self._allowance

    def _key(self, name: bytes | None, tenant: str = "") -> Key:
        name_or_tenant = tenant if name is None else name
        key = self._keys.get(name_or_tenant)
        if key is None:
            key = self._keys[name_or_tenant] = Key(name, tenant)
        return key

    def _has_any(self, jobs: range) -> bool:
        """Whether any of these is out or held."""
        if len(self._out) < len(jobs):
            is_out = any(job in jobs for job in self._out)
        else:
            is_out = any(job in self._out for job in jobs)
        return is_out or (bool(self._holds) and any(job in self._holds for job in jobs))

    def _note_unsuccessful_end(self, job: int, key: Key, end: str) -> None:
        if end in ("release", "suspect"):
            self._holds.begin(job, key, survives=1, is_release=True)
        elif end in RETURNING_ENDS:
            if self._rules.holds_on_retry and key.name is not None:
                self._holds.begin(job, key, survives=1)
        elif end not in FINAL_ENDS:
            raise ValueError(f"a job cannot end as {end!r}")
        elif end == "failed" and self._rules.halts_on_dead and key.name is not None:
            self._halts.begin(key.name)

    def _reclassify(self, key: Key) -> None:
        """Find out where a key stands after something about it has changed."""
        startable = 0
        standing = self._standing(key)
        if standing == READY:
            sequence = key.sequence
            assert sequence is not None  # noqa: S101 - a key that is ready has a job that waits
            first, at = sequence.first, sequence.at
            rank, job, entry = first[at + RANK], first[at + ID], key.entry
            if entry is None or entry[1] != job or entry[0] != rank:
                entry = key.entry = (rank, job, key)
                self._ready_keys.enter(entry, first[at + MARK] >> TENANT_SHIFT)
            startable = self._startable_of(key)
        else:
            key.entry = None
            if standing == EMPTY and not (key.out or key.elsewhere or key.holds):
                self._keys.pop(key.tenant if key.name is None else key.name, None)
                self._fuller_at.pop(key, None)
        self.startable += startable - key.startable
        key.startable = startable
        before = key.standing
        if standing != before:
            key.standing = standing
            self._hopeful += (standing >= BUSY) - (before >= BUSY)
            if standing in (AWAY, DRAINING):
                self._draining.add(key)
            elif before in (AWAY, DRAINING):
                self._draining.discard(key)
                if key.name is not None:
                    self._arrived.add(key.name)

    def _standing(self, key: Key) -> int:
        sequence, name, per_key = key.sequence, key.name, self._rules.per_key
        if sequence is None:
            return EMPTY
        if name is None:
            return READY
        if per_key is not None:
            if key.holds:
                return INERT
            if key.out >= per_key:
                return BUSY
        if name in self._halts.names or not sequence.first[sequence.at + MARK] & HAS_HANDLER:
            return INERT
        # A job leased elsewhere that may not have started may come back: nothing of its key passes it.
        if per_key is not None and (key.out + key.elsewhere >= per_key or key.unstarted):
            return BUSY
        if sequence.epoch > self._key_maps.oldest and self._key_maps.is_draining(name, sequence.epoch):
            return AWAY if self._key_maps.is_held(name, sequence.epoch) else DRAINING
        return READY

    def _startable_of(self, key: Key) -> int:
        """How many of a key that is ready may be given out."""
        per_key = self._rules.per_key
        if key.name is None or per_key is None:
            return key.waiting
        return 1 if per_key == 1 else min(key.waiting, per_key - key.out - key.elsewhere)

    def _next(self, now: float) -> Key | None:
        """The key that starts next, of those that have a token."""
        for key in self._allowance.take_with_token(now):
            self._reclassify(key)
        while (next_key := self._ready_keys.next()) is not None:
            sequence = next_key.sequence
            if sequence is None:
                return next_key
            job = sequence.first[sequence.at + ID]
            if self._allowance.wait_for_token(next_key, job, now):
                continue
            at = self._full_at(next_key, sequence, now) if self._has_batch_waits else now
            if at <= now:
                return next_key
            self._allowance.wait_until(at, next_key, job)
        return None

    def _full_at(self, key: Key, sequence: JobSequence, now: float) -> float:
        """Until when the next of a key wait for more to come, if they are a batch; now, or earlier: they do not."""
        number = sequence.first[sequence.at + MARK] >> BATCH_SHIFT & BATCH_MASK
        if not number:
            return now
        size = self._batch_sizes[number - 1]
        most = min(each for each in (size.jobs, self._rules.limit, self.permits) if each is not None)
        if not size.wait_seconds or sequence.count_alike(most) >= most:
            return now
        job = sequence.first[sequence.at + ID]
        known = self._fuller_at.get(key)
        if known is None or known[0] != job:
            known = self._fuller_at[key] = job, now + size.wait_seconds
        return known[1]

    def _fill_batch(self, job: int, key: Key, most: int, now: float) -> int:
        """Take out with a job, which has just been, those that follow it in its key and are of the same task, tenant,
        priority and key map; how many are out together.
        """
        together, sequence = self._out_with[job], self._started_from
        assert sequence is not None  # noqa: S101 - the job came from there
        number = (together[0] >> BATCH_SHIFT & BATCH_MASK) - 1
        if number < len(self._batch_sizes):
            most = min(most, self._batch_sizes[number].jobs)
        else:
            most = min(most, self._rules.run or 1, self.most_in_run)
            self._runs[key] = Run(together, sequence)
        batch = [job, *self._take_followers(key, together, sequence, most - 1, now)]
        together[1] = len(batch)
        if len(batch) > 1:
            self.batches[job] = batch
        return len(batch)

    def _take_followers(self, key: Key, together: list[int], sequence: JobSequence, most: int, now: float) -> list[int]:
        """Take out the next jobs of a key, as far as they bear the same mark, priority and key map."""
        mark, followers = together[0], list[int]()
        while len(followers) < most and (
            (following := key.sequence) is not None
            and (following is sequence or following.is_like(sequence))
            and following.first[following.at + MARK] == mark
            and self._allowance.has_token(key, now)
        ):
            follower = key.pop()
            self.waiting -= 1
            if self._is_fair:
                self._ready_keys.remove_job(mark >> TENANT_SHIFT)
            if follower not in self._out:
                self._out[follower] = key
                self._out_with[follower] = together
                followers.append(follower)
                if self._allowance.has_key_rate:
                    self._allowance.spend_of_key(key, now)
        return followers

    def _may_follow(self, key: Key) -> bool:
        """Whether more of a key may follow at the tail of its run: nothing of it waits for something else."""
        return not (key.holds or key.elsewhere or key.name in self._halts.names)

    def _note_back(self, job: int, key: Key) -> None:
        """Note that a job is no longer out: nor is its key, once that holds for all of its batch."""
        together = self._out_with.pop(job, None)
        if together is not None:
            together[1] -= 1
            if together[1]:
                return
        key.out -= 1

    def _start(self, key: Key) -> int | None:
        """Take the next job of a key out of those that wait; None where it may not start."""
        while (sequence := key.sequence) is not None:
            mark = sequence.first[sequence.at + MARK]
            if key.name is not None and (
                not mark & HAS_HANDLER
                or (sequence.epoch > self._key_maps.oldest and self._key_maps.is_draining(key.name, sequence.epoch))
            ):
                return None
            job = key.pop()
            self.waiting -= 1
            if self._is_fair:
                self._ready_keys.remove_job(mark >> TENANT_SHIFT)
            # It may have entered its key's order a second time, having left it unseen: rescheduled, say.
            if job not in self._out:
                self._out[job] = key
                key.out += 1
                number = mark >> BATCH_SHIFT & BATCH_MASK
                # Jobs without a key follow nobody.
                if number and (number <= len(self._batch_sizes) or key.name is not None):
                    self._out_with[job] = [mark, 1]
                    self._started_from = sequence
                    self._fuller_at.pop(key, None)
                return job
        return None
