"""Two sessions, step by step, in every order.

A session is a list of steps, each a statement of the engine on the session's own connection; the last commits. For
each order of the steps the scene is set anew and the steps are run in that order. A step that waits for the other
session's lock is left waiting, and the other session goes on until it is free: so every order is run that the locks
allow. Nothing sleeps: a step has ended, or the server says whom it waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from queue import SimpleQueue
from typing import Any

import psycopg
from psycopg import sql
from tests.database.conftest import Scene

from penstock.storage import Connection, Database

__all__ = ["GATE", "Actor", "Played", "Step", "clear", "gate", "lasting_scene", "orders", "play", "transaction"]

Step = Callable[[Connection], Any]


_TABLES = (
    *("ready", "lease", "scheduled", "blocked", "dependency", "dead", "failure", "finished", "dedup", "cancellation"),
    *("tally", "total", "job", "job_kept", "worker", "cause", "cause_tally", "cause_period"),
)


@contextmanager
def lasting_scene(server_url: str, template: str, name: str) -> Iterator[Scene]:
    """A scene for many tests, each of which clears it: far cheaper than a database for each order."""
    start, _, _ = server_url.rpartition("/")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    database = Database(f"{start}/{name}")
    try:
        with ExitStack() as opened:

            def connect() -> Connection:
                return opened.enter_context(database.connect())

            yield Scene(database, connect(), connect)
    finally:
        database.close()
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def clear(scene: Scene) -> None:
    """Empty the tables, and let a new worker live."""
    for table in _TABLES:
        scene.connection.execute(sql.SQL("delete from penstock.{}").format(sql.Identifier(table)))
    scene.connection.execute("update penstock.queue set rules = rules - 'max_wait'")
    scene.connection.execute("update penstock.job_table set is_detached = false")
    scene.worker = scene.register()


class Actor:
    """A session: a connection and a thread that runs one step at a time on it."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.results: list[Any] = []
        self._steps: SimpleQueue[Step | None] = SimpleQueue()
        self._done = threading.Event()
        self._done.set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, step: Step) -> None:
        """Begin a step; the one before has ended."""
        self._done.clear()
        self._steps.put(step)

    def has_ended(self, watcher: Connection) -> bool:
        """Wait until the step has ended (True) or waits for somebody's lock (False)."""
        while not self._done.wait(0.002):
            row = watcher.execute(
                "select cardinality(pg_blocking_pids(%s)) > 0", [self.connection.info.backend_pid]
            ).fetchone()
            if row is not None and row[0] and not self._done.is_set():
                return False
        return True

    @property
    def is_busy(self) -> bool:
        return not self._done.is_set()

    def close(self) -> None:
        self._steps.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            try:
                self.results.append(step(self.connection))
            except psycopg.Error as error:
                self.results.append(error)
            self._done.set()


@dataclass(slots=True)
class Played:
    """One order as it went: which session made each step, which waited, and what the steps gave."""

    order: str
    waited: list[str] = field(default_factory=list)
    a: list[Any] = field(default_factory=list)
    b: list[Any] = field(default_factory=list)


def orders(n_a: int, n_b: int) -> Iterator[str]:
    """Every order of n_a steps of A and n_b of B, as text: AABB, ABAB, ..."""
    for places in combinations(range(n_a + n_b), n_a):
        yield "".join("A" if place in places else "B" for place in range(n_a + n_b))


def transaction(*steps: Step) -> list[Step]:
    """Steps of one transaction; it begins with the first, and its commit is a step of its own."""

    def first(connection: Connection) -> Any:
        connection.execute("begin")
        return steps[0](connection)

    return [first, *steps[1:], _commit]


def play(
    order: str,
    steps_a: Sequence[Step],
    steps_b: Sequence[Step],
    connections: tuple[Connection, Connection],
    watcher: Connection,
    between: Callable[[], Any] = lambda: None,
) -> Played:
    """Run two sessions in one order; `between` is called after every step."""
    actors = {"A": Actor("A", connections[0]), "B": Actor("B", connections[1])}
    left = {"A": list(steps_a), "B": list(steps_b)}
    played = Played(order)
    wanted = list(order)
    try:
        while any(left.values()):
            name = wanted.pop(0)
            actor, other = actors[name], actors["B" if name == "A" else "A"]
            if not actor.has_ended(watcher):
                # It waits for the other: that one makes its next step first.
                if not other.has_ended(watcher):
                    raise AssertionError(f"both wait in {order}")
                wanted.remove(other.name)
                wanted = [other.name, name, *wanted]
                continue
            actor.start(left[name].pop(0))
            if not actor.has_ended(watcher):
                played.waited.append(name)
            between()
        for actor in actors.values():
            assert actor.has_ended(watcher), f"{actor.name} waits at the end of {order}"
    finally:
        for actor in actors.values():
            actor.close()
    played.a, played.b = actors["A"].results, actors["B"].results
    failed = [result for result in (*played.a, *played.b) if isinstance(result, Exception)]
    assert failed == [], f"in {order}"
    return played


def _commit(connection: Connection) -> None:
    connection.execute("commit")


GATE = 7_203_110


def gate(connection: Connection, table: str) -> None:
    """Make scans of a table by the role `gated` stop at an advisory lock before each row: between a statement's
    snapshot and its row locks. `set role gated` passes through it, others do not see it."""
    exists = connection.execute("select 1 from pg_roles where rolname = 'gated'").fetchone()
    if exists is None:
        connection.execute("create role gated")
    connection.execute("grant usage on schema penstock to gated")
    connection.execute("grant all on all tables in schema penstock to gated")
    connection.execute("grant all on all sequences in schema penstock to gated")
    connection.execute("grant execute on all functions in schema penstock to gated")
    connection.execute(
        "create or replace function penstock.pass_gate() returns boolean language plpgsql volatile cost 1 as"
        f" 'begin perform pg_advisory_lock_shared({GATE}); perform pg_advisory_unlock_shared({GATE}); return true; end'"
    )
    connection.execute(sql.SQL("alter table penstock.{} enable row level security").format(sql.Identifier(table)))
    connection.execute(sql.SQL("drop policy if exists gated on penstock.{}").format(sql.Identifier(table)))
    connection.execute(
        sql.SQL("create policy gated on penstock.{} for all using (penstock.pass_gate()) with check (true)").format(
            sql.Identifier(table)
        )
    )
