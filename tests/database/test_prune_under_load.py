"""Pruning at full speed, with no retention and beside transactions that stay open for over a second: every job runs
once, every child hears of its parents, every dead letter can be retried, and no worker ends.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import psycopg
from tests.system.facts import eventually

from penstock import App
from penstock.client.task import Task
from penstock.storage.upkeep.prune import prune
from penstock.storage.upkeep.tables_ahead import rotate_slice

FAMILIES = 80
NONE = {"succeeded": 1e-9, "failed": 99.0, "cancelled": 1e-9, "discarded": 1e-9, "expired": 1e-9}
HELD_SECONDS = 1.2


class Stage:
    """Threads that go on until they are told to stop, and what they raised."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def run(self, act: Callable[[], object]) -> None:
        """Do an act again and again."""
        self.run_once(lambda: [act() for _ in iter(self.stopped.is_set, True)])

    def run_once(self, act: Callable[[], object]) -> None:
        def noting() -> None:
            try:
                act()
            except BaseException as error:
                self.errors.append(error)

        self._threads.append(threading.Thread(target=noting))
        self._threads[-1].start()

    def end(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join()


def declare(app: App, ran: Counter[str]) -> dict[str, Task[..., None]]:
    """The same tasks on a queue with an order, where a place depends on the key, and on a plain one."""

    def note(name: str) -> None:
        ran[name] += 1
        if name.startswith("fails") and ran[name] == 1:
            raise ValueError(name)

    tasks = {}
    for queue, options in (("o", {"order": "key", "partitions": 2}), ("q", {})):
        tasks[queue] = app.queue(queue, **options).task(name="note", max_attempts=1)(note)  # type: ignore[arg-type]
    return tasks


def test_pruning_at_full_speed_loses_and_doubles_nothing(database_url: str) -> None:
    ran: Counter[str] = Counter()
    stage = Stage()
    crew = [App(database_url, lease=600.0, retention=NONE) for _ in range(2)]
    with App(database_url, lease=600.0) as app:
        tasks = declare(app, ran)
        app.migrate()
        database = app.databases.lead

        def let_go() -> None:
            def pass_table(connection: psycopg.Connection[tuple[object, ...]]) -> None:
                # All of one width: those that are made ahead double with each that is passed, and the numbers end.
                connection.execute("select penstock.add_job_table(65536)")
                rotate_slice(connection)
                connection.execute(
                    "select setval('penstock.range_number', high + 1) from penstock.job_table, penstock.range_number"
                    " where last_value >= low and last_value < high"
                )

            database.run(pass_table)
            prune(database, NONE, budget_seconds=5.0)

        def hold_open() -> None:
            with psycopg.connect(database_url) as connection:
                connection.execute("select count(*) from penstock.job_stored")
                stage.stopped.wait(HELD_SECONDS)

        try:
            for each in crew:
                declare(each, ran)
                stage.run_once(lambda each=each: each.work(concurrency=4))  # type: ignore[misc]
            stage.run(let_go)
            stage.run(hold_open)
            names = []
            for n in range(FAMILIES):
                key = f"k{n % 7}"
                # They wait while the table that holds them is kept and goes.
                delay = n % 8 * 0.5
                first = tasks["o"].options(key=key, delay=delay).job(f"first {n}")
                fails = tasks["o"].options(key=key, delay=delay).job(f"fails {n}")
                child = tasks["o"].options(key=key, after=[first, fails], on_parent_failure="run").job(f"child {n}")
                last = tasks["q"].options(after=[child]).job(f"last {n}")
                app.enqueue_many([first, fails, child, last])
                names += [f"{name} {n}" for name in ("first", "fails", "child", "last")]
                stage.stopped.wait(0.1)
            eventually(lambda: stage.errors or len(ran) == len(names), "every job ran")
            eventually(lambda: stage.errors or app.stats("o").dead == FAMILIES, "every dead letter is there")
            assert stage.errors == []
            assert ran == dict.fromkeys(names, 1)
            assert app.retry(queue="o", state="failed") == FAMILIES
            eventually(lambda: stage.errors or sum(ran.values()) == len(names) + FAMILIES, "each ran again")
        finally:
            for each in crew:
                each.stop()
            stage.end()
            for each in crew:
                each.close()
        assert stage.errors == []
        assert ran == {name: 1 + name.startswith("fails") for name in names}
        assert [queue.queue_length + queue.blocked + queue.dead for queue in map(app.stats, ("o", "q"))] == [0, 0]
