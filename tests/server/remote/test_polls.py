"""What a worker far away says and is told, on queues without an owner."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.remote.world import Client, World, ends_of, run, soon

from penstock.errors import InvalidInput, LeaseLost, NotFound, WorkerGone

MAIL = {"mail": {"send": {}}}


def declare(world: World, **options: object) -> object:
    queue = world.app.queue("mail", **options)  # type: ignore[arg-type]
    return queue.task(name="send")(_send)


def _send(to: str) -> None:
    """Runs far away."""


def test_a_worker_is_given_jobs_and_settles_them(world: World) -> None:
    task = declare(world)
    ids = task.enqueue_many([{"to": f"a{n}"} for n in range(5)])

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL, concurrency=10)
            first = await client.poll(server, want=3)
            assert [int(job.id) for job in first.jobs] == ids[:3]
            job = first.jobs[0]
            assert (job.queue, job.task, job.attempt, job.timeout, job.key) == ("mail", "send", 1, None, None)
            assert bytes(job.args) == b'{"to":"a0"}'
            second = await client.poll(server, ends_of(first.jobs, result={"sent": 1}), want=10)
            assert [int(job.id) for job in second.jobs] == ids[3:]
            assert (second.lost, second.cancelled, second.stop) == ([], [], False)
            last = await client.poll(server, ends_of(second.jobs))
            assert last.jobs == []
        assert world.states(ids) == ["succeeded"] * 5
        assert world.app.job(ids[0]).result == {"sent": 1}
        assert world.leases() == []

    run(scenario())
