"""G5 over two shards: the jobs of a key start in order, one at a time, while its queue is resized and moved about."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from psycopg import errors
from tests.system.facts import eventually

from penstock import App, Task
from penstock.errors import PartitionUnavailable
from penstock.routing.key_hash import partition_of
from penstock.storage.catalogue.queues import find_queue

KEYS = 64


class Log:
    """What ran of each key, and how many of it ran together at most."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started: dict[str, list[int]] = defaultdict(list)
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.shards: dict[str, set[int]] = defaultdict(set)
        self.count = 0

    def begin(self, key: str, n: int) -> None:
        with self.lock:
            self.started[key].append(n)
            self.running[key] += 1
            self.most[key] = max(self.most[key], self.running[key])

    def end(self, key: str) -> None:
        with self.lock:
            self.running[key] -= 1
            self.count += 1


def make_app(urls: list[str], log: Log) -> tuple[App, Task[..., None]]:
    app = App(shards=urls, lease=60.0, request_timeout=20.0)
    queue = app.queue("o", order="key", partitions=2)

    @queue.task(key="key", backoff=0, max_attempts=5)
    def handle(key: str, n: int) -> None:
        log.begin(key, n)
        try:
            time.sleep(0.004)  # So that every partition has jobs waiting when its keys move.
            if n % 50 == 7 and log.started[key].count(n) == 1:
                raise ValueError(n)  # It keeps its place, and its key waits for it.
        finally:
            log.end(key)

    return app, handle


@contextmanager
def working(app: App) -> Iterator[None]:
    problems: list[BaseException] = []

    def run() -> None:
        try:
            app.work(concurrency=2)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        while thread.is_alive():
            app.stop()
            thread.join(0.2)
    assert not problems, problems


class Producer:
    """Writes the jobs of its keys one after the other: by SQL where its key lives, by the client, many in one call."""

    def __init__(self, app: App, handle: Task[..., None], keys: list[str], log: Log) -> None:
        self._app = app
        self._handle = handle
        self._keys = keys
        self._log = log
        self._connections = {
            database.shard: psycopg.connect(database.url, autocommit=True) for database in app.databases
        }
        self.written: Counter[str] = Counter()
        self.later: list[str] = []

    def write(self, key: str, n: int, **options: str) -> None:
        while True:
            entry = self._app.databases.read(lambda c: find_queue(c, "o"))
            shard = entry.partition_shards[partition_of(key.encode(), entry.partition_count)]
            delay = ", delay => 0.3" if options else ""
            try:
                self._connections[shard].execute(
                    f"select penstock.enqueue('o', 'handle', %s, key => %s{delay})".encode(),
                    [f'{{"key": "{key}", "n": {n}}}', key],
                )
            except (errors.InvalidParameterValue, errors.LockNotAvailable):
                continue  # It moved meanwhile.
            self._log.shards[key].add(shard)
            return

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def run(self, is_over: threading.Event) -> None:
        n = 0
        while not is_over.is_set():
            if n % 3 == 0:
                for key in self._keys:
                    self.write(key, n)
            elif n % 3 == 1:
                for key in self._keys:
                    self._handle.enqueue(key=key, n=n)
            else:
                # Of one call each shard has its part.
                self._handle.enqueue_many([{"key": key, "n": n} for key in self._keys])
            self.written.update(self._keys)
            # One that is ready later, wherever its key lives by then; its key is its own.
            self.write(f"later-{self._keys[0]}-{n}", 0, delay="yes")
            self.later.append(f"later-{self._keys[0]}-{n}")
            n += 1
        self.close()


def test_keys_keep_their_order_while_a_queue_is_resized_and_its_partitions_move(shard_urls: list[str]) -> None:
    log = Log()
    with ExitStack() as opened:
        made = [make_app(shard_urls, log) for _ in range(3)]
        apps = [opened.enter_context(app) for app, _ in made]
        apps[0].migrate()
        keys = [f"k{n}" for n in range(KEYS)]
        producers = [Producer(*made[2], keys[place::4], log) for place in range(4)]
        is_over = threading.Event()
        threads = [threading.Thread(target=each.run, args=(is_over,)) for each in producers]
        with working(apps[0]), working(apps[1]):
            for thread in threads:
                thread.start()
            try:
                acts: list[Callable[[], object]] = [
                    lambda: apps[2].resize("o", partitions=8),
                    lambda: apps[2].move_partition("o", 3, 1),
                    lambda: apps[2].move_partition("o", 0, 2),
                    lambda: apps[2].resize("o", partitions=4),
                    lambda: apps[2].move_partition("o", 0, 1),
                    lambda: apps[2].move_partition("o", 0, 2),
                    lambda: apps[2].move_partition("o", 3, 2),
                ]
                for act in acts:
                    before = log.count
                    eventually(lambda: log.count > before + 150, "jobs have run since the last change")  # noqa: B023
                    try:
                        act()
                    except PartitionUnavailable as error:
                        raise AssertionError("a change was undone though every shard was there") from error
            finally:
                is_over.set()
                for thread in threads:
                    thread.join()
            written = {key: count for each in producers for key, count in each.written.items()}
            later = [key for each in producers for key in each.later]
            total = sum(written.values()) + len(later)
            eventually(lambda: sum(len(set(seen)) for seen in list(log.started.values())) == total, "every job has run")
            eventually(lambda: apps[2].resize("o", partitions=4).is_through, "the old maps are drained")
        carried = sum(apps[2].databases.each(lambda c: len(c.execute("select from penstock.forward").fetchall())))
    firsts = {key: list(dict.fromkeys(log.started[key])) for key in written}
    assert {key: seen for key, seen in firsts.items() if seen != list(range(written[key]))} == {}, "order"
    for key in written:
        # A job that failed once runs again before the next of its key, and nothing else runs twice.
        wanted = [n for n in range(written[key]) for _ in range(2 if n % 50 == 7 else 1)]
        assert log.started[key] == wanted, key
    assert {key: log.started[key] for key in later if log.started[key] != [0]} == {}, "lost or doubled"
    assert set(log.most.values()) == {1}, "overlap"
    assert carried > 0, "jobs were carried"
    assert sum(len(shards) == 2 for shards in log.shards.values()) > KEYS // 4, "keys moved between the shards"


def test_a_worker_takes_up_a_partition_of_a_plain_queue_that_moves_to_another_shard(shard_urls: list[str]) -> None:
    done: list[int] = []
    with App(shards=shard_urls, lease=60.0) as app:
        queue = app.queue("p", partitions=2)

        @queue.task
        def add(n: int) -> None:
            done.append(n)

        app.migrate()

        def write(shard: int, n: int) -> None:
            args = f'{{"n": {n}}}'
            app.databases.of(shard).run(lambda c: c.execute("select penstock.enqueue('p', 'add', %s)", [args]))

        with working(app):
            for n, (to, other) in enumerate([(2, 1), (1, 2), (2, 1)]):
                write(1, 10 * n)
                for partition in (0, 1):
                    app.move_partition("p", partition, to)
                write(to, 10 * n + 1)
                with pytest.raises(errors.InvalidParameterValue, match=f"lives on shard {to}"):
                    write(other, 10 * n + 2)
                eventually(lambda: len(done) == 2 * n + 2, "both have run")  # noqa: B023
                if to == 2:
                    app.move_partition("p", 1, 1)
    assert sorted(done) == [0, 1, 10, 11, 20, 21]


def test_what_is_due_elsewhere_is_work_to_be_done_before_a_worker_is_idle(shard_urls: list[str]) -> None:
    log = Log()
    with make_app(shard_urls, log)[0] as app:
        app.migrate()
        entry = app.databases.read(lambda c: find_queue(c, "o"))
        key = next(key for key in (f"k{n}" for n in range(99)) if partition_of(key.encode(), 2) == 1)
        shard = entry.partition_shards[1]
        args = f'{{"key": "{key}", "n": 0}}'
        app.databases.of(shard).run(
            lambda c: c.execute("select penstock.enqueue('o', 'handle', %s, key => %s, delay => 60)", [args, key])
        )
        app.move_partition("o", 1, 3 - shard)
        app.databases.of(shard).run(lambda c: c.execute("update penstock.scheduled set due_at = now()"))
        assert app.work(until_idle=True).succeeded == 1
    assert log.started == {key: [0]}
