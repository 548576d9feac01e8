"""What the dashboard's pages cost with much behind them: 5,000,000 jobs that wait in 100 queues, a load of 100,000,
10,000 halted keys, 100,000 dead letters of 50 causes, 100 schedules; against the same pages of a system in which next
to nothing is, request by request in turns. And what 50 open pages cost the database, while nobody does anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from bench.api_server import serving
from bench.run import Run
from bench.server import Server, connect
from penstock import App
from penstock.model.checks import JOBS_A_CALL

QUESTION = "How long does a page take with millions of jobs behind it, and what do open pages cost?"

QUEUES = 100
CAUSES = 50
KINDS = ("empty", "full")
OPEN_PAGES = 50
LOAD = "november"
# Forms and what is searched for stay as they were opened.
NOT_LIVE = {
    "a queue over a day",
    "rules of a queue",
    "other arguments",
    "retry of a cause, counted",
    "retry of a queue, counted",
    "purge of dead letters, counted",
    "purge of a long queue, counted",
    "deletion of a long queue",
    "a form to enqueue",
    "a form for a queue",
    "a schedule",
    "tokens",
    "the history",
    "a search",
}
WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "grove")


def measure(run: Run) -> None:
    with ExitStack() as opened:
        apps = {kind: opened.enter_context(_filled(run, kind)) for kind in KINDS}
        servers = {kind: opened.enter_context(serving(app.url)) for kind, app in apps.items()}
        for kind, app in apps.items():
            _load(servers[kind], run.size(100_000, 2_000) if kind == "full" else 1)
            opened.enter_context(_worker(app))
        pages = {kind: _pages(app) for kind, app in apps.items()}
        taken: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in pages["full"]}
        for _ in run.repeats():
            for name, by_kind in taken.items():
                for kind, each in _interleaved(servers, {kind: pages[kind][name] for kind in KINDS}, run).items():
                    by_kind[kind].append(each)
        for name, by_kind in taken.items():
            bar = max(3.0, 50.0 / min(by_kind["empty"]))
            run.compare(f"p95 of {name}", "ms", by_kind["full"], "empty", by_kind["empty"], at_most=bar)
        live = [path for name, path in pages["full"].items() if name not in NOT_LIVE]
        _measure_open_pages(run, servers["full"], live)


def _pages(app: App) -> dict[str, str]:
    """Every page, by name, of something that is there."""
    (dead,) = app.jobs(queue="halting", state="failed", limit=1)
    (waiting,) = app.jobs(queue="queue-00", state="ready", limit=1)
    (cause, *_) = app.causes(queue="failing")
    (worker, *_) = app.workers()
    group = f"queue=failing&state=failed&cause={cause.id}"
    return {
        "the overview": "/",
        "a queue": "/queues/queue-00",
        "a queue over a day": "/queues/queue-00?minutes=1440",
        "a queue of halted keys": "/queues/halting",
        "keys of a long queue": "/queues/queue-00/keys",
        "halted keys": "/queues/halting/keys",
        "rules of a queue": "/queues/halting/rules",
        "partitions of a queue": "/queues/halting/partitions",
        "all jobs": "/jobs",
        "dead letters of a queue": "/jobs?queue=failing&state=failed",
        "jobs of a key": f"/jobs?queue=halting&key={quote(str(dead.key))}",
        "jobs of a cause": f"/jobs?{group}",
        "a job that waits": f"/jobs/{waiting.id}",
        "a dead letter": f"/jobs/{dead.id}",
        "other arguments": f"/jobs/{dead.id}/arguments",
        "dead letters by cause": "/dead-letters",
        "retry of a cause, counted": f"/jobs/change?act=retry&{group}",
        "retry of a queue, counted": "/jobs/change?act=retry&queue=failing&state=failed",
        "purge of dead letters, counted": "/queues/failing/purge?state=failed",
        "purge of a long queue, counted": "/queues/queue-00/purge?state=ready",
        "deletion of a long queue": "/queues/queue-00/delete",
        "a form to enqueue": "/queues/queue-00/enqueue",
        "a form for a queue": "/new-queue",
        "schedules": "/schedules",
        "a schedule": "/schedules/nightly-0",
        "workers": "/workers",
        "a worker": f"/workers/{worker.id}",
        "loads": "/loads",
        "a load": f"/loads/{LOAD}",
        "shards": "/shards",
        "tokens": "/tokens",
        "the audit": "/audit",
        "the history": "/history",
        "a search": "/search?q=customer-7",
    }


@contextmanager
def _filled(run: Run, kind: str) -> Iterator[App]:
    is_full = kind == "full"
    waiting = run.size(5_000_000, 50_000) if is_full else QUEUES
    keys = run.size(10_000, 500) if is_full else 1
    letters = run.size(100_000, 2_000) if is_full else 1
    run.say(f"  {kind}: {waiting:,} jobs wait, {keys:,} keys are halted, {letters:,} dead letters")
    with run.server.database() as url, App(url) as app:
        queues = [app.queue(f"queue-{number:02}") for number in range(QUEUES)]
        tasks = [queue.task(name="ship")(_ship) for queue in queues]
        halting = app.queue("halting", partitions=4, order="key", on_dead="halt")
        failing = app.queue("failing")
        halt = halting.task(name="book", key="customer", max_attempts=1)(_book)
        fail = failing.task(name="send", max_attempts=1)(_send)
        app.migrate()
        for number in range(QUEUES if is_full else 1):
            app.cron(f"nightly-{number}", "0 3 * * *", tasks[number], args={"order": 1})
        for number in range(2):
            halt.enqueue_many([{"customer": f"customer-{n}", "is_bad": number == 0} for n in range(keys)])
        for low in range(0, letters, JOBS_A_CALL):
            fail.enqueue_many([{"number": n} for n in range(low, min(low + JOBS_A_CALL, letters))])
        app.work(queues=["halting", "failing"], until_idle=True)
        for number in range(0, waiting, 1_000):
            size = min(1_000, waiting - number)
            if is_full:
                tasks[number // 1_000 % QUEUES].enqueue_many([{"order": n} for n in range(size)])
        if not is_full:
            for task in tasks:
                task.enqueue(order=1)
        with connect(url) as connection:
            connection.execute("vacuum analyze")
        yield app


def _load(server: str, rows: int) -> None:
    """A load whose jobs all wait."""
    body = b"".join(b'{"order": %d}\n' % number for number in range(rows))
    connection = HTTPConnection(urlsplit(server).netloc)
    headers = {"Content-Type": "application/x-ndjson"}
    connection.request("PUT", f"/api/v1/queues/queue-99/loads/{LOAD}?task=ship", body, headers)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


@contextmanager
def _worker(app: App) -> Iterator[None]:
    """A worker of this program, which finds nothing to do."""
    working = threading.Thread(target=app.work, kwargs={"queues": ["halting"], "concurrency": 4})
    working.start()
    while not app.workers():
        time.sleep(0.05)
    try:
        yield
    finally:
        app.stop()
        working.join()


def _ship(order: int) -> None: ...


def _book(customer: str, is_bad: bool) -> None:
    if is_bad:
        raise LookupError(f"customer {customer[9:]} is unknown")


def _send(number: int) -> None:
    kind = number % CAUSES
    word = WORDS[kind % len(WORDS)] + WORDS[kind // len(WORDS)]
    raise ConnectionError(f"{word} refused message {number}")


def _interleaved(servers: dict[str, str], paths: dict[str, str], run: Run) -> dict[str, float]:
    """The 95th percentile of each, in milliseconds."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with ExitStack() as opened:
        connections = {kind: HTTPConnection(urlsplit(url).netloc) for kind, url in servers.items()}
        for connection in connections.values():
            opened.callback(connection.close)
        for number in range(run.size(60, 10)):
            for kind in KINDS if number % 2 else KINDS[::-1]:
                began = time.perf_counter()
                connections[kind].request("GET", paths[kind], headers={"Accept": "text/html"})
                answer = connections[kind].getresponse()
                answer.read()
                times[kind].append(1e3 * (time.perf_counter() - began))
                assert answer.status == 200, (paths[kind], answer.status)
    return {kind: sorted(each)[int(0.95 * (len(each) - 1))] for kind, each in times.items()}


def _measure_open_pages(run: Run, server: str, live: Sequence[str]) -> None:
    """The database's CPU, of a core, while nothing happens: without open pages, and with."""
    seconds = run.size(60, 10)
    for name, paths in (
        (f"{OPEN_PAGES} open overviews", ["/"] * OPEN_PAGES),
        (f"{OPEN_PAGES} open pages of {len(live)} kinds", [live[n % len(live)] for n in range(OPEN_PAGES)]),
    ):
        idle, followed, told = [], [], []
        for _ in run.repeats(most=3):
            idle.append(_share_of_a_core(run.server, seconds))
            with _open(server, paths) as counted:
                followed.append(_share_of_a_core(run.server, seconds))
                told.append(counted() / seconds)
        more = [100 * (after - before) for after, before in zip(followed, idle, strict=True)]
        run.state(f"{name}: the database's CPU, more than without", "% of a core", more, at_most=5)
        run.state(f"{name}: what they are sent", "kB/s", [each / 1e3 for each in told])


@contextmanager
def _open(server: str, paths: list[str]) -> Iterator[Any]:
    """Read so many streams, each in a thread; gives a function that says how many bytes came."""
    connections = [HTTPConnection(urlsplit(server).netloc) for _ in paths]
    counts = [0] * len(paths)

    def read(number: int) -> None:
        connections[number].request("GET", f"/live?page={quote(paths[number], safe='')}")
        answer = connections[number].getresponse()
        assert answer.status == 200, answer.status
        try:
            while chunk := answer.read1(65_536):
                counts[number] += len(chunk)
        except (OSError, ValueError, AttributeError, HTTPException):
            return  # It was closed from here.

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(len(paths))]
    for thread in threads:
        thread.start()
    time.sleep(3)
    try:
        yield lambda: sum(counts)
    finally:
        for connection in connections:
            if connection.sock is not None:
                connection.sock.shutdown(2)
            connection.close()
        for thread in threads:
            thread.join(10)


def _share_of_a_core(server: Server, seconds: float) -> float:
    before, began = server.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    after, took = server.cpu_seconds(), time.perf_counter() - began
    return sum(each - before.get(process, 0.0) for process, each in after.items()) / took
