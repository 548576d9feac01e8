"""What single acts take behind a large backlog against a small one: to enqueue, to claim and settle, to ask for
figures, for a list of jobs, for why a job does not run.

Both backlogs lie in databases of one server, and the acts are done on both in turn, so that what else goes on meets
both. The rows of the backlog are those that `enqueue` and `enqueue_many` write, written by one statement for many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import ARGUMENTS, QUEUE, TASK, declare
from penstock.engine.plain_source import PlainSource
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.upkeep.sweep import fold
from penstock.storage.work.exchange import exchange
from penstock.storage.work.settle import Succeeded
from penstock.storage.work.workers import register

__all__ = ["Fill", "fill_in_ranges", "fill_one_by_one", "measure_acts", "settle_down"]

SMALL = 20_000
SLOTS = 16
FILL_CHUNK = 10_000
RANGE_JOBS, RANGES_A_CHUNK = 1_000, 100
TABLES = ("job", "ready", "tally", "total")
# Each act is done so often in a row before it is the other backlog's turn.
IN_A_ROW = 5

Fill = Callable[[Connection, Any, int], None]
Act = Callable[[], object]


def measure_acts(run: Run) -> None:
    """Compare each act, by the backlog's kind."""
    kinds: tuple[tuple[str, Fill, int], ...] = (
        ("in calls of 1,000", fill_in_ranges, run.size(10_000_000, 200_000)),
        ("one by one", fill_one_by_one, run.size(1_000_000, 50_000)),
    )
    rounds = run.size(30, 5)
    for kind, fill, large in kinds:
        with ExitStack() as opened:
            backlogs = {
                size: opened.enter_context(_backlog(run, size, f"{size:,} {kind}", fill)) for size in (SMALL, large)
            }
            taken: dict[str, dict[int, list[float]]] = {}
            for _ in run.repeats():
                for name, seconds in _interleave({size: acts for size, (acts, _) in backlogs.items()}, rounds).items():
                    for size, each in seconds.items():
                        taken.setdefault(name, {}).setdefault(size, []).append(1e3 * median(each))
            for name, by_size in taken.items():
                title = f"{name}, {large:,} {kind}"
                run.compare(title, "ms", by_size[large], f"{SMALL:,}", by_size[SMALL], at_most=1.2)
            for size, (_, connection) in backlogs.items():
                (disk,) = connection.execute("select pg_database_size(current_database())").fetchone()
                run.state(f"disk of {size:,} {kind}", "MB", [disk / 1e6])
                if (memory := _private_memory(connection)) is not None:
                    run.state(f"memory of the server process that claims, {size:,} {kind}", "MB", [memory / 1e6])
    run.note(f"medians of {rounds} rounds of {IN_A_ROW}; a turn claims and settles {SLOTS} jobs; a list is of 100 jobs")


def _interleave(acts: dict[int, dict[str, Act]], rounds: int) -> dict[str, dict[int, list[float]]]:
    """The seconds of each act, by the size of the backlog."""
    seconds: dict[str, dict[int, list[float]]] = {name: {size: [] for size in acts} for name in acts[SMALL]}
    for name, by_size in seconds.items():
        for number in range(rounds):
            for size in sorted(acts, reverse=number % 2 == 1):
                for _ in range(IN_A_ROW):
                    started = time.perf_counter()
                    acts[size][name]()
                    by_size[size].append(time.perf_counter() - started)
    return seconds


@contextmanager
def _backlog(run: Run, size: int, title: str, fill: Fill) -> Iterator[tuple[dict[str, Act], Connection]]:
    """The acts on a database in which so many wait, by their names, and the connection that claims."""
    run.say(f"  {title}")
    with _database(run.server) as (url, connection):
        app, task = declare(url)
        with app:
            app.migrate()
            task.enqueue(**ARGUMENTS[0])
            fill(connection, task, size)
            settle_down(connection)
            (middle,) = connection.execute(
                "select range * 1024 from penstock.ready order by range offset %s limit 1",
                [connection.execute("select count(*) / 2 from penstock.ready").fetchone()[0]],
            ).fetchone()
            yield (
                {
                    "enqueue of one": lambda: task.enqueue(**ARGUMENTS[1]),
                    "enqueue of 1,000": lambda: task.enqueue_many(ARGUMENTS[:1_000]),
                    "turn": _turn_of(connection),
                    "stats": lambda: app.stats(QUEUE),
                    "list": lambda: app.jobs(queue=QUEUE, limit=100),
                    "list of one task and state": lambda: app.jobs(queue=QUEUE, state="ready", task=TASK, limit=100),
                    "explain": lambda: app.explain(middle),
                },
                connection,
            )


@contextmanager
def _database(server: Server) -> Iterator[tuple[str, Connection]]:
    with server.database() as url, connect(url) as connection:
        yield url, connection


def _turn_of(connection: Connection) -> Act:
    """Claim jobs for all slots, and settle those of the turn before."""
    queue = find_queue(connection, QUEUE)
    options = {"host": "here", "pid": 1, "version": "0", "concurrency": SLOTS, "lease_seconds": 3_600.0}
    worker = register(connection, name="bench", tasks=[(queue.id, TASK)], **options)
    source = PlainSource(worker, [queue.id])
    held: list[Succeeded] = []

    def turn() -> None:
        now = time.monotonic()
        source.look(connection, SLOTS, now)
        wish = source.wish(SLOTS, 0, 0, now)
        done = exchange(connection, worker, "bench", held, [], wish.claim)
        held.clear()
        for lease in source.learn(wish, done, now):
            times = [1_000] * len(lease.positions)
            held.append(Succeeded(lease.id, lease.token, lease.range, list(lease.positions), times, times))

    return turn


def _private_memory(connection: Connection) -> int | None:
    """What the server's process of a connection has for itself, in bytes; None, where that is not told."""
    path = Path(f"/proc/{connection.info.backend_pid}/smaps_rollup")
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def fill_in_ranges(connection: Connection, task: Any, count: int) -> None:
    """Write what calls of 1,000 write."""
    args = [task.definition.arguments.encode(each).decode() for each in ARGUMENTS[:RANGE_JOBS]]
    for low in range(0, count // RANGE_JOBS, RANGES_A_CHUNK):
        _write(connection, min(RANGES_A_CHUNK, count // RANGE_JOBS - low), args)


def fill_one_by_one(connection: Connection, task: Any, count: int) -> None:
    """Write what single calls write."""
    for low in range(0, count, FILL_CHUNK):
        _write(connection, min(FILL_CHUNK, count - low), [task.definition.arguments.encode(ARGUMENTS[0]).decode()])


def _write(connection: Connection, ranges: int, args: list[str]) -> None:
    """So many ranges, each with a job for each of the arguments."""
    connection.execute(
        """
        with given as materialized (
            select penstock.draw_range() as range, (select min(id) from penstock.partition) as partition
              from generate_series(1, %(ranges)s)
        ), jobs as (
            insert into penstock.job (id, enqueued_at, partition_id, priority, task, args, attributes)
            select g.range * 1024 + a.n - 1, clock_timestamp(), g.partition, 5, %(task)s, a.args,
                   case when a.n = 1 then jsonb_build_object('token', (random() * 9e18)::bigint) end
              from given as g cross join unnest(%(args)s::json[]) with ordinality as a(args, n)
        ), tallied as (
            insert into penstock.tally (partition_id, enqueued, opened) select partition, %(jobs)s, %(jobs)s from given
        )
        insert into penstock.ready (partition_id, priority, pos, range, low, high, task)
        select partition, 5, range, range, 0, %(jobs)s, %(task)s from given
        """,
        {"ranges": ranges, "args": args, "jobs": len(args), "task": TASK},
    )


def settle_down(connection: Connection) -> None:
    """As upkeep and autovacuum leave it."""
    fold(connection)
    for table in TABLES:
        connection.execute(f"vacuum (analyze) penstock.{table}")
    connection.execute("checkpoint")
