"""`app.work`: stopping, signals, several at once, idleness, order, cancelling, pausing, waiting limits."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from tests.judge.snapshot import read_snapshot
from tests.system import in_processes
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

import penstock
from penstock import App, InvalidInput, NotFound
from penstock.routing.key_hash import shard_of

# A worker process: it says when a handler runs and when a stop was heard, and lets handlers go when a line comes in.
WORKER = """
import os, sys, threading
from penstock import App
from penstock.worker.worker import Worker

stop = Worker.stop
Worker.stop = lambda *args, **named: (stop(*args, **named), os.write(1, b"stopping\\n"))
app = App(shards=sys.argv[1:], lease=2.0)
go = threading.Event()

@app.queue("q", partitions=len(sys.argv) - 1).task
def work(n: int) -> int:
    os.write(1, b"running\\n")
    go.wait(60)
    return n

threading.Thread(target=lambda: (sys.stdin.readline(), go.set()), daemon=True).start()
app.work(concurrency=2)
print("left", flush=True)
"""


@pytest.fixture
def jobs(app: App) -> list[int]:
    @app.queue("q").task
    def work(n: int) -> int:
        return n

    return work.enqueue_many([{"n": n} for n in range(10)])


@pytest.fixture
def process(urls: list[str], jobs: list[int]) -> Iterator[subprocess.Popen[str]]:
    """A worker process with both its handlers running."""
    command = [sys.executable, "-c", WORKER, *urls]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["running\n"] * 2
            yield process
        finally:
            process.kill()


def test_sigterm_lets_handlers_finish_hands_back_the_rest_and_exits_0(
    app: App, urls: list[str], process: subprocess.Popen[str]
) -> None:
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    # What it had claimed and not started is ready for others while its handlers still run.
    eventually(lambda: read_snapshot(*urls).states["ready"] == 8, "the unstarted are handed back")
    out, _ = process.communicate("go\n")
    assert out == "left\n"
    assert process.returncode == 0
    states = read_snapshot(*urls).states
    assert states == {"succeeded": 2, "ready": 8}
    assert app.workers() == []


def test_a_worker_that_is_asked_over_the_database_ends_as_by_sigterm(
    app: App, urls: list[str], process: subprocess.Popen[str]
) -> None:
    assert process.stdout is not None
    (worker,) = app.workers(jobs=5)
    assert (worker.pid, worker.is_stopping, worker.tasks) == (process.pid, False, {"q": ["work"]})
    running = [app.job(job.id) for job in worker.jobs]
    assert [(job.state, job.worker) for job in running] == [("running", worker.name)] * 2
    assert [job.started_at for job in running] == [job.started_at for job in worker.jobs]
    assert {(job.queue, job.task, job.attempt) for job in worker.jobs} == {("q", "work", 1)}
    app.stop_worker(str(worker.id))
    assert app.worker(worker.id).is_stopping
    assert process.stdout.readline() == "stopping\n"
    eventually(lambda: read_snapshot(*urls).states["ready"] == 8, "the unstarted are handed back")
    # Asked again it does not hurry.
    app.stop_worker(worker.id)
    out, _ = process.communicate("go\n")
    assert out.splitlines()[-1] == "left"
    assert process.returncode == 0
    assert read_snapshot(*urls).states == {"succeeded": 2, "ready": 8}
    with pytest.raises(NotFound, match=f"no worker {worker.id}"):
        app.stop_worker(worker.id)


def test_a_worker_tells_how_many_jobs_ended_in_the_last_minute(app: App) -> None:
    queue = app.queue("counted")
    told: list[tuple[int | None, int | None]] = []

    @queue.task(max_attempts=2, backoff=0)
    def fail() -> None:
        raise ValueError("no")

    @queue.task
    def succeed() -> None:
        pass

    @queue.task(priority=9)
    def look() -> None:
        def is_told() -> bool:
            (worker,) = app.workers()
            told.append((worker.ended_last_minute, worker.failed_last_minute))
            return told[-1] == (7, 2)

        eventually(is_told, "the worker tells what ended")

    succeed.enqueue_many([{}] * 5)
    fail.enqueue()
    look.enqueue()
    app.work(queues=["counted"], until_idle=True)
    assert told[-1] == (7, 2)


def test_what_acts_for_workers_is_not_asked_to_stop(app: App, execute: Execute) -> None:
    app.queue("q")
    app.stats("q")
    execute(
        "insert into penstock.worker (id, name, host, pid, version, concurrency, lease_seconds)"
        " values (77, 'server here', 'here', 12, '0', 0, 15)"
    )
    with pytest.raises(InvalidInput, match="acts for others"):
        app.stop_worker(77)
    for bad in ("x", -1, True, "9" * 30, None, 2**63):
        with pytest.raises(InvalidInput, match="worker_id"):
            app.stop_worker(bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="worker_id"):
            app.worker(bad)  # type: ignore[arg-type]


def test_a_second_sigterm_leaves_at_once_and_loses_nothing(
    app: App, urls: list[str], process: subprocess.Popen[str]
) -> None:
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    eventually(lambda: read_snapshot(*urls).states["ready"] == 8, "the unstarted are handed back")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    app.work(until_idle=True)
    assert read_snapshot(*urls).states == {"succeeded": 10}


def test_the_first_ctrl_c_says_what_is_waited_for_and_the_second_does_not_wait(
    app: App, urls: list[str], jobs: list[int]
) -> None:
    command = [sys.executable, "-c", WORKER, *urls]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert [process.stdout.readline() for _ in range(2)] == ["running\n"] * 2
            process.send_signal(signal.SIGINT)
            # Shown though nobody has set up logging.
            said = process.stderr.readline()
            assert "stopping: for up to 30 s the worker waits for 2 handlers: q/work (job " in said
            assert {int(number) for number in re.findall(r"\(job (\d+)\)", said)} <= set(jobs)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
    app.work(until_idle=True)
    assert read_snapshot(*urls).states == {"succeeded": 10}


def test_a_signal_at_the_worst_moment_does_not_lock_the_worker_up(urls: list[str]) -> None:
    program = """
import signal, sys, threading
from penstock import App

from penstock.worker.worker import Worker

# While the main thread holds the lock that stopping needs.
look = Worker._stop_silent
done = []

def worst(worker):
    if not done and threading.current_thread() is threading.main_thread():
        done.append(True)
        signal.raise_signal(signal.SIGTERM)
    look(worker)

Worker._stop_silent = worst
app = App(shards=sys.argv[1:])
app.queue("q").task(print)
app.work()
"""
    ended = subprocess.run([sys.executable, "-c", program, *urls], timeout=30, check=False)
    assert ended.returncode == 0


def test_stop_from_another_thread_ends_every_work_of_the_app(app: App, jobs: list[int]) -> None:
    threads = [threading.Thread(target=app.work) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: app.stats("q").total_completed == 10, "all is done")
    eventually(lambda: len(app.workers()) == 3, "all three are registered")
    app.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert app.workers() == []


def test_a_stop_while_work_is_about_to_begin_is_heard(
    make_app: MakeApp, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(imports=["tasks"])
    # Its modules are imported before it connects.
    monkeypatch.setattr("penstock.app.working.importlib.import_module", lambda _: app.stop())
    app.queue("q").task(name="work")(print)
    thread = threading.Thread(target=app.work)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert app.stats("q").total_completed < 10


def test_work_restores_the_signal_handlers_it_found(app: App, jobs: list[int]) -> None:
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        app.work(until_idle=True)
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_awork_runs_beside_other_coroutines(app: App, jobs: list[int]) -> None:
    async def both() -> int:
        working = asyncio.create_task(app.awork(until_idle=True))
        result = await app.aresult(jobs[-1], timeout=60)
        await working
        return int(result)

    assert asyncio.run(both()) == 9


def test_until_idle_does_what_is_ready_due_or_about_to_be_and_leaves_the_rest(app: App) -> None:
    queue, other = app.queue("q"), app.queue("other")
    runs: list[str] = []

    @queue.task(max_attempts=3, backoff=0)
    def work(context: penstock.Context, name: str) -> None:
        runs.append(name)
        if name == "retry" and context.attempt < 3:
            raise ValueError("on purpose")
        if name == "snooze" and runs.count("snooze") < 3:
            raise penstock.Snooze(for_=0)
        if name == "later":
            raise penstock.Retry(after=3600)

    @other.task
    def elsewhere(name: str) -> None:
        runs.append(name)

    parent = work.enqueue(name="parent")
    child = work.options(after=[parent]).enqueue(name="child")
    work.options(after=[child]).enqueue(name="grandchild")
    for name in ("retry", "snooze", "later"):
        work.enqueue(name=name)
    work.options(run_at=datetime.now(UTC) - timedelta(days=1)).enqueue(name="due")
    scheduled = work.options(delay=3600).enqueue(name="scheduled")
    elsewhere.enqueue(name="paused")
    app.pause("other")
    app.work(until_idle=True)
    assert sorted(runs) == sorted(
        ["parent", "child", "grandchild", "retry", "retry", "retry", "snooze", "snooze", "snooze", "later", "due"]
    )
    assert app.job(scheduled).state == "scheduled"
    app.resume("other")
    app.work(queues=["other"], until_idle=True)
    assert runs[-1] == "paused"


def test_until_idle_leaves_what_it_has_no_handler_for_and_explain_says_so(make_app: MakeApp) -> None:
    producer, worker = make_app(), make_app()

    @producer.queue("q").task
    def unknown() -> None: ...

    @worker.queue("q").task
    def known() -> int:
        return 1

    waiting, done = unknown.enqueue(), known.enqueue()
    worker.work(until_idle=True)
    assert worker.result(done) == 1
    assert worker.job(waiting).state == "ready"
    assert "no worker" in worker.explain(waiting).reason
    producer.work(until_idle=True)
    assert worker.job(waiting).state == "succeeded"


def test_one_worker_with_one_slot_runs_in_enqueue_order_within_a_priority(app: App) -> None:
    runs: list[tuple[int, int]] = []

    @app.queue("q", partitions=1).task
    def work(n: int, priority: int) -> None:
        runs.append((priority, n))

    for n in range(20):
        work.options(priority=n % 3).enqueue(n=n, priority=n % 3)
    app.enqueue_many([work.options(priority=n % 3).job(n=n, priority=n % 3) for n in range(20, 40)])
    for priority in range(3):
        work.options(priority=priority).enqueue_many([{"n": n, "priority": priority} for n in range(40, 200)])
    app.work(concurrency=1, until_idle=True)
    for priority in range(3):
        assert [n for p, n in runs if p == priority] == sorted(n for p, n in runs if p == priority)
    assert [p for p, _ in runs] == sorted(p for p, _ in runs)


def test_a_waiting_job_rises_one_priority_a_minute(app: App, execute: Execute) -> None:
    runs: list[str] = []

    @app.queue("q", partitions=1).task
    def work(name: str) -> None:
        runs.append(name)

    work.options(priority=9).enqueue(name="old and low")
    execute("update penstock.ready set ready_at = now() - interval '6 minutes'")
    work.options(priority=2).enqueue(name="new and high")
    work.options(priority=4).enqueue(name="new and middling")
    app.work(concurrency=1, until_idle=True)
    assert runs == ["new and high", "old and low", "new and middling"]


def test_a_paused_queue_starts_nothing_and_goes_on_when_resumed(app: App, working: Working) -> None:
    runs: list[int] = []

    @app.queue("q").task
    def work(n: int) -> None:
        runs.append(n)

    with working(app):
        work.enqueue(n=0)
        eventually(lambda: runs == [0], "it works")
        app.pause("q")
        job = work.enqueue(n=1)
        assert app.explain(job).reason.startswith("paused")
        app.resume("q")
        eventually(lambda: runs == [0, 1], "it goes on")


def test_a_job_past_max_wait_expires_and_a_retry_never_does(app: App, execute: Execute) -> None:
    runs: list[int] = []

    @app.queue("q", max_wait=60).task(backoff=0)
    def work(context: penstock.Context, n: int) -> None:
        runs.append(n)
        if context.attempt == 1:
            raise penstock.Retry(after=3600)

    old, retried = work.enqueue(n=0), work.enqueue(n=1)
    execute("update penstock.ready set ready_at = now() - interval '2 minutes' where range = %s", old // 1024)
    app.work(until_idle=True)
    assert app.job(old).state == "expired"
    app.retry(retried)
    execute("update penstock.ready set ready_at = now() - interval '2 minutes'")
    app.work(until_idle=True)
    assert app.job(retried).state == "succeeded"
    assert runs == [1, 1]


def test_a_waiting_job_is_cancelled_at_once(app: App) -> None:
    @app.queue("q").task
    def work() -> None:
        raise AssertionError("it was cancelled")

    jobs = [work.enqueue(), work.options(delay=3600).enqueue()]
    jobs.append(work.options(after=[jobs[1]]).enqueue())
    assert [app.cancel(job) for job in jobs] == ["cancelled"] * 3
    app.work(until_idle=True)
    assert [app.job(job).state for job in jobs] == ["cancelled"] * 3


def test_a_running_job_is_asked_to_stop_in_a_thread_and_interrupted_on_the_loop(app: App, working: Working) -> None:
    queue = app.queue("q")

    @queue.task
    def stop_when_told(context: penstock.Context) -> None:
        eventually(lambda: context.is_cancelled, "it is told")
        raise RuntimeError("stopped")

    @queue.task
    def finish_all_the_same(context: penstock.Context) -> str:
        eventually(lambda: context.is_cancelled, "it is told")
        return "done"

    @queue.task
    async def interrupted() -> None:
        await asyncio.sleep(600)

    jobs = [stop_when_told.enqueue(), finish_all_the_same.enqueue(), interrupted.enqueue()]
    with working(app):
        for job in jobs:
            eventually(lambda: app.job(job).state == "running", "it runs")  # noqa: B023
            assert app.cancel(job) == "running"
        ended = ["cancelled", "succeeded", "cancelled"]
        eventually(lambda: [app.job(job).state for job in jobs] == ended, "they ended as they did")


def test_a_running_process_is_ended_when_its_job_is_cancelled(
    app: App, working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    job = in_processes.declare(app)["wait"].enqueue(path=str(tmp_path / "pid"))
    with working(app):
        pid = eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it runs")
        app.cancel(job)
        eventually(lambda: app.job(job).state == "cancelled", "it was cancelled")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_handler_that_overstays_in_its_own_settling_transaction_does_not_stop_the_worker(
    app: App, working: Working, urls: list[str]
) -> None:
    leaves = threading.Event()
    done = threading.Event()

    @app.queue("q").task(timeout=0.05)
    def stay(context: penstock.Context) -> None:
        with psycopg.connect(urls[shard_of(context.job_id) - 1]) as connection:
            context.settle(connection)
            leaves.wait(60)

    @app.queue("q").task
    def other() -> None:
        done.set()

    overstayed = stay.enqueue()
    with working(app):
        eventually(lambda: app.job(overstayed).state == "running", "the handler runs")
        other.enqueue()
        eventually(done.is_set, "the worker runs other jobs")
        leaves.set()
        eventually(lambda: app.job(overstayed).state == "succeeded", "the handler's transaction has settled it")
