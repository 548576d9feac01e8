"""What a worker far away says and is told, on queues without an owner."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.server.remote.world import World, ends_of, run, soon

from penstock.client.task import Task
from penstock.errors import InvalidInput, LeaseLost, NotFound, WorkerGone
from penstock.server.remote import owned_lane, plain_lane
from penstock.server.remote.messages import GivenJob, PollAnswer
from penstock.server.values import Base64

MAIL: dict[str, Any] = {"mail": {"send": {}}}


def declare(world: World, **options: Any) -> Task[Any, Any]:
    return world.app.queue("mail", **options).task(name="send")(_send)


def _send(to: str) -> None:
    """Runs far away."""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def addresses(count: int) -> list[dict[str, str]]:
    return [{"to": f"a{n}"} for n in range(count)]


def ids_of(jobs: list[GivenJob]) -> list[int]:
    return [int(job.id) for job in jobs]


def test_a_worker_is_given_jobs_and_settles_them(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(5))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL, concurrency=10)
            first = await client.poll(server, want=3)
            assert ids_of(first.jobs) == ids[:3]
            job = first.jobs[0]
            assert (job.queue, job.task, job.attempt, job.timeout, job.key) == ("mail", "send", 1, None, None)
            assert bytes(job.args) == b'{"to":"a0"}'
            second = await client.poll(server, ends_of(first.jobs, result={"sent": 1}), want=10)
            assert ids_of(second.jobs) == ids[3:]
            assert (second.lost, second.cancelled, second.stop) == ([], [], False)
            assert (await client.poll(server, ends_of(second.jobs))).jobs == []

    run(scenario())
    assert world.states(ids) == ["succeeded"] * 5
    assert world.app.job(ids[0]).result == {"sent": 1}
    assert world.leases() == []


def test_how_long_jobs_waited_and_ran_is_told_minute_by_minute(world: World) -> None:
    declare(world).enqueue_many(addresses(3))
    world.app.queue("orders", order="key").task(name="ship", key="to")(_send).enqueue_many(addresses(2))
    world.ask("select penstock.note_minute()")

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL | {"orders": {"ship": {}}}, concurrency=10)
            given: list[GivenJob] = []
            while len(given) < 5:
                given += (await client.poll(server, want=10, wait=5)).jobs
            sent = [job for job in given if job.queue == "mail"]
            shipped = [job for job in given if job.queue == "orders"]
            ends = [*ends_of(sent[:2]), *ends_of(sent[2:], "released"), *ends_of(shipped, "failed", error="no")]
            assert (await client.poll(server, ends)).lost == []

    run(scenario())
    for queue, waits, runs in (("mail", 3, 2), ("orders", 2, 2)):
        noted = world.app.history(queue).minutes
        assert sum(minute.wait_seconds.count for minute in noted if minute.wait_seconds) == waits
        assert sum(minute.run_seconds.count for minute in noted if minute.run_seconds) == runs


def test_no_more_is_given_than_a_worker_runs_at_once(world: World) -> None:
    declare(world).enqueue_many(addresses(9))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL, concurrency=4)
            first = await client.poll(server, want=3)
            assert len(first.jobs) == 3
            assert len((await client.poll(server, want=3)).jobs) == 1
            assert (await client.poll(server, want=3)).jobs == []
            assert len((await client.poll(server, ends_of(first.jobs[:2]), want=9)).jobs) == 2

    run(scenario())


def test_each_end_becomes_what_it_says(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(7))
    tasks = {"mail": {"send": {"max_attempts": 2, "backoff": 0}}}

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, tasks, concurrency=10)
            jobs = (await client.poll(server, want=10)).jobs
            ends = [
                *ends_of(jobs[:1], "retry", error="once more"),
                *ends_of(jobs[1:2], "failed", error="no use"),
                *ends_of(jobs[2:3], "snoozed", after=3600),
                *ends_of(jobs[3:4], "discarded", reason="not wanted"),
                *ends_of(jobs[4:5], "released"),
                *ends_of(jobs[5:6], "retry", error="later", after=3600),
                *ends_of(jobs[6:7]),
            ]
            assert (await client.poll(server, ends)).lost == []
            assert world.states(ids) == [
                *("ready", "failed", "scheduled", "discarded", "ready", "scheduled", "succeeded"),
            ]
            again = (await client.poll(server, want=10)).jobs
            assert {int(job.id): job.attempt for job in again} == {ids[0]: 2, ids[4]: 1}
            retried = [job for job in again if int(job.id) == ids[0]]
            # It has no attempts left.
            await client.poll(server, ends_of(retried, "retry", error="again", after=0))
            assert world.states(ids[:1]) == ["failed"]

    run(scenario())
    assert [failure.error for failure in world.app.job(ids[0]).failures] == ["once more", "again"]
    assert world.app.job(ids[1]).error == "no use"
    assert world.app.job(ids[3]).error == "not wanted"


def test_a_poll_waits_until_a_producer_wakes_it(world: World) -> None:
    task = declare(world)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            waiting = asyncio.create_task(client.poll(server, want=1, wait=30))
            await soon(lambda: is_slept_on(world), "the server asks to be woken")
            job = await asyncio.to_thread(task.enqueue, to="ada")
            assert ids_of((await waiting).jobs) == [job]

    run(scenario())


async def is_slept_on(world: World) -> bool:
    return bool(await asyncio.to_thread(world.ask, "select from penstock.sleeper"))


def test_of_many_that_wait_each_new_job_goes_to_one(world: World) -> None:
    task = declare(world)

    async def scenario() -> None:
        async with world.server() as server:
            clients = [await world.join(server, MAIL) for _ in range(6)]
            waiting = [asyncio.create_task(client.poll(server, want=1, wait=30)) for client in clients]
            await soon(lambda: is_slept_on(world), "the server asks to be woken")
            ids = await asyncio.to_thread(task.enqueue_many, addresses(4))
            done: set[asyncio.Task[PollAnswer]] = set()
            pending = set(waiting)
            while len(done) < 4:
                done |= (await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED))[0]
                pending = set(waiting) - done
            assert sorted(int(job.id) for each in done for job in each.result().jobs) == ids
            server.begin_stop()
            rest = await asyncio.gather(*pending)
            assert [(answer.jobs, answer.stop) for answer in rest] == [([], True)] * 2

    run(scenario())


def test_a_poll_that_is_given_nothing_says_so_when_its_time_is_up_and_says_so_again(world: World) -> None:
    task = declare(world)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            answer = await client.poll(server, want=1, wait=0.2)
            assert (answer.jobs, answer.lost, answer.cancelled, answer.stop) == ([], [], [], False)
            job = await asyncio.to_thread(task.enqueue, to="late")
            assert (await client.poll_again(server, want=1, wait=30)) == answer
            assert ids_of((await client.poll(server, want=1)).jobs) == [job]

    run(scenario())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"queues": {}}, "queues"),
        ({"queues": {"mail": {}}}, "queues.mail"),
        ({"queues": {"mail": {str(number): {} for number in range(1_001)}}}, "queues"),
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1_001}, "concurrency"),
        ({"lease": 0.5}, "lease"),
        ({"lease": 86_400}, "lease"),
        ({"queues": {"mail": {"send": {"max_attempts": 0}}}}, "queues.mail.send.max_attempts"),
        ({"queues": {"mail": {"send": {"timeout": 0}}}}, "queues.mail.send.timeout"),
        ({"queues": {"mail": {"send": {"backoff": -1}}}}, "queues.mail.send.backoff"),
        ({"queues": {"mail": {"": {}}}}, "queues.mail"),
    ],
)
def test_a_registration_that_cannot_be_is_refused_with_its_field(
    world: World, change: dict[str, Any], field: str
) -> None:
    declare(world)
    world.app.migrate()

    async def scenario() -> None:
        async with world.server() as server:
            given = {"queues": MAIL, **change}
            with pytest.raises(InvalidInput) as refused:
                await world.join(server, given.pop("queues"), **given)
            assert refused.value.field == field

    run(scenario())
    assert world.ask("select from penstock.remote_worker") == []


def test_an_unknown_queue_is_not_found(world: World) -> None:
    async def scenario() -> None:
        async with world.server() as server:
            with pytest.raises(NotFound):
                await world.join(server, {"nowhere": {"send": {}}})

    run(scenario())


@pytest.mark.parametrize(
    ("poll", "field"),
    [
        ({"number": 0}, "number"),
        ({"number": 3}, "number"),
        ({"want": -1}, "want"),
        ({"wait": 31}, "wait"),
        ({"ends": [{"job": "x", "lease": "1.1.1", "end": "succeeded"}]}, "ends[0].job"),
        ({"ends": [{"job": "1", "lease": "1.1", "end": "succeeded"}]}, "ends[0].lease"),
        ({"ends": [{"job": "1", "lease": "1.1.99999999999999999999", "end": "succeeded"}]}, "ends[0].lease"),
        ({"ends": [{"job": "1", "lease": "1.1.1", "end": "retry", "after": -1}]}, "ends[0].after"),
        ({"ends": [{"job": "1", "lease": "1.1.1", "end": "succeeded", "result": "a" * 300_000}]}, "ends[0].result"),
        ({"ends": [{"job": "1", "lease": "1.1.1", "end": "succeeded", "result": nested(200)}]}, "ends[0].result"),
        (
            {"ends": [{"job": "1", "lease": "1.1.1", "end": "succeeded", "result": msgspec.Raw(b"1e400")}]},
            "ends[0].result",
        ),
        (
            {"ends": [{"job": "1", "lease": "1.1.1", "end": "succeeded", "result": msgspec.Raw(b"9" * 5_000)}]},
            "ends[0].result",
        ),
        ({"ends": [{"job": "1", "lease": "1.1.1", "end": "released"}] * 2}, "ends[1].job"),
    ],
)
def test_a_poll_that_cannot_be_is_refused_with_its_field_and_uses_up_no_number(
    world: World, poll: dict[str, Any], field: str
) -> None:
    declare(world)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            with pytest.raises(InvalidInput) as refused:
                await client.poll(server, **{"number": 1, **poll})
            assert refused.value.field == field
            assert (await client.poll(server, number=1)).jobs == []

    run(scenario())


def test_arguments_come_as_they_are_stored_and_keys_that_are_no_text_as_base64(world: World) -> None:
    task = declare(world)
    options = task.options(key=b"\xff\x00")
    big = options.enqueue(to="é\u2028 " + "1" * 30)
    text = task.options(key="k").enqueue(to="b")

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            jobs = {int(job.id): job for job in (await client.poll(server, want=5)).jobs}
            assert jobs[big].key == Base64(base64=base64.b64encode(b"\xff\x00").decode())
            assert bytes(jobs[big].args).decode() == '{"to":"é\u2028 ' + "1" * 30 + '"}'
            assert jobs[text].key == "k"

    run(scenario())


@pytest.mark.parametrize("worker", ["", "x", "0", "12345", "9" * 30, "-1"])
def test_a_worker_that_is_not_known_is_gone(world: World, worker: str) -> None:
    declare(world)

    async def scenario() -> None:
        async with world.server() as server:
            known = await world.join(server, MAIL)
            known.worker = worker
            with pytest.raises(WorkerGone):
                await known.poll(server)
            with pytest.raises(WorkerGone):
                await known.renew(server)
            await server.leave(worker)

    run(scenario())


def test_what_a_worker_that_leaves_held_is_handed_back_as_if_it_had_never_started(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(3))

    async def scenario() -> None:
        async with world.server() as server:
            first, second = await world.join(server, MAIL), await world.join(server, MAIL)
            await first.poll(server, want=3)
            await first.renew(server)
            await server.leave(first.worker)
            await server.leave(first.worker)
            jobs = (await second.poll(server, want=3)).jobs
            assert ids_of(jobs) == ids
            assert {job.attempt for job in jobs} == {1}
            with pytest.raises(WorkerGone):
                await first.poll(server)

    run(scenario())
    assert world.ask("select from penstock.remote_worker where number <> 1") == []


def test_progress_and_cancellation_go_with_a_renewal(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(2))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            jobs = (await client.poll(server, want=2)).jobs
            answer = await client.renew(server, {str(ids[0]): 0.5, str(ids[1]): {"value": 0.25, "note": "half"}})
            assert (answer.cancelled, answer.lost, answer.stop) == ([], [], False)
            assert world.app.job(ids[0]).progress == {"value": 0.5, "note": None}
            await asyncio.to_thread(world.app.cancel, ids[0])
            assert (await client.renew(server)).cancelled == [str(ids[0])]
            polled = await client.poll(server, ends_of(jobs[1:]))
            assert polled.cancelled == [str(ids[0])]
            await client.poll(server, ends_of(jobs[:1], "failed", error="interrupted"))
            with pytest.raises(InvalidInput, match="progress"):
                await client.renew(server, {str(ids[0]): "much"})

    run(scenario())
    assert world.states(ids) == ["cancelled", "succeeded"]


def test_a_poll_that_waits_ends_when_one_of_its_jobs_is_to_stop(world: World) -> None:
    (job,) = declare(world).enqueue_many(addresses(1))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            await client.poll(server, want=1)
            waiting = asyncio.create_task(client.poll(server, want=1, wait=30))
            await soon(lambda: is_slept_on(world), "the server asks to be woken")
            await asyncio.to_thread(world.app.cancel, job)
            assert (await waiting).cancelled == [str(job)]

    run(scenario())


def test_how_many_jobs_a_worker_ended_in_the_last_minute_is_told(world: World) -> None:
    declare(world).enqueue_many(addresses(8))

    def told() -> tuple[int | None, int | None]:
        (worker,) = [each for each in world.app.workers() if each.is_remote]
        return worker.ended_last_minute, worker.failed_last_minute

    def told_after(minutes: int) -> tuple[int | None, int | None]:
        world.ask(
            "update penstock.remote_worker set counted_in = date_trunc('minute', now()) - make_interval(mins => %s),"
            " ended_now = ended_now + ended_before, ended_before = 0,"
            " failed_now = failed_now + failed_before, failed_before = 0 returning 1",
            minutes,
        )
        return told()

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            jobs = (await client.poll(server, want=8)).jobs
            assert told() == (0, 0)
            ends = [
                *ends_of(jobs[:3]),
                *ends_of(jobs[3:4], "retry", error="no", after=60),
                *ends_of(jobs[4:5], "failed", error="no"),
                *ends_of(jobs[5:6], "released"),
            ]
            await client.poll(server, ends)
            await client.poll_again(server, ends)
            # Once more where a minute begins just then.
            world.until(lambda: told_after(0) == (5, 2), "what ended is told, once, and without what was handed back")
            # What is not held any more was ended before.
            await client.poll(server, ends_of([*jobs[:1], *jobs[6:7]]))
            world.until(lambda: told_after(0) == (6, 2), "it goes on counting")
            world.until(lambda: (told_after(1)[0] or 0) < 6, "of the minute before less and less counts")
            assert told_after(2) == (0, 0)

    run(scenario())


def test_a_worker_that_is_asked_to_stop_hears_it(world: World) -> None:
    declare(world).enqueue_many(addresses(1))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            await client.poll(server, want=1)
            waiting = asyncio.create_task(client.poll(server, want=1, wait=30))
            await soon(lambda: is_slept_on(world), "the server asks to be woken")
            (known,) = [each for each in world.app.workers() if each.is_remote]
            assert (str(known.id), known.is_stopping, known.running) == (client.worker, False, 1)
            await asyncio.to_thread(world.app.stop_worker, client.worker)
            assert (await waiting).stop
            assert (await client.renew(server)).stop
            assert world.app.worker(client.worker).is_stopping

    run(scenario())


def test_g4_ends_of_what_is_not_held_change_nothing_and_are_told(world: World) -> None:
    ids = declare(world).enqueue_many(addresses(4))

    async def scenario() -> None:
        async with world.server() as server:
            mine, other = await world.join(server, MAIL), await world.join(server, MAIL)
            jobs = (await mine.poll(server, want=2)).jobs
            theirs = (await other.poll(server, want=2)).jobs
            # Of another worker; of a job that its lease does not hold; with another token.
            shard, lease, token = jobs[0].lease.split(".")
            foreign = [
                *ends_of(theirs[:1]),
                {"job": theirs[1].id, "lease": jobs[0].lease, "end": "succeeded"},
                {"job": jobs[1].id, "lease": f"{shard}.{lease}.{int(token) ^ 1}", "end": "failed"},
            ]
            answer = await mine.poll(server, [*ends_of(jobs[:1]), *foreign], want=5)
            assert {(lost.job, lost.lease) for lost in answer.lost} == {(e["job"], e["lease"]) for e in foreign}
            assert len(answer.lost) == 3
            # Repeated under another number it is late, and all of it is lost.
            with pytest.raises(LeaseLost):
                await mine.poll(server, ends_of(jobs[:1]), want=5)
            assert world.states(ids) == ["succeeded", "running", "running", "running"]
            await other.poll(server, ends_of(theirs))

    run(scenario())
    assert world.states(ids) == ["succeeded", "running", "succeeded", "succeeded"]


def test_a_poll_whose_ends_are_all_lost_claims_nothing_and_uses_up_its_number(world: World) -> None:
    declare(world).enqueue_many(addresses(4))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            jobs = (await client.poll(server, want=1)).jobs
            await client.poll(server, ends_of(jobs))
            for again in (False, True):
                with pytest.raises(LeaseLost):
                    await client.poll(server, ends_of(jobs), want=3, number=3)
                assert world.leases() == [], again
            assert len((await client.poll(server, want=3, number=4)).jobs) == 3

    run(scenario())


def test_g4_what_is_lost_while_a_poll_begins_is_told_and_where_that_is_all_nothing_is_claimed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = declare(world).enqueue_many(addresses(6))
    lose_before_a_turn(world, monkeypatch)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            jobs = [*(await client.poll(server, want=1)).jobs, *(await client.poll(server, want=1)).jobs]
            LOST.append(int(jobs[0].id))
            answer = await client.poll(server, ends_of(jobs), want=1)
            assert [lost.job for lost in answer.lost] == [jobs[0].id]
            LOST.append(int(answer.jobs[0].id))
            with pytest.raises(LeaseLost):
                await client.poll(server, ends_of(answer.jobs), want=5)
            assert world.leases() == []

    run(scenario())
    assert world.states(ids) == ["ready", "succeeded", *["ready"] * 4]


# Jobs whose leases are lost when the next turn has been prepared, and before it is sent.
LOST: list[int] = []


def lose_before_a_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plain_lane, owned_lane):
        monkeypatch.setattr(module, "take_turn", partial(lose_first, world, module.take_turn))


def lose_first(world: World, take_turn: Callable[..., Any], *args: Any) -> Any:
    while LOST:
        world.ask(
            "select penstock.release_leases(worker_id, array[id]) from penstock.lease where range = %s"
            " and penstock.has_member(low, high, members, %s)",
            *divmod(LOST.pop(), 1024),
        )
    return take_turn(*args)


def test_numbers_that_go_back_or_skip_are_refused(world: World) -> None:
    declare(world).enqueue_many(addresses(4))

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            jobs = (await client.poll(server, want=1)).jobs
            await client.poll(server, ends_of(jobs), want=1)
            for number in (1, 4, 2**53):
                with pytest.raises(InvalidInput) as refused:
                    await client.poll(server, want=1, number=number)
                assert refused.value.field == "number"
            assert len((await client.poll(server, want=1)).jobs) == 1

    run(scenario())


def test_no_thousand_threads_nor_connections_for_polls_that_wait(world: World) -> None:
    declare(world)

    async def scenario() -> None:
        async with world.server() as server:
            client = await world.join(server, MAIL)
            await client.poll(server, want=1, wait=0.1)
            threads = threading.active_count()
            clients = [await world.join(server, MAIL) for _ in range(60)]
            waiting = [asyncio.create_task(each.poll(server, want=1, wait=30)) for each in clients]
            shard = next(iter(server._shards.values()))
            await soon(lambda: _is(len(shard.waiting) == 60), "all of them wait")
            assert threading.active_count() <= threads + 16
            sessions = world.ask("select count(*) from pg_stat_activity where datname = current_database()")
            assert sessions[0][0] < 30
            server.begin_stop()
            await asyncio.gather(*waiting)

    run(scenario())


async def _is(fact: bool) -> bool:
    return fact
