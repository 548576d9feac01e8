"""One owner and two holders: the engine keeps apart who chooses and who holds, and no promise about either suffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.engine import server as server_module
from tests.engine.server import FarWorker, Given, Server, WorkerGone
from tests.system.facts import eventually

from penstock import App
from penstock.clock import ticks
from penstock.engine import conversation, leased_jobs
from penstock.engine import link as links
from penstock.errors import PartitionUnavailable, SchemaMismatch
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.work import owner as owner_storage
from penstock.storage.work import workers
from penstock.storage.work.exchange import exchange
from penstock.upkeep import Upkeep

KEYS = 6


class World:
    """A queue with two partitions, ordered by key, and what was given to whom: no key twice at a time, in its order."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.app = App(database.url)
        self.queue = self.app.queue("orders", partitions=2, order="key")
        self.task = self.queue.task(name="ship", key="customer")(_ship)
        # As it was given last.
        self.given: dict[int, Given] = {}
        self.running: dict[bytes, int] = {}
        self.started: list[int] = []
        self.upkeep = Upkeep(database, None)
        # Whether a server waits for the database, for ever; otherwise it gives up at once.
        self.is_patient = True

    def enqueue(self, count: int, **options: Any) -> list[int]:
        task = self.task.options(**options) if options else self.task
        return list(task.enqueue_many([{"customer": n % KEYS, "n": n} for n in range(count)]))

    def server(self, *tasks: str) -> Server:
        """One that chooses jobs of these tasks; of none: it owns nothing."""
        queue = self.database.run(lambda connection: find_queue(connection, "orders"))
        return Server(self.database, queue, list(tasks), self._be_patient)

    def _be_patient(self, error: DatabaseError, _waited: float) -> Exception | None:
        return None if self.is_patient else self.database.unavailable(error)

    def poll(self, server: Server, worker: FarWorker, ends: dict[int, str], want: int) -> list[int]:
        """A call of a worker far away; what it has to run now."""
        self.forget([job for job in ends if self.running.get(self.given[job].key) == job])
        given = server.poll(worker, {self.given[job]: end for job, end in ends.items()}, want)
        for each in given:
            assert each.key not in self.running, f"job {each.job} was given while {self.running[each.key]} runs"
            self.given[each.job], self.running[each.key] = each, each.job
        self.started += [each.job for each in given]
        return [each.job for each in given]

    def forget(self, jobs: list[int]) -> None:
        """These run no more: their worker is dead."""
        for job in jobs:
            del self.running[self.given[job].key]

    def in_order(self, ids: list[int]) -> bool:
        """Whether the first starts of each key were in the order in which its jobs were enqueued."""
        first = {job: place for place, job in reversed(list(enumerate(self.started)))}
        return all(
            [first[job] for job in ids[n::KEYS]] == sorted(first[job] for job in ids[n::KEYS]) for n in range(KEYS)
        )

    def states(self, ids: list[int]) -> set[str]:
        return {self.app.job(job).state for job in ids}

    def falls_silent(self, worker: FarWorker) -> None:
        """Nobody renews it for longer than its lease; and whoever does the rounds finds it."""
        self.declare_dead(worker.number)
        self.upkeep.sweep()

    def declare_dead(self, number: int) -> None:
        """Have a worker rescued that was not renewed for longer than its lease, before anybody renews it again."""

        def rescue(connection: Connection) -> None:
            with connection.transaction():
                past = "update penstock.worker set renewed_at = now() - interval '1 hour' where id = %s"
                connection.execute(past, [number])
                connection.execute("select penstock.rescue()")

        self.database.run(rescue)

    def ask(self, question: str, *parameters: object) -> list[Any]:
        """The first column of the answer."""
        with self.database.connect() as connection:
            return [row[0] for row in connection.execute(question.encode(), parameters).fetchall()]

    def sessions(self) -> list[int]:
        """The server processes that serve servers' links."""
        return self.ask(
            "select pid from pg_stat_activity where datname = current_database() and application_name like '%% server'"
        )

    def leased_to(self, worker: FarWorker) -> list[int]:
        """The jobs that the database says are this worker's."""
        return sorted(
            self.ask(
                "select range * 1024 + unnest(penstock.positions(low, high, members)) from penstock.lease"
                " where worker_id = %s",
                worker.number,
            )
        )


def _ship(customer: int, n: int) -> None:
    """Runs far away."""


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    world = World(database)
    yield world
    world.app.close()


def drain(world: World, server: Server, far: list[FarWorker], end: Callable[[int], str], total: int) -> None:
    """Poll in turn, with some of what was given ended, until so many have succeeded."""
    given: dict[int, list[int]] = {worker.number: [] for worker in far}
    succeeded = 0

    def go_round() -> bool:
        nonlocal succeeded
        for worker in far:
            running = given[worker.number]
            # The last goes on running, beside what is given next.
            ended = running[:-1] if len(running) > 1 else running
            ends = {job: end(job) for job in ended}
            given[worker.number] = running[len(ended) :] + world.poll(server, worker, ends, 3)
            succeeded += list(ends.values()).count("succeeded")
        if not any(given.values()):
            world.upkeep.sweep()
        return succeeded >= total

    eventually(go_round, "everything was done")


def test_g5_one_owner_chooses_for_two_holders_and_each_holds_its_own(world: World) -> None:
    ids = world.enqueue(60)
    server = world.server("ship")
    first, second = server.join(), server.join()
    a = world.poll(server, first, {}, 3)
    b = world.poll(server, second, {}, 3)
    assert len(a) == len(b) == 3
    with world.database.connect() as connection:
        rows = connection.execute("select worker_id, count(*) from penstock.lease group by 1").fetchall()
        owners = connection.execute("select distinct owner_id from penstock.partition").fetchall()
    assert {worker for worker, _ in rows} == {first.number, second.number}
    assert owners == [(server.owner,)]
    retried: set[int] = set()

    def end(job: int) -> str:
        if job % 7 or job in retried:
            return "succeeded"
        retried.add(job)
        return "retry"

    world.poll(server, first, dict.fromkeys(a, "succeeded"), 0)
    world.poll(server, second, dict.fromkeys(b, "succeeded"), 0)
    drain(world, server, [first, second], end, total=54)
    assert world.states(ids) == {"succeeded"}
    assert world.in_order(ids)
    assert first.lost == second.lost == set()
    server.close()


def test_g4_a_holder_that_falls_silent_is_rescued_and_what_it_held_keeps_its_place(world: World) -> None:
    ids = world.enqueue(24)
    server = world.server("ship")
    silent, other = server.join(), server.join()
    held = world.poll(server, silent, {}, 3)
    mine = world.poll(server, other, {}, 2)
    world.falls_silent(silent)
    world.forget(held)
    world.poll(server, other, dict.fromkeys(mine, "succeeded"), 0)
    drain(world, server, [other], lambda _: "succeeded", total=22)
    assert world.states(ids) == {"succeeded"}
    assert world.in_order(ids)
    # Each ran again, before anything else of its key.
    assert sorted(job for job in ids if world.started.count(job) == 2) == sorted(held)
    with pytest.raises(WorkerGone):
        server.poll(silent, {world.given[job]: "failed" for job in held}, 3)
    assert world.states(ids) == {"succeeded"}
    server.close()


def test_a_key_goes_on_when_the_job_of_a_silent_holder_became_a_dead_letter(world: World) -> None:
    once = world.queue.task(name="once", key="customer", max_attempts=1)(_ship)
    last, following = once.enqueue(customer=1, n=1), once.enqueue(customer=1, n=2)
    server = world.server("ship", "once")
    silent, other = server.join(), server.join()
    assert world.poll(server, silent, {}, 3) == [last]
    world.falls_silent(silent)
    world.forget([last])
    assert world.app.job(last).state == "failed"
    given = eventually(lambda: world.poll(server, other, {}, 3), "its key goes on")
    assert given == [following]
    server.close()


def test_g4_a_holder_that_was_declared_dead_is_given_nothing_and_settles_nothing(world: World) -> None:
    ids = world.enqueue(12)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    held = world.poll(server, worker, {}, 3)
    world.falls_silent(worker)
    world.forget(held)
    # The server has renewed it just before, as far as it knows.
    renew = workers.renew
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "renew", lambda connection, number: renew(connection, number) or "here")
        assert world.poll(server, worker, dict.fromkeys(held, "succeeded"), 3) == []
    assert sorted(worker.lost) == sorted(held)
    drain(world, server, [other], lambda _: "succeeded", total=12)
    assert world.states(ids) == {"succeeded"}
    assert world.in_order(ids)
    server.close()


def test_g5_what_another_server_settled_for_a_holder_frees_its_key_here(world: World) -> None:
    ids = world.enqueue(KEYS * 2)
    server = world.server("ship")
    worker = server.join()
    held = world.poll(server, worker, {}, KEYS)
    assert sorted(held) == sorted(ids[:KEYS])
    second = world.server()  # It owns nothing.
    elsewhere = second.adopt(worker.conversation.holder, [world.given[job] for job in held])
    assert sorted(elsewhere.jobs) == sorted(held)
    assert world.poll(second, elsewhere, dict.fromkeys(held, "succeeded"), 0) == []
    assert world.states(held) == {"succeeded"}
    worker = server.adopt(worker.conversation.holder, [])
    given: list[int] = []

    def is_given() -> bool:
        # It has not heard that the other server has written their ends.
        given.extend(world.poll(server, worker, dict.fromkeys(held, "succeeded"), KEYS - len(given)))
        return len(given) == KEYS

    eventually(is_given, "the next of each key")
    assert sorted(given) == sorted(ids[KEYS:])
    assert worker.lost == set()
    second.close()
    server.close()


def test_g5_what_another_server_says_is_held_runs_again_before_anything_else_of_its_key(world: World) -> None:
    ids = world.enqueue(KEYS * 2)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    held = world.poll(server, worker, {}, KEYS)
    # Their ends were written where nobody can read them any more; and then another server answers.
    server.end_elsewhere(worker, [world.given[job] for job in held])
    worker.conversation.doubt()
    world.forget(held)
    assert world.poll(server, other, {}, KEYS) == []
    assert sorted(worker.jobs) == sorted(held)
    assert sorted(world.poll(server, worker, {}, KEYS)) == sorted(held)
    world.poll(server, worker, dict.fromkeys(held, "succeeded"), 0)
    drain(world, server, [other], lambda _: "succeeded", total=KEYS)
    assert world.states(ids) == {"succeeded"}
    server.close()


# Every step that speaks with the database: an answer is lost before it was done, or after.
STEPS: list[tuple[Any, str]] = [
    (conversation, "exchange"),
    (conversation, "held_leases"),
    (conversation, "settled_by"),
    (conversation, "stop_turns"),
    (owner_storage, "share"),
    (owner_storage, "look"),
    (leased_jobs, "read_jobs"),
    (workers, "renew"),
    (workers, "note_session"),
]


def lose(
    patch: pytest.MonkeyPatch, module: Any, name: str, *, is_done: bool, every: int = 1, most: int | None = None
) -> list[int]:
    """Lose the answer of each so manieth call of a step, at most so many; which they were."""
    act = getattr(module, name)
    calls = 0
    lost: list[int] = []

    def lossy(connection: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % every or (most is not None and len(lost) >= most):
            return act(connection, *arguments, **options)
        lost.append(calls)
        if is_done:
            act(connection, *arguments, **options)
        connection.close()
        raise psycopg.OperationalError("the answer was lost")

    patch.setattr(module, name, lossy)
    return lost


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=[name for _, name in STEPS])
def test_g3_g5_answers_lost_at_any_step_lose_and_repeat_no_job_of_any_holder(
    world: World, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], is_done: bool
) -> None:
    monkeypatch.setattr(links, "SHORTEST_PAUSE_SECONDS", 0.001)
    ids = world.enqueue(36)
    server = world.server("ship")
    far = [server.join(), server.join()]
    lost = lose(monkeypatch, *step, is_done=is_done, every=3)
    # What is done only to find out what became of a turn needs turns that are lost.
    also = [] if step[1] == "exchange" else lose(monkeypatch, conversation, "exchange", is_done=True, every=2)
    drain(world, server, far, lambda _: "succeeded", total=36)
    assert lost
    assert also or step[1] == "exchange"
    assert sorted(world.started) == sorted(ids)
    assert world.states(ids) == {"succeeded"}
    assert world.in_order(ids)
    assert [worker.lost for worker in far] == [set(), set()]
    server.close()


# Where patience may end after a turn was committed: when it is to be found out what became of it, and when the jobs are
# read that it leased.
LATE_STEPS: list[tuple[Any, str]] = [
    (conversation, "stop_turns"),
    (conversation, "held_leases"),
    (leased_jobs, "read_jobs"),
]


def lose_committed_turn(
    world: World, server: Server, worker: FarWorker, ended: list[int], step: tuple[Any, str] = LATE_STEPS[0]
) -> None:
    """Let the server be patient no more after a turn was committed that settled these and leased three others."""
    with pytest.MonkeyPatch.context() as patch:
        lose(patch, conversation, "exchange", is_done=True, most=1)
        lose(patch, *step, is_done=False)
        world.is_patient = False
        with pytest.raises(PartitionUnavailable):
            world.poll(server, worker, dict.fromkeys(ended, "succeeded"), 3)
    world.is_patient = True
    assert world.states(ended) <= {"succeeded"}
    assert len(world.leased_to(worker)) == 3


@pytest.mark.parametrize("is_found_by_another", [False, True], ids=["by its own poll", "by another's"])
@pytest.mark.parametrize("step", LATE_STEPS, ids=[name for _, name in LATE_STEPS])
def test_g3_g5_patience_that_ends_though_the_turn_was_committed_loses_no_end_and_no_job(
    world: World, step: tuple[Any, str], is_found_by_another: bool
) -> None:
    ids = world.enqueue(KEYS * 3)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    held = world.poll(server, worker, {}, 3)
    lose_committed_turn(world, server, worker, held, step)
    leased = world.leased_to(worker)
    others = world.poll(server, other, {}, 3) if is_found_by_another else []
    # It says again what it was not answered.
    given = world.poll(server, worker, dict.fromkeys(held, "succeeded"), 3)
    assert sorted(given) == leased == world.leased_to(worker)
    assert worker.lost == set()
    world.poll(server, worker, dict.fromkeys(given, "succeeded"), 0)
    world.poll(server, other, dict.fromkeys(others, "succeeded"), 0)
    drain(world, server, [worker, other], lambda _: "succeeded", total=len(ids) - 6 - len(others))
    assert sorted(world.started) == sorted(ids)
    assert world.in_order(ids)
    assert worker.lost == other.lost == set()
    server.close()


def test_what_a_worker_has_got_unheard_and_does_not_want_any_more_goes_back(world: World) -> None:
    ids = world.enqueue(KEYS)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    world.poll(server, worker, {}, 0)
    lose_committed_turn(world, server, worker, [])
    given = world.poll(server, worker, {}, 1)
    assert world.leased_to(worker) == given

    def is_given() -> bool:
        given.extend(world.poll(server, other, {}, KEYS - len(given)))
        return len(given) == KEYS

    eventually(is_given, "the others go to another")
    assert sorted(given) == sorted(ids)
    assert worker.lost == set()
    server.close()


def test_g4_what_was_leased_is_not_given_out_when_the_lease_may_have_run_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.enqueue(KEYS)
    server = world.server("ship")
    worker = server.join()
    # Renewed, and then the turn takes longer than a lease.
    times = iter([ticks(), ticks() + int(server_module.LEASE_SECONDS * 1e9)])
    with monkeypatch.context() as patch:
        patch.setattr(server_module, "ticks", lambda: next(times))
        assert world.poll(server, worker, {}, 3) == []
    assert sorted(world.poll(server, worker, {}, 3)) == world.leased_to(worker)
    server.close()


def test_g5_a_server_that_was_declared_dead_registers_anew_and_its_workers_keep_what_they_hold(world: World) -> None:
    ids = world.enqueue(KEYS * 3)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    held = world.poll(server, worker, {}, 3)
    dead = server.owner
    world.declare_dead(dead)
    assert world.ask("select owner_id from penstock.partition where owner_id <> %s", dead) == []
    given = eventually(lambda: world.poll(server, other, {}, 3), "it owns partitions again")
    assert world.ask("select distinct owner_id from penstock.partition") == [server.owner] != [dead]
    world.poll(server, worker, dict.fromkeys(held, "succeeded"), 0)
    world.poll(server, other, dict.fromkeys(given, "succeeded"), 0)
    drain(world, server, [worker, other], lambda _: "succeeded", total=len(ids) - len(held) - len(given))
    assert sorted(world.started) == sorted(ids)
    assert world.in_order(ids)
    assert worker.lost == other.lost == set()
    server.close()


def test_g5_when_another_server_answers_it_is_found_out_what_it_says_that_each_worker_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = world.enqueue(KEYS * 2)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    held = world.poll(server, worker, {}, KEYS)
    # One of the jobs of a lease has ended, where nobody can read it any more.
    lease = max(worker.leases.values(), key=lambda each: each.unsettled)
    first, *rest = [job for job in held if world.given[job].lease == lease.id]
    assert rest
    server.end_elsewhere(worker, [world.given[first]])
    world.forget([first])
    renew = workers.renew

    def renew_elsewhere(connection: Connection, number: int) -> workers.Renewal | None:
        renewal = renew(connection, number)
        return None if renewal is None else renewal._replace(server="another")

    monkeypatch.setattr(workers, "renew", renew_elsewhere)

    def is_heeded() -> bool:
        world.poll(server, other, {}, 0)
        return lease.is_in_doubt

    eventually(is_heeded, "its heartbeat has heard it")
    # The lease is looked up when the last of its jobs that the worker knows of has ended.
    assert world.poll(server, worker, dict.fromkeys(rest, "succeeded"), 0) == []
    assert world.poll(server, worker, {}, 1) == [first]
    left = [job for job in held if job not in rest]
    world.poll(server, worker, dict.fromkeys(left, "succeeded"), 0)
    drain(world, server, [worker, other], lambda _: "succeeded", total=KEYS)
    assert world.states(ids) == {"succeeded"}
    assert worker.lost == set()
    server.close()


def test_a_server_that_is_too_old_by_now_settles_and_lets_others_have_its_partitions(world: World) -> None:
    world.enqueue(KEYS)
    server = world.server("ship")
    worker = server.join()
    held = world.poll(server, worker, {}, 3)
    world.database.run(lambda connection: connection.execute("update penstock.function_set set oldest_program = 1000"))

    def is_refused() -> bool:
        try:
            return world.poll(server, worker, {}, 0) != []
        except SchemaMismatch:
            return True

    eventually(is_refused, "its heartbeat has heard it")
    with pytest.raises(SchemaMismatch, match="upgrade penstock"):
        world.poll(server, worker, dict.fromkeys(held, "succeeded"), 3)
    assert world.leased_to(worker) == []
    assert worker.lost == set()
    assert world.ask("select distinct owner_id from penstock.partition") == [None]
    server.close()


def test_nothing_of_a_paused_queue_is_given(world: World) -> None:
    world.enqueue(KEYS)
    server = world.server("ship")
    worker = server.join()
    assert len(world.poll(server, worker, {}, 1)) == 1
    world.app.pause("orders")
    assert world.poll(server, worker, {}, 3) == []
    world.app.resume("orders")
    eventually(lambda: world.poll(server, worker, {}, 3), "it goes on")
    server.close()


def test_g4_one_silent_worker_is_rescued_and_the_others_of_its_server_do_not_notice(world: World) -> None:
    ids = world.enqueue(KEYS)
    server = world.server("ship")
    silent, other = server.join(), server.join()
    held = world.poll(server, silent, {}, 3)
    mine = world.poll(server, other, {}, 2)
    (session,) = world.sessions()
    world.falls_silent(silent)
    assert world.leased_to(silent) == []
    world.forget(held)
    world.poll(server, other, dict.fromkeys(mine, "succeeded"), 0)
    assert world.sessions() == [session]
    drain(world, server, [other], lambda _: "succeeded", total=len(ids) - len(mine))
    assert world.sessions() == [session]
    server.close()


def test_g4_a_server_that_stands_still_in_the_middle_of_a_turn_is_cut_off_when_it_is_declared_dead(
    world: World,
) -> None:
    ids = world.enqueue(KEYS * 2)
    # As a process that was stopped, it does not find out by itself that its turn takes long.
    world.database.lease_seconds = 3_600.0
    server = world.server("ship")
    worker = server.join()
    held = world.poll(server, worker, {}, 3)
    (session,) = world.sessions()
    polled: list[list[int]] = []
    waiting = "select pid from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    with world.database.connect() as blocker, blocker.transaction():
        blocker.execute("select from penstock.ready for update")
        ends = dict.fromkeys(held, "succeeded")
        still = threading.Thread(target=lambda: polled.append(world.poll(server, worker, ends, 3)))
        still.start()
        eventually(lambda: world.ask(waiting, session), "its turn stands still, with the worker's leases locked")
        world.declare_dead(server.owner)
        eventually(lambda: session not in world.sessions(), "its session is ended")
        still.join()
    # It was found out what became of the turn, which took nothing.
    assert polled == [[]]
    assert world.states(held) == {"succeeded"}
    drain(world, server, [worker], lambda _: "succeeded", total=len(ids) - len(held))
    assert sorted(world.started) == sorted(ids)
    assert worker.lost == set()
    server.close()


def test_g5_a_turn_that_comes_late_leases_nothing_to_a_worker_for_whom_another_server_acts(world: World) -> None:
    ids = world.enqueue(KEYS)
    server, second = world.server("ship"), world.server()
    worker, other = server.join(), server.join()
    late: list[Callable[[Connection], object]] = []

    def hold_back(connection: Any, *arguments: Any, **options: Any) -> Any:
        late.append(lambda another: exchange(another, *arguments, **options))
        connection.close()
        raise psycopg.OperationalError("it is still on its way")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation, "exchange", hold_back)
        world.is_patient = False
        with pytest.raises(PartitionUnavailable):
            world.poll(server, worker, {}, 3)
    world.is_patient = True
    adopted = second.adopt(worker.conversation.holder, [])
    assert world.poll(second, adopted, {}, 3) == []
    with world.database.connect() as connection, pytest.raises(psycopg.errors.SerializationFailure, match="given up"):
        late[0](connection)
    assert world.leased_to(worker) == []
    drain(world, server, [other], lambda _: "succeeded", total=len(ids))
    assert world.poll(second, adopted, {}, 3) == []
    second.close()
    server.close()


def test_g5_what_a_worker_has_got_unheard_it_gets_from_the_server_that_acts_for_it_next(world: World) -> None:
    world.enqueue(KEYS)
    server, second = world.server("ship"), world.server()
    worker = server.join()
    running = world.poll(server, worker, {}, 1)
    with pytest.MonkeyPatch.context() as patch:
        lose(patch, conversation, "exchange", is_done=True, most=1)
        lose(patch, conversation, "stop_turns", is_done=False)
        world.is_patient = False
        with pytest.raises(PartitionUnavailable):
            world.poll(server, worker, {}, 2)
    world.is_patient = True
    adopted = second.adopt(worker.conversation.holder, [world.given[job] for job in running])
    given = world.poll(second, adopted, {}, 2)
    assert sorted(running + given) == world.leased_to(worker)
    assert len(given) == 2
    world.poll(second, adopted, dict.fromkeys(running + given, "succeeded"), 0)
    assert world.leased_to(worker) == []
    assert adopted.lost == set()
    second.close()
    server.close()
