"""Programs that fork: web servers before their workers, multiprocessing, a handler. Nobody has to do anything for it.

Parent and children use one app, each with sessions of its own, whatever threads did when the fork came.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.servers import open_folder
from tests.system.conftest import Execute, Working
from tests.system.forks import Forked

from penstock import App
from penstock.client.task import Task
from penstock.clock import system

SESSIONS = "select count(*) from pg_stat_activity where pid = any(%s)"


def declare(app: App) -> Task[..., Any]:
    @app.queue("letters").task
    def send(name: str) -> None: ...

    return send


def enqueue_some(send: Task[..., Any], name: str, count: int = 30) -> dict[str, int]:
    """Names of jobs, and the ids they were acknowledged with."""
    ids = {f"{name}-{i}": send.enqueue(name=f"{name}-{i}") for i in range(count)}
    many = [f"{name}-many-{i}" for i in range(150)]
    return ids | dict(zip(many, send.enqueue_many([{"name": each} for each in many]), strict=True))


def assert_kept(execute: Execute, acknowledged: dict[str, int]) -> None:
    """Every acknowledged job is there once, under its own id, and no other job is."""
    stored = execute("select args->>'name', id from penstock.job")
    assert len(stored) == len(set(acknowledged.values()))
    assert dict(stored) == acknowledged


def test_g1_g3_children_forked_among_calls_and_their_parent_get_the_ids_of_their_own_jobs(
    app: App, execute: Execute
) -> None:
    send = declare(app)
    acknowledged = enqueue_some(send, "before")
    is_over = threading.Event()

    def keep_calling(name: str) -> dict[str, int]:
        told: dict[str, int] = {}
        while not is_over.is_set():
            told |= {f"{name}-{len(told)}": send.enqueue(name=f"{name}-{len(told)}")}
        return told

    with ThreadPoolExecutor(3) as threads:
        callers = [threads.submit(keep_calling, f"thread-{i}") for i in range(3)]
        try:
            children = []
            for i in range(6):
                children.append(Forked(lambda: enqueue_some(send, f"child-{i}")))  # noqa: B023
                acknowledged |= {f"parent-{i}": send.enqueue(name=f"parent-{i}")}
            for child in children:
                acknowledged |= child.answer()
        finally:
            is_over.set()
        for caller in callers:
            acknowledged |= caller.result()
    acknowledged |= enqueue_some(send, "after")
    assert_kept(execute, acknowledged)


def test_a_fork_in_the_middle_of_a_call_leaves_the_call_its_session(
    app: App, execute: Execute, urls: list[str]
) -> None:
    send = declare(app)
    kept = send.options(idempotency_key="once")
    send.enqueue(name="first")
    with ThreadPoolExecutor(1) as threads, ExitStack() as stack:
        # Somebody is about to write the same key: the call waits for them, with its statement under way.
        others = [stack.enter_context(psycopg.connect(url)) for url in urls]
        for each in others:
            each.execute("lock table penstock.dedup in access exclusive mode")
        call = threads.submit(kept.enqueue, name="second")
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        while not execute(waiting):
            assert not call.done()

        def use_and_leave() -> int:
            job = send.enqueue(name="child")
            assert app.job(job).state == "ready"
            app.close()
            return job

        child = Forked(use_and_leave).answer()
        assert not call.done()
        for each in others:
            each.rollback()
        second = call.result()
    first = next(job_id for name, job_id in execute("select args->>'name', id from penstock.job") if name == "first")
    assert_kept(execute, {"first": first, "second": second, "child": child})


def test_a_lock_that_a_thread_held_when_the_fork_came_is_free_in_the_child(app: App) -> None:
    send = declare(app)
    send.enqueue(name="first")
    held: list[Any] = [app.working._lock, app._connecting._lock, app._declarations._lock]
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: [lock.acquire() for lock in held]).result()

        def use() -> str:
            app.queue("further")
            job_id = send.enqueue(name="child")
            app.stop()
            state = app.job(job_id).state
            app.close()
            return state

        assert Forked(use).answer() == "ready"
        threads.submit(lambda: [lock.release() for lock in held]).result()


def test_a_child_that_is_unwound_through_a_call_of_its_parent_leaves_the_session_alone(app: App) -> None:
    """A signal handler forks amid a call, and its child ends by an exception that passes through that call."""
    database = app.databases.lead
    ends: list[int] = []

    class Over(BaseException):
        pass

    def run() -> None:
        with database.connection() as connection:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                raise Over
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            assert connection.execute("select 1").fetchone() == (1,)

    try:
        run()
    except Over:
        os._exit(7)
    assert ends == [7]


def test_a_child_lets_go_of_its_parents_sessions_so_that_they_end_with_the_parent(
    urls: list[str], execute: Execute
) -> None:
    program = f"""
import os, sys, time
from penstock import App
app = App(shards={urls!r})
app.queue("letters")
app.queues()
with app.databases.lead.connection() as connection:
    session = connection.info.backend_pid
if os.fork():
    print(session, flush=True)
    os.kill(os.getpid(), 9)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        session = int(parent.stdout.readline())
        assert parent.wait() == -signal.SIGKILL
        # The child lives still: it reads what this process has not written yet.
        while any(count for (count,) in execute(SESSIONS, [session])):
            time.sleep(0.02)


def enqueue_in_process(name: str) -> tuple[str, int]:
    return name, PROCESS_TASKS[0].enqueue(name=name)


PROCESS_TASKS: list[Task[..., Any]] = []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_g1_processes_of_multiprocessing_enqueue_with_the_app_of_their_parent(app: App, execute: Execute) -> None:
    send = declare(app)
    acknowledged = enqueue_some(send, "before")
    PROCESS_TASKS[:] = [send]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        acknowledged |= dict(pool.map(enqueue_in_process, [f"job-{i}" for i in range(60)]))
        acknowledged |= enqueue_some(send, "meanwhile")
    assert_kept(execute, acknowledged)


def serve(listener: socket.socket, send: Task[..., Any]) -> None:
    """A worker of a web server: a connection is a request, the id its answer; an empty name ends it."""
    while True:
        client, _ = listener.accept()
        with client:
            name = client.recv(100).decode()
            if name == "end":
                return
            client.sendall(str(send.enqueue(name=name)).encode())


def test_g1_a_server_that_forks_its_workers_and_forks_again_for_those_that_die(app: App, execute: Execute) -> None:
    send = declare(app)
    acknowledged = {"loaded": send.enqueue(name="loaded")}
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def ask(name: str) -> str:
            with socket.create_connection(listener.getsockname()) as client:
                client.sendall(name.encode())
                return client.recv(100).decode()

        def work() -> None:
            serve(listener, send)
            app.close()

        workers = [Forked(work) for _ in range(3)]
        with ThreadPoolExecutor(4) as clients:
            for turn in range(3):
                names = [f"request-{turn}-{i}" for i in range(20)]
                acknowledged |= dict(zip(names, map(int, clients.map(ask, names)), strict=True))
                os.kill(workers[turn].pid, signal.SIGKILL)
                os.waitpid(workers[turn].pid, 0)
                acknowledged |= {f"master-{turn}": send.enqueue(name=f"master-{turn}")}
                workers.append(Forked(work))
        for _ in workers[3:]:
            ask("end")
        for worker in workers[3:]:
            worker.answer()
    assert_kept(execute, acknowledged)


def test_g1_g3_a_handler_forks_while_its_worker_runs(app: App, execute: Execute, working: Working) -> None:
    queue = app.queue("parents")
    send = declare(app)
    told: list[dict[str, int]] = []

    @queue.task
    def fork(name: str) -> None:
        told.append(Forked(lambda: {f"{name}-child": send.enqueue(name=f"{name}-child")}).answer())

    parents = fork.enqueue_many([{"name": f"job-{i}"} for i in range(12)])
    with working(app, queues=["parents"], concurrency=4):
        for parent in parents:
            app.result(parent, timeout=60)
    acknowledged = {name: job_id for each in told for name, job_id in each.items()}
    assert len(acknowledged) == 12
    ends = execute("select args->>'name', id from penstock.job where task = 'send'")
    assert dict(ends) == acknowledged
    assert len(ends) == 12
    assert all(app.job(parent).attempt == 1 for parent in parents)


def test_a_child_of_a_worker_hears_signals_as_the_program_set_them(app: App) -> None:
    """The worker's own handling would only wake a thread that the child has not got."""
    queue = app.queue("parents")
    ends: list[int] = []

    @queue.task
    def fork() -> None:
        ready, told = os.pipe()

        def wait_for_ever() -> None:
            os.write(told, b"!")
            select.select([], [], [])

        child = Forked(wait_for_ever)
        os.read(ready, 1)
        os.kill(child.pid, signal.SIGTERM)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))

    fork.enqueue()
    app.work(until_idle=True)
    assert ends == [-signal.SIGTERM]


def test_an_embedded_server_lives_as_long_as_any_process_of_the_fork() -> None:
    program = """
import os, sys
from penstock import App
app = App()
@app.queue("letters").task
def send(name): ...
send.enqueue(name="parent")
if os.fork():
    os._exit(0)
sys.stdin.readline()
send.enqueue(name="child")
print(len(app.jobs(queue="letters")), flush=True)
"""
    with open_folder() as folder:
        parent = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        assert parent.wait() == 0
        out, _ = parent.communicate("go\n")
        assert out == "2\n"
        # And no longer.
        with (folder / ".penstock" / "supervisor.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def test_programs_that_seed_their_randomness_alike_draw_different_tokens() -> None:
    random.seed(7)
    first = system.random_token(), system.random_unit()
    random.seed(7)
    again = system.random_token(), system.random_unit()
    assert all(one != other for one, other in zip(first, again, strict=True))
