"""The stage of a fault: worker processes to start and kill, a producer that notes every call, and the end, when the
faults have stopped, everything has drained and the judge speaks.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from tests.fault.crew import Orders, build
from tests.judge.checker import Verdict, judge
from tests.judge.history import Event, Recorder, read_history
from tests.judge.snapshot import Snapshot, read_snapshot

from penstock import App
from penstock.client.options import Options
from penstock.client.pending import PLAIN, prepare
from penstock.embedded import Server
from penstock.errors import PenstockError

__all__ = ["MakeStage", "OwnServer", "Stage", "eventually", "is_stopped", "times"]

ROOT = Path(__file__).parents[2]
# Long enough for any machine; nothing is concluded from how long it took.
PATIENCE_SECONDS = 60.0


def times(in_the_suite: int, at_length: int) -> int:
    """How often a fault is brought about: by `make test`, and by `make fault`."""
    return at_length if os.environ.get("PENSTOCK_FAULT") == "full" else in_the_suite


def eventually(fact: Callable[[], Any], what: str) -> Any:
    """Wait for a fact; its value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
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

    def __init__(self, url: str, folder: Path, *, urls: Sequence[str] = (), **orders: Any) -> None:
        self.url = url
        self.urls = urls or [url]
        self.history = folder / "history.jsonl"
        self.orders = Orders(url=url, history=str(self.history), **orders)
        self.random = random.Random(7)
        self.recorder = Recorder(self.history, "producer")
        self.app: App = build(self.orders)
        self._log = (folder / "workers.log").open("ab")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._labels = 0

    def worker(self, **orders: Any) -> subprocess.Popen[bytes]:
        """Start a worker process with these orders on top."""
        given = msgspec.structs.replace(self.orders, **orders)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.crew", msgspec.json.encode(given).decode()],
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
        )
        self._workers.append(process)
        return process

    def enqueue(
        self, task: str, count: int = 1, app: App | None = None, request_timeout: float | None = None, **args: Any
    ) -> list[int]:
        """Enqueue jobs of a task in one call and note it; their ids."""
        labels = [f"{task}-{self._labels + n}" for n in range(count)]
        self._labels += count
        app = app or self.app
        definition = app.tasks["work"][task]
        with self.recorder.enqueuing(labels, "work") as ids:
            rows = [definition.arguments.encode({"label": label, **args}) for label in labels]
            ids += app.send_rows(definition, Options.checked(request_timeout=request_timeout), rows, None)
        return ids

    def enqueue_steps(self, queue: str, count: int, keys: int, failing: float = 0.1) -> list[int]:
        """Enqueue jobs of random keys, few of them hot, in one call and note it; their ids."""
        labels = [f"{queue}-{self._labels + n}" for n in range(count)]
        self._labels += count
        customers = [f"c{min(int(self.random.paretovariate(0.6)) - 1, keys - 1)}" for _ in labels]
        definition = self.app.tasks[queue]["step"]
        jobs = [
            prepare(definition, {"label": label, "customer": customer, "fails": self.random.random() < failing}, PLAIN)
            for label, customer in zip(labels, customers, strict=True)
        ]
        with self.recorder.enqueuing(labels, keys=[f"{queue}/{customer}" for customer in customers]) as ids:
            ids += self.app.enqueue_many(jobs)
        return ids

    def producing_steps(self, queue: str, keys: int = 12) -> AbstractContextManager[None]:
        """A producer beside the block that enqueues steps, whatever happens."""
        return self._beside(lambda: self.enqueue_steps(queue, self.random.choice([1, 1, 4, 30]), keys), 0.03)

    def enqueue_family(self) -> list[int]:
        """A parent and its child in one call; their ids."""
        self._labels += 2
        labels = [f"parent-{self._labels}", f"child-{self._labels}"]
        with self.recorder.enqueuing(labels) as ids:
            definition = self.app.tasks["work"]["plain"]
            parent = prepare(definition, {"label": labels[0]}, PLAIN)
            child = prepare(definition, {"label": labels[1]}, Options.checked(after=[parent]))
            ids += self.app.enqueue_many([parent, child])
        return ids

    def producing(self, app: App | None = None) -> AbstractContextManager[None]:
        """A producer beside the block: small calls and large ones, one after the other, whatever happens."""
        return self._beside(
            lambda: self.enqueue(self.random.choice(["plain", "lane"]), self.random.choice([1, 1, 3, 120]), app), 0.05
        )

    @contextmanager
    def _beside(self, call: Callable[[], Any], pause_seconds: float) -> Iterator[None]:
        is_over = threading.Event()

        def produce() -> None:
            while not is_over.wait(pause_seconds):
                with suppress(PenstockError):  # What became of the call is noted in the history.
                    call()

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def breathe(self) -> None:
        """Let the others go on for a random moment, so that the next fault meets them anywhere."""
        time.sleep(self.random.random() * 0.1)

    def refusals(self, pid: int) -> int:
        """How often a worker was told that a settle of its came too late."""
        return self._count("settle", "fail", str(pid))

    def settles(self) -> int:
        """How many settles workers were told of."""
        return self._count("settle", "ok")

    def settles_on(self, shard: int) -> int:
        """The same, of jobs of one shard."""
        return sum(
            event.act == "settle" and event.type == "ok" and event.job >> 10 & 1023 == shard
            for event in read_history(self.history)
        )

    def runs(self) -> list[Event]:
        """Every start of a handler."""
        return [event for event in read_history(self.history) if event.act == "run" and event.type == "invoke"]

    def _count(self, act: str, type_: str, actor: str | None = None) -> int:
        return sum(
            event.act == act and event.type == type_ and actor in (None, event.actor)
            for event in read_history(self.history)
        )

    def has_waiting_session(self) -> bool:
        """Whether a session of this database waits for a lock."""
        with psycopg.connect(self.url) as connection:
            waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            return connection.execute(waiting).fetchone() is not None

    def has_lost_its_partitions(self, pid: int) -> bool:
        """Whether a worker was found dead, and every partition has an owner that was not."""
        with psycopg.connect(self.url) as connection:
            alive = connection.execute("select pid from penstock.worker").fetchall()
            unowned = connection.execute(
                "select from penstock.partition as p join penstock.queue as q on q.id = p.queue_id and q.is_owned"
                " where not exists (select from penstock.worker as w where w.id = p.owner_id)"
            ).fetchone()
        return (pid,) not in alive and unowned is None

    def snapshot(self) -> Snapshot:
        return read_snapshot(*self.urls)

    def state(self, job: int) -> str | None:
        return self.snapshot().state_of(job)

    def verdict(self, **rules: Any) -> Verdict:
        """Drain with a worker that nobody harms, end everybody, and judge."""
        if all(process.poll() is not None for process in self._workers) and not self.snapshot().is_drained:
            self.worker()
        eventually(lambda: self.snapshot().is_drained, "every job has ended")
        self.end_workers()
        return judge(read_history(self.history), self.snapshot(), **rules)

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
        for process in self._workers:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.app.close()
        self.recorder.close()
        self._log.close()


MakeStage = Callable[..., Stage]


class OwnServer:
    """A server of the test's own, with a fresh database, that may be killed and has few connections to give."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.url

    def kill(self) -> None:
        """SIGKILL the server; its supervisor starts it again, which recovers from its log."""
        process = int((self._server.home / "data" / "postmaster.pid").read_text().splitlines()[0])
        watched = os.pidfd_open(process)
        os.kill(process, signal.SIGKILL)
        select.select([watched], [], [])
        os.close(watched)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def catches_sigterm(pid: int) -> bool:
    """Whether a process has said what to do on SIGTERM."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
