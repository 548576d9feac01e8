"""G12: every public call against a database that refuses, hangs before it hears, hangs after, or is locked.

The list of calls comes from the public surface: a new one fails here until somebody says how it is called.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.system.conftest import Execute, SpreadApp

from penstock import App, PartitionUnavailable, PenstockError, RequestTimeout, ResultTimeout
from penstock.app import declarations
from penstock.client.task import Bound, Queue, Task

# Of the app, where the call has no timeout of its own; and of the call, in an app that has far more.
APP_SECONDS = 4.0
CALL_SECONDS = 1.0
FAR_SECONDS = 60.0
# A second late is allowed; the rest is for a busy machine, and far from any second helping of a timeout.
LATE_SECONDS = 1.0 + 2.0


@dataclass
class Scene:
    """An app that was used before the trouble began, and something to ask it about."""

    app: App
    queue: Queue
    task: Task[..., Any]
    job: int
    # What the call writes if it writes, for those that enqueue.
    name: str

    @property
    def impatient(self) -> Bound[...]:
        return self.task.options(request_timeout=CALL_SECONDS)


Call = Callable[[Scene], Any]
LATER = datetime.now(UTC) + timedelta(days=1)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


# Calls that have a timeout of their own, in an app whose own is far longer.
IMPATIENT: dict[str, Call] = {
    "Task.enqueue": lambda s: s.impatient.enqueue(name=s.name),
    "Task.enqueue with a key": lambda s: s.task.options(request_timeout=CALL_SECONDS, key="k").enqueue(name=s.name),
    "Task.enqueue once": lambda s: s.task.options(request_timeout=CALL_SECONDS, idempotency_key=s.name).enqueue(
        name=s.name
    ),
    "Task.enqueue after another": lambda s: s.task.options(request_timeout=CALL_SECONDS, after=[s.job]).enqueue(
        name=s.name
    ),
    "Task.enqueue_many": lambda s: s.impatient.enqueue_many([{"name": s.name}] * 150),
    "Task.aenqueue": lambda s: run(s.impatient.aenqueue(name=s.name)),
    "Task.aenqueue_many": lambda s: run(s.impatient.aenqueue_many([{"name": s.name}])),
    "App.enqueue_many": lambda s: s.app.enqueue_many([s.task.job(name=s.name)], request_timeout=CALL_SECONDS),
    "App.aenqueue_many": lambda s: run(s.app.aenqueue_many([s.task.job(name=s.name)], request_timeout=CALL_SECONDS)),
    "App.result": lambda s: s.app.result(s.job, timeout=CALL_SECONDS),
    "App.aresult": lambda s: run(s.app.aresult(s.job, timeout=CALL_SECONDS)),
}
# Calls that have the app's.
QUESTIONS: dict[str, Call] = {
    "App.due": lambda s: s.app.due(),
    "App.adue": lambda s: run(s.app.adue(s.queue)),
    "App.resize_progress": lambda s: s.app.resize_progress(s.queue),
    "App.drain_progress": lambda s: s.app.drain_progress(1),
    "App.crons": lambda s: s.app.crons(),
    "App.acrons": lambda s: run(s.app.acrons()),
    "App.stats": lambda s: s.app.stats(s.queue),
    "App.astats": lambda s: run(s.app.astats(s.queue)),
    "App.queues": lambda s: s.app.queues(),
    "App.aqueues": lambda s: run(s.app.aqueues()),
    "App.causes": lambda s: s.app.causes(),
    "App.acauses": lambda s: run(s.app.acauses(s.queue)),
    "App.failures": lambda s: s.app.failures(s.queue),
    "App.afailures": lambda s: run(s.app.afailures(s.queue)),
    "App.attention": lambda s: s.app.attention(),
    "App.aattention": lambda s: run(s.app.aattention()),
    "App.search": lambda s: s.app.search(str(s.job)),
    "App.asearch": lambda s: run(s.app.asearch("a")),
    "App.worker": lambda s: s.app.worker(1),
    "App.aworker": lambda s: run(s.app.aworker(1)),
    "App.workers": lambda s: s.app.workers(),
    "App.aworkers": lambda s: run(s.app.aworkers()),
    "App.job": lambda s: s.app.job(s.job),
    "App.ajob": lambda s: run(s.app.ajob(s.job)),
    "App.jobs": lambda s: s.app.jobs(queue=s.queue),
    "App.ajobs": lambda s: run(s.app.ajobs(queue=s.queue)),
    "App.explain": lambda s: s.app.explain(s.job),
    "App.aexplain": lambda s: run(s.app.aexplain(s.job)),
    "App.hot_keys": lambda s: s.app.hot_keys(s.queue),
    "App.ahot_keys": lambda s: run(s.app.ahot_keys(s.queue)),
    "App.blocked_keys": lambda s: s.app.blocked_keys(s.queue),
    "App.ablocked_keys": lambda s: run(s.app.ablocked_keys(s.queue)),
    "App.loads": lambda s: s.app.loads(),
    "App.aloads": lambda s: run(s.app.aloads()),
    "App.shards": lambda s: s.app.shards,
    "App.doctor": lambda s: s.app.doctor(),
    "App.overview": lambda s: s.app.overview(),
    "App.job_page": lambda s: s.app.job_page(queue=s.queue),
    "App.ajob_page": lambda s: run(s.app.ajob_page(queue=s.queue)),
    "App.history": lambda s: s.app.history(s.queue),
    "App.histories": lambda s: s.app.histories(),
    "App.ahistories": lambda s: run(s.app.ahistories()),
    "App.ahistory": lambda s: run(s.app.ahistory(s.queue)),
    "App.children": lambda s: s.app.children(s.job),
    "App.tokens": lambda s: s.app.tokens(),
    "App.audit": lambda s: s.app.audit(),
    "App.result without a timeout": lambda s: s.app.result(s.job),
    "App.close": lambda s: s.app.close(),
}
CHANGES: dict[str, Call] = {
    "App.pause_cron": lambda s: s.app.pause_cron("daily"),
    "App.resume_cron": lambda s: s.app.resume_cron("daily"),
    "App.remove_cron": lambda s: s.app.remove_cron("daily"),
    "App.run_cron": lambda s: s.app.run_cron("daily"),
    "App.pause_load": lambda s: s.app.pause_load("none"),
    "App.resume_load": lambda s: s.app.resume_load("none"),
    "App.cancel_load": lambda s: s.app.cancel_load("none"),
    "App.cancel": lambda s: s.app.cancel(s.job),
    "App.cancel by filter": lambda s: s.app.cancel(queue=s.queue),
    "App.retry": lambda s: s.app.retry(s.job),
    "App.retry with other arguments": lambda s: s.app.retry(s.job, args={"name": "x"}),
    "App.aretry": lambda s: run(s.app.aretry(s.job)),
    "App.retry by filter": lambda s: s.app.retry(queue=s.queue),
    "App.cancel_jobs": lambda s: s.app.cancel_jobs([s.job]),
    "App.retry_jobs": lambda s: s.app.retry_jobs([s.job]),
    "App.reschedule": lambda s: s.app.reschedule(s.job, LATER),
    "App.pause": lambda s: s.app.pause(s.queue),
    "App.resume": lambda s: s.app.resume(s.queue),
    "App.purge": lambda s: s.app.purge(s.queue),
    "App.delete_queue": lambda s: s.app.delete_queue(s.queue, force=True),
    "App.limit": lambda s: s.app.limit(s.queue, max_length=1_000),
    "App.set_queue": lambda s: s.app.set_queue(s.name),
    "App.set_cron": lambda s: s.app.set_cron("daily", "0 3 * * *", s.queue, "send"),
    "App.resize": lambda s: s.app.resize(s.queue, partitions=5),
    "App.move_partition": lambda s: s.app.move_partition(s.queue, 0, 2),
    "App.release": lambda s: s.app.release(s.queue, "a"),
    "App.stop_worker": lambda s: s.app.stop_worker(1),
    "App.create_token": lambda s: s.app.create_token(s.name, role="read"),
    "App.revoke_token": lambda s: s.app.revoke_token("none"),
    "App.add_shard": lambda s: s.app.add_shard(s.app.url),
    "App.drain_shard": lambda s: s.app.drain_shard(1),
    "App.enqueue_many with the app's timeout": lambda s: s.app.enqueue_many([s.task.job(name=s.name)]),
    "Task.enqueue with the app's timeout": lambda s: s.task.enqueue(name=s.name),
}
# What waits for no database, or is meant to wait.
EXEMPT = {
    "App.queue", "App.tasks", "App.cron", "App.on", "App.middleware", "App.stop", "App.testing", "App.is_embedded",
    "App.lease_seconds", "App.retention", "App.request_timeout", "App.plain_url", "App.url", "Task.job", "Task.options",
    "Task.name", "Task.queue", "Task.definition",
    # A worker and a migration take as long as they take.
    "App.work", "App.awork", "App.migrate",
    # For the package's other parts.
    "App.database", "App.databases", "App.unchecked_databases", "App.create_embedded", "App.dead_letters",
    "App.ended_jobs", "App.known_jobs", "App.queue_names", "App.shared_duties",
}  # fmt: skip


def test_g12_every_public_call_is_walked_below() -> None:
    public = {f"App.{name}" for name in vars(App) if not name.startswith("_") and name != "imports"}
    public |= {f"Task.{name}" for kind in (Task, Bound) for name in vars(kind) if not name.startswith("_")}
    walked = {name.split(" ")[0] for name in (*IMPATIENT, *QUESTIONS, *CHANGES)}
    assert walked | EXEMPT == public
    assert not walked & EXEMPT


@contextmanager
def locked(urls: list[str]) -> Iterator[None]:
    """Somebody holds every table."""
    with ExitStack() as stack:
        for url in urls:
            connection = stack.enter_context(psycopg.connect(url))
            tables = connection.execute(
                "select string_agg(format('penstock.%I', relname), ', ') from pg_class"
                " where relnamespace = 'penstock'::regnamespace and relkind in ('r', 'p') and not relispartition"
            ).fetchone()
            assert tables is not None
            connection.execute(f"lock table {tables[0]} in access exclusive mode".encode())
        yield


class Trouble:
    """What befalls the database, in each way."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self.proxies = [Proxy(url) for url in urls]

    @contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        if kind == "is locked":
            with locked(self._urls):
                yield
            return
        for proxy in self.proxies:
            {"refuses": proxy.go_down, "hangs before": proxy.stall, "hangs after": proxy.hold_answers}[kind]()
        try:
            yield
        finally:
            for proxy in self.proxies:
                proxy.come_up()
                proxy.flow()


def make_scene(urls: list[str], name: str, seconds: float, *, opened: bool = True) -> Scene:
    app = SpreadApp(urls, request_timeout=seconds)
    queue = app.queue(f"letters {name}")

    @queue.task(name="send")
    def send(name: str) -> None: ...

    app.cron("daily", "0 0 * * *", send, args={"name": "daily"})
    return Scene(app, queue, send, send.enqueue(name=f"first {name}") if opened else 1, f"{name} wrote")


@dataclass
class Ended:
    seconds: float
    error: BaseException | None


def measure(call: Call, scene: Scene) -> Ended:
    started_at = time.monotonic()
    error: BaseException | None = None
    try:
        call(scene)
    except BaseException as raised:
        error = raised
    return Ended(time.monotonic() - started_at, error)


TROUBLES = ["refuses", "hangs before", "hangs after", "is locked"]


@pytest.mark.parametrize("kind", TROUBLES)
def test_g12_no_call_outlasts_its_deadline_and_each_says_what_it_may_have_written(
    kind: str, urls: list[str], execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As some seconds into the trouble: what was known of queues has to be read again.
    monkeypatch.setattr(declarations, "KEPT_SECONDS", 0.0)
    trouble = Trouble(urls)
    through = [proxy.url for proxy in trouble.proxies]
    calls = {**IMPATIENT, **QUESTIONS, **CHANGES}
    if kind == "is locked":
        # It migrates the new shard first, which waits for locks as every migration does.
        del calls["App.add_shard"]
    given = {name: CALL_SECONDS if name in IMPATIENT else APP_SECONDS for name in calls}
    ends: dict[str, Ended] = {}
    scenes: dict[str, Scene] = {}
    names = list(calls)
    for start in range(0, len(names), 14):
        some = names[start : start + 14]
        with ThreadPoolExecutor(len(some)) as threads:
            for name in some:
                scenes[name] = make_scene(through, name, FAR_SECONDS if name in IMPATIENT else APP_SECONDS)
            with trouble(kind):
                running = {name: threads.submit(measure, calls[name], scenes[name]) for name in some}
                ends |= {name: each.result() for name, each in running.items()}
        for name in some:
            scenes[name].app.close()
    for proxy in trouble.proxies:
        proxy.close()
    late = {name: end.seconds for name, end in ends.items() if end.seconds > given[name] + LATE_SECONDS}
    assert not late
    odd = {
        name: repr(end.error)
        for name, end in ends.items()
        if end.error is not None and not isinstance(end.error, PenstockError)
    }
    assert not odd
    written = {name for (name,) in execute("select args->>'name' from penstock.job")}
    for name, end in ends.items():
        if isinstance(end.error, (RequestTimeout, PartitionUnavailable)):
            assert end.error.outcome in ("unknown", "not written")
            if name in QUESTIONS or kind == "refuses":
                assert end.error.outcome == "not written", name
            if scenes[name].name in written:
                assert end.error.outcome == "unknown", name
        elif name in IMPATIENT:
            assert isinstance(end.error, ResultTimeout), (name, end)


@pytest.mark.parametrize("kind", TROUBLES)
def test_g12_nor_does_the_first_call_of_an_app_that_finds_its_database_so(kind: str, urls: list[str]) -> None:
    trouble = Trouble(urls)
    through = [proxy.url for proxy in trouble.proxies]
    calls = {name: IMPATIENT[name] for name in ("Task.enqueue", "Task.aenqueue", "App.result")}
    scenes = {name: make_scene(through, name, FAR_SECONDS, opened=False) for name in calls}
    with trouble(kind), ThreadPoolExecutor(len(calls) + 1) as threads:
        # Another thread is connecting already, and has far more time.
        app = scenes["Task.enqueue"].app
        app._connecting._lock.acquire()
        try:
            running = {name: threads.submit(measure, calls[name], scenes[name]) for name in calls}
            ends = {name: each.result() for name, each in running.items()}
        finally:
            app._connecting._lock.release()
    for scene in scenes.values():
        scene.app.close()
    for proxy in trouble.proxies:
        proxy.close()
    assert not {name: end for name, end in ends.items() if end.seconds > CALL_SECONDS + LATE_SECONDS}
    for name, end in ends.items():
        assert isinstance(end.error, ResultTimeout if name == "App.result" else RequestTimeout), (name, end)
        assert getattr(end.error, "outcome", "not written") == "not written"
