"""The conductor: one thread that settles and takes jobs for a worker on one database, turn after turn.

Each turn settles everything that ended since the last and takes what comes next. While a turn is under way more jobs
end, so that many small settles become few commits by themselves; no end waits for another. With nothing to do the
conductor asks to be woken, looks once more, and sleeps, looking again now and then all the same.

The engine does the turn, and finds out what became of one whose answer was lost. A worker adds what is here: how much
to take for its slots, filling the backlog, handing back what does not start, and sleeping.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from penstock.clock import system, ticks
from penstock.engine.conversation import Attempts, Conversation, Holder, Settlement
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link
from penstock.engine.load_traces import add_load_traces
from penstock.engine.source import NOTHING, Source, Wish
from penstock.policy.claim_size import ClaimSize
from penstock.policy.look_pace import LookPace
from penstock.policy.slot_shares import Grant
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.work import workers
from penstock.storage.work.exchange import Turn
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import End, note_started
from penstock.worker.backlog import FAST_TICK_SECONDS, SETTLED_TOGETHER, Backlog
from penstock.worker.claimed_job import ClaimedJob, form_batches, jobs_of
from penstock.worker.claimed_run import form_runs
from penstock.worker.ended_jobs import EndedJobs, collect_ended, end_taken_away
from penstock.worker.queue_caps import DatabaseCaps
from penstock.worker.reporting import Reports
from penstock.worker.served_queues import ServedQueue, ServedQueues
from penstock.worker.stop_request import StopRequest
from penstock.worker.worker_heartbeat import WorkerHeartbeat
from penstock.worker.worker_leases import WorkerLeases

__all__ = ["Conductor", "DatabaseAway"]

T = TypeVar("T")

# So long a run keeps its slot while other keys have none.
RUN_NANOSECONDS = 50_000_000
# A job that has waited here for so long goes back unstarted: others may have it.
LONGEST_WAIT_SECONDS = 1.0
# Where no job ended for so long, all slots are busy: nothing is taken ahead.
SLOW_SECONDS = 0.05
# How often the conductor reads which queues have a limit.
LIMITS_SECONDS = 1.0
# A worker that has found work for so long needs no waking.
AWAKE_SECONDS = 0.25
SLOWEST_POLL_SECONDS = 1.0


class DatabaseAway(Exception):
    """The worker was told to stop, and the database did not come back in time to hear what became of its jobs."""


class Conductor:
    """Used by its database worker's thread; other threads read what says so, and set nothing."""

    def __init__(
        self,
        database: Database,
        backlog: Backlog,
        served: Sequence[ServedQueue],
        *,
        reports: Reports,
        heartbeat: WorkerHeartbeat,
        stop_request: StopRequest,
        start_threads: Callable[[int], None],
        signal: threading.Event,
        caps: DatabaseCaps | None,
    ) -> None:
        self._backlog = backlog
        self._reports = reports
        self._heartbeat = heartbeat
        self._stop_request = stop_request
        self._start_threads = start_threads
        self._signal = signal
        self._caps = caps
        self._queues = ServedQueues(served)
        self._limits_at = system.monotonic()
        # When a rate lets the next job of a gated queue start; None where none waits for that.
        self._opens_at: float | None = None
        self._claim_size = ClaimSize()
        self._pace = LookPace()
        # Set by the listener: something may have come since the last turn began.
        self._has_news = False
        # Whether the last turn found out that there is nothing more to claim.
        self._is_exhausted = False
        self._leases = WorkerLeases(backlog)
        self._is_asleep = False
        # Since when each look brought something.
        self._fed_since = inf
        self._is_dry = False
        self._poll_seconds = 0.05
        self._progressed_at = 0.0
        self._noted_at = 0.0
        # Read by other threads: since when the database has not answered what it was asked.
        self.link = Link(database, "conductor", self._give_up)
        self.begin(Holder(0, ""))

    def begin(self, holder: Holder) -> None:
        """Take and settle for a worker that has just registered; it has no leases yet."""
        self._source: Source = self._queues.source(holder.worker)
        self._conversation = Conversation(self.link, holder, on_doubt=self._source.forget)
        self._is_asleep = False
        self._is_dry = False

    def lose_everything(self) -> None:
        """Abandon all leases: the worker was declared dead, and others have them."""
        self._leases.abandon_all()

    def turn(self) -> bool:
        """Settle and take once, where there is anything to do; whether there was."""
        # Before anything is looked at: what is signalled from here on, a turn has to follow.
        self._signal.clear()
        had_news, self._has_news = self._has_news, False
        self._is_exhausted = False
        self._look(had_news=had_news)
        surplus = self._source.surplus
        ended = collect_ended(self._backlog, self._claim_size, end_taken_away(self._backlog))
        now = system.monotonic()
        self._note_ends(ended, now)
        self._queues.note_freed(ended.jobs)
        ended.ends += self._withdraw(surplus, now)
        self._source.close_runs(self._backlog.take_over_runs())
        if self._heartbeat.has_server_changed():
            self._leases.doubt()
            self._conversation.doubt()
        self._note_started(now)
        finds_out = self._conversation.is_in_doubt
        # While it is in doubt what is held, or when stopping, nothing is taken.
        takes = not finds_out and not self._stop_request.is_made
        slots, ahead = self._wanted(self._backlog.slot_pool.ask(self._backlog)) if takes else (0, 0)
        if self._caps is not None and takes:
            self._source.cap(self._caps.ask(self._leases.count(self._source.queue_of), now))
        wish = NOTHING
        if slots + ahead > 0 or (takes and self._source.has_runs):
            self._source.expect(self._claim_size.mean_seconds)
            wish = self._source.wish(slots, ahead, len(self._backlog), now)
        if not wish:
            # While it is in doubt what a claim brought, that stays reserved.
            if not finds_out:
                self._note_caps()
            self._is_dry |= slots > 0
            self._backlog.slot_pool.note_claimed(self._backlog, is_dry=slots > 0 or self._stop_request.is_made)
            if not ended and not finds_out:
                self._hand_over(surplus)
                return False
        turn = self._conversation.exchange(self._settlement(ended), wish, self._leases.known)
        self._hand_over(surplus)
        for lease in ended.leases.values():
            self._remove_if_empty(lease)
        self._reports.report(ended, turn, self._conversation, now)
        self._backlog.note_settled(ended.jobs)
        leases = self._source.learn(wish, turn, now)
        taken = self._take_in(leases, wish.order())
        self._note_caps()
        if wish.claim is not None:
            self._opens_at = None if turn.opens_in is None else now + turn.opens_in
        if wish:
            self._backlog.slot_pool.note_claimed(self._backlog, is_dry=taken < slots)
            self._note_taken(slots, taken)
            self._pace_looks(wish, turn, taken, had_news=had_news)
        return bool(ended or leases or finds_out)

    def wait(self) -> None:
        """Sleep until something happens that a turn should follow."""
        backlog = self._backlog
        has_rested = self._rest()
        if len(backlog.done) >= (SETTLED_TOGETHER if backlog.gathers else 1) or backlog.returned:
            return
        if self._is_dry and not self._is_asleep and not self._stop_request.is_made:
            if not self._pace.is_bulk(system.monotonic()):
                self._fall_asleep()
                return
            if has_rested:
                return
        self._signal.wait(self._patience())
        self._help_slots()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is leased, running or unsettled, and the last wish brought nothing."""
        return self._is_dry and not self._leases and not self._backlog.done

    @property
    def is_pacing(self) -> bool:
        """Whether jobs end so fast that a pause between turns saves more than it costs."""
        return self._backlog.gathers or self._pace.is_bulk(system.monotonic())

    @property
    def is_exhausted(self) -> bool:
        """Whether another turn right away would find nothing, though this one did something."""
        return self._is_exhausted

    @property
    def rest_seconds(self) -> float:
        """From any thread: for how long from now it need not be told that something may have come."""
        return max(self._pace.next_at - system.monotonic(), 0.0)

    def note_news(self) -> None:
        """By the listener: something may have come. While quick jobs wait here, it claims within moments anyway."""
        self._has_news = True
        if not (self._has_quick_jobs and self._queues.are_plain):
            self._signal.set()

    @property
    def has_unsettled(self) -> bool:
        """From any thread: whether it has jobs that run, or whose end is not written."""
        return bool(self._leases or self._backlog.done)

    @property
    def leases_lost(self) -> int:
        """From any thread: how many leases others took over."""
        return self._leases.lost

    def look_again(self) -> None:
        """Look at everything at the next turn."""
        self._is_dry = False
        self._source.look_again()

    def has_work(self) -> bool:
        """Whether a job that a handler here knows could run now."""
        return self._ask(lambda connection: self._source.has_work(connection, system.monotonic()))

    def close(self) -> None:
        """Give back the connection."""
        self.link.close()

    def _give_up(self, _error: DatabaseError, _waited: float) -> Exception | None:
        """Wait for the database for ever; once told to stop, as long as there is time and something to tell."""
        if self._stop_request.is_made and (self._stop_request.is_grace_over or not self.has_unsettled):
            return DatabaseAway()
        return None

    def _ask(self, act: Callable[[Connection], T]) -> T:
        return self._conversation.ask(act)

    @property
    def _has_quick_jobs(self) -> bool:
        return self._backlog.is_fast and len(self._backlog) > 0

    @property
    def _worker(self) -> int:
        return self._conversation.holder.worker

    def _look(self, *, had_news: bool) -> None:
        """Now and then: which queues have a limit, which partitions there are and are this worker's, what waits."""
        now = system.monotonic()
        if now - self._limits_at > LIMITS_SECONDS:
            self._limits_at = now
            self._ask(self._queues.read_limits)
        self._queues.withhold(
            self._source, self._heartbeat.withheld, is_loop_blocked=self._backlog.slot_pool.is_loop_blocked
        )
        if had_news:
            self._source.note_news()
        if self._source.is_look_due(now) and not self._stop_request.is_made:
            wanted = self.link.at_most(sum(self._wanted(self._backlog.slot_pool.grantable(self._backlog))))
            self._ask(lambda connection: self._source.look(connection, wanted, now))

    def _note_ends(self, ended: EndedJobs, now: float) -> None:
        """Tell the source what ended: what succeeded, by lease, and every other end by itself."""
        succeeded = 0
        for lease_id, group in ended.succeeded.items():
            succeeded += len(group.positions)
            base = group.range * 1024
            jobs = [base + position for position in group.positions]
            self._source.note_succeeded(ended.leases[lease_id].partition_id, jobs, now)
        if succeeded < len(ended.jobs):
            others = (job for job in ended.jobs if job.verdict is not None or job.is_settled)
            self._source.note_ends(((job.lease.partition_id, job.id, job.end) for job in others), now)

    def _note_caps(self) -> None:
        """What a claim brought is among the leases by now."""
        if self._caps is not None:
            self._caps.note_claimed(self._leases.count(self._source.queue_of), system.monotonic())

    def _settlement(self, ended: EndedJobs) -> Settlement:
        if ended.jobs:
            self._progressed_at = system.monotonic()

        def attempts() -> Attempts:
            return {(job.split_lease or job.lease.id, job.position): (job.id, job.lease.attempt) for job in ended.jobs}

        return Settlement(list(ended.succeeded.values()), ended.ends, self._queues.take_freed(), attempts)

    def _hand_over(self, surplus: list[int]) -> None:
        """What others should have is given up once nothing of it waits here; when stopping, everything."""
        if self._stop_request.is_made:
            if self._source.must_leave:
                self._ask(self._source.leave)
        elif surplus:
            self._ask(lambda connection: self._source.give_up(connection, surplus))

    def _wanted(self, grant: Grant) -> tuple[int, int]:
        """How many jobs to take for the slots granted, and how many more to follow them."""
        waiting = self._backlog.waiting_jobs
        entitled = max(grant.entitled, 1)
        slots, ahead = self._claim_size.wanted(grant.slots, entitled)
        total = slots + ahead - max(waiting - max(entitled - self._backlog.running, 0), 0)
        if total <= 0 or (slots == 0 and waiting > (slots + ahead) // 2):
            return 0, 0
        if slots == 0 and system.monotonic() - self._progressed_at > SLOW_SECONDS:
            # All slots are busy for longer than jobs took of late: what is taken ahead now would wait behind them.
            return 0, 0
        slots, total = self.link.at_most(slots), self.link.at_most(total)
        return slots, total - slots

    def _take_in(self, leases: list[Lease], order: dict[int, int]) -> int:
        """Read the jobs of new leases and add them to the backlog, chosen ones in the order of choice; how many slots
        they want.
        """
        if not leases:
            return 0
        rows = read_leased(self._conversation, self._source, leases)
        if self._queues.traces_loads:
            add_load_traces(self._conversation, leases, rows)
        now = system.monotonic()
        jobs: list[ClaimedJob] = []
        for lease in leases:
            queue = self._queues.by_id[self._source.queue_of(lease.partition_id)]
            members = jobs_of(lease, rows, queue.tasks, queue.max_wait)
            # A lease whose jobs were all set aside has ended.
            if members:
                self._leases.add(lease, len(members), now)
                jobs += members
        if order:
            jobs.sort(key=lambda job: order.get(job.id, -1))
        if any(lease.may_have_runs for lease in leases):
            jobs = form_runs(jobs, self._queues.halts_on_dead)
            self._backlog.has_runs = True
        if self._queues.batch_sizes:
            jobs = form_batches(jobs)
        self._backlog.expect(self._claim_size.mean_seconds)
        is_fast = self._backlog.is_fast
        threads = 1 if is_fast else len(jobs)
        if any(not task.is_async for task in {job.task for job in jobs}):
            self._start_threads(threads if is_fast else self._backlog.slot_pool.in_hand + len(jobs))
        self._progressed_at = system.monotonic()
        return self._backlog.feed(jobs, threads) + len(rows.unreadable)

    def _remove_if_empty(self, lease: Lease) -> None:
        if lease.unsettled <= 0 and self._leases.remove(lease):
            self._conversation.doubt()

    def _note_taken(self, slots: int, taken: int) -> None:
        now = system.monotonic()
        # With all slots full it need not hear what comes.
        self._is_dry = taken < slots
        if taken:
            self._poll_seconds = 0.05
        if self._is_dry and not self._pace.is_bulk(now):
            self._fed_since = inf
            return
        self._fed_since = min(self._fed_since, now)
        if self._is_asleep and now - self._fed_since > AWAKE_SECONDS:
            self._is_asleep = False
            self._ask(lambda connection: workers.wake_up(connection, self._worker))

    def _pace_looks(self, wish: Wish, turn: Turn, taken: int, *, had_news: bool) -> None:
        """Learn from a claim how soon it is worth looking again. An owner knows what there is."""
        if wish.claim is None or not self._queues.are_plain:
            return
        now = system.monotonic()
        self._is_exhausted = taken < wish.size and turn.opens_in is None and not self._queues.batch_sizes
        if taken == 0:
            if had_news or self._pace.is_bulk(now):
                self._pace.note_vain(now)
        elif self._is_exhausted and self._backlog.is_fast and not self._queues.has_limits:
            self._pace.note_all(taken, max((lease.waited_seconds for lease in turn.leases), default=0.0), now)
        else:
            self._pace.note_found(now)

    def _rest(self) -> bool:
        """While quick jobs come in bulk, let more come and more end before the next turn; whether it had to wait."""
        has_rested = False
        while (
            self._pace.is_bulk(now := system.monotonic())
            and (left := self._pace.next_at - now) > 0
            and len(self._backlog.done) < SETTLED_TOGETHER
            and not self._backlog.returned
            and not self._stop_request.is_made
        ):
            system.sleep(min(left, FAST_TICK_SECONDS))
            self._help_slots()
            has_rested = True
        return has_rested

    def _help_slots(self) -> None:
        """Jobs wait behind one that is slow after all: let other slots have them."""
        if self._backlog.unstarted and system.monotonic() - self._progressed_at > FAST_TICK_SECONDS:
            self._start_threads(self._backlog.slot_pool.concurrency)
            self._backlog.take_back_bunches()

    def _fall_asleep(self) -> None:
        self._ask(lambda connection: workers.fall_asleep(connection, self._worker, list(self._queues.by_id)))
        # It looks once more before it waits: a producer that committed before the worker slept has notified nobody.
        self._is_asleep = True
        self._ask(lambda connection: self._source.note_idle(connection, system.monotonic()))

    def _patience(self) -> float:
        """How long to wait for a signal."""
        if self._backlog.is_fast and (len(self._backlog) or self._backlog.running):
            return FAST_TICK_SECONDS
        now = system.monotonic()
        patience = 0.05 if self._backlog.unstarted else SLOWEST_POLL_SECONDS
        if self._is_dry:
            patience = min(patience, self._poll_seconds)
            self._poll_seconds = min(self._poll_seconds * 2, SLOWEST_POLL_SECONDS)
        if self._backlog.gathers:
            patience = min(patience, FAST_TICK_SECONDS)
        patience = min(patience, self._source.patience(now))
        if self._opens_at is not None:
            patience = min(patience, max(self._opens_at - now, FAST_TICK_SECONDS))
        slots_in = self._backlog.slot_pool.patience(self._backlog)
        if slots_in is not None:
            patience = min(patience, max(slots_in, 0.001))
        # A job whose handler asks for a lease of its own is taken away once that is answered.
        return min(patience, SLOW_SECONDS) if self._backlog.taken_away else patience

    def _withdraw(self, surplus: list[int], now: float) -> list[End]:
        """What goes back unstarted: all when stopping, jobs of queues that are paused or of partitions that others
        should have, those that waited for too long.
        """
        jobs = self._unwanted(surplus, now) if self._backlog.unstarted else []
        jobs += [self._backlog.returned.popleft() for _ in range(len(self._backlog.returned))]
        if not jobs:
            return []
        self._queues.note_freed(jobs)
        self._source.note_ends(((job.lease.partition_id, job.id, "release") for job in jobs), now)
        for job in jobs:
            job.lease.unsettled -= 1
            self._remove_if_empty(job.lease)
        return [End(job.lease.id, job.lease.token, job.position, job.lease.range, "release") for job in jobs]

    def _unwanted(self, surplus: list[int], now: float) -> list[ClaimedJob]:
        if self._stop_request.is_made:
            return self._backlog.withdraw()
        if now - self._backlog.oldest() > LONGEST_WAIT_SECONDS:
            return self._backlog.withdraw_late(now - LONGEST_WAIT_SECONDS)
        if self._queues.has_withheld or surplus:
            return self._backlog.withdraw(
                lambda job: job.lease.partition_id in surplus or self._queues.is_withheld(job)
            )
        pool = self._backlog.slot_pool
        if (
            self._backlog.runs
            and pool.running >= pool.concurrency
            and (len(self._backlog) or self._source.has_startable)
        ):
            return self._backlog.withdraw_runs(ticks() - RUN_NANOSECONDS)
        return []

    def _note_started(self, now: float) -> None:
        """Have it noted, once a second, which leases claimed ahead have nothing left in them that has not started."""
        if now - self._noted_at < LONGEST_WAIT_SECONDS:
            return
        self._noted_at = now
        if started := self._leases.find_started(now - LONGEST_WAIT_SECONDS):
            self._ask(lambda connection: note_started(connection, self._worker, started))
            for lease in started:
                lease.is_ahead = False
