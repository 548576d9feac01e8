"""A poll whose answer was lost is made again, at any server, and says the same; nothing is done twice by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.server.remote.test_polls import MAIL, addresses, declare, ids_of, is_slept_on
from tests.server.remote.world import Client, World, ends_of, run, soon

from penstock.errors import InvalidInput, LeaseLost, PartitionUnavailable, RequestTimeout, WorkerGone
from penstock.server.remote import plain_lane
from penstock.server.remote.messages import PollAnswer
from penstock.storage.connection.error_meaning import ConnectionCut
from penstock.storage.work.exchange import Turn


def test_a_poll_made_again_says_the_same_at_every_server(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(6))

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, MAIL)
            first = await client.poll(a, want=2)
            assert await client.poll_again(b, want=2) == first
            assert await client.poll_again(a, want=2) == first
            ends = [*ends_of(first.jobs), {"job": str(ids[4]), "lease": "1.999.999", "end": "succeeded"}]
            second = await client.poll(b, ends, want=2)
            assert [lost.job for lost in second.lost] == [str(ids[4])]
            assert await client.poll_again(a, ends, want=2) == second
            # Whatever else it says now: it was answered.
            assert await client.poll_again(a, want=5, wait=30) == second
            assert ids_of(second.jobs) == ids[2:4]
        assert len(world.leases()) == 2

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 2 + ["running"] * 2 + ["ready"] * 2


def test_two_servers_in_turn_do_all_of_it_once(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(40))

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, MAIL, concurrency=4)
            seen: list[int] = []
            ends: list[dict[str, Any]] = []
            for n in range(100):
                servers = (a, b) if n % 2 else (b, a)
                answer = await client.poll(servers[0], ends, want=3)
                assert await client.poll_again(servers[1], ends, want=3) == answer
                assert answer.lost == []
                seen += ids_of(answer.jobs)
                ends = ends_of(answer.jobs)
                if not answer.jobs:
                    break
            assert seen == ids

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 40


def test_a_repeat_takes_the_place_of_a_request_that_still_waits(world: World) -> None:
    task = declare(world)

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, MAIL)
            first = asyncio.create_task(client.poll(a, want=1, wait=30))
            await soon(lambda: is_slept_on(world), "it waits")
            second = asyncio.create_task(client.poll_again(b, want=1, wait=30))
            await soon(lambda: sleeps_twice(world), "both wait")
            job = await asyncio.to_thread(task.enqueue, to="ada")
            assert ids_of((await second).jobs) == [job]
            # The first has no effect, whenever it finds out.
            with pytest.raises(RequestTimeout):
                await first
            assert ids_of((await client.poll_again(a, want=1)).jobs) == [job]
        assert len(world.leases()) == 1

    run(scenario())


async def sleeps_twice(world: World) -> bool:
    return len(await asyncio.to_thread(world.ask, "select from penstock.sleeper")) == 2


def test_many_at_once_are_one(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(30))

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, MAIL)
            client.number = 1
            calls = [client.poll_again(each, want=3) for each in (a, b, a, b, b, a)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            told = [each for each in answers if isinstance(each, PollAnswer)]
            assert told
            assert all(each == told[0] for each in told)
            assert all(isinstance(each, (PollAnswer, RequestTimeout)) for each in answers)
            assert await client.poll_again(a, want=3) == told[0]
        assert len(world.leases()) == 3

    run(scenario())
    assert world.states(ids).count("running") == 3


def test_a_poll_without_effect_that_is_late_is_refused(world: World) -> None:
    declare(world).enqueue_many(addresses(4))

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, MAIL)
            first = await client.poll(a, want=1)
            await client.poll(b, ends_of(first.jobs), want=1)
            with pytest.raises(InvalidInput):
                await client.poll(a, ends_of(first.jobs), want=1, number=1)

    run(scenario())


# Where the answer to a turn is lost: before anything was sent, or after all of it was committed.
LOSSES = {"before": False, "after": True}


@pytest.mark.parametrize("is_done", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("wait", [0.0, 5.0])
def test_a_turn_whose_answer_is_lost_is_found_out_about_by_the_server_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, is_done: bool, wait: float
) -> None:
    ids = declare(world).enqueue_many(addresses(5))
    losses = lose_answers(monkeypatch, is_done=is_done)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            ends: list[dict[str, Any]] = []
            seen: list[int] = []
            for _ in range(4):
                losses.append(1)
                answer = await client.poll(server, ends, want=2, wait=wait if len(seen) < 5 else 0.1)
                assert answer.lost == []
                assert await client.poll_again(server, ends, want=2) == answer
                seen += ids_of(answer.jobs)
                ends = ends_of(answer.jobs)
            assert seen == ids

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 5


def lose_answers(monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> list[int]:
    """Lose the answer to a turn for each element of the list that is returned."""
    losses: list[int] = []
    take_turn = plain_lane.take_turn

    def lose(*args: Any, **named: Any) -> Turn:
        must_lose = bool(losses) and bool(losses.pop())
        if must_lose and not is_done:
            raise ConnectionCut("cut off on purpose")
        turn = take_turn(*args, **named)
        if must_lose:
            raise ConnectionCut("cut off on purpose")
        return turn

    monkeypatch.setattr(plain_lane, "take_turn", lose)
    return losses


def test_sessions_that_are_ended_in_a_poll_cost_nothing(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(60))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL, concurrency=8)
            client.number = 1
            is_over = asyncio.Event()

            async def end_sessions() -> None:
                while not is_over.is_set():
                    await asyncio.to_thread(terminate, world)
                    await asyncio.sleep(0.02)

            killing = asyncio.create_task(end_sessions())
            seen: list[int] = []
            ends: list[dict[str, Any]] = []
            while len(seen) < 60 or ends:
                answer = await insist(lambda: client.poll_again(server, ends, want=5))  # noqa: B023
                client.number += 1
                assert answer.lost == []
                seen += ids_of(answer.jobs)
                ends = ends_of(answer.jobs)
            is_over.set()
            await killing
            assert sorted(seen) == ids

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 60


async def insist(call: Callable[[], Any]) -> PollAnswer:
    """Call until it is answered."""
    while True:
        try:
            return await call()  # type: ignore[no-any-return]
        except (PartitionUnavailable, RequestTimeout):
            await asyncio.sleep(0.01)


def terminate(world: World) -> None:
    world.ask(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and application_name = 'penstock' and random() < 0.3"
    )


def test_g4_a_silent_worker_is_rescued_and_gone_and_what_it_says_later_changes_nothing(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(3))

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            silent, other = await world.join(a, MAIL), await world.join(b, MAIL)
            jobs = (await silent.poll(a, want=3)).jobs
            await silent.renew(b)
            await asyncio.to_thread(world.declare_dead, silent)
            for server in (a, b):
                with pytest.raises(WorkerGone):
                    await silent.poll(server, ends_of(jobs), number=2)
                with pytest.raises(WorkerGone):
                    await silent.renew(server)
            again = (await other.poll(b, want=3, wait=10)).jobs
            assert ids_of(again) == ids
            # It had them: that counts.
            assert {job.attempt for job in again} == {2}
            with pytest.raises(LeaseLost):
                await other.poll(a, ends_of(jobs))
            assert (await other.poll(a, ends_of(again))).lost == []

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 3


@pytest.mark.parametrize("proof", ["none", "repeat", "renew", "poll"])
def test_a_crash_before_delivery_costs_no_attempt(world: World, proof: str) -> None:
    (job,) = declare(world).enqueue_many(addresses(1))

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client, other = await world.join(a, MAIL), await world.join(b, MAIL)
            await client.poll(a, want=1)
            assert [is_ahead for _, _, is_ahead in world.leases()] == [True]
            if proof == "repeat":
                await client.poll_again(b, want=1)
            elif proof == "renew":
                await client.renew(b)
            elif proof == "poll":
                await client.poll(b)
            is_proven = proof in ("renew", "poll")
            assert [is_ahead for _, _, is_ahead in world.leases()] == [not is_proven]
            await asyncio.to_thread(world.declare_dead, client)
            (again,) = (await other.poll(b, want=1, wait=10)).jobs
            assert (int(again.id), again.attempt) == (job, 2 if is_proven else 1)

    run(scenario())


def test_an_open_poll_keeps_its_worker_alive_and_a_worker_that_calls_no_more_is_rescued(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(1))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL, lease=1.0)
            jobs = (await client.poll(server, want=1)).jobs
            await client.renew(server)
            # Longer than its lease; upkeep goes its rounds beside it.
            assert (await client.poll(server, want=1, wait=3.5)).jobs == []
            assert (await client.poll(server, ends_of(jobs))).lost == []
            declare(world).enqueue(to="last")

            async def is_gone() -> bool:
                return not await asyncio.to_thread(world.ask, "select from penstock.worker where name like 'far%%'")

            await soon(is_gone, "it is declared dead")
            with pytest.raises(WorkerGone):
                await client.poll(server)

    run(scenario())
    assert world.states(ids) == ["succeeded"]


def test_a_job_that_runs_past_its_timeout_is_taken_away_and_its_worker_hears_of_it(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(2))
    tasks = {"mail": {"send": {"timeout": 0.1, "max_attempts": 2, "backoff": 0}}}

    async def scenario() -> None:
        async with world.server() as a, world.server() as b:
            client = await world.join(a, tasks)
            jobs = (await client.poll(a, want=2)).jobs
            assert [job.timeout for job in jobs] == [0.1, 0.1]
            # The poll that waits is told at once, and so is whoever repeats it.
            answer = await client.poll(b, want=0, wait=0)
            while not answer.lost:
                answer = await client.poll(b, want=0)
                await asyncio.sleep(0.05)
            assert {(lost.job, lost.lease) for lost in answer.lost} <= {(job.id, job.lease) for job in jobs}
            assert await client.poll_again(a) == answer
            with pytest.raises(LeaseLost):
                await client.poll(a, ends_of(jobs))
            told = [lost.job for lost in answer.lost]
            rest = await client.renew(a)
            assert not set(told) & set(rest.lost) or rest.lost

            async def failed() -> bool:
                if again := (await client.poll(a, want=2)).jobs:
                    assert {job.attempt for job in again} == {2}
                return world.states(ids) == ["failed", "failed"]

            await soon(failed, "they have no attempts left")

    run(scenario())
    failures = [failure.error for failure in world.app.job(ids[0]).failures]
    assert failures == ["TimeoutError: the job ran longer than its timeout of 0.1 s and was taken away"] * 2


def test_a_poll_that_waits_hears_that_a_job_was_taken_away(world: World) -> None:
    (job,) = declare(world).enqueue_many(addresses(1))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, {"mail": {"send": {"timeout": 0.1, "backoff": 3600}}})
            await client.poll(server, want=1)
            answer = await client.poll(server, want=1, wait=30)
            assert [lost.job for lost in answer.lost] == [str(job)]
            assert (await client.poll(server, want=1)).lost == []

    run(scenario())
    assert world.states([job]) == ["scheduled"]


def test_a_server_that_stops_hands_back_what_nobody_was_told_of(world: World) -> None:
    task = declare(world)

    async def scenario() -> None:
        async with world.server() as b:
            other: Client = await world.join(b, MAIL)
            async with world.server() as a:
                client = await world.join(a, MAIL)
                ids = await asyncio.to_thread(task.enqueue_many, addresses(2))
                call = asyncio.create_task(client.poll(a, want=1))
                await asyncio.sleep(0)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call

                async def is_leased() -> bool:
                    return len(await asyncio.to_thread(world.leases)) == 1

                await soon(is_leased, "the job is leased, and its client gone")
            assert world.leases() == []
            # Its client repeats it elsewhere, and is given something, or somebody else is.
            jobs = [*(await client.poll_again(b, want=1)).jobs, *(await other.poll(b, want=1)).jobs]
            assert sorted(ids_of(jobs)) == ids
            assert {job.attempt for job in jobs} == {1}

    run(scenario())


def test_a_client_that_repeats_after_its_server_was_killed_is_given_what_that_one_had_claimed(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(2))

    async def scenario() -> None:
        async with world.server() as b:
            async with world.server() as a:
                client = await world.join(a, MAIL)
                # As far as anybody knows it never answered.
                given = await client.poll(a, want=1)
            assert await client.poll_again(b, want=1) == given
            assert ids_of((await client.poll(b, ends_of(given.jobs), want=5)).jobs) == ids[1:]

    run(scenario())


def test_a_server_that_stops_answers_what_waits_and_takes_ends_to_the_last(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(3))

    async def scenario() -> None:
        async with world.server() as server:
            client, other = await world.join(server, MAIL), await world.join(server, MAIL)
            jobs = (await client.poll(server, want=2)).jobs
            await other.poll(server, want=1)
            waiting = asyncio.create_task(other.poll(server, want=1, wait=30))
            await soon(lambda: is_slept_on(world), "it waits")
            server.begin_stop()
            assert (await waiting).stop
            answer = await client.poll(server, ends_of(jobs), want=5, wait=30)
            assert (answer.jobs, answer.stop) == ([], True)

    run(scenario())
    assert world.states(ids) == ["succeeded", "succeeded", "running"]
    assert world.ask("select from penstock.worker where name like 'server%%'") == []
