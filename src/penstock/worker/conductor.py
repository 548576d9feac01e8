"""The conductor: one thread that has a worker's whole conversation about jobs with one database.

Each turn settles everything that ended since the last and claims what comes next, in one transaction. While a turn is
under way more jobs end, so that many small settles become few commits by themselves; no end waits for another. With
nothing to do the conductor asks to be woken, looks once more, and sleeps, looking again now and then all the same.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from penstock.clock import system, ticks
from penstock.owner import Owner
from penstock.policy.batch import MOST_AHEAD, BatchSize
from penstock.policy.slots import Grant
from penstock.storage import workers
from penstock.storage.aside import set_unread_aside
from penstock.storage.claim import Lease, Stored, others_than, parts_of, read_jobs
from penstock.storage.database import (
    Connection,
    Database,
    DatabaseError,
    first_line,
    is_about_data,
    is_cancelled,
    is_lost,
    may_repeat,
    with_remedy,
)
from penstock.storage.exchange import FROM_THE_START, ClaimWish, Turn, exchange, held_leases, settled_by
from penstock.storage.flow import Session, session_of
from penstock.storage.owner import Choice, has_work_of_others, read_partitions
from penstock.storage.sessions import confirm_replicated, stop_turns
from penstock.storage.settle import End, Succeeded, note_started
from penstock.storage.sweep import unblock_next
from penstock.task.definition import TaskDefinition
from penstock.worker.collecting import Collected, collect, count_ends, end_taken_away, tell
from penstock.worker.context import Workplace
from penstock.worker.hooks import Hooks
from penstock.worker.job import HeldJob
from penstock.worker.line import SETTLED_TOGETHER, Line
from penstock.worker.rarely import Rarely

__all__ = ["Conductor", "DatabaseAway", "Served"]

T = TypeVar("T")
log = logging.getLogger("penstock")

# How long a job may wait here unstarted; then others may have it.
HOLD_SECONDS = 1.0
STUCK_SECONDS = 0.05
# Positions are remembered so that dead rows at the head are not walked again; what lies before them is found by this.
SWEEP_SECONDS = 1.0
# A worker that has found work for so long needs no waking.
AWAKE_SECONDS = 0.25
FAST_SECONDS = 0.001
FAST_TICK_SECONDS = 0.005
SLOWEST_POLL_SECONDS = 1.0
# So many children of what ended are looked at in one turn.
CHILDREN_A_TURN = 1_024


class DatabaseAway(Exception):
    """The worker was told to stop, and the database did not come back in time to hear what became of its jobs."""


@dataclass(frozen=True, slots=True)
class Served:
    """One queue a worker takes jobs from."""

    queue_id: int
    name: str
    partition_ids: tuple[int, ...]
    max_wait: float | None
    tasks: dict[str, TaskDefinition] = field(default_factory=dict)
    is_owned: bool = False
    is_limited: bool = False


class Conductor:
    """Used by one thread; only the attributes marked so are set by others."""

    def __init__(
        self,
        database: Database,
        workplace: Workplace,
        line: Line,
        served: list[Served],
        hooks: Hooks,
        start_threads: Callable[[int], None],
        signal: threading.Event,
    ) -> None:
        self._database = database
        self._workplace = workplace
        self._line = line
        self._hooks = hooks
        self._start_threads = start_threads
        self._signal = signal
        self._session = (0, 0)
        # What its turns bear behind a pooler.
        self._turn_number: int | None = None
        self._queues = {queue.queue_id: queue for queue in served}
        self._by_partition = {partition: queue for queue in served for partition in queue.partition_ids}
        # Of plain queues, to be claimed from by anybody; the partitions of the others have an owner.
        self._partitions: list[int] = []
        self._positions: dict[int, list[int]] = {}
        self._take_up_partitions()
        self._owner = Owner({queue.queue_id: frozenset(queue.tasks) for queue in served if queue.is_owned})
        # Queues of which nothing is claimed while the event loop is blocked; and those of which nothing is claimed now.
        self._async_queues = frozenset(
            queue.queue_id for queue in served if any(task.is_async for task in queue.tasks.values())
        )
        self._closed: Set[int] = frozenset()
        self._owners_turn = False
        self._partitions_at = system.monotonic()
        self._swept_at = 0.0
        self._batch = BatchSize()
        self._held: dict[int, Lease] = {}
        # The held lease of a job that was rescued twice: it may be the one that kills workers.
        self._suspect: Lease | None = None
        self._connection: Connection | None = None
        self._is_asleep = False
        self._dry_at = system.monotonic()
        self._is_dry = False
        self._poll_seconds = 0.05
        self._progressed_at = 0.0
        self._noted_at = 0.0
        # Queues with a limit, and the partitions where places in it became free: others may wait for them.
        self._limited = {queue.queue_id for queue in served if queue.is_limited}
        self._freed: set[int] = set()
        # When a rate lets the next job start.
        self._opens_at: float | None = None
        # Leases that have ended, of which another server than the one that gave them may say that something still runs.
        self._doubtful: list[Lease] = []
        # Which server was last asked what this worker holds there.
        self._recalled_on: str | None = None
        # Since when it waits for the database to answer.
        self._asking_since: float | None = None
        # Since when nothing at all was heard on its connection, from when that was lost.
        self.unheard_since: float | None = None
        # How much is claimed at once after a claim took so long that it was cancelled.
        self._most_claimed: int | None = None
        self._rarely = Rarely(log)
        # What ended here so far, by its end.
        self.counts: Counter[str] = Counter()
        # Set by other threads.
        self.is_stopping = False
        # The monotonic time from which a database that is away is not waited for any more.
        self.give_up_at: float | None = None
        self.paused: set[int] = set()
        # Which server the heart beats on.
        self.server: str | None = None
        # Called with children that are to be looked at, and would keep a turn for too long.
        self.on_children: Callable[[list[int]], None] = lambda _: None
        # Called when a job was put off for so many seconds, so that upkeep looks in time.
        self.on_due: Callable[[float], None] = lambda _: None

    def turn(self) -> bool:
        """Settle and claim once, where there is anything to do; whether there was."""
        self._look_around()
        surplus = self._owner.surplus
        collected = collect(self._line, self._batch, end_taken_away(self._line))
        now = system.monotonic()
        if self._owner:
            for job in collected.jobs:
                end = "succeeded" if job.verdict is None else job.verdict.end
                self._owner.ended(job.lease.partition_id, job.id, end, now)
        collected.ends += self._handed_back(surplus)
        if self._doubtful or self.server != self._recalled_on:
            self._recall()
        self._note_freed(collected.jobs)
        self._note_started()
        slots, ahead = (0, 0) if self.is_stopping else self._wanted(self._line.floor.ask(self._line))
        wish, choices = self._wish(slots, ahead)
        if wish is None and not choices:
            self._line.floor.claimed(self._line, is_dry=slots > 0 or self.is_stopping)
            if not collected:
                self._hand_over(surplus)
                return False
        turn = self._exchange(collected, wish, choices)
        self._hand_over(surplus)
        for lease in collected.leases.values():
            if lease.left <= 0:
                self._let_go(lease)
        self._report_lost(turn)
        count_ends(self.counts, collected, turn.unsettled)
        self._report_dead_letters(collected)
        tell(self._hooks, collected, turn.unsettled)
        if collected.soonest_due is not None:
            self.on_due(collected.soonest_due)
        if turn.children:
            self._unblock(turn.children)
        if choices:
            self._owner.leased(choices, turn, now)
            turn.leases += turn.chosen
        taken = self._take_in(turn.leases, [job for choice in choices for job in choice.jobs])
        if wish is not None:
            self._opens_at = None if turn.opens_in is None else now + turn.opens_in
        if wish is not None or choices:
            self._line.floor.claimed(self._line, is_dry=taken < max(slots, 1))
            self._note_claim(slots, taken)
        return bool(collected or turn.leases)

    def wait(self) -> None:
        """Sleep until something happens that a turn should follow."""
        if len(self._line.done) >= (1 if not self._line.is_fast or not len(self._line) else SETTLED_TOGETHER):
            return
        if self._is_dry and not self._is_asleep and not self.is_stopping:
            self._fall_asleep()
            return
        self._signal.wait(self._patience())
        self._signal.clear()
        if self._line.unstarted and system.monotonic() - self._progressed_at > FAST_TICK_SECONDS:
            self._start_threads(self._line.floor.concurrency)
            self._line.prod()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held, running or unsettled, and the last claim found nothing."""
        return self._is_dry and not self._held and not self._line.done

    @property
    def is_pacing(self) -> bool:
        """Whether handlers are so fast that a pause between turns saves more than it costs."""
        return self._line.is_fast and len(self._line) > 0

    @property
    def has_held_jobs(self) -> bool:
        return bool(self._held)

    @property
    def asking_seconds(self) -> float:
        """How long the database has not answered what it is being asked."""
        since = self._asking_since
        return 0.0 if since is None else system.monotonic() - since

    def look_again(self) -> None:
        """Claim again at the next turn, from the start."""
        self._is_dry = False
        self._swept_at = 0.0
        self._owner.look_again()

    def has_work(self) -> bool:
        """Whether a job that a handler here knows could run now."""
        worker = self._workplace.worker_id
        if self._owner:
            self._owner.look_again()
            self._look_around()
            if not self._owner.is_idle(system.monotonic()):
                return True
            self._with_connection(lambda connection: self._owner.note_quiet(connection, worker, system.monotonic()))
            if self._with_connection(lambda connection: has_work_of_others(connection, worker)):
                return True
        return self._with_connection(lambda connection: workers.has_work(connection, worker))

    def forget_everything(self) -> None:
        """The worker was declared dead: none of what it held is its own any more."""
        self._line.withdraw()
        for job in (*self._line.active(), *self._line.own_leases.open):
            job.is_abandoned = True
        if self._held:
            log.warning("LeaseLost: this worker was silent for too long; %d leases went to others", len(self._held))
        self._held.clear()
        self._doubtful.clear()
        self._owner.forget()
        self._suspect = None
        self._is_asleep = False
        self._is_dry = False

    def close(self) -> None:
        """Give back the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look_around(self) -> None:
        """Now and then: which partitions there are, which of them are this worker's, and what waits in those."""
        now = system.monotonic()
        if now - self._partitions_at > SWEEP_SECONDS:
            self._partitions_at = now
            found = self._with_connection(lambda connection: read_partitions(connection, list(self._queues)))
            for partition, queue_id in found:
                self._by_partition.setdefault(partition, self._queues[queue_id])
            self._limited = self._with_connection(workers.limited_queues)
            self._take_up_partitions()
        is_blocked = self._line.floor.is_loop_blocked
        self._closed = self.paused | self._async_queues if is_blocked else self.paused
        if not self._owner or self.is_stopping:
            return
        self._owner.withheld = self._async_queues if is_blocked else frozenset()
        worker = self._workplace.worker_id
        self._with_connection(lambda connection: self._owner.share(connection, worker, now))
        for holding in self._owner.holdings:
            # A resize may have added it since the partitions were read.
            self._by_partition.setdefault(holding.partition_id, self._queues[holding.queue_id])
        wanted = sum(self._wanted(self._line.floor.grantable(self._line)))
        if wanted > 0:
            self._with_connection(
                lambda connection: self._owner.look(connection, min(wanted, self._most_claimed or wanted), now)
            )
        else:
            self._owner.rest()

    def _unblock(self, children: list[int]) -> None:
        """Let go what waited for jobs that ended, one generation and not many of it. The rest is upkeep's: a long chain
        that is cancelled would keep every other job waiting.
        """
        some, rest = children[:CHILDREN_A_TURN], children[CHILDREN_A_TURN:]
        try:
            _, next_ones = self._with_connection(lambda connection: unblock_next(connection, some))
        except DatabaseError as error:
            if not is_about_data(error):
                raise
            log.warning("children could not be looked at, upkeep goes on trying: %s", first_line(error))
            next_ones = some
        if rest or next_ones:
            self.on_children(rest + next_ones)

    def _take_up_partitions(self) -> None:
        for partition, queue in self._by_partition.items():
            if not queue.is_owned and partition not in self._positions:
                self._partitions.append(partition)
                self._positions[partition] = list(FROM_THE_START)

    def _hand_over(self, surplus: list[int]) -> None:
        """What others should have is given up once nothing of it waits here; when stopping, everything."""
        worker = self._workplace.worker_id
        if self.is_stopping and self._owner:
            self._with_connection(lambda connection: self._owner.leave(connection, worker))
        elif surplus:
            self._with_connection(lambda connection: self._owner.give_up(connection, worker, surplus))

    def _wanted(self, grant: Grant) -> tuple[int, int]:
        """How many jobs to claim for the slots granted, and how many more to follow them."""
        waiting = len(self._line)
        entitled = max(grant.entitled, 1)
        slots, ahead = self._batch.wanted(grant.slots, entitled)
        total = slots + ahead - max(waiting - max(entitled - self._line.running, 0), 0)
        if total <= 0 or (slots == 0 and waiting > (slots + ahead) // 2):
            return 0, 0
        if slots == 0 and system.monotonic() - self._progressed_at > STUCK_SECONDS:
            # All slots are busy for longer than jobs took of late: what is claimed ahead now would wait behind them.
            return 0, 0
        if self._most_claimed is not None:
            slots, total = min(slots, self._most_claimed), min(total, self._most_claimed)
        return slots, total - slots

    def _wish(self, slots: int, ahead: int) -> tuple[ClaimWish | None, list[Choice]]:
        """What to claim: from plain queues whatever comes, from the others what was chosen; in turn where both are."""
        if slots + ahead <= 0:
            return None, []
        now = system.monotonic()
        choices: list[Choice] = []
        if self._owner:
            self._owners_turn = not self._owners_turn or not self._partitions
            if self._owners_turn or self._is_dry:
                choices = self._owner.choose(slots, ahead, len(self._line), now)
                if choices:
                    return None, choices
        if now - self._swept_at > SWEEP_SECONDS:
            self._swept_at = now
            for positions in self._positions.values():
                positions[:] = FROM_THE_START
        # Start each time with another partition, so that none waits behind a full one.
        self._partitions[:] = self._partitions[1:] + self._partitions[:1]
        open_partitions = [p for p in self._partitions if self._by_partition[p].queue_id not in self._closed]
        if not open_partitions:
            self._is_dry = True
            return None, []
        positions = [position for partition in open_partitions for position in self._positions[partition]]
        if self._suspect is not None and self._suspect.left <= 0:
            self._suspect = None
        return ClaimWish(open_partitions, positions, slots, ahead, self._suspect is not None), []

    def _take_in(self, leases: list[Lease], order: list[int]) -> int:
        """Read the jobs of new leases and put them in line, those that were chosen in that order; how many."""
        if not leases:
            return 0
        rows = Stored()
        rows.update({lease.only_job[0]: lease.only_job for lease in leases if lease.only_job is not None})
        plain = [lease for lease in leases if lease.task and lease.only_job is None]
        mixed = [lease for lease in leases if not lease.task]
        if plain:
            rows.add(self._with_connection(lambda connection: read_jobs(connection, plain)))
        if mixed:
            rows.update(self._owner.stored(mixed))
            unread = [lease for lease in mixed if any(lease.range * 1024 + p not in rows for p in lease.positions)]
            if unread:
                rows.add(self._with_connection(lambda connection: read_jobs(connection, unread, with_task=True)))
        if rows.unreadable:
            leases = self._set_unread_aside(leases, rows)
        now = ticks()
        taken_at = system.monotonic()
        jobs: list[HeldJob] = []
        for lease in leases:
            queue = self._by_partition[lease.partition_id]
            base = lease.range * 1024
            if lease.task:
                positions = self._positions[lease.partition_id]
                positions[lease.priority] = max(positions[lease.priority], lease.pos)
                task = queue.tasks[lease.task]
                members = [HeldJob(lease, task, rows[base + position]) for position in lease.positions]
            else:
                lease.is_strict = self._owner.is_strict(lease.partition_id)
                members = [
                    HeldJob(lease, queue.tasks[row[4]], row)
                    for row in [rows[base + position] for position in lease.positions]
                ]
            if queue.max_wait is not None and lease.attempt == 1 and lease.rescues == 0:
                for job in members:
                    job.expires_at = now + int((queue.max_wait - lease.waited_seconds) * 1e9)
            lease.left = len(members)
            lease.taken_at = taken_at
            if lease.id in self._held:
                self._abandon(self._held[lease.id])
            self._held[lease.id] = lease
            if lease.rescues > 1:
                self._suspect = lease
            jobs += members
        if order:
            places = {job: place for place, job in enumerate(order)}
            jobs.sort(key=lambda job: places.get(job.id, -1))
        mean = self._batch.mean_seconds
        is_fast = mean is not None and mean < FAST_SECONDS
        self._line.is_fast = is_fast
        self._line.share.job_seconds = inf if mean is None else mean
        threads = 1 if is_fast else len(jobs)
        if any(not queue_task.is_async for queue_task in {job.task for job in jobs}):
            self._start_threads(threads if is_fast else self._line.floor.in_hand + len(jobs))
        self._progressed_at = system.monotonic()
        self._line.feed(jobs, threads)
        return len(jobs) + len(rows.unreadable)

    def _set_unread_aside(self, leases: list[Lease], rows: Stored) -> list[Lease]:
        """Set aside what cannot be read of new leases; those that something is left of."""
        worker, name = self._workplace.worker_id, self._workplace.name
        partition_of = {lease.range: lease.partition_id for lease in leases}
        try:
            self._with_connection(lambda connection: set_unread_aside(connection, worker, name, leases, rows))
        except DatabaseError as error:
            if not is_about_data(error):
                raise
            # They stay under their leases, and are set aside when they are rescued.
            log.exception("%d jobs can neither be read nor set aside", len(rows.unreadable))
        now = system.monotonic()
        for job in rows.unreadable:
            self._owner.ended(partition_of[job // 1024], job, "cancelled", now)
        return [lease for lease in leases if lease.positions]

    def _abandon(self, lease: Lease) -> None:
        """The number of a lease was given again, so it is gone: none of its jobs is this worker's any more."""
        jobs = self._line.withdraw(lambda job: job.lease is lease)
        # In this order, in which jobs go on: none is passed over.
        jobs += [job for job in self._line.active() if job.lease is lease]
        jobs += [job for job in (*self._line.own_leases.open, *self._line.done) if job.lease is lease]
        for job in jobs:
            job.is_abandoned = True
        log.warning(
            "LeaseLost: the server is another, or an older copy, and has given lease %d again; %d jobs that ran under "
            "it are no longer this worker's",
            lease.id,
            len(jobs),
        )

    def _recall(self) -> None:
        """On another server, give back what it says this worker holds and this worker does not know.

        An asynchronous standby, or a backup, may not have heard of the last settles: what was settled is leased there
        still, to a worker that lives. Of what is held here it may name more than is left: that is seen at its end.
        """
        is_another = self._recalled_on is not None and self.server != self._recalled_on
        self._recalled_on = self.server
        if is_another:
            self._give_back(lambda held: others_than(self._held.values(), held))
            for lease in self._held.values():
                lease.is_in_doubt = True
        elif self._doubtful:
            ended, self._doubtful = self._doubtful, []
            self._give_back(lambda held: parts_of(ended, held))

    def _let_go(self, lease: Lease) -> None:
        """All of a lease has ended."""
        if self._held.get(lease.id) is lease:
            del self._held[lease.id]
        if lease.is_in_doubt:
            self._doubtful.append(lease)

    def _give_back(self, which: Callable[[list[Lease]], Iterable[Lease]]) -> None:
        worker, name = self._workplace.worker_id, self._workplace.name

        def release(connection: Connection) -> int:
            ends = [
                End(lease.id, lease.token, position, lease.range, "release")
                for lease in which(held_leases(connection, worker))
                for position in lease.positions
            ]
            if ends:
                exchange(connection, worker, name, [], ends, None)
            return len(ends)

        if count := self._with_connection(release):
            log.warning(
                "%s is another server or an older copy, or an answer was lost: how %d jobs ended is not written, they "
                "run again",
                self._database.breaker.label,
                count,
            )

    def _note_claim(self, slots: int, taken: int) -> None:
        now = system.monotonic()
        self._is_dry = taken < max(slots, 1)
        if taken:
            self._poll_seconds = 0.05
        if self._is_dry:
            self._dry_at = now
        elif self._is_asleep and now - self._dry_at > AWAKE_SECONDS:
            self._is_asleep = False
            self._with_connection(lambda connection: workers.wake_up(connection, self._workplace.worker_id))

    def _fall_asleep(self) -> None:
        self._with_connection(
            lambda connection: workers.fall_asleep(connection, self._workplace.worker_id, list(self._queues))
        )
        # Looked at once more before waiting: a producer that committed before the mark notified nobody.
        self._is_asleep = True
        self._swept_at = 0.0
        if self._owner:
            worker, now = self._workplace.worker_id, system.monotonic()
            self._with_connection(lambda connection: self._owner.note_quiet(connection, worker, now))
            self._owner.look_again()

    def _patience(self) -> float:
        """How long to wait for a signal."""
        if self._line.is_fast and (len(self._line) or self._line.running):
            return FAST_TICK_SECONDS
        patience = 0.05 if self._line.unstarted else SLOWEST_POLL_SECONDS
        if self._is_dry:
            patience = min(patience, self._poll_seconds)
            self._poll_seconds = min(self._poll_seconds * 2, SLOWEST_POLL_SECONDS)
        if self._owner:
            patience = min(patience, self._owner.patience(system.monotonic()))
        if self._opens_at is not None:
            patience = min(patience, max(self._opens_at - system.monotonic(), FAST_TICK_SECONDS))
        slots_in = self._line.floor.patience(self._line)
        if slots_in is not None:
            patience = min(patience, max(slots_in, 0.001))
        # A job whose handler asks for a lease of its own is taken away once that is answered.
        return min(patience, STUCK_SECONDS) if self._line.taken_away else patience

    def _handed_back(self, surplus: list[int]) -> list[End]:
        """Jobs that go back unstarted: all when stopping, those of queues that are paused or of partitions that others
        should have, those that waited for too long.
        """
        if not self._line.unstarted:
            return []
        now = system.monotonic()
        if self.is_stopping:
            jobs = self._line.withdraw()
        elif now - self._line.oldest() > HOLD_SECONDS:
            jobs = self._line.withdraw_late(now - HOLD_SECONDS)
        elif self._closed or surplus:
            jobs = self._line.withdraw(
                lambda job: (
                    job.lease.partition_id in surplus
                    or self._by_partition[job.lease.partition_id].queue_id in self._closed
                )
            )
        else:
            return []
        self._note_freed(jobs)
        for job in jobs:
            self._owner.ended(job.lease.partition_id, job.id, "release", now)
            job.lease.left -= 1
            if job.lease.left <= 0:
                self._let_go(job.lease)
        return [End(job.lease.id, job.lease.token, job.position, job.lease.range, "release") for job in jobs]

    def _note_freed(self, jobs: list[HeldJob]) -> None:
        """Keep in mind where these jobs held places that others may wait for."""
        if self._limited:
            ended = {job.lease.partition_id for job in jobs}
            self._freed |= {partition for partition in ended if self._by_partition[partition].queue_id in self._limited}

    def _note_started(self) -> None:
        """Have it noted, once a second, which leases claimed ahead have nothing left in them that has not started."""
        now = system.monotonic()
        if now - self._noted_at < HOLD_SECONDS:
            return
        self._noted_at = now
        waiting = self._line.waiting_leases()
        begun = [
            lease
            for lease in self._held.values()
            if lease.is_ahead and lease.id not in waiting and now - lease.taken_at > HOLD_SECONDS
        ]
        if begun:
            self._with_connection(lambda connection: note_started(connection, self._workplace.worker_id, begun))
            for lease in begun:
                lease.is_ahead = False

    def _exchange(self, collected: Collected, wish: ClaimWish | None, choices: list[Choice]) -> Turn:
        succeeded = list(collected.succeeded.values())
        if collected.jobs:
            self._progressed_at = system.monotonic()
        worker, name = self._workplace.worker_id, self._workplace.name
        freed = sorted(self._freed)
        self._freed.clear()
        session: Session | None = None
        self._asking_since = system.monotonic()
        try:
            connection = self._opened()
            session = session_of(connection)
            turn = exchange(
                connection, worker, name, succeeded, collected.ends, wish, choices, freed, self._turn_number
            )
            self._asking_since = None
            if self._most_claimed is not None and (wish is not None or choices):
                self._most_claimed = self._most_claimed + 1 if self._most_claimed < MOST_AHEAD else None
            return turn
        except DatabaseError as error:
            if not may_repeat(error):
                raise
            self._note_failed(error, wish.slots + wish.ahead if wish else sum(len(each.jobs) for each in choices))
            if is_lost(error):
                log.warning(
                    "%s does not answer (%s); the worker goes on there when it does",
                    self._database.breaker.label,
                    with_remedy(error),
                )
        # The answer was lost. What was settled is not held any more, and new leases may be ours unheard of.
        self._owner.forget()
        attempts = {
            (job.own_lease or job.lease.id, job.position): (job.id, job.lease.attempt) for job in collected.jobs
        }

        def repeat(connection: Connection) -> Turn:
            # Until it cannot commit any more its claim could come after the look at what is held.
            self._turn_number = stop_turns(connection, self._database, worker, session)
            turn = self._settle(connection, succeeded, collected.ends, freed)
            if not_held := [attempts[part] for part in turn.lost if part in attempts]:
                confirm_replicated(connection)
                settled = settled_by(connection, name, not_held)
                turn.lost = [part for part in turn.lost if part in attempts and attempts[part] not in settled]
            else:
                turn.lost = []
            # What has a lease of its own is not to be taken for new: it is part of the one it was given.
            turn.leases = others_than(self._held.values(), held_leases(connection, worker))
            return turn

        return self._with_connection(repeat)

    def _with_connection(self, act: Callable[[Connection], T]) -> T:
        """Do what may be repeated, on the conductor's connection, however long the database is away."""
        pause = 0.05
        self._asking_since = self._asking_since or system.monotonic()
        while True:
            try:
                answer = act(self._opened())
                self._asking_since = self.unheard_since = None
                return answer
            except DatabaseError as error:
                if not may_repeat(error):
                    raise
                self._note_failed(error)
                self.close()
                if self.give_up_at is not None and (system.monotonic() >= self.give_up_at or not self._has_to_tell):
                    raise DatabaseAway from error
                system.sleep(pause)
                pause = min(pause * 2, 1.0)

    def _settle(self, connection: Connection, succeeded: list[Succeeded], ends: list[End], freed: list[int]) -> Turn:
        """Settle again what may have been settled; what is cancelled as a whole, in halves."""
        worker, name = self._workplace.worker_id, self._workplace.name
        try:
            return exchange(connection, worker, name, succeeded, ends, None, freed=freed)
        except DatabaseError as error:
            if not is_cancelled(error) or len(succeeded) + len(ends) < 2:
                raise
            self._note_failed(error)
        # In order: a lease that has both kinds of ends is whole only after the first.
        half, half_of_ends = len(succeeded) // 2, len(ends) // 2
        halves: list[tuple[list[Succeeded], list[End]]]
        if succeeded and ends:
            halves = [(succeeded, []), ([], ends)]
        elif succeeded:
            halves = [(succeeded[:half], []), (succeeded[half:], [])]
        else:
            halves = [([], ends[:half_of_ends]), ([], ends[half_of_ends:])]
        turn = Turn()
        for each, others in halves:
            part = self._settle(connection, each, others, freed)
            turn.lost += part.lost
            turn.children += part.children
        return turn

    def _note_failed(self, error: BaseException, wished: int = 0) -> None:
        """Keep in mind that the connection is lost; or tell what is wrong, and ask for less the next time."""
        if is_lost(error):
            self.unheard_since = self.unheard_since or system.monotonic()
            return
        self._rarely.warning(
            "%s rolled back what the worker asked of it, and is asked again: %s",
            self._database.breaker.label,
            with_remedy(error),
        )
        if is_cancelled(error):
            self._most_claimed = max((wished or self._most_claimed or MOST_AHEAD) // 2, 1)

    @property
    def _has_to_tell(self) -> bool:
        return bool(self._held or self._line.done)

    def _opened(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect("conductor", carries_lease=True)
            self.unheard_since = None
        connection = self._connection
        session = (self._workplace.worker_id, connection.info.backend_pid)
        if session != self._session:
            if self._database.is_pooled:
                self._turn_number = stop_turns(connection, self._database, self._workplace.worker_id, None)
            else:
                workers.note_session(connection, self._workplace.worker_id)
            self._session = session
        return connection

    def _report_dead_letters(self, collected: Collected) -> None:
        dead = [end for end in collected.ends if end.end == "failed"]
        if dead:
            said = (dead[0].error or "").splitlines()[:1]
            job_id = dead[0].range * 1024 + dead[0].position
            log.warning("dead letters: %d, the first is job %d: %s", len(dead), job_id, *(said or [""]))

    def _report_lost(self, turn: Turn) -> None:
        if turn.lost:
            lease, position = turn.lost[0]
            log.warning(
                "LeaseLost: %s no longer this worker's at the end (lease %d, position %d ...): nothing was written",
                "1 job was" if len(turn.lost) == 1 else f"{len(turn.lost)} jobs were",
                lease,
                position,
            )
