"""Calls of threads that meet are written in one transaction; each has its own answer, deadline and refusal."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import psycopg
import pytest
from tests.fault.stage import times
from tests.system.facts import eventually
from tests.system.forks import Forked
from tests.system.meeting import Meeting

from penstock import App, PenstockError, QueueFull, RequestTimeout
from penstock.client.task import Queue, Task

TRANSACTIONS = "select count(distinct xmin::text), count(*) from penstock.job"
STORED = "select args ->> 'name', id from penstock.job order by id"


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url, request_timeout=60.0) as app:
        yield app


def declare(queue: Queue) -> Task[..., Any]:
    @queue.task(name="send", key="customer" if queue.definition.rules.per_key else None)
    def send(name: str, customer: str = "") -> None: ...

    return send


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_g1_g3_calls_that_meet_are_one_transaction_and_each_is_told_its_own_ids(app: App, database_url: str) -> None:
    plain = declare(app.queue("letters", partitions=3))
    ordered = declare(app.queue("orders", partitions=2, order="key"))
    later = datetime.now(UTC) + timedelta(days=1)
    calls: list[tuple[list[str], Future[Any]]] = []
    with Meeting(app) as meeting:
        for n in range(4):
            calls += [
                ([f"a{n}"], meeting.call(plain.enqueue, name=f"a{n}")),
                ([f"b{n}"], meeting.call(plain.options(priority=2, tags=["t"]).enqueue, name=f"b{n}")),
                ([f"c{n}"], meeting.call(plain.options(delay=3600).enqueue, name=f"c{n}")),
                ([f"d{n}"], meeting.call(plain.options(run_at=later, key="k").enqueue, name=f"d{n}")),
                ([f"e{n}"], meeting.call(ordered.enqueue, name=f"e{n}", customer=f"c{n}")),
                (
                    [f"f{n}", f"g{n}"],
                    meeting.call(plain.options(key="x").enqueue_many, [{"name": f"f{n}"}, {"name": f"g{n}"}]),
                ),
                ([f"h{n}"], meeting.call(app.enqueue_many, [ordered.options(tags=["t"]).job(name=f"h{n}")])),
            ]
    told: dict[str, int] = {}
    for names, call in calls:
        ids = call.result()
        told |= dict(zip(names, ids if isinstance(ids, list) else [ids], strict=True))
    assert execute(database_url, TRANSACTIONS) == [(1, 32)]
    assert dict(execute(database_url, STORED)) == told
    for name, job_id in told.items():
        job = app.job(job_id)
        assert job.args["name"] == name
        assert job.queue == ("orders" if name[0] in "eh" else "letters")
        assert job.priority == (2 if name[0] == "b" else 5)
        assert job.tags == (["t"] if name[0] in "bh" else [])
        assert job.state == ("scheduled" if name[0] in "cd" else "ready")
        assert job.key == {"d": "k", "f": "x", "g": "x"}.get(name[0], f"c{name[1:]}" if name[0] == "e" else job.key)
    # One range for each destination, and what was counted is what is there.
    ((count,),) = execute(database_url, "select count(distinct (partition_id, priority, task)) from penstock.ready")
    assert execute(database_url, "select count(*) from penstock.ready") == [(count,)]
    ((counted,),) = execute(database_url, "select count(distinct partition_id) from penstock.tally")
    assert execute(database_url, "select count(*), sum(enqueued), sum(scheduled) from penstock.tally") == [
        (counted, 32, 8)
    ]


def test_whatever_text_and_time_calls_have_arrives_as_it_was(app: App, database_url: str) -> None:
    names = ['{"a",\\b} null', "null", 'täsk %s $1 "', "\\"]
    keys = [b"\x00k\xff\\", b'"', b"null", None]
    at = datetime(2050, 1, 2, 3, 4, 5, 678901, UTC)
    plain, ordered = app.queue("letters"), app.queue("orders", order="key")
    tasks = [queue.task(name=name)(lambda: None) for queue in (plain, ordered) for name in names]
    # The second time by the statement that the session keeps.
    for _ in range(2):
        with Meeting(app) as meeting:
            calls = [
                meeting.call(
                    task.options(key=key, run_at=at if n % 2 else None, delay=None if n % 2 else 0.25e9).enqueue
                )
                for n, task in enumerate(tasks)
                for key in keys
            ]
        jobs = [app.job(call.result()) for call in calls]
        assert [job.task for job in jobs] == [task.name for task in tasks for _ in keys]
        assert [job.run_at == at for job in jobs] == [bool(n % 2) for n in range(len(tasks)) for _ in keys]
    stored = execute(database_url, "select key from penstock.job order by id")
    assert sorted(stored, key=str) == sorted([(key,) for key in keys] * len(tasks) * 2, key=str)
    transactions = execute(database_url, TRANSACTIONS)
    assert transactions == [(2, 2 * len(calls))]


def test_a_lone_call_waits_for_nobody_and_is_written_alone(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    for n in range(3):
        send.enqueue(name=str(n))
    assert execute(database_url, TRANSACTIONS) == [(3, 3)]


def test_what_is_not_a_small_plain_call_does_not_wait_in_line(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    parent = send.enqueue(name="parent")
    with Meeting(app) as meeting:
        waiting = meeting.call(send.enqueue, name="waiting")
        send.options(idempotency_key="k").enqueue(name="once")
        send.options(unique="waiting").enqueue(name="unique")
        send.options(after=[parent]).enqueue(name="child")
        send.enqueue_many([{"name": "many"}] * 150)
        with psycopg.connect(database_url) as connection:
            send.options(connection=connection).enqueue(name="mine")
        assert not waiting.done()
    waiting.result()


def test_max_length_admits_in_line_order_and_refuses_nobody_else(app: App, database_url: str) -> None:
    short = declare(app.queue("short", max_length=2))
    other = declare(app.queue("other"))
    with Meeting(app) as meeting:
        calls = [meeting.call(short.enqueue, name=str(n)) for n in range(4)]
        beside = meeting.call(other.enqueue, name="beside")
    beside.result()
    assert [isinstance(call.exception(), QueueFull) for call in calls] == [False, False, True, True]
    assert [name for name, _ in execute(database_url, STORED)] == ["0", "1", "beside"]
    assert execute(database_url, TRANSACTIONS) == [(1, 3)]


def test_g5_a_call_whose_map_is_old_goes_by_the_new_one_and_the_others_are_not_held_up(
    app: App, database_url: str
) -> None:
    ordered, plain = declare(app.queue("orders", order="key")), declare(app.queue("letters"))
    ordered.enqueue(name="before", customer="a")
    with Meeting(app) as meeting:
        old = [meeting.call(ordered.enqueue, name=f"old-{n}", customer=str(n)) for n in range(5)]
        beside = [meeting.call(plain.enqueue, name=f"beside-{n}") for n in range(2)]
        with App(database_url) as other:
            other.resize("orders", partitions=4)
    assert len({call.result() for call in old + beside}) == 7
    partitions = execute(
        database_url, "select count(distinct partition_id) from penstock.job where args ->> 'name' ~ 'old'"
    )
    assert partitions[0][0] > 1
    ((together,),) = execute(
        database_url, "select count(distinct xmin::text) from penstock.job where args ->> 'name' ~ 'beside'"
    )
    assert together == 1


def test_nobody_waits_for_a_map_that_another_call_needs(app: App, database_url: str) -> None:
    ordered, plain = declare(app.queue("orders", order="key")), declare(app.queue("letters"))
    ordered.enqueue(name="before", customer="a")
    with psycopg.connect(database_url) as holder:
        holder.execute("select from penstock.queue_map for update")
        with Meeting(app) as meeting:
            held_up = meeting.call(ordered.enqueue, name="held up", customer="a")
            beside = meeting.call(plain.enqueue, name="beside")
        beside.result()
        assert not held_up.done()
    held_up.result()


def test_what_the_server_says_no_to_fails_one_call_alone(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    execute(
        database_url,
        """create function public.refuse() returns trigger language plpgsql as
           $$ begin raise exception 'not this one' using errcode = '23514'; end $$;
           create trigger refuse before insert on penstock.job for each row
           when (new.args ->> 'name' = 'bad') execute function public.refuse()""",
    )
    with Meeting(app) as meeting:
        good: list[Future[Any]] = [meeting.call(send.enqueue, name="good") for _ in range(3)]
        bad = meeting.call(send.enqueue, name="bad")
        good += [meeting.call(send.enqueue_many, [{"name": "good"}] * 2) for _ in range(2)]
    assert isinstance(bad.exception(), PenstockError)
    assert "not this one" in str(bad.exception())
    for call in good:
        call.result()
    assert execute(database_url, "select count(*) from penstock.job") == [(7,)]


def test_g12_a_call_leaves_the_line_when_its_time_is_up(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    with Meeting(app) as meeting:
        patient = meeting.call(send.enqueue, name="patient")
        hasty = meeting.call(send.options(request_timeout=0.2).enqueue, name="hasty")
        error = hasty.exception()
        assert isinstance(error, RequestTimeout)
        assert error.outcome == "not written"
        assert not patient.done()
    patient.result()
    assert [name for name, _ in execute(database_url, STORED)] == ["patient"]


def test_g12_the_earliest_deadline_ends_the_transaction_and_the_others_are_written(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    send.enqueue(name="before")
    with psycopg.connect(database_url) as holder:
        holder.execute("lock table penstock.ready in share mode")
        with Meeting(app) as meeting:
            patient = [meeting.call(send.enqueue, name=f"patient-{n}") for n in range(3)]
            hasty = meeting.call(send.options(request_timeout=1.0).enqueue, name="hasty")
        error = hasty.exception()
        assert isinstance(error, RequestTimeout)
        assert error.outcome == "not written"
        assert not any(call.done() for call in patient)
    for call in patient:
        call.result()
    names = [name for name, _ in execute(database_url, STORED)]
    assert sorted(names) == ["before", "patient-0", "patient-1", "patient-2"]


def test_g12_a_call_whose_time_is_up_before_it_is_sent_says_that_it_is_not_written(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    for name in ("before", "again"):
        send.enqueue(name=name)
    with pytest.raises(RequestTimeout) as refused:
        send.options(request_timeout=1e-6).enqueue(name="hasty")
    assert refused.value.outcome == "not written"
    assert [name for name, _ in execute(database_url, STORED)] == ["before", "again"]


def test_a_child_that_is_forked_while_calls_wait_has_a_line_of_its_own(app: App, database_url: str) -> None:
    send = declare(app.queue("letters"))
    with Meeting(app) as meeting:
        waiting = [meeting.call(send.enqueue, name=f"parent-{n}") for n in range(3)]
        child = Forked(lambda: [send.enqueue(name="child"), *send.enqueue_many([{"name": "child"}] * 3)])
        told = child.answer()
    told += [call.result() for call in waiting]
    assert sorted(job_id for _, job_id in execute(database_url, STORED)) == sorted(told)


def test_calls_that_wait_when_the_app_is_closed_are_written_or_say_that_they_are_not(
    app: App, database_url: str
) -> None:
    send = declare(app.queue("letters"))
    with Meeting(app) as meeting:
        waiting = [meeting.call(send.enqueue, name=str(n)) for n in range(3)]
        app.close()
    told = [call.result() for call in waiting if call.exception() is None]
    assert sorted(job_id for _, job_id in execute(database_url, STORED)) == sorted(told)


class Interrupted(BaseException):
    """As an interrupt that comes at any moment."""


def interrupting(function: Callable[[], Any], step: int) -> tuple[Callable[[], Any], list[bool]]:
    """The function, interrupted before so many lines of what leads were run; and whether it came to that."""
    left, came = [step], [False]
    entered: set[tuple[FrameType, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.endswith(("waiting_line.py", "merging.py", "enqueue/merged.py")):
            return None
        if event != "line":
            return trace
        here = frame, frame.f_lineno
        if linecache.getline(file, frame.f_lineno).lstrip().startswith("with "):
            # Python lets no interrupt in between the end of a block and what lets go of its lock.
            if here in entered:
                return trace
            entered.add(here)
        left[0] -= 1
        if left[0] == 0:
            came[0] = True
            raise Interrupted
        return trace

    def run() -> Any:
        sys.settrace(trace)
        try:
            return function()
        finally:
            sys.settrace(None)

    return run, came


def test_g1_g3_a_leader_may_be_interrupted_anywhere(app: App, database_url: str) -> None:
    """The others are written once each; what is the leader's own was written or not."""
    send = declare(app.queue("letters"))
    send.enqueue(name="before")
    step, told, unsure = 0, dict[str, int](), set[str]()
    threads = threading.active_count()
    while True:
        step += times(7, 1)
        with Meeting(app) as meeting:
            lead, came = interrupting(lambda: send.enqueue(name=f"leader-{step}"), step)  # noqa: B023
            leader = meeting.call(lead)
            others = [meeting.call(send.enqueue, name=f"other-{step}-{n}") for n in range(2)]
        error = leader.exception()
        assert error is None or isinstance(error, Interrupted)
        if error is None:
            told[f"leader-{step}"] = leader.result()
        else:
            unsure.add(f"leader-{step}")
        told |= {f"other-{step}-{n}": call.result() for n, call in enumerate(others)}
        if not came[0]:
            break
    assert step > 100
    rows = execute(database_url, STORED)
    stored = dict(rows)
    assert len(stored) == len(rows)
    assert stored.items() >= told.items()
    assert set(stored) - set(told) - {"before"} <= unsure
    assert unsure & set(stored)
    assert unsure - set(stored)
    # Nobody holds the others up for good.
    eventually(lambda: not meeting.line._waiting, "nobody waits")
    assert threading.active_count() < threads + 100
