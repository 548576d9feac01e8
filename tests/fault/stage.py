"""The stage of a fault: worker processes to start and kill, a producer that notes every call, and the end, when the
faults have stopped, everything has drained and the judge speaks.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
from tests.fault.crew import Orders, build
from tests.fault.own_server import OwnServer, catches_sigterm, is_stopped
from tests.fault.spawner import Spawner, WorkerProcess
from tests.fault.tally import came_to
from tests.judge.checker import Verdict, judge
from tests.judge.history import Event, Reader, Recorder, read_history
from tests.judge.snapshot import Snapshot, has_open_jobs, read_snapshot

from penstock import App
from penstock.client.options import Options
from penstock.client.pending import PLAIN, PendingRows, prepare
from penstock.errors import PenstockError

__all__ = ["ROOT", "MakeStage", "OwnServer", "Stage", "batched", "eventually", "is_long_run", "is_stopped", "times"]

T = TypeVar("T")
ROOT = Path(__file__).parents[2]

# Long enough for any machine; nothing is concluded from how long it took.
PATIENCE_SECONDS = 300.0
MOST_OPEN_JOBS = 1_000


def times(in_the_suite: int, in_a_round: int) -> int:
    """How often a fault is brought about: by `make test`, and by one round of `make fault`."""
    return in_a_round if is_long_run() else in_the_suite


def is_long_run() -> bool:
    """Whether it is `make fault` that runs."""
    return os.environ.get("PENSTOCK_FAULT") == "full"


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, so many at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


@cache
def spawner() -> Spawner:
    """Of this process, for all of its stages."""
    spawner = Spawner()
    atexit.register(spawner.close)
    return spawner


def eventually(fact: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait for a fact; its value."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := fact():
                return value
        except psycopg.OperationalError:
            pass  # The server may be what is being killed.
        if time.monotonic() > deadline:
            raise AssertionError(f"it never came to this: {what}")
        time.sleep(0.02)


class Stage:
    """One database, its history, and everybody who acts on it.

    Over several shards `url` is the first, and `urls` are all, past whatever stands before them.
    """

    def __init__(self, url: str, folder: Path, *, urls: Sequence[str] = (), seed: int = 7, **orders: Any) -> None:
        self.url = url
        self.urls = urls or [url]
        self.history = folder / "history.jsonl"
        self.orders = Orders(url=url, history=str(self.history), **orders)
        # One for who brings faults about and one for who produces beside it: each repeats itself.
        self.random = random.Random(seed)
        self._calls = random.Random(seed + 1)
        self.recorder = Recorder(self.history, "producer")
        self.app: App = build(self.orders)
        self._reader = Reader(self.history)
        self._log = folder / "workers.log"
        self._log.touch()
        self._workers: list[WorkerProcess] = []
        self._labels = 0
        self._label_prefix = ""
        self._loads = True
        self._is_closed = False
        self._label_lock = threading.Lock()

    def worker(self, **orders: Any) -> WorkerProcess:
        """Start a worker process with these orders on top."""
        if len(self.urls) > 1:
            self.app.databases  # noqa: B018  (new databases become shards of one system by one program, not by two at once)
        process = spawner().start(msgspec.structs.replace(self.orders, **orders), self._log)
        self._workers.append(process)
        return process

    def stop(self, worker: WorkerProcess) -> None:
        """Stop a worker by a signal and wait until it stands."""
        worker.send_signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(worker.pid), "the worker is stopped")
        self.note_stopped(worker)

    def note_stopped(self, worker: WorkerProcess) -> None:
        self.recorder.note("stop", "ok", label=str(worker.pid))

    def continue_as_child(self) -> None:
        """In a forked child: be an actor of its own, with the app of the parent."""
        name = f"producer-{os.getpid()}"
        self.recorder = Recorder(self.history, name)
        self._calls = random.Random(name)
        self._label_lock = threading.Lock()
        self._label_prefix = f"{name}-"
        self._loads = False  # Nobody promises that Arrow's threads live through a fork.

    def _new_labels(self, prefix: str, count: int) -> list[str]:
        with self._label_lock:
            first, self._labels = self._labels, self._labels + count
        return [f"{prefix}-{self._label_prefix}{first + n}" for n in range(count)]

    def enqueue(
        self, task: str, count: int = 1, app: App | None = None, request_timeout: float | None = None, **args: Any
    ) -> list[int]:
        """Enqueue jobs of a task in one call and note it; their ids."""
        labels = self._new_labels(task, count)
        app = app or self.app
        definition = app.tasks["work"][task]
        with self.recorder.enqueuing(labels, "work") as ids:
            rows = [definition.arguments.encode({"label": label, **args}) for label in labels]
            options = Options.checked(request_timeout=request_timeout)
            ids += app.sender.send_rows(PendingRows(definition, options, rows))
        return ids

    def enqueue_steps(
        self, queue: str, count: int, keys: int, failing: float = 0.1, app: App | None = None
    ) -> list[int]:
        """Enqueue jobs of random keys, few of them hot, in one call and note it; their ids."""
        labels = self._new_labels(queue, count)
        customers = [f"c{min(int(self._calls.paretovariate(0.6)) - 1, keys - 1)}" for _ in labels]
        app = app or self.app
        definition = app.tasks[queue]["step"]
        jobs = [
            prepare(definition, {"label": label, "customer": customer, "fails": self._calls.random() < failing}, PLAIN)
            for label, customer in zip(labels, customers, strict=True)
        ]
        with self.recorder.enqueuing(labels, keys=[f"{queue}/{customer}" for customer in customers]) as ids:
            ids += app.enqueue_many(jobs)
        return ids

    def enqueue_from_threads(self, count: int) -> None:
        """So many calls of one or two jobs at the same time, which meet."""
        queues = ["ordered"] if self.orders.ordered else []

        def call(number: int) -> None:
            match (["plain", "lane", *queues] * count)[number]:
                case "ordered":
                    self.enqueue_steps("ordered", 1, keys=12)
                case task:
                    self.enqueue(task, 1 + number % 2)

        with ThreadPoolExecutor(count) as threads:
            calls = [threads.submit(call, number) for number in range(count)]
        for each in calls:
            each.result()

    def enqueue_from_tasks(self, count: int) -> None:
        """So many tasks of one event loop that enqueue a job each."""
        definition = self.app.tasks["work"]["plain"]

        async def call(label: str) -> None:
            with self.recorder.enqueuing([label], "work") as ids:
                args = definition.arguments.encode({"label": label})
                ids.append(await self.app.sender.send_from_loop(PendingRows(definition, PLAIN, [args])))

        async def call_all() -> list[BaseException | None]:
            calls = (call(label) for label in self._new_labels("plain", count))
            return await asyncio.gather(*calls, return_exceptions=True)

        for problem in asyncio.run(call_all()):
            if problem is not None:
                raise problem

    def enqueue_family(self, app: App | None = None) -> list[int]:
        """A parent and its child in one call; their ids."""
        labels = self._new_labels("family", 2)
        app = app or self.app
        with self.recorder.enqueuing(labels) as ids:
            definition = app.tasks["work"]["plain"]
            parent = prepare(definition, {"label": labels[0]}, PLAIN)
            child = prepare(definition, {"label": labels[1]}, Options.checked(after=[parent]))
            ids += app.enqueue_many([parent, child])
        return ids

    def enqueue_broken_family(self) -> list[int]:
        """A parent that becomes a dead letter, a child and a grandchild in one call; their ids."""
        labels = self._new_labels("family", 3)
        tasks = self.app.tasks["work"]
        with self.recorder.enqueuing(labels) as ids:
            parent = prepare(tasks["fail_first"], {"label": labels[0]}, PLAIN)
            child = prepare(tasks["plain"], {"label": labels[1]}, Options.checked(after=[parent]))
            grandchild = prepare(tasks["plain"], {"label": labels[2]}, Options.checked(after=[child]))
            ids += self.app.enqueue_many([parent, child, grandchild])
        return ids

    def load(self, count: int) -> None:
        """Load jobs as Spark's tasks and driver do; a driver that was answered commits again now and then."""
        labels = self._new_labels("load", count)
        name = labels[0]
        with self.recorder.enqueuing(labels) as ids:
            from tests.fault.load_driver import LoadDriver  # Not everybody who has a stage needs Spark's library.

            driver = LoadDriver(self.url, name, labels)
            driver.run()
            ids += [0] * count
        if self._calls.random() < 0.3:
            driver.run()
            came_to({"a load committed twice": 1})

    def enqueue_something(self) -> None:
        """One call of any kind that the stage's queues take."""
        kinds = ["plain", "plain", "lane", "family", "threads", "tasks", *(["load"] if self._loads else [])]
        kinds += ["ordered"] * 3 if self.orders.ordered else []
        kinds += ["limited"] * 2 if self.orders.limit else []
        kinds += ["total", "total-ordered"] * 2 if self.orders.total else []
        match self._calls.choice(kinds):
            case "family":
                self.enqueue_family()
            case "threads":
                self.enqueue_from_threads(12)
            case "tasks":
                self.enqueue_from_tasks(30)
            case "load":
                self.load(self._calls.choice([3, 40]))
            case "ordered" | "limited" | "total" | "total-ordered" as queue:
                self.enqueue_steps(queue, self._calls.choice([1, 1, 4, 30]), keys=12)
            case task:
                self.enqueue(task, self._calls.choice([1, 1, 3, 120]))

    def producing_anything(self) -> AbstractContextManager[None]:
        """A producer beside the block: calls of every kind, one after the other, whatever happens."""
        return self._beside(self.enqueue_something, 0.05)

    def producing_steps(self, queue: str, keys: int = 12) -> AbstractContextManager[None]:
        """A producer beside the block that enqueues steps, whatever happens."""
        return self._beside(lambda: self.enqueue_steps(queue, self._calls.choice([1, 1, 4, 30]), keys), 0.03)

    def producing(self, app: App | None = None) -> AbstractContextManager[None]:
        """A producer beside the block: small calls and large ones, one after the other, whatever happens."""
        return self._beside(
            lambda: self.enqueue(self._calls.choice(["plain", "lane"]), self._calls.choice([1, 1, 3, 120]), app), 0.05
        )

    @contextmanager
    def _beside(self, call: Callable[[], Any], pause_seconds: float) -> Iterator[None]:
        is_over = threading.Event()

        def produce() -> None:
            while not is_over.wait(pause_seconds):
                # Faults may hold the workers up for long; what waits then has to be done before the judge can speak.
                if self.open_jobs() < MOST_OPEN_JOBS:
                    with suppress(PenstockError):  # What became of the call is noted in the history.
                        call()

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def open_jobs(self) -> int:
        """How many jobs wait or run, as far as anybody answers."""
        found = 0
        for url in self.urls:
            # A role's timeouts, which are the driver's InternalError, end this session as any other.
            with suppress(psycopg.Error), psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
                (row,) = connection.execute("select coalesce(sum(opened), 0) from penstock.depth").fetchall()
                found += int(row[0])
        return found

    def breathe(self) -> None:
        """Let the others go on for a random moment, so that the next fault meets them anywhere."""
        time.sleep(self.random.random() * 0.1)

    def change_total(self, queue: str, total: int) -> None:
        """Let so many run in all of a queue, and wait until no more are allotted."""
        self.recorder.note("limit", "invoke", group=queue, attempt=total)
        self.app.limit(queue, total_limit=total)
        eventually(lambda: self.allotted(queue) <= total, "no more are allotted than by the new limit")
        self.recorder.note("limit", "ok", group=queue, attempt=total)

    def allotted(self, queue: str) -> int:
        """How many may run in a queue at most, by the ledger of the shard that leads."""
        with psycopg.connect(self.urls[0], autocommit=True) as connection:
            (row,) = connection.execute(
                "select coalesce(sum(greatest(l.held, l.permits)), 0)::int from penstock.permit_ledger as l"
                " join penstock.queue as q on q.id = l.queue_id where q.name = %s",
                [queue],
            ).fetchall()
        return int(row[0])

    def refusals(self, pid: int) -> int:
        """How often a worker was told that a settle of its came too late."""
        return self._reader.count("settle", "fail", str(pid))

    def settles(self) -> int:
        """How many settles workers were told of."""
        return self._reader.count("settle", "ok")

    def refused_calls(self) -> int:
        """How many jobs a producer was told of that they were not taken, or that nobody knows."""
        return self._reader.count("enqueue", "fail") + self._reader.count("enqueue", "unknown")

    def settles_on(self, shard: int) -> int:
        """The same, of jobs of one shard."""
        return sum(
            event.act == "settle" and event.type == "ok" and event.job >> 10 & 1023 == shard
            for event in self._reader.events()
        )

    def runs(self) -> list[Event]:
        """Every start of a handler."""
        return [event for event in self._reader.events() if event.act == "run" and event.type == "invoke"]

    def ends(self) -> list[Event]:
        """Every return of a handler."""
        return [event for event in self._reader.events() if event.act == "run" and event.type == "ok"]

    def is_at_work(self, worker: WorkerProcess) -> bool:
        """Whether a worker has started a handler."""
        return self._reader.count("run", "invoke", str(worker.pid)) > 0

    def has_waiting_session(self) -> bool:
        """Whether a session of this database waits for a lock."""
        with psycopg.connect(self.url) as connection:
            waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            return connection.execute(waiting).fetchone() is not None

    def has_lost_its_partitions(self, pid: int) -> bool:
        """Whether a worker was found dead, and every partition has an owner that was not."""
        return all(_has_lost_its_partitions(url, pid) for url in self.urls)

    def snapshot(self) -> Snapshot:
        return read_snapshot(*self.urls)

    def state(self, job: int) -> str | None:
        return self.snapshot().state_of(job)

    def is_drained(self, *, forgets: bool = False) -> bool:
        """Whether every job has ended; `forgets`: there may be jobs whose ends were pruned."""
        return not any(has_open_jobs(url) for url in self.urls) and (forgets or self.snapshot().is_drained)

    def verdict(self, *, forgets: bool = False) -> Verdict:
        """Drain with a worker that nobody harms, end everybody, and judge; `forgets`: jobs were pruned meanwhile."""
        if all(process.poll() is not None for process in self._workers) and not self.is_drained(forgets=forgets):
            self.worker()
        eventually(lambda: self.is_drained(forgets=forgets), "every job has ended")
        self.end_workers()
        verdict = judge(
            read_history(self.history),
            self.snapshot(),
            per_key=dict.fromkeys(
                (["ordered"] if self.orders.ordered else [])
                + (["total-ordered"] if self.orders.total else [])
                + (["paced-ordered"] if self.orders.total_rate else []),
                1,
            ),
            limits=({"limited": self.orders.limit} if self.orders.limit else {})
            | dict.fromkeys(("total", "total-ordered") if self.orders.total else (), self.orders.total),
            batched=("ordered", "limited") if self.orders.batch else (),
            in_runs=("ordered",) if self.orders.run > 1 else (),
            forgets=forgets,
        )
        came_to(verdict.sometimes)
        return verdict

    def end_workers(self) -> None:
        """Stop gently whoever is left; each must leave with code 0 or have been killed before."""
        left = [process for process in self._workers if process.poll() is None]
        for process in left:
            process.send_signal(signal.SIGCONT)
            # One that has only just been started is ended by the signal like any program.
            eventually(lambda: process.poll() is not None or catches_sigterm(process.pid), "the worker has begun")  # noqa: B023
            process.send_signal(signal.SIGTERM)
        for process in left:
            code = process.wait(PATIENCE_SECONDS)
            assert code == 0, f"a worker did not leave in order: {code}"

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for process in self._workers:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.app.close()
        self.recorder.close()


MakeStage = Callable[..., Stage]


def _has_lost_its_partitions(url: str, pid: int) -> bool:
    with psycopg.connect(url) as connection:
        alive = connection.execute("select pid from penstock.worker").fetchall()
        unowned = connection.execute(
            "select from penstock.partition as p join penstock.queue as q on q.id = p.queue_id and q.is_owned"
            " join penstock.catalogue as c on c.number = p.shard"
            " where not exists (select from penstock.worker as w where w.id = p.owner_id)"
        ).fetchone()
    return (pid,) not in alive and unowned is None
