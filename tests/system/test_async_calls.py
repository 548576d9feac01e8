"""`aenqueue`: tasks of an event loop are written together, by one thread, and each is told its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.system.facts import eventually
from tests.system.meeting import Meeting

from penstock import App, QueueFull, RequestTimeout
from penstock.app.sending import AppSender
from penstock.client import loop_sender, waiting_line
from penstock.client.pending import PendingRows
from penstock.client.task import Queue, Task
from penstock.storage.connection import flow

STORED = "select args ->> 'name', id from penstock.job order by id"


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url, request_timeout=60.0) as app:
        yield app


def declare(queue: Queue, **options: Any) -> Task[..., Any]:
    def send(name: str) -> None: ...

    task: Task[..., Any] = queue.task(name="send", **options)(send)
    return task


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def enqueueing_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith(("asyncio", "penstock-enqueue"))}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("key", [None, "name"])
def test_g1_g3_tasks_are_written_together_without_a_thread_for_each(
    app: App, database_url: str, partitions: int, key: str | None
) -> None:
    send = declare(app.queue("letters", partitions=partitions), key=key)
    send.enqueue(name="before")
    names = [f"job-{n}" for n in range(300)]
    # Other tests' apps may have left some.
    before = enqueueing_threads()

    async def call(name: str) -> int:
        job_id = await send.aenqueue(name=name)
        assert enqueueing_threads() <= before
        return job_id

    async def call_all() -> list[int]:
        return await asyncio.gather(*(call(name) for name in names))

    ids = asyncio.run(call_all())
    assert dict(execute(database_url, STORED)[1:]) == dict(zip(names, ids, strict=True))
    ((transactions,),) = execute(database_url, "select count(distinct xmin::text) from penstock.job")
    assert transactions < 100


def test_tasks_with_other_options_are_written_as_they_say(app: App) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")

    async def call_all() -> tuple[int, int, int, int, int]:
        return await asyncio.gather(
            send.aenqueue(name="plain"),
            send.options(delay=60).aenqueue(name="later"),
            send.options(priority=1, tags=["x"]).aenqueue(name="first"),
            send.options(idempotency_key="k").aenqueue(name="once"),
            send.options(idempotency_key="k").aenqueue(name="again"),
        )

    plain, later, first, once, again = asyncio.run(call_all())
    assert once == again
    assert app.job(plain).args == {"name": "plain"}
    assert app.job(later).state == "scheduled"
    assert (app.job(first).priority, app.job(first).tags) == (1, ["x"])


def test_tasks_with_other_options_are_written_together_too(app: App, database_url: str) -> None:
    send, other = declare(app.queue("letters")), declare(app.queue("others"))
    send.enqueue(name="before")

    async def call_all(meeting: Meeting) -> list[int]:
        with meeting:
            tasks = [asyncio.create_task(send.aenqueue(name="first"))]
            await asyncio.to_thread(eventually, lambda: meeting.line._waiting, "the sender is in line")
            tasks += [asyncio.create_task(send.options(tags=[str(n)]).aenqueue(name=f"a{n}")) for n in range(10)]
            tasks += [asyncio.create_task(other.options(priority=n).aenqueue(name=f"b{n}")) for n in range(10)]
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    ids = asyncio.run(call_all(Meeting(app)))
    names = ["first", *(f"a{n}" for n in range(10)), *(f"b{n}" for n in range(10))]
    assert dict(execute(database_url, STORED)[1:]) == dict(zip(names, ids, strict=True))
    assert [app.job(job_id).tags for job_id in ids[1:11]] == [[str(n)] for n in range(10)]
    assert [app.job(job_id).priority for job_id in ids[11:]] == list(range(10))
    ((transactions,),) = execute(database_url, "select count(distinct xmin::text) from penstock.job")
    assert transactions == 3


def test_one_task_is_refused_beside_others(app: App, database_url: str) -> None:
    send, short = declare(app.queue("letters")), declare(app.queue("short", max_length=2))
    send.enqueue(name="before")

    async def call_all() -> list[int | BaseException]:
        calls = [short.aenqueue(name=f"short-{n}") for n in range(4)] + [send.aenqueue(name=str(n)) for n in range(4)]
        return await asyncio.gather(*calls, return_exceptions=True)

    told = asyncio.run(call_all())
    assert sum(isinstance(each, QueueFull) for each in told[:4]) == 2
    assert all(isinstance(each, int) for each in told[4:])
    assert len(execute(database_url, STORED)) == 7


def test_a_task_that_is_cancelled_while_it_waits_is_not_written_and_the_others_are(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")

    async def call_all(meeting: Meeting) -> list[int | BaseException]:
        with meeting:
            first = asyncio.create_task(send.aenqueue(name="first"))
            await asyncio.to_thread(eventually, lambda: meeting.line._waiting, "the sender is in line")
            tasks = [asyncio.create_task(send.aenqueue(name=str(n))) for n in range(4)]
            await asyncio.sleep(0)
            tasks[1].cancel()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    told = asyncio.run(call_all(Meeting(app)))
    assert isinstance(told[2], asyncio.CancelledError)
    stored = execute(database_url, STORED)
    assert [name for name, _ in stored] == ["before", "first", "0", "2", "3"]
    assert [job_id for _, job_id in stored[1:]] == [told[0], told[1], *told[3:]]


def test_a_loop_that_is_closed_meanwhile_harms_nobody(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")

    async def leave(meeting: Meeting) -> None:
        task = asyncio.create_task(send.aenqueue(name="left"))
        await asyncio.to_thread(eventually, lambda: meeting.line._waiting, "the sender is in line")
        task.cancel()

    with Meeting(app) as meeting:
        asyncio.run(leave(meeting))
    eventually(lambda: len(execute(database_url, STORED)) == 2, "what was under way is written")
    assert asyncio.run(send.aenqueue(name="next")) == execute(database_url, STORED)[2][1]


def test_loops_of_several_threads_are_told_their_own(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")
    told: dict[str, int] = {}

    def run(loop: int) -> None:
        async def call(name: str) -> None:
            told[name] = await send.aenqueue(name=name)

        async def call_all() -> None:
            await asyncio.gather(*(call(f"{loop}-{n}") for n in range(50)))

        asyncio.run(call_all())

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dict(execute(database_url, STORED)[1:]) == told


def test_what_goes_on_in_a_thread_has_the_context_of_its_task(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = declare(app.queue("short", max_length=1))
    variable: ContextVar[str] = ContextVar("variable")
    seen: list[str] = []
    send.enqueue(name="before")
    send_rows = AppSender.send_rows

    def note_and_send(sender: AppSender, rows: PendingRows) -> list[int]:
        seen.append(variable.get())
        return send_rows(sender, rows)

    monkeypatch.setattr(AppSender, "send_rows", note_and_send)

    async def call(value: str) -> None:
        variable.set(value)
        with pytest.raises(QueueFull):
            await send.aenqueue(name=value)

    async def call_all() -> None:
        await asyncio.gather(*(call(str(n)) for n in range(5)))

    asyncio.run(call_all())
    assert set(seen) <= {str(n) for n in range(5)}
    assert len(seen) >= 4  # The first may have come alone, and was refused where it was.


def test_g12_a_call_that_no_sender_takes_ends_by_its_deadline(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")

    async def call_all(meeting: Meeting) -> RequestTimeout:
        with meeting:
            patient = asyncio.create_task(send.aenqueue(name="patient"))
            await asyncio.to_thread(eventually, lambda: meeting.line._waiting, "the sender is in line")
            with pytest.raises(RequestTimeout) as hasty:
                await send.options(request_timeout=0.3).aenqueue(name="hasty")
        await patient
        return hasty.value

    error = asyncio.run(call_all(Meeting(app)))
    assert (error.outcome, error.written) == ("not written", [None])
    assert [name for name, _ in execute(database_url, STORED)] == ["before", "patient"]


def test_g12_a_call_ends_by_its_deadline_whoever_is_written_with_it(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a busy server it may be heard late that it has ended a statement.
    for module in (flow, waiting_line, loop_sender):
        monkeypatch.setattr(module, "GRACE_SECONDS", 30.0)
    send, other = declare(app.queue("letters")), declare(app.queue("others"))
    send.enqueue(name="before")

    async def call_all(meeting: Meeting, holder: psycopg.Connection[Any]) -> RequestTimeout:
        with meeting:
            first = asyncio.create_task(send.aenqueue(name="first"))
            await asyncio.to_thread(eventually, lambda: meeting.line._waiting, "the sender is in line")
            patient = asyncio.create_task(other.aenqueue(name="patient"))
            # Long enough that another sender has taken both, as the first one is stuck.
            hasty = asyncio.create_task(send.options(request_timeout=4.0).aenqueue(name="hasty"))
            await asyncio.sleep(0)
        with pytest.raises(RequestTimeout) as refused:
            await hasty
        assert not patient.done()
        holder.rollback()
        await asyncio.gather(first, patient)
        return refused.value

    with psycopg.connect(database_url) as holder:
        holder.execute("lock table penstock.ready in share mode")
        error = asyncio.run(call_all(Meeting(app), holder))
    assert (error.outcome, error.written) == ("not written", [None])
    assert sorted(name for name, _ in execute(database_url, STORED)) == ["before", "first", "patient"]


def test_g12_a_call_that_finds_no_thread_ends_by_its_deadline_and_is_not_written_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_sender, "MOST_THREADS", 1)
    released = threading.Event()
    with App(database_url, request_timeout=60.0) as app:
        send = declare(app.queue("short", max_length=1))
        job_id = send.enqueue(name="before")
        threads = app.sender._open_producer()._loop_sender._threads_for_again
        threads.submit(released.wait)

        async def call_all() -> list[int | BaseException]:
            hasty = send.options(request_timeout=0.3)
            # Two, for one by itself is refused where it is.
            return await asyncio.gather(*(hasty.aenqueue(name=str(n)) for n in range(8)), return_exceptions=True)

        told = asyncio.run(call_all())
        assert any(isinstance(each, RequestTimeout) for each in told)
        assert all(each.outcome == "not written" for each in told if isinstance(each, RequestTimeout))
        app.cancel(job_id)
        released.set()
        threads.shutdown()
    assert [name for name, _ in execute(database_url, STORED)] == ["before"]


def test_a_call_is_answered_where_no_thread_begins_any_more(app: App, database_url: str) -> None:
    """As when the program ends: its main thread has, and this one goes on."""
    send = declare(app.queue("short", max_length=1))
    send.enqueue(name="before")
    app.sender._open_producer()._loop_sender._threads_for_again.shutdown()

    async def call_all() -> list[int | BaseException]:
        return await asyncio.gather(*(send.aenqueue(name=str(n)) for n in range(5)), return_exceptions=True)

    assert all(isinstance(each, QueueFull) for each in asyncio.run(call_all()))


def test_where_a_sender_cannot_be_started_the_next_call_starts_one(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "penstock-sender":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        asyncio.run(send.aenqueue(name="refused"))
    monkeypatch.undo()
    asyncio.run(send.aenqueue(name="next"))
    assert [name for name, _ in execute(database_url, STORED)] == ["before", "next"]


def test_loops_that_are_closed_are_forgotten(app: App) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")
    for n in range(20):
        asyncio.run(send.aenqueue(name=str(n)))
    assert len(app.sender._open_producer()._loop_sender._looked_after) <= 1


def test_g13_a_sender_whose_connection_is_dead_is_replaced(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own call waits until the flow is found dead; the others do not wait for that."""
    monkeypatch.setattr(loop_sender, "STUCK_SECONDS", 0.1)
    proxy = Proxy(database_url)
    with App(proxy.url, request_timeout=60.0, lease=60.0) as app:
        send = declare(app.queue("letters"))
        send.enqueue(name="before")
        proxy.cut_next("swallowed", lambda chunk, _: b'"lost"' in chunk)

        async def call_all() -> None:
            lost = asyncio.create_task(send.aenqueue(name="lost"))
            await asyncio.to_thread(eventually, lambda: proxy.cut_count, "the call is on its way")
            await asyncio.gather(*(send.aenqueue(name=str(n)) for n in range(5)))
            assert not lost.done()
            await lost

        asyncio.run(call_all())
    proxy.close()
    assert sorted(name for name, _ in execute(database_url, STORED)) == ["0", "1", "2", "3", "4", "before", "lost"]


def test_calls_of_tasks_that_wait_when_the_app_is_closed_are_written_or_say_that_they_are_not(
    app: App, database_url: str
) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")

    async def call_all(meeting: Meeting) -> list[int | BaseException]:
        with meeting:
            tasks = [asyncio.create_task(send.aenqueue(name=str(n))) for n in range(5)]
            await asyncio.to_thread(eventually, lambda: meeting.line._waiting, "the sender is in line")
            app.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    told = asyncio.run(call_all(Meeting(app)))
    written = [each for each in told if isinstance(each, int)]
    assert sorted(job_id for _, job_id in execute(database_url, STORED)[1:]) == sorted(written)


def test_the_sender_ends_with_its_app(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_sender, "IDLE_SECONDS", 3_600.0)

    def senders() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name == "penstock-sender"}

    before = senders()
    with App(database_url) as app:
        send = declare(app.queue("letters"))
        send.enqueue(name="before")
        asyncio.run(call_once(send))
        assert len(senders() - before) == 1
    eventually(lambda: senders() <= before, "the sender has ended")


async def call_once(send: Task[..., Any]) -> int:
    return await send.aenqueue(name="one")
