"""Workers far away on queues with rules about keys or tenants: servers own their partitions, and choose for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.server.remote.test_polls import LOST, lose_before_a_turn
from tests.server.remote.test_repeats import insist, lose_answers
from tests.server.remote.world import Client, World, ends_of, run, soon

from penstock.client.task import Queue, Task
from penstock.errors import InvalidInput, LeaseLost, RequestTimeout
from penstock.server.remote import RemoteWorkers, owned_lane, plain_lane
from penstock.server.remote.messages import GivenJob

KEYS = 6
SHIP: dict[str, Any] = {"orders": {"ship": {"max_attempts": 5, "backoff": 0}}}


def _ship(customer: int, n: int) -> None:
    """Runs far away."""


class Orders:
    """A queue ordered by key; what is given is checked as it comes: no key twice at a time, each in its order."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.queue: Queue = world.app.queue("orders", order="key", **{"partitions": 2, **options})
        self.task: Task[Any, Any] = self.queue.task(name="ship", key="customer")(_ship)
        self.running: dict[str, GivenJob] = {}
        self.started: list[int] = []

    def enqueue(self, count: int) -> list[int]:
        return list(self.task.enqueue_many([{"customer": n % KEYS, "n": n} for n in range(count)]))

    def begin(self, jobs: Sequence[GivenJob]) -> None:
        for job in jobs:
            key = str(job.key)
            assert key not in self.running, f"job {job.id} was given while {self.running[key].id} runs"
            self.running[key] = job
            self.started.append(int(job.id))

    def end(self, jobs: Sequence[GivenJob]) -> None:
        for job in jobs:
            if self.running.get(str(job.key)) is job:
                del self.running[str(job.key)]

    def in_order(self, ids: Sequence[int]) -> bool:
        """Whether the first starts of each key were in the order in which its jobs were enqueued."""
        first = {job: place for place, job in reversed(list(enumerate(self.started)))}
        return all(
            [first[job] for job in ids[n::KEYS]] == sorted(first[job] for job in ids[n::KEYS]) for n in range(KEYS)
        )

    async def poll(
        self,
        client: Client,
        server: RemoteWorkers,
        ends: Sequence[GivenJob] = (),
        want: int = 3,
        wait: float = 0.3,
        end: str = "succeeded",
    ) -> list[GivenJob]:
        self.end(ends)
        answer = await client.poll(server, ends_of(ends, end), want=want, wait=wait)
        assert answer.lost == []
        self.begin(answer.jobs)
        return list(answer.jobs)

    async def drain(self, pairs: Sequence[tuple[Client, RemoteWorkers]], total: int) -> None:
        """Each client polls its server until so many jobs have succeeded."""
        given: dict[int, list[GivenJob]] = {n: [] for n in range(len(pairs))}
        done = 0
        async with asyncio.timeout(120):
            while done < total:
                for n, (client, server) in enumerate(pairs):
                    ends = given[n][:2]
                    done += len(ends)
                    given[n] = given[n][2:] + await self.poll(client, server, ends, 3, 0.1)


@pytest.fixture
def orders(world: World) -> Orders:
    return Orders(world)


def test_g5_one_server_chooses_for_several_workers_and_keeps_the_order_of_each_key(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(60)

    async def scenario() -> None:
        async with world.server() as server:
            clients = [await world.join(server, SHIP) for _ in range(3)]
            await orders.drain([(client, server) for client in clients], 60)
            owners = world.ask(
                "select distinct w.name like 'server %%' from penstock.partition as p"
                " join penstock.worker as w on w.id = p.owner_id"
            )
            assert owners == [(True,)]

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 60
    assert orders.in_order(ids)
    # It has left the crew, and given up what it owned.
    assert world.ask("select from penstock.partition where owner_id is not null") == []


def test_g5_retries_hold_their_key(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(KEYS * 2)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, SHIP)
            first = await orders.poll(client, server, want=KEYS, wait=5)
            assert sorted(int(job.id) for job in first) == sorted(ids[:KEYS])
            again = await orders.poll(client, server, first, want=KEYS, wait=5, end="retry")
            assert {(int(job.id), job.attempt) for job in again} == {(job, 2) for job in ids[:KEYS]}
            released = await orders.poll(client, server, again, want=KEYS, wait=5, end="released")
            assert {(int(job.id), job.attempt) for job in released} == {(job, 2) for job in ids[:KEYS]}
            rest = await orders.poll(client, server, released, want=KEYS, wait=5)
            assert sorted(int(job.id) for job in rest) == sorted(ids[KEYS:])

    run(scenario())


def test_g5_two_servers_share_the_partitions_and_each_call_comes_to_another(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(48)

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            clients = [await world.join(a, SHIP) for _ in range(2)]
            given: dict[int, list[GivenJob]] = {0: [], 1: []}
            done = turn = 0
            async with asyncio.timeout(120):
                while done < 48:
                    for n, client in enumerate(clients):
                        turn += 1
                        ends = given[n]
                        done += len(ends)
                        # The ends of what one server chose are told to the other.
                        given[n] = await orders.poll(client, (a, b)[turn // 2 % 2], ends, 3, 0.2)
            owners = world.ask("select count(distinct owner_id) from penstock.partition")
            assert owners[0][0] in (1, 2)

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 48
    assert orders.in_order(ids)


def test_a_server_that_owns_nothing_says_so_soon(world: World) -> None:
    orders = Orders(world, partitions=1)

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client, other = await world.join(a, SHIP), await world.join(b, SHIP)
            polls = [asyncio.create_task(client.poll(a, want=1, wait=30))]
            await soon(lambda: owns_all(world), "the first server owns the partition")
            polls.append(asyncio.create_task(other.poll(b, want=1, wait=30)))
            # Whichever owns nothing, for the second may take the partition over, does not wait for half a minute: its
            # worker calls again, until it meets the owner.
            most_of_the_wait = asyncio.create_task(asyncio.sleep(25))
            await asyncio.wait([*polls, most_of_the_wait], return_when=asyncio.FIRST_COMPLETED)
            assert not most_of_the_wait.done()
            most_of_the_wait.cancel()
            job = await asyncio.to_thread(orders.task.enqueue, customer=1, n=1)
            answers = [await poll for poll in polls]
            jobs = [each for answer in answers for each in answer.jobs]
            while not jobs:
                jobs += (await client.poll(a, want=1, wait=30)).jobs
                jobs += (await other.poll(b, want=1, wait=30)).jobs
            assert [int(each.id) for each in jobs] == [job]

    run(scenario())


async def owns_all(world: World) -> bool:
    rows = await asyncio.to_thread(world.ask, "select owner_id is not null from penstock.partition")
    return bool(rows) and all(row[0] for row in rows)


def test_a_server_leaves_the_crew_when_nobody_polls_it_any_more(world: World) -> None:
    orders = Orders(world, partitions=1)
    ids = orders.enqueue(4)

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, SHIP)
            first = await orders.poll(client, a, want=1, wait=5)
            # From here on it calls the other.
            second = await orders.poll(client, b, first, want=1, wait=0.2)
            while not second:
                second = await orders.poll(client, b, [], want=1, wait=0.2)
            assert orders.started == ids[:2]

    run(scenario())


def test_g5_a_silent_worker_is_rescued_and_what_it_held_keeps_its_place(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(24)

    async def scenario() -> None:
        async with world.server() as server:
            silent, other = await world.join(server, SHIP), await world.join(server, SHIP)
            held = await orders.poll(silent, server, want=3, wait=5)
            await asyncio.to_thread(world.declare_dead, silent)
            orders.end(held)
            await orders.drain([(other, server)], 24)
            assert sorted(job for job in ids if orders.started.count(job) == 2) == sorted(int(job.id) for job in held)
            late = ends_of(held)
            with pytest.raises(LeaseLost):
                await other.poll(server, late)

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 24
    assert orders.in_order(ids)


def test_g5_an_end_that_is_not_held_any_more_frees_no_key(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(KEYS * 2)

    async def scenario() -> None:
        async with world.server() as server:
            first, second = await world.join(server, SHIP), await world.join(server, SHIP)
            held = await orders.poll(first, server, want=KEYS, wait=5)
            await asyncio.to_thread(world.declare_dead, first)
            orders.end(held)
            # Somebody else says that they have ended, and wants what comes next of their keys.
            with pytest.raises(LeaseLost):
                await second.poll(server, ends_of(held), want=KEYS)
            again = await orders.poll(second, server, want=KEYS, wait=5)
            assert sorted(int(job.id) for job in again) == sorted(ids[:KEYS])

    run(scenario())


def test_g5_a_lease_that_is_lost_while_a_poll_begins_keeps_its_key(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, ids = orders.world, orders.enqueue(KEYS * 2)
    lose_before_a_turn(world, monkeypatch)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, SHIP)
            held = await orders.poll(client, server, want=KEYS, wait=5)
            lost = [int(job.id) for job in held if job.lease == held[0].lease]
            assert 0 < len(lost) < KEYS
            LOST.append(lost[0])
            orders.end(held)
            answer = await client.poll(server, ends_of(held), want=KEYS, wait=5)
            assert sorted(int(each.job) for each in answer.lost) == sorted(lost)
            orders.begin(answer.jobs)
            rest = list(answer.jobs)
            while len(rest) < KEYS:
                rest += await orders.poll(client, server, want=KEYS, wait=1)
            # They run again before anything else of their keys.
            behind = {ids[ids.index(job) + KEYS] for job in lost}
            assert {int(job.id) for job in rest} == {*ids[KEYS:], *lost} - behind

    run(scenario())


def test_jobs_that_were_rescued_twice_run_one_after_the_other_also_where_another_server_is_told_of_their_end(
    orders: Orders,
) -> None:
    world, ids = orders.world, orders.enqueue(3)
    world.ask("update penstock.ready set rescues = 2 returning 1")

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, SHIP)
            seen: list[int] = []
            while len(seen) < 3:
                jobs: list[GivenJob] = []
                while not jobs:
                    jobs = await orders.poll(client, a, want=3, wait=1)
                assert len(jobs) == 1
                seen += [int(job.id) for job in jobs]
                await orders.poll(client, b, jobs, want=0)
            assert sorted(seen) == sorted(ids)

    run(scenario())


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_g5_a_turn_whose_answer_is_lost_is_found_out_about_before_anything_more_is_chosen(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    world, ids = orders.world, orders.enqueue(30)
    losses = lose_answers(monkeypatch, is_done=is_done)
    monkeypatch.setattr(owned_lane, "take_turn", plain_lane.take_turn)

    async def scenario() -> None:
        async with world.server() as server:
            clients = [await world.join(server, SHIP) for _ in range(2)]
            given: dict[int, list[GivenJob]] = {0: [], 1: []}
            done = 0
            async with asyncio.timeout(120):
                while done < 30:
                    for n, client in enumerate(clients):
                        losses.append(1)
                        ends = given[n]
                        done += len(ends)
                        given[n] = await orders.poll(client, server, ends, 2, 0.2)
                        losses.clear()

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 30
    assert orders.in_order(ids)


def test_g5_polls_are_repeated_at_another_server(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(40)

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, SHIP)
            given: list[GivenJob] = []
            done = turn = 0
            async with asyncio.timeout(120):
                while done < 40:
                    turn += 1
                    servers = (a, b) if turn % 3 else (b, a)
                    ends, done = ends_of(given), done + len(given)
                    orders.end(given)
                    answer = await client.poll(servers[0], ends, want=4, wait=0.2)
                    assert await client.poll_again(servers[1], ends, want=4, wait=0.2) == answer
                    assert answer.lost == []
                    orders.begin(answer.jobs)
                    given = list(answer.jobs)

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 40
    assert orders.in_order(ids)


def test_a_worker_that_lacks_a_task_which_the_crew_knows_is_refused(orders: Orders) -> None:
    orders.queue.task(name="bill", key="customer")(_bill)
    world = orders.world
    world.app.migrate()

    async def scenario() -> None:
        async with world.server() as server:
            both: dict[str, Any] = {"orders": {"ship": {}, "bill": {}}}
            client = await world.join(server, both)
            waiting = asyncio.create_task(client.poll(server, want=1, wait=30))
            await soon(lambda: owns_all(world), "the server owns the partitions")
            with pytest.raises(InvalidInput, match="bill") as refused:
                await world.join(server, SHIP)
            assert refused.value.field == "queues.orders"
            server.begin_stop()
            await waiting

    run(scenario())


def test_explain_says_which_workers_are_given_nothing_since_they_lack_a_task(orders: Orders) -> None:
    orders.queue.task(name="bill", key="customer")(_bill)
    world = orders.world
    world.app.migrate()

    async def scenario() -> None:
        async with world.server() as server:
            old = await world.join(server, SHIP)
            new = await world.join(server, {"orders": {"ship": {}, "bill": {}}}, concurrency=1)
            waiting = asyncio.create_task(new.poll(server, want=1, wait=30))
            await soon(lambda: owns_all(world), "the server owns the partitions")
            ids = await asyncio.to_thread(orders.enqueue, 2)
            (given,) = (await waiting).jobs
            (other,) = set(ids) - {int(given.id)}
            assert (await old.poll(server, want=1, wait=0.2)).jobs == []
            reason = world.app.explain(other).reason
            assert "remote worker far#" in reason
            assert "does not know task 'bill', which server " in reason

    run(scenario())


def _bill(customer: int, n: int) -> None:
    """Runs far away."""


def test_g5_native_workers_and_servers_share_the_partitions(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(60)
    started: list[int] = []

    def ship(customer: int, n: int) -> None:
        started.append(n)

    async def scenario() -> None:
        from penstock import App

        native = App(world.app_urls[0])
        native.queue("orders", order="key", partitions=2).task(name="ship", key="customer")(ship)
        working = asyncio.create_task(asyncio.to_thread(native.work, concurrency=2))
        async with world.server() as server:
            client = await world.join(server, SHIP)
            given: list[GivenJob] = []

            async def is_done() -> bool:
                nonlocal given
                given = await orders.poll(client, server, given, 2, 0.2)
                return not given and world.states(ids) == ["succeeded"] * 60

            await soon(is_done, "all is done")
        native.stop()
        await working
        native.close()

    run(scenario())
    assert sorted([ids[n] for n in started] + orders.started) == sorted(ids)


def test_g6_limits_are_kept_and_room_is_offered_to_those_that_wait(world: World) -> None:
    task = world.app.queue("http", limit=2).task(name="get")(_get)
    ids = task.enqueue_many([{"url": str(n)} for n in range(6)])

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            first, second = [await world.join(a, {"http": {"get": {}}}) for _ in range(2)]
            jobs = (await first.poll(a, want=5)).jobs
            assert [int(job.id) for job in jobs] == ids[:2]
            assert (await second.poll(b, want=5)).jobs == []
            waiting = asyncio.create_task(second.poll(b, want=5, wait=30))

            async def waits() -> bool:
                return bool(await asyncio.to_thread(world.ask, "select from penstock.sleeper"))

            await soon(waits, "it waits")
            # Whoever ends wants no more: there is room for the other.
            await first.poll(a, ends_of(jobs[:1]))
            assert [int(job.id) for job in (await waiting).jobs] == ids[2:3]

    run(scenario())


def _get(url: str) -> None:
    """Runs far away."""


def test_a_rate_lets_a_poll_that_waits_have_the_next_when_it_may_start(world: World) -> None:
    task = world.app.queue("http", rate="4/s").task(name="get")(_get)
    ids = task.enqueue_many([{"url": str(n)} for n in range(12)])

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, {"http": {"get": {}}})
            seen: list[int] = []
            ends: list[dict[str, Any]] = []
            while len(seen) < 12:
                answer = await client.poll(server, ends, want=5, wait=10)
                assert answer.jobs
                seen += [int(job.id) for job in answer.jobs]
                ends = ends_of(answer.jobs)
            assert seen == ids

    run(scenario())


def test_fair_shares_between_tenants(world: World) -> None:
    task = world.app.queue("fair", fair_by="tenant").task(name="get")(_get)
    deep = task.options(tenant="deep").enqueue_many([{"url": str(n)} for n in range(40)])
    small = task.options(tenant="small").enqueue_many([{"url": str(n)} for n in range(4)])

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, {"fair": {"get": {}}})
            seen: list[int] = []
            ends: list[dict[str, Any]] = []
            while len(seen) < 16:
                answer = await client.poll(server, ends, want=2, wait=5)
                seen += [int(job.id) for job in answer.jobs]
                ends = ends_of(answer.jobs)
            assert set(small) <= set(seen)
            assert set(seen) & set(deep)

    run(scenario())


def test_a_worker_of_both_kinds_of_queues_is_given_jobs_of_both(orders: Orders) -> None:
    world = orders.world
    get = world.app.queue("http").task(name="get")(_get)
    plain, owned = get.enqueue(url="a"), orders.enqueue(1)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, {**SHIP, "http": {"get": {}}})
            seen: list[int] = []
            ends: list[dict[str, Any]] = []
            while len(seen) < 2:
                answer = await client.poll(server, ends, want=1, wait=5)
                seen += [int(job.id) for job in answer.jobs]
                ends = ends_of(answer.jobs)
            waiting = asyncio.create_task(client.poll(server, ends, want=1, wait=30))
            await asyncio.sleep(0)
            late = await asyncio.to_thread(get.enqueue, url="b")
            assert [int(job.id) for job in (await waiting).jobs] == [late]
            assert sorted(seen) == sorted([plain, *owned])

    run(scenario())


def test_what_has_waited_for_longer_than_its_queue_allows_is_not_given(world: World) -> None:
    orders = Orders(world, max_wait=3600)
    (late, ready) = orders.enqueue(2)
    world.ask(
        "update penstock.ready set ready_at = now() - interval '2 hours' where range = %s returning 1", late // 1024
    )
    other = orders.task.enqueue(customer=1, n=9)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, SHIP)
            jobs: list[GivenJob] = []
            while not jobs:
                jobs = await orders.poll(client, server, want=3, wait=1)
            assert [int(job.id) for job in jobs] == [other]

    run(scenario())
    assert world.states([late, ready]) == ["expired", "expired"]


def test_many_polls_at_once_over_one_owner(orders: Orders) -> None:
    world, ids = orders.world, orders.enqueue(48)

    async def scenario() -> None:
        async with world.server() as server:

            async def work(client: Client) -> None:
                given: list[GivenJob] = []
                while world.states(ids[-KEYS:]) != ["succeeded"] * KEYS:
                    given = await orders.poll(client, server, given, 2, 0.3)

            await asyncio.gather(*[work(await world.join(server, SHIP)) for _ in range(5)])

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 48
    assert orders.in_order(ids)


@pytest.mark.parametrize("times", [2])
def test_g5_requests_of_one_poll_at_two_servers_at_once(orders: Orders, times: int) -> None:
    world, ids = orders.world, orders.enqueue(30)

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, SHIP)
            given: list[GivenJob] = []
            done = 0
            async with asyncio.timeout(120):
                while done < 30:
                    client.number += 1
                    ends, done = ends_of(given), done + len(given)
                    orders.end(given)
                    calls = [client.poll_again(each, ends, want=3, wait=0.2) for each in (a, b) * (times // 2)]
                    answers = await asyncio.gather(*calls, return_exceptions=True)
                    told = [each for each in answers if not isinstance(each, BaseException)]
                    assert all(isinstance(each, RequestTimeout) for each in answers if isinstance(each, BaseException))
                    answer = told[0] if told else await insist(lambda: client.poll_again(a, ends, want=3))  # noqa: B023
                    assert all(each == answer for each in told), told
                    orders.begin(answer.jobs)
                    given = list(answer.jobs)

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 30
    assert orders.in_order(ids)
