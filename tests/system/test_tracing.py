"""Traces of OpenTelemetry: from the call that enqueues, through the job, to each run of its handler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from tests.spark.staged import Loader
from tests.system import spans as spans_module
from tests.system.conftest import Execute, MakeApp
from tests.system.spans import UNSAMPLED, Spans, count_of, describe_current, spans_of_this_process, within

from penstock import App, BatchContext, Context, Discard, InvalidInput, QueueFull, Retry, Snooze
from penstock.client.task import Task

SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
IDS = (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


@pytest.fixture
def spans() -> Iterator[Spans]:
    """The spans of this test."""
    spans_of_this_process.clear()
    yield spans_of_this_process
    spans_of_this_process.clear()


@pytest.fixture
def traced(make_app: MakeApp) -> App:
    """An app that traces."""
    return make_app(tracing=True)


def declare(app: App, **options: Any) -> Task[..., Any]:
    """A task whose jobs give what span they run in."""

    def handle(n: int = 0) -> list[str | None]:
        return describe_current()

    declared: Task[..., Any] = app.queue("q", **options).task(name="t")(handle)
    return declared


def attributes_of(execute: Execute) -> list[dict[str, Any]]:
    """Of each job, by id, without what finds a lost answer."""
    rows = execute("select id, attributes from penstock.job_stored order by id")
    return [{name: value for name, value in (given or {}).items() if name != "token"} for _, given in rows]


def linked_to(span: ReadableSpan) -> list[tuple[int, int]]:
    """To which spans a span links."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def ids_of(span: ReadableSpan) -> tuple[int, int]:
    """The ids of a span's trace and of itself."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def test_a_job_runs_in_the_trace_of_the_call_that_enqueued_it(traced: App, spans: Spans, execute: Execute) -> None:
    task = declare(traced)
    with spans.request() as request:
        job = task.enqueue(n=1)
    traced.work(until_idle=True)
    call, run = spans.only("enqueue q"), spans.only("process q")
    assert within(call, request)
    assert within(run, call)
    assert linked_to(run) == [ids_of(call)]
    assert (call.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(call.attributes or {}) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": str(job),
    }
    assert dict(run.attributes or {}) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "q",
        "messaging.message.id": str(job),
        "messaging.penstock.task": "t",
        "messaging.penstock.attempt": 1,
    }
    assert run.status.status_code == StatusCode.UNSET
    trace_id, span_id = ids_of(call)
    (stored,) = attributes_of(execute)
    # The SDK draws ids at random, and says so by the second flag.
    assert stored["traceparent"][:-2] == f"00-{trace_id:032x}-{span_id:016x}-"
    assert stored.keys() == {"traceparent"}
    assert traced.job(job).traceparent == stored["traceparent"]
    # The handler itself was within it.
    assert traced.result(job) == ["process q", f"{trace_id:x}", f"{span_id:x}"]


def test_a_handlers_own_calls_are_in_the_same_trace(traced: App, spans: Spans) -> None:
    task = declare(traced)

    @traced.queue("q").task
    def enqueue_one() -> None:
        task.enqueue()

    enqueue_one.enqueue()
    traced.work(until_idle=True)
    first, second = spans.named("enqueue q")
    outer, inner = spans.named("process q")
    assert within(outer, first)
    assert within(second, outer)
    assert within(inner, second)


def test_the_jobs_of_one_call_have_its_context_in_common(traced: App, spans: Spans, execute: Execute) -> None:
    task = declare(traced)
    task.options(tags=["x"]).enqueue_many([{"n": n} for n in range(5)])
    traced.work(until_idle=True)
    call = spans.only("enqueue q")
    assert count_of(call) == 5
    assert "messaging.message.id" not in (call.attributes or {})
    runs = spans.named("process q")
    assert len(runs) == 5
    assert all(within(run, call) for run in runs)
    assert all(given["tags"] == ["x"] and given["traceparent"] for given in attributes_of(execute))
    assert task.enqueue_many([]) == []
    assert len(spans.named("enqueue q")) == 1


def test_a_mixed_call_is_one_span_and_its_children_wait_for_its_parents(traced: App, spans: Spans) -> None:
    task = declare(traced)

    @traced.queue("other").task
    def other() -> list[str | None]:
        return describe_current()

    parent = task.job(n=1)
    child = other.options(after=[parent]).job()
    calls = []
    for _ in range(2):  # What was enqueued may be enqueued again: each call has its own context.
        with spans.request():
            parent_id, child_id = traced.enqueue_many([parent, child])
        assert traced.job(child_id).after == [parent_id]
        calls.append((parent_id, child_id))
    traced.work(until_idle=True)
    assert parent.options.attributes is None
    found = spans.named("enqueue")
    assert [count_of(call) for call in found] == [2, 2]
    assert ids_of(found[0])[0] != ids_of(found[1])[0]
    for call, ids in zip(found, calls, strict=True):
        assert "messaging.destination.name" not in (call.attributes or {})
        for job in ids:
            assert traced.result(job)[1:] == [f"{part:x}" for part in ids_of(call)]


def test_calls_of_coroutines_that_are_written_together_have_a_span_each(
    traced: App, spans: Spans, execute: Execute
) -> None:
    task = declare(traced)
    task.enqueue(n=-1)

    async def one(n: int) -> tuple[str, int]:
        with spans.request(f"request {n}"):
            return f"request {n}", await task.aenqueue(n=n)

    async def all_of_them() -> list[tuple[str, int]]:
        return await asyncio.gather(*[one(n) for n in range(20)])

    jobs = asyncio.run(all_of_them())
    # Some of them met: they are in one range.
    assert len({job // 1024 for _, job in jobs}) < 20
    traced.work(until_idle=True)
    calls = {(call.attributes or {})["messaging.message.id"]: call for call in spans.named("enqueue q")}
    for name, job in jobs:
        call = calls[str(job)]
        assert within(call, spans.only(name))
        assert traced.result(job)[1:] == [f"{part:x}" for part in ids_of(call)]


def test_the_first_call_of_an_app_is_one_span_also_where_a_thread_makes_it(traced: App, spans: Spans) -> None:
    task = declare(traced)
    job = asyncio.run(task.aenqueue(n=1))
    assert (spans.only("enqueue q").attributes or {})["messaging.message.id"] == str(job)


def test_every_way_to_enqueue_from_a_coroutine_continues_its_trace(traced: App, spans: Spans, urls: list[str]) -> None:
    task = declare(traced)

    async def calls() -> list[int]:
        with spans.request():
            ids = [*await task.aenqueue_many([{"n": 1}, {"n": 2}]), *await traced.aenqueue_many([task.job(n=3)])]
            ids.append(await task.options(idempotency_key="once").aenqueue(n=4))
            async with await psycopg.AsyncConnection.connect(urls[0]) as connection:
                ids.append(await task.options(connection=connection).aenqueue(n=5))
            return ids

    ids = asyncio.run(calls())
    request = spans.only("request")
    assert all(within(call, request) for call in spans.named("enqueue q"))
    assert len(spans.named("enqueue q")) == 4
    traced.work(until_idle=True)
    assert {traced.result(job)[1] for job in ids} == {f"{ids_of(request)[0]:x}"}


def test_a_call_in_its_callers_transaction_is_traced(traced: App, spans: Spans, urls: list[str]) -> None:
    task = declare(traced)
    with psycopg.connect(urls[0]) as connection:
        job = task.options(connection=connection).enqueue(n=1)
    traced.work(until_idle=True)
    assert traced.result(job)[1:] == [f"{part:x}" for part in ids_of(spans.only("enqueue q"))]


def test_a_call_that_is_refused_says_so_in_its_span(traced: App, spans: Spans) -> None:
    task = traced.queue("q", max_length=1).task(name="t")(lambda: None)
    while True:
        try:
            task.enqueue()
        except QueueFull:
            break
    refused = spans.named("enqueue q")[-1]
    assert refused.status.status_code == StatusCode.ERROR
    assert (refused.attributes or {})["error.type"] == "penstock.errors.QueueFull"
    assert [event.name for event in refused.events] == ["exception"]


def test_from_sql_a_job_continues_the_trace_that_is_given(traced: App, spans: Spans, execute: Execute) -> None:
    declare(traced)
    traced.migrate()
    rows = execute(
        "select penstock.enqueue('q', 't', traceparent => %s, tracestate => 'vendor=a1', tags => array['x'])", SAMPLED
    )
    traced.work(until_idle=True)
    for (job,) in rows:
        assert traced.job(job).traceparent == SAMPLED
        assert traced.job(job).tags == ["x"]
        assert traced.result(job)[1:] == [f"{part:x}" for part in IDS]
    for run in spans.named("process q"):
        assert linked_to(run) == [IDS]
        assert run.context is not None
        assert run.context.trace_state.to_header() == "vendor=a1"


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_batch_has_a_trace_of_its_own_and_links_to_each_of_its_jobs(
    traced: App, spans: Spans, is_async: bool
) -> None:
    def handle(items: list[dict[str, int]]) -> list[list[str | None]]:
        return [describe_current() for _ in items]

    async def handle_async(items: list[dict[str, int]]) -> list[list[str | None]]:
        return handle(items)

    task = traced.queue("q", partitions=1).task(name="t", batch=10)(handle_async if is_async else handle)
    ids = []
    for n in range(3):
        with spans.request():
            ids.append(task.enqueue(n=n))
    ids += task.enqueue_many([{"n": 3}, {"n": 4}])
    traced.work(until_idle=True)
    run = spans.only("process q")
    # Those of one call are one link.
    calls = spans.named("enqueue q")
    assert len(calls) == 4
    assert sorted(linked_to(run)) == sorted(ids_of(call) for call in calls)
    assert run.parent is None
    assert count_of(run) == 5
    assert "messaging.message.id" not in (run.attributes or {})
    assert {traced.result(job)[1] for job in ids} == {f"{ids_of(run)[0]:x}"}


def test_in_a_process_of_its_own_a_handler_continues_the_trace(traced: App, spans: Spans) -> None:
    queue = traced.queue("q", partitions=1)
    one = queue.task(name="one", executor="process")(spans_module.describe_current)
    many = queue.task(name="many", batch=10, executor="process")(spans_module.describe_for_each)
    job = one.enqueue()
    ids = [many.enqueue(n=n) for n in range(2)]
    traced.work(until_idle=True, concurrency=1)
    trace_id, span_id = ids_of(spans.named("enqueue q")[0])
    assert traced.result(job) == ["process q", f"{trace_id:x}", f"{span_id:x}"]
    for batch in map(traced.result, ids):
        assert (batch[0], batch[2], batch[3]) == ("process q", None, "2")


def test_every_attempt_is_a_span_that_continues_the_same_call(traced: App, spans: Spans) -> None:
    @traced.queue("q", partitions=1).task(backoff=0, max_attempts=4)
    def fails(context: Context) -> None:
        if context.attempt == 1:
            raise ValueError("on purpose")
        if context.attempt == 2:
            raise Retry(after=0)
        raise Discard("enough")

    job = fails.enqueue()
    traced.work(until_idle=True)
    call, runs = spans.only("enqueue q"), spans.named("process q")
    assert all(within(run, call) for run in runs)
    assert [(run.attributes or {})["messaging.penstock.attempt"] for run in runs] == [1, 2, 3]
    assert [run.status.status_code for run in runs] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET]
    assert [(run.attributes or {}).get("error.type") for run in runs] == ["ValueError", None, None]
    assert [(run.attributes or {}).get("messaging.penstock.raised") for run in runs] == [None, "Retry", "Discard"]
    (event,) = runs[0].events
    described = event.attributes or {}
    assert described["exception.message"] == "ValueError: on purpose"
    assert "in fails" in str(described["exception.stacktrace"])
    assert traced.job(job).failures[0].error.startswith("ValueError: on purpose")


class Broken(Exception):
    """It cannot be looked at."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_that_cannot_be_looked_at_ends_its_job_as_it_would_without_traces(
    traced: App, spans: Spans
) -> None:
    @traced.queue("q").task(max_attempts=1)
    def breaks() -> None:
        raise Broken

    job = breaks.enqueue()
    traced.work(until_idle=True)
    assert str(traced.job(job).error).startswith("Broken")
    assert [event.name for event in spans.only("process q").events] == ["exception"]
    assert (spans.only("process q").attributes or {})["error.type"] == f"{Broken.__module__}.Broken"


def test_async_handlers_and_runs_are_each_in_the_trace_of_their_call(traced: App, spans: Spans) -> None:
    queue = traced.queue("q", order="key", run=10, partitions=1)

    @queue.task(name="async", key="key")
    async def handle_async(key: str) -> list[str | None]:
        await asyncio.sleep(0)
        return describe_current()

    @queue.task(name="plain", key="key")
    def handle(key: str) -> list[str | None]:
        return describe_current()

    ids = [task.enqueue(key="one") for task in (handle_async, handle) for _ in range(5)]
    traced.work(until_idle=True, concurrency=4)
    for job, call in zip(ids, spans.named("enqueue q"), strict=True):
        assert traced.result(job) == ["process q", *[f"{part:x}" for part in ids_of(call)]]


def test_what_is_not_sampled_writes_nothing_into_the_job(traced: App, spans: Spans, execute: Execute) -> None:
    task = declare(traced)
    with trace.use_span(UNSAMPLED):
        task.enqueue(n=1)
        task.enqueue_many([{"n": 2}])
        traced.enqueue_many([task.job(n=3)])
        asyncio.run(task.aenqueue(n=4))
    execute("select penstock.enqueue('q', 't', traceparent => %s)", SAMPLED[:-1] + "0")
    assert attributes_of(execute)
    assert not any(attributes_of(execute))
    assert spans.named("enqueue q") == []
    traced.work(until_idle=True)
    # What is run is decided about anew.
    assert all(run.parent is None and not run.links for run in spans.named("process q"))
    assert len(spans.named("process q")) >= 5


def test_a_cron_job_begins_a_trace(traced: App, spans: Spans) -> None:
    task = declare(traced)
    traced.cron("often", "0 3 * * *", task)
    with spans.request():
        traced.run_cron("often")
    traced.work(until_idle=True)
    assert spans.only("process q").parent is None


def test_an_app_that_does_not_trace_stores_nothing_and_opens_no_span(app: App, spans: Spans, execute: Execute) -> None:
    @app.queue("q").task
    def handle(context: Context) -> object:
        return context.trace

    with spans.request():
        job = handle.enqueue()
        handle.enqueue_many([{}])
    app.work(until_idle=True)
    assert app.result(job) is None
    assert not any(attributes_of(execute))
    assert spans.named("enqueue q") == spans.named("process q") == []


def test_a_handler_of_an_app_that_does_not_trace_may_read_what_its_job_carries(
    traced: App, make_app: MakeApp, spans: Spans
) -> None:
    declare(traced).enqueue()
    other = make_app()

    @other.queue("q").task(name="t")
    def handle(context: Context, n: int = 0) -> dict[str, str]:
        assert context.trace is not None
        return context.trace.headers

    other.work(until_idle=True)
    (job,) = other.jobs()
    assert other.result(job.id) == {"traceparent": job.traceparent}
    assert spans.named("process q") == []


@pytest.mark.parametrize("tracing", [False, True])
def test_opentelemetry_is_imported_only_by_an_app_that_traces(tracing: bool) -> None:
    program = f"""
import sys
from penstock import App
import penstock.worker, penstock.client, penstock.admin, penstock.worker.handler_process_main
app = App(tracing={tracing})
task = app.queue("q").task(name="t")(lambda: None)
with app.testing(inline=True):
    task.enqueue()
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tracing}\n"


def test_without_opentelemetry_tracing_is_refused_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "penstock.tracing"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "penstock.app.traced_sender", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(Exception, match=r"pip install 'penstock-queue\[trace\]'"):
        App(tracing=True)
    with pytest.raises(InvalidInput, match="tracing"):
        App(tracing="yes")  # type: ignore[arg-type]


def test_a_users_test_runs_its_jobs_in_the_trace_of_their_call(traced: App, spans: Spans) -> None:
    task = declare(traced)

    @traced.queue("q").task(batch=5)
    def many(context: BatchContext, items: list[dict[str, int]]) -> None:
        assert all(job.trace is not None for job in context.jobs)

    with traced.testing() as testing:
        task.enqueue()
        many.enqueue(n=1)
        testing.drain()
    first, second = spans.named("enqueue q")
    run, batch = spans.named("process q")
    assert within(run, first)
    assert linked_to(batch) == [ids_of(second)]


@pytest.mark.parametrize("options", [{}, {"order": "key"}, {"limit": 1}], ids=["plain", "ordered", "limited"])
def test_jobs_of_a_load_link_to_it_and_have_traces_of_their_own(
    traced: App, urls: list[str], spans: Spans, execute: Execute, options: dict[str, Any]
) -> None:
    declare(traced, **options)
    traced.migrate()
    loader = Loader(traced, "q")
    with traced.sender.trace_load("q") as carried:
        # On two shards one decides, and the other follows.
        stages = loader.stage(1, 2), loader.stage(3, partition=len(urls) - 1)
        loader.publish("load", *stages, trace=carried)
    with spans.request():
        loader.publish("untraced", loader.stage(4))
    load = spans.only("load q")
    assert load.kind == SpanKind.PRODUCER
    # Once, and not in each job.
    kept = execute("select trace from penstock.load where trace is not null")
    assert kept == [(carried,)] * len(urls)
    assert not any(attributes_of(execute))
    traced.work(until_idle=True)
    runs = spans.named("process q")
    assert [linked_to(run) for run in runs].count([ids_of(load)]) == 3
    assert [linked_to(run) for run in runs].count([]) == 1
    assert all(run.parent is None for run in runs)


@pytest.mark.parametrize("failure", [Snooze(0), KeyboardInterrupt()], ids=["snoozed", "interrupted"])
def test_a_span_ends_however_its_handler_ends(traced: App, spans: Spans, failure: BaseException) -> None:
    ended: Callable[[], int] = lambda: len(spans.named("process q"))  # noqa: E731

    @traced.queue("q").task(max_attempts=1)
    def once() -> None:
        if not ended():
            raise failure

    once.enqueue()
    with suppress(KeyboardInterrupt):
        traced.work(until_idle=True)
    first = spans.named("process q")[0]
    assert (first.status.status_code == StatusCode.ERROR) == isinstance(failure, KeyboardInterrupt)
