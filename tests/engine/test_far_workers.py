"""One owner and two holders: the engine keeps apart who chooses and who holds, and no promise about either suffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.engine.server import FarWorker, Server, WorkerGone
from tests.system.facts import eventually

from penstock import App
from penstock.engine import conversation, leased_jobs
from penstock.engine import link as links
from penstock.storage import Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.work import owner as owner_storage
from penstock.storage.work import workers
from penstock.upkeep import Upkeep

KEYS = 6


class World:
    """A queue with two partitions, ordered by key, and what was given to whom: no key twice at a time, in its order."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.app = App(database.url)
        self.queue = self.app.queue("orders", partitions=2, order="key")
        self.task = self.queue.task(name="ship", key="customer")(_ship)
        self.keys: dict[int, bytes] = {}
        self.running: dict[bytes, int] = {}
        self.started: list[int] = []
        self.upkeep = Upkeep(database, None)

    def enqueue(self, count: int, **options: Any) -> list[int]:
        task = self.task.options(**options) if options else self.task
        return list(task.enqueue_many([{"customer": n % KEYS, "n": n} for n in range(count)]))

    def server(self, *tasks: str) -> Server:
        """One that chooses jobs of these tasks; of none: it owns nothing."""
        return Server(self.database, self.database.run(lambda c: find_queue(c, "orders")), list(tasks))

    def poll(self, server: Server, worker: FarWorker, ends: dict[int, str], want: int) -> list[int]:
        """A call of a worker far away; what it has to run now."""
        for job in ends:
            if self.running.get(self.keys[job]) == job:
                del self.running[self.keys[job]]
        given = server.poll(worker, ends, want)
        for job, (key, _) in given.items():
            assert key not in self.running, f"job {job} was given while {self.running[key]} of its key runs"
            self.keys[job], self.running[key] = key, job
        self.started += given
        return list(given)

    def forget(self, jobs: list[int]) -> None:
        """These run no more: their worker is dead."""
        for job in jobs:
            del self.running[self.keys[job]]

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
        self.database.run(
            lambda connection: connection.execute(
                "update penstock.worker set renewed_at = now() - interval '1 hour' where id = %s", [worker.number]
            )
        )
        self.upkeep.sweep()


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
    assert first.lost == second.lost == []
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
        server.poll(silent, dict.fromkeys(held, "failed"), 3)
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
    elsewhere = second.adopt(worker)
    assert sorted(elsewhere.jobs) == sorted(held)
    world.poll(second, elsewhere, dict.fromkeys(held, "succeeded"), 0)
    assert world.states(held) == {"succeeded"}
    worker.jobs.clear()
    worker.leases.clear()
    given: list[int] = []

    def is_given() -> bool:
        given.extend(world.poll(server, worker, {}, KEYS))
        return len(given) == KEYS

    eventually(is_given, "the next of each key")
    assert sorted(given) == sorted(ids[KEYS:])
    second.close()
    server.close()


def test_g5_what_another_server_says_is_held_runs_again_before_anything_else_of_its_key(world: World) -> None:
    ids = world.enqueue(KEYS * 2)
    server = world.server("ship")
    worker, other = server.join(), server.join()
    held = world.poll(server, worker, {}, KEYS)
    # Their ends were written where nobody can read them any more; and then another server answers.
    server.end_elsewhere(worker, held)
    worker.conversation.doubt()
    world.forget(held)
    assert world.poll(server, other, {}, KEYS) == []
    assert sorted(worker.jobs) == sorted(held)
    world.running |= {world.keys[job]: job for job in held}
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


def lose(patch: pytest.MonkeyPatch, module: Any, name: str, *, is_done: bool, every: int) -> list[int]:
    """Lose the answer of each so manieth call of a step; which they were."""
    act = getattr(module, name)
    calls, lost = 0, []

    def lossy(connection: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % every:
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
    assert [worker.lost for worker in far] == [[], []]
    server.close()
