"""From one version of the schema to the next while programs of both use it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.system.facts import eventually
from tests.upgrade.successor import LAST_ONE, NEXT_ONE

from penstock import App, SchemaMismatch
from penstock.storage import Connection, Database
from penstock.storage.schema import OURS, Schema, check_schema, migrate, plan, read_state
from penstock.storage.upkeep.prune import detach
from penstock.storage.upkeep.tables_ahead import rotate_slice

ROOT = Path(__file__).parents[2]
# After the tables of the next version, before its functions.
GROWN = replace(OURS, tables=NEXT_ONE.tables)


def migrate_at(url: str, schema: Schema) -> list[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        return migrate(connection, schema)


class Load:
    """Programs of today: enqueues of every kind, a worker, and questions, until told to stop."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: Counter[str] = Counter()
        self.order: dict[str, list[int]] = {}
        self.sent: list[str] = []
        self.errors: list[BaseException] = []
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._numbers = Counter[str]()
        plain = app.queue("plain", partitions=2)
        gated = app.queue("gated", limit=5)
        ordered = app.queue("ordered", order="key", partitions=2)

        @plain.task
        def count(name: str) -> None:
            self.ran[name] += 1

        @gated.task(max_attempts=3, backoff=0.05)
        def fail_first(name: str) -> None:
            self.ran[name] += 1
            if self.ran[name] == 1:
                raise ValueError(name)

        @ordered.task(key="key")
        def note(key: str, n: int, name: str) -> None:
            self.order.setdefault(key, []).append(n)
            self.ran[name] += 1

        self.count, self.fail_first, self.note = count, fail_first, note
        app.queues()

    def start(self) -> None:
        for act in (self._enqueue_plain, self._enqueue_few, self._enqueue_ordered, self._ask, self._enqueue_from_sql):
            self._run(lambda act=act: self._repeat(act))  # type: ignore[misc]
        self._run(self.app.work)

    def _repeat(self, act: Callable[[], object]) -> None:
        while not self._stopped.is_set():
            act()
            # Not faster than the worker: what is sent is to run while the schema changes, not after that.
            while len(self.sent) - len(self.ran) > 400 and not self._stopped.is_set():
                self._stopped.wait(0.01)

    def _run(self, act: Callable[[], object]) -> None:
        def noting() -> None:
            try:
                act()
            except BaseException as error:
                self.errors.append(error)

        self._threads.append(threading.Thread(target=noting))
        self._threads[-1].start()

    def _names(self, kind: str, count: int) -> list[str]:
        first = self._numbers[kind]
        self._numbers[kind] += count
        names = [f"{kind}-{n}" for n in range(first, first + count)]
        self.sent += names
        return names

    def _enqueue_plain(self) -> None:
        self.count.enqueue_many([{"name": name} for name in self._names("plain", 150)])

    def _enqueue_few(self) -> None:
        for name in self._names("gated", 3):
            self.fail_first.enqueue(name=name)
        parent = self.count.enqueue(name=self._names("parent", 1)[0])
        self.count.options(after=[parent], delay=0.01).enqueue(name=self._names("child", 1)[0])

    def _enqueue_ordered(self) -> None:
        names = self._names("ordered", 20)
        first = self._numbers["ordered"] - 20
        keys = [f"key-{n % 4}" for n in range(20)]
        self.note.enqueue_many(
            [{"key": key, "n": first + n, "name": name} for n, (key, name) in enumerate(zip(keys, names, strict=True))]
        )

    def _enqueue_from_sql(self) -> None:
        (name,) = self._names("sql", 1)
        with self.app.databases.of(1).connection() as connection:
            connection.execute(
                "select penstock.enqueue('plain', 'count', jsonb_build_object('name', %s::text))", [name]
            )

    def _ask(self) -> None:
        job = self.count.enqueue(name=self._names("asked", 1)[0])
        assert self.app.job(job).id == job
        self.app.stats("plain")
        list(self.app.jobs(queue="ordered", limit=5))

    def run_further(self) -> None:
        """Until everything that was sent by now, and more of each kind, has run."""
        before = Counter(self._numbers)
        kinds = ("plain", "gated", "ordered", "child", "sql", "asked")
        eventually(lambda: self.errors or all(self.ran[f"{kind}-{before[kind]}"] for kind in kinds), "the load goes on")
        assert self.errors == []

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads[:-1]:
            thread.join()
        self.app.stop()
        self._threads[-1].join()

    def check(self) -> None:
        self.app.work(until_idle=True)
        # What failed in the last moments is due in a moment.
        while self.app.stats("gated").scheduled:
            self.app.work(until_idle=True)
        assert self.errors == []
        assert set(self.sent) - set(self.ran) == set()
        # Once each, those that fail at first twice; and each key in its order.
        assert {name: n for name, n in self.ran.items() if n != 1 + name.startswith("gated")} == {}
        assert [key for key, numbers in self.order.items() if numbers != sorted(numbers)] == []


@contextmanager
def under_load(app: App) -> Iterator[Load]:
    load = Load(app)
    load.start()
    try:
        load.run_further()
        yield load
        load.run_further()
    finally:
        load.stop()
    load.check()


def test_a_database_comes_to_the_next_version_under_load_beside_programs_of_both(database_url: str) -> None:
    with App(database_url) as app, under_load(app) as load:
        # Step by step: any mix of old and new works.
        for count in range(len(OURS.tables), len(NEXT_ONE.tables) + 1):
            migrate_at(database_url, replace(OURS, tables=NEXT_ONE.tables[:count]))
            load.run_further()
        newer = subprocess.run(
            [sys.executable, "-m", "tests.upgrade.successor", database_url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert newer.returncode == 0, newer.stderr
        load.run_further()
        # The program of before does not put its own functions back.
        assert app.migrate() == []
        with app.databases.of(1).connection() as connection:
            assert read_state(connection).functions is not None
            check_schema(connection, NEXT_ONE)
            # Those that were there are as they would be in a database made anew.
            grown = connection.execute("select min(grown), max(grown) from penstock.finished_job").fetchone()
            assert grown == (7, 7)


def history(connection: Connection) -> set[int]:
    rows = connection.execute("select id from penstock.history_between(0, 9007199254740991, null, '{}', '{}')")
    return {job for (job,) in rows}


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_slice_that_was_taken_out_of_history_is_read_before_between_and_after(
    database: Database, is_interrupted: bool
) -> None:
    with App(database.url) as app:
        task = app.queue("q").task(name="t")(lambda: None)
        done = set(task.enqueue_many([{}] * 5))
        app.work(until_idle=True)
        with database.connect() as connection:
            rotate_slice(connection)
            connection.execute("update penstock.slice set taken_at = now() where number = 1")
            with database.connect() as reader, reader.transaction():
                if is_interrupted:
                    reader.execute("select from penstock.finished")
                    connection.execute("set lock_timeout = '100ms'")
                assert detach(database, connection, "finished", "finished_1", "attached") is not is_interrupted
            connection.execute("set lock_timeout = 0")
            # A child on another shard waits for one of them.
            connection.execute("insert into penstock.awaited (parent_id, shard) values (%s, 2)", [min(done)])
            for schema in (GROWN, NEXT_ONE):
                assert history(connection) == done
                low, high = min(done) // 1024, max(done) // 1024 + 1
                assert {job for (job,) in connection.execute("select penstock.wanted(%s, %s)", [low, high])} >= done
                assert connection.execute("select penstock.outcome_apart(%s)", [min(done)]).fetchone() == (0,)
                assert migrate(connection, schema)
            assert history(connection) == done
            assert connection.execute("select penstock.keep_parents(1)").fetchone() == (1,)
            assert history(connection) == done


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_shards_of_two_versions_work_together(shard_urls: list[str], order: tuple[int, int]) -> None:
    ran: Counter[int] = Counter()
    sent = 0
    with App(shards=shard_urls) as app:
        ordered = app.queue("ordered", order="key", partitions=2)

        @ordered.task(key="key")
        def note(key: int, n: int) -> None:
            ran[n] += 1

        def further(step: int) -> None:
            nonlocal sent
            note.enqueue_many([{"key": n % 7, "n": sent + n} for n in range(40)])
            sent += 40
            # Catalogue, keys and jobs go from one shard to the other.
            app.move_partition("ordered", 0, shard=1 + (step + 1) % 2)
            app.queue(f"made at {step}", partitions=2)
            app.queues()
            note.options(delay=0.01).enqueue(key=step, n=sent)
            sent += 1

            def is_done() -> bool:
                app.work(until_idle=True)
                return sum(ran.values()) >= sent

            eventually(is_done, "all of it runs, wherever it was sent")
            assert ran == Counter(range(sent))

        further(0)
        migrate_at(shard_urls[order[0]], GROWN)
        further(1)
        migrate_at(shard_urls[order[0]], NEXT_ONE)
        further(2)
        migrate_at(shard_urls[order[1]], NEXT_ONE)
        further(3)


def test_a_worker_that_has_become_too_old_ends_what_it_runs_and_says_why(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    with App(database_url, lease=60.0) as app:

        @app.queue("q").task
        def work() -> None:
            begun.set()
            may_end.wait()

        job, waiting = work.enqueue(), work.enqueue()

        def run() -> None:
            try:
                app.work(concurrency=1)
            except BaseException as error:
                raised.append(error)

        worker = threading.Thread(target=run)
        worker.start()
        assert begun.wait(60)
        migrate_at(database_url, NEXT_ONE)
        migrate_at(database_url, replace(LAST_ONE, functions=NEXT_ONE.functions))
        eventually(lambda: "upgrade penstock" in caplog.text, "it hears of it with a renewal")
        assert raised == []
        may_end.set()
        worker.join()
        (error,) = raised
        assert isinstance(error, SchemaMismatch)
        assert "for programs of version 2 or later, and this one has version 1: upgrade penstock" in str(error)
        assert (app.job(job).state, app.job(waiting).state) == ("succeeded", "ready")
    with App(database_url) as app, pytest.raises(SchemaMismatch, match="upgrade penstock"):
        app.queues()


def test_a_program_that_names_what_is_gone_is_told_so_in_a_sentence(database_url: str) -> None:
    with App(database_url) as app:
        task = app.queue("q").task(name="t")(lambda: None)
        job = task.enqueue()
        migrate_at(database_url, LAST_ONE)
        with pytest.raises(
            SchemaMismatch, match=r"load_of.* does not exist.*; call app.migrate\(\), or run `penstock migrate`, with"
        ):
            app.job(job)
        with app.databases.of(1).connect() as connection:
            connection.execute("alter table penstock.queue rename column weights to shares")
        with pytest.raises(SchemaMismatch, match="weights"):
            app.stats("q")


def test_each_step_of_the_next_version_is_told_before_it_is_done(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        steps = [step.name for step in plan(read_state(connection), NEXT_ONE)]
        assert steps == ["9010 grown", "9011 grown_too", "functions 2"]
        assert migrate(connection, NEXT_ONE) == steps
