"""Workers far away over two databases, one of which may be away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.server.remote.test_polls import ids_of
from tests.server.remote.world import Client, ends_of, run, soon
from tests.shards.two_sites import TwoSites

from penstock.errors import InvalidInput, LeaseLost, PartitionUnavailable, WorkerGone
from penstock.server.remote import RemoteWorkers
from penstock.server.remote.messages import Registration

QUEUE: dict[str, Any] = {"q": {"t": {}}}


@pytest.fixture
def sites(shard_urls: list[str]) -> Iterator[TwoSites]:
    sites = TwoSites(shard_urls, is_distant=True, request_timeout=2.0)
    yield sites
    sites.close()


@asynccontextmanager
async def serving(sites: TwoSites) -> AsyncIterator[RemoteWorkers]:
    server = RemoteWorkers(sites.app.databases, lease_seconds=60.0)
    try:
        yield server
    finally:
        await server.close()


async def join(server: RemoteWorkers) -> Client:
    body = {"name": "far", "queues": QUEUE, "lease": 60.0, "concurrency": 10}
    return Client(await server.register(msgspec.convert(body, Registration)))


def states(sites: TwoSites, ids: list[int]) -> set[str]:
    return {str(sites.app.job(job).state) for job in ids}


def test_a_poll_settles_and_claims_on_both(sites: TwoSites) -> None:
    ids = [*sites.put(1, 3), *sites.put(2, 3)]

    async def scenario() -> None:
        async with serving(sites) as a, serving(sites) as b:
            client = await join(a)
            seen: list[int] = []
            ends: list[dict[str, Any]] = []
            while len(seen) < 6:
                answer = await client.poll(a, ends, want=2, wait=5)
                assert await client.poll_again(b, ends, want=2) == answer
                seen += ids_of(answer.jobs)
                ends = ends_of(answer.jobs)
            assert sorted(seen) == sorted(ids)
            await client.poll(b, ends)
            with pytest.raises(LeaseLost):
                await client.poll(b, ends)
            with pytest.raises(InvalidInput):
                await client.poll(b, number=20)

    run(scenario())
    assert states(sites, ids) == {"succeeded"}


def test_g11_while_one_is_away_the_other_goes_on(sites: TwoSites) -> None:
    here, there = sites.put(1, 4), sites.put(2, 4)

    async def scenario() -> None:
        async with serving(sites) as server:
            client = await join(server)
            both = (await client.poll(server, want=8)).jobs
            while len(both) < 8:
                both += (await client.poll(server, want=8, wait=1)).jobs
            mine = [job for job in both if int(job.id) in here]
            theirs = [job for job in both if int(job.id) in there]
            sites.proxy.go_down()
            # Its own ends have to wait, and so does the poll that names them.
            with pytest.raises(PartitionUnavailable):
                await client.poll(server, ends_of([*mine[:1], *theirs[:1]]))
            sites.proxy.come_up()
            await soon(lambda: succeeds(client, server, ends_of([*mine[:1], *theirs[:1]])), "it answers again")
            sites.proxy.go_down()
            answer = await client.poll(server, ends_of(mine[1:]), want=1)
            assert answer.lost == []
            (late,) = sites.put(1, 1)
            answer = await client.poll(server, want=1, wait=10)
            assert ids_of(answer.jobs) == [late]
            sites.proxy.come_up()
            rest = ends_of([*theirs[1:], *answer.jobs])
            client.number += 1
            await soon(lambda: succeeds(client, server, rest), "it answers again")

    run(scenario())
    assert states(sites, [*here, *there]) == {"succeeded"}


async def succeeds(client: Client, server: RemoteWorkers, ends: list[dict[str, Any]]) -> bool:
    try:
        answer = await client.poll_again(server, ends)
    except PartitionUnavailable:
        return False
    assert answer.lost == []
    return True


def test_what_a_database_gave_that_an_answer_left_out_is_handed_back(sites: TwoSites) -> None:
    (there,) = sites.put(2, 1)

    async def scenario() -> None:
        async with serving(sites) as server:
            client = await join(server)
            # The turn is committed there, and nobody hears of it before the database is away.
            sites.proxy.goes_down_when_answered = True
            sites.proxy.cut_next("answered", lambda chunk, _: b"claim_for_remote" in chunk)
            assert (await client.poll(server, want=5)).jobs == []
            assert sites.execute(2, "select count(*) from penstock.lease") == [(1,)]
            sites.proxy.goes_down_when_answered = False
            sites.proxy.come_up()

            async def is_given() -> bool:
                jobs = (await client.poll(server, want=5, wait=1)).jobs
                assert {(int(job.id), job.attempt) for job in jobs} <= {(there, 1)}
                return bool(jobs)

            await soon(is_given, "it is given out again")
            assert sites.execute(2, "select count(*) from penstock.lease") == [(1,)]

    run(scenario())


def test_a_worker_that_was_declared_dead_on_one_goes_on_there_as_another(sites: TwoSites) -> None:
    ids = [*sites.put(1, 1), *sites.put(2, 1)]

    async def scenario() -> None:
        async with serving(sites) as server:
            client = await join(server)
            jobs = (await client.poll(server, want=2)).jobs
            while len(jobs) < 2:
                jobs += (await client.poll(server, want=2, wait=1)).jobs
            await asyncio.to_thread(sites.execute, 2, "delete from penstock.worker where starts_with(name, 'far')")
            answer = await client.poll(server, ends_of(jobs))
            assert [int(lost.job) for lost in answer.lost] == ids[1:]

            async def is_given() -> bool:
                again = (await client.poll(server, want=1, wait=1)).jobs
                return ids_of(again) == ids[1:]

            await soon(is_given, "what was rescued is given to it again")
            for shard in (1, 2):
                sites.execute(shard, "delete from penstock.worker where starts_with(name, 'far')")
            with pytest.raises(WorkerGone):
                await client.poll(server)

    run(scenario())
