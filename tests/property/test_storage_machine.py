"""The real storage against a model that fits in the head: a dictionary of where each job is and on which attempt.

Any sequence of acts leaves both alike, and the ledger balanced. PENSTOCK_FAULT=full plays far more of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.database.ledger import Ledger, check

from penstock import App
from penstock.client import PendingJob, Task
from penstock.model.job_state import State
from penstock.storage import Connection
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.work.exchange import ClaimWish, exchange
from penstock.storage.work.leases import Lease, read_jobs
from penstock.storage.work.settle import End, EndKind, Succeeded, split_lease
from penstock.storage.work.workers import register

MAX_ATTEMPTS = 3
LATER = datetime.now(UTC) + timedelta(days=30)
ENDED = {"succeeded", "failed", "cancelled", "discarded", "expired", "dead"}

KINDS: list[EndKind] = ["retry", "snooze", "failed", "release", "cancelled", "discarded", "expired"]

picks = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)


@dataclass(slots=True)
class Model:
    """One job as it should be."""

    priority: int
    place: str = "ready"
    attempt: int = 1
    # Whether it has stood in the order of enqueue from the start.
    is_in_order: bool = True
    parents: tuple[int, ...] = ()
    on_parent_failure: str = "cancel"
    # Cancelled because a parent is a dead letter, which may come back.
    is_for_now: bool = False
    is_later: bool = False
    is_known: bool = True
    rescues: int = 0
    is_asked: bool = False


@dataclass(slots=True)
class Worker:
    """A worker and what it believes to hold."""

    id: int
    held: dict[int, Lease] = field(default_factory=dict)


class StorageMachine(RuleBasedStateMachine):
    """Made into a class of its own for each test, with the app to play on."""

    app: App
    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Model] = {}
        self.keys: dict[str, int] = {}
        self.ghosts: list[Worker] = []
        self.settled: set[int] = set()
        self.ever_cancelled: set[int] = set()

    @initialize()
    def start(self) -> None:
        for table in ("ready", "lease", "scheduled", "blocked", "dependency", "dead", "failure", "finished", "dedup"):
            self.connection.execute(f"delete from penstock.{table}")
        for table in ("cancellation", "tally", "total", "job", "job_kept", "worker", "cause", "cause_tally"):
            self.connection.execute(f"delete from penstock.{table}")
        self.entry = self.app._declarations.entry("q")
        self.worker = self._new_worker()
        # Something to do from the start: most acts need jobs, and many need jobs that run.
        self.enqueue(20, 5)
        self.enqueue_mixed(3, True, False)
        self.claim(6, 6)

    def _new_worker(self) -> Worker:
        return Worker(
            register(
                self.connection,
                name="w",
                host="h",
                pid=1,
                version="0",
                concurrency=8,
                lease_seconds=15.0,
                tasks=[(self.entry.id, "known")],
            )
        )

    def _task(self, is_known: bool) -> Task[..., Any]:
        return self.known if is_known else self.unknown

    known: Task[..., Any]
    unknown: Task[..., Any]

    def _of(self, *places: str) -> list[int]:
        return sorted(job for job, model in self.jobs.items() if model.place in places)

    def _pick(self, ids: Sequence[int], numbers: Sequence[int]) -> list[int]:
        return sorted({ids[number % len(ids)] for number in numbers}) if ids else []

    # Enqueuing

    @rule(
        size=st.one_of(st.integers(1, 5), st.sampled_from([99, 100, 1023, 1024, 1025, 1500])),
        priority=st.sampled_from([0, 5, 9]),
    )
    def enqueue(self, size: int, priority: int) -> None:
        ids = self.known.options(priority=priority).enqueue_many([{"n": n} for n in range(size)])
        assert len(set(ids)) == size
        self.jobs.update({id_: Model(priority) for id_ in ids})

    @rule(size=st.integers(1, 3), is_known=st.booleans(), delayed=st.booleans())
    def enqueue_mixed(self, size: int, is_known: bool, delayed: bool) -> None:
        """One call of jobs with options of their own."""
        delay = 3600 if delayed else None
        pending = [self._task(is_known).options(delay=delay, priority=n % 2 * 5).job(n=n) for n in range(size)]
        for n, id_ in enumerate(self.app.enqueue_many(pending)):
            place = "scheduled" if delayed else "ready"
            self.jobs[id_] = Model(n % 2 * 5, place, is_in_order=not delayed, is_known=is_known)

    @rule(keys=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5))
    def enqueue_with_keys(self, keys: list[str]) -> None:
        ids = self.app.enqueue_many([self.known.options(idempotency_key=key).job(n=0) for key in keys])
        for key, id_ in zip(keys, ids, strict=True):
            if key not in self.keys:
                self.keys[key] = id_
                self.jobs[id_] = Model(5)
            assert id_ == self.keys[key]

    @rule(
        numbers=picks,
        on_failure=st.sampled_from(["cancel", "run", "wait"]),
        is_later=st.booleans(),
        size=st.integers(1, 3),
    )
    def enqueue_children(
        self, numbers: list[int], on_failure: Literal["cancel", "run", "wait"], is_later: bool, size: int
    ) -> None:
        parents = self._pick(sorted(self.jobs), numbers)
        if not parents:
            return
        options = self.known.options(after=parents, on_parent_failure=on_failure, run_at=LATER if is_later else None)
        for id_ in self.app.enqueue_many([options.job(n=n) for n in range(size)]):
            self.jobs[id_] = Model(5, "blocked", 1, False, tuple(parents), on_failure, is_later=is_later)
        self._free_children()

    @rule(size=st.integers(1, 3))
    def enqueue_a_chain(self, size: int) -> None:
        chain: list[PendingJob] = [self.known.job(n=0)]
        for n in range(size):
            chain.append(self.known.options(after=[chain[-1]]).job(n=n))
        ids = self.app.enqueue_many(chain)
        self.jobs[ids[0]] = Model(5)
        for parent, id_ in pairwise(ids):
            self.jobs[id_] = Model(5, "blocked", 1, False, (parent,))

    def _free_children(self) -> None:
        """What unblocking does, until nothing changes."""
        is_changed = True
        while is_changed:
            is_changed = False
            for model in self.jobs.values():
                if model.place == "blocked" or model.is_for_now:
                    before = model.place, model.is_for_now
                    model.place, model.is_for_now = self._judge(model)
                    is_changed |= before != (model.place, model.is_for_now)

    def _judge(self, child: Model) -> tuple[str, bool]:
        parents = [self.jobs[parent] for parent in child.parents]
        failed = [each for each in parents if each.place in ENDED - {"succeeded"}]
        have_ended = all(each.place in ENDED for each in parents)
        if failed and child.on_parent_failure != "run":
            if any(each.place != "dead" and not each.is_for_now for each in failed):
                return "cancelled", False
            return ("cancelled", True) if child.on_parent_failure == "cancel" else ("blocked", False)
        if not have_ended:
            return "blocked", False
        return "scheduled" if child.is_later else "ready", False

    # Working

    @rule(slots=st.integers(1, 40), ahead=st.sampled_from([0, 0, 7, 1200]))
    def claim(self, slots: int, ahead: int) -> None:
        rescued = self.connection.execute("select count(*) from penstock.ready where rescues > 0").fetchone()
        wish = ClaimWish(self.entry.partition_ids, self.entry.partition_ids, slots, ahead)
        turn = exchange(self.connection, self.worker.id, "w", [], [], wish)
        claimed = [(lease, lease.range * 1024 + position) for lease in turn.leases for position in lease.positions]
        open_jobs = [job for job in self._of("ready") if self.jobs[job].is_known]
        assert len(claimed) <= slots + ahead
        if rescued == (0,):
            assert len(claimed) == min(slots + ahead, len(open_jobs))
        assert set(read_jobs(self.connection, turn.leases)) == {job for _, job in claimed}
        in_order: dict[int, list[int]] = defaultdict(list)
        for lease, job in claimed:
            model = self.jobs[job]
            assert (model.place, model.attempt) == ("ready", lease.attempt)
            model.place = "running"
            self.worker.held[job] = lease
            if model.is_in_order:
                in_order[model.priority].append(job)
        for priority, jobs in in_order.items():
            assert jobs == sorted(jobs)
            left = [j for j in open_jobs if self.jobs[j].place == "ready" and self._stands(j, priority)]
            assert not left or jobs[-1] < left[0], "jobs of one priority are given out in the order of enqueue"

    def _stands(self, job: int, priority: int) -> bool:
        return self.jobs[job].is_in_order and self.jobs[job].priority == priority

    def _settle(self, worker: Worker, done: Sequence[int], ended: Sequence[End], *, is_whole: bool = False) -> set[int]:
        by_lease: dict[int, Succeeded] = {}
        for job in done:
            lease = worker.held[job]
            each = by_lease.setdefault(lease.id, Succeeded(lease.id, lease.token, lease.range, is_whole, results=[]))
            each.positions.append(job % 1024)
            each.ages.append(10)
            each.runs.append(5)
            assert each.results is not None
            each.results.append(b'{"job":"%d"}' % job)
        turn = exchange(self.connection, worker.id, "w", list(by_lease.values()), ended, None)
        if turn.children:
            sweep.unblock(self.connection, turn.children)
        sent = {(worker.held[job].id, job % 1024): job for job in done}
        sent |= {(end.lease, end.position): end.range * 1024 + end.position for end in ended}
        return {sent[pair] for pair in turn.not_held}

    @precondition(lambda self: self.worker.held)
    @rule(share=st.floats(0.05, 1.0), is_whole=st.booleans())
    def succeed(self, share: float, is_whole: bool) -> None:
        held = sorted(self.worker.held)
        if is_whole:
            lease = self.worker.held[held[int(share * (len(held) - 1))]]
            done = [job for job in held if self.worker.held[job].id == lease.id]
        else:
            done = held[:: max(1, int(1 / share))]
        assert self._settle(self.worker, done, [], is_whole=is_whole) == set()
        for job in done:
            self._end(job, "succeeded")
        self._free_children()

    def _end(self, job: int, place: str) -> None:
        assert place not in ENDED - {"dead"} or job not in self.settled
        if place in ENDED - {"dead"}:
            self.settled.add(job)
        self.jobs[job].place = place
        self.jobs[job].is_asked = False
        self.worker.held.pop(job, None)

    @precondition(lambda self: self.worker.held)
    @rule(
        numbers=st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
        kinds=st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([0.0, 60.0])), min_size=1, max_size=8),
    )
    def end_otherwise(self, numbers: list[int], kinds: list[tuple[EndKind, float]]) -> None:
        """Several ends in one call."""
        chosen = [
            (job, *kinds[number % len(kinds)])
            for number, job in enumerate(self._pick(sorted(self.worker.held), numbers))
        ]
        ends = [
            End(lease.id, lease.token, job % 1024, lease.range, end, "ValueError: no", due_in, 10, 5)
            for job, end, due_in in chosen
            for lease in [self.worker.held[job]]
        ]
        self._note_order([job for job, end, _ in chosen if end == "release"])
        assert self._settle(self.worker, [], ends) == set()
        for job, end, due_in in chosen:
            model = self.jobs[job]
            if model.is_asked and end in ("retry", "snooze", "release"):
                self._end(job, "cancelled")
            elif end == "release":
                self._end(job, "ready")
            elif end in ("retry", "snooze"):
                model.attempt += end == "retry"
                model.is_in_order = False
                self._end(job, "scheduled" if due_in else "ready")
            else:
                self._end(job, "dead" if end == "failed" else end)
        self._free_children()

    def _note_order(self, released: Sequence[int]) -> None:
        """A worker hands back the end of a lease. Of one that hands back from the middle and then dies, the two parts
        come back one after the other: their order is not promised."""
        for lease in {self.worker.held[job].id for job in released}:
            rest = [job for job, each in self.worker.held.items() if each.id == lease]
            if set(released) & set(rest) != set(sorted(rest)[-len(set(released) & set(rest)) :]):
                for job in rest:
                    self.jobs[job].is_in_order = False

    @precondition(lambda self: self.worker.held)
    @rule(number=st.integers(0, 10_000))
    def split(self, number: int) -> None:
        (job,) = self._pick(sorted(self.worker.held), [number])
        lease = self.worker.held[job]
        self._note_order([job])
        self.jobs[job].is_in_order = False
        own = split_lease(self.connection, self.worker.id, lease.id, lease.token, job)
        assert own is not None
        self.worker.held[job] = Lease(
            own, lease.partition_id, lease.priority, lease.pos, lease.range, job % 1024, job % 1024 + 1, None,
            lease.attempt, lease.rescues, False, lease.task, 0.0, token=lease.token,
        )  # fmt: skip

    @rule()
    def kill_and_rescue(self) -> None:
        self.connection.execute("update penstock.worker set renewed_at = '-infinity' where id = %s", [self.worker.id])
        rescued = sweep.rescue(self.connection)
        sweep.unblock_all(self.connection)
        assert (rescued.workers, rescued.jobs) == (1, len(self.worker.held))
        ghost, self.worker = self.worker, self._new_worker()
        for job, lease in ghost.held.items():
            model = self.jobs[job]
            model.rescues += 1
            # Of those rescued twice one goes at a time, and others pass them.
            model.is_in_order = model.is_in_order and model.rescues < 2
            if model.is_asked:
                self._end(job, "cancelled")
            elif lease.is_ahead:
                model.place = "ready"
            elif model.attempt < MAX_ATTEMPTS:
                model.place, model.attempt = "ready", model.attempt + 1
            else:
                model.place = "dead"
        self._free_children()
        if ghost.held:
            self.ghosts = [*self.ghosts[-1:], ghost]

    @precondition(lambda self: self.ghosts)
    @rule(is_success=st.booleans())
    def a_ghost_settles(self, is_success: bool) -> None:
        """G4: a worker without its lease changes nothing, and is told."""
        ghost = self.ghosts[-1]
        done = sorted(ghost.held) if is_success else []
        ends = (
            [] if is_success else [End(e.id, e.token, job % 1024, e.range, "failed") for job, e in ghost.held.items()]
        )
        assert self._settle(ghost, done, ends) == set(ghost.held)

    @precondition(lambda self: self.worker.held)
    @rule(is_success=st.booleans())
    def a_stranger_settles(self, is_success: bool) -> None:
        """G4 again: the number of a lease is of no use to another worker."""
        stranger = Worker(self._new_worker().id, self.worker.held)
        done = sorted(stranger.held) if is_success else []
        ends = (
            []
            if is_success
            else [End(e.id, e.token, job % 1024, e.range, "failed") for job, e in stranger.held.items()]
        )
        assert self._settle(stranger, done, ends) == set(stranger.held)
        job, lease = next(iter(stranger.held.items()))
        assert split_lease(self.connection, stranger.id, lease.id, lease.token, job) is None
        self.connection.execute("delete from penstock.worker where id = %s", [stranger.id])

    # Upkeep

    @rule(numbers=picks)
    def promote(self, numbers: list[int]) -> None:
        chosen = self._pick(self._of("scheduled"), numbers)
        ranges = sorted({job // 1024 for job in chosen})
        self.connection.execute("update penstock.scheduled set due_at = now() where range = any (%s)", [ranges])
        due = [job for job in self._of("scheduled") if job // 1024 in ranges]
        assert sweep.promote(self.connection) == len(due)
        for job in due:
            self.jobs[job].place = "ready"
            self.jobs[job].is_in_order = False

    @rule()
    def fold(self) -> None:
        sweep.fold(self.connection)
        sweep.fold_causes(self.connection)
        assert self.connection.execute("select count(*) from penstock.tally").fetchone() == (0,)

    @rule()
    def park(self) -> None:
        sweep.park(self.connection)
        rows = self.connection.execute("select distinct task from penstock.ready where is_parked").fetchall()
        assert rows in ([], [("unknown",)])

    @rule()
    def clean(self) -> None:
        sweep.clean(self.connection)

    # A person

    @rule(numbers=picks)
    def cancel(self, numbers: list[int]) -> None:
        chosen = self._pick(sorted(self.jobs), numbers)
        done = control.cancel_jobs(self.connection, chosen)
        ended = [
            job
            for job in chosen
            if self.jobs[job].place in ("ready", "scheduled", "blocked") or self.jobs[job].is_for_now
        ]
        asked = [job for job in chosen if self.jobs[job].place == "running"]
        assert (sorted(done.ended), sorted(done.asked)) == (ended, asked)
        for job in ended:
            self._end(job, "cancelled")
            self.jobs[job].is_for_now = False
        for job in asked:
            self.jobs[job].is_asked = True
        self._free_children()

    @rule(numbers=picks)
    def retry(self, numbers: list[int]) -> None:
        chosen = self._pick(self._of("dead"), numbers)
        assert sorted(control.retry_dead(self.connection, chosen)) == chosen
        for job in chosen:
            self.jobs[job].place = "ready"
            self.jobs[job].attempt += 1
            self.jobs[job].is_in_order = False
        self._free_children()

    @rule(numbers=picks)
    def bury(self, numbers: list[int]) -> None:
        chosen = self._pick(self._of("dead"), numbers)
        assert control.bury_dead(self.connection, chosen) == len(chosen)
        for job in chosen:
            self._end(job, "failed")
        sweep.unblock_all(self.connection)
        self._free_children()

    @rule(number=st.integers(0, 10_000), is_later=st.booleans())
    def reschedule(self, number: int, is_later: bool) -> None:
        chosen = self._pick(self._of("ready", "scheduled", "blocked"), [number])
        for job in chosen:
            model = self.jobs[job]
            run_at = LATER if is_later else datetime.now(UTC) - timedelta(minutes=1)
            state = control.reschedule_job(self.connection, job, run_at)
            if model.place == "blocked":
                assert state is State.BLOCKED
                model.is_later = is_later
            else:
                assert state is (State.SCHEDULED if is_later else State.READY)
                model.is_in_order = model.is_in_order and model.place == "ready" and not is_later
                model.place = str(state)

    @rule(state=st.sampled_from([State.READY, State.SCHEDULED, State.BLOCKED]))
    def purge(self, state: State) -> None:
        waiting = self._of(state)
        assert control.purge(self.connection, self.entry.partition_ids, state) == len(waiting)
        for job in waiting:
            self._end(job, "cancelled")
        self._free_children()

    @invariant()
    def both_are_alike(self) -> None:
        ledger: Ledger = check(self.connection)
        assert ledger.places == {job: model.place for job, model in self.jobs.items()}
        different = {
            job: (ledger.attempts[job], model.attempt)
            for job, model in self.jobs.items()
            if ledger.attempts[job] != model.attempt
        }
        assert different == {}
        assert set(ledger.leases.items()) == {(job, lease.id) for job, lease in self.worker.held.items()}
        # Each counts once, also a child that came back and was cancelled again.
        self.ever_cancelled |= ledger.of("cancelled")
        counted = self.connection.execute("select coalesce(sum(cancelled), 0) from penstock.depth").fetchone()
        assert counted == (len(self.ever_cancelled),)


def test_any_sequence_of_acts_leaves_storage_and_model_alike(database_url: str) -> None:
    is_full = os.environ.get("PENSTOCK_FAULT") == "full"
    with App(database_url) as app:
        queue = app.queue("q")

        @queue.task(max_attempts=MAX_ATTEMPTS)
        def known(n: int) -> None: ...

        @queue.task(max_attempts=MAX_ATTEMPTS)
        def unknown(n: int) -> None: ...

        with app.database.connect() as connection:
            machine = type("Machine", (StorageMachine,), {"app": app, "connection": connection})
            machine.known, machine.unknown = known, unknown  # type: ignore[attr-defined]
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=500 if is_full else 80,
                    stateful_step_count=60 if is_full else 40,
                    deadline=None,
                    derandomize=not is_full,
                    database=None,
                    phases=(Phase.generate, Phase.shrink),
                    suppress_health_check=list(HealthCheck),
                ),
            )
