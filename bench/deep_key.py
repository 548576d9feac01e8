"""One key with a million waiting jobs, enqueued ahead of 1,000 other keys: how fast the others are worked off, against
the same load without it. The deep key's first job is put off for an hour by its handler, so that the key stays as deep
as it is. All are enqueued before the worker starts; both databases are made once, and each repeat works on copies.

The clock runs from the start of the first job of the others until the last of them is completed; how long the worker
took to that start is stated by itself. A quarter of the other keys share the deep key's partition: theirs is stated
too. The memory is the worker's highest resident size, with the deep key less without it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.backlog import settle_down
from bench.completion import completed
from bench.processes import resident_bytes, running
from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import ARGUMENTS, declare
from penstock import App, Retry
from penstock.routing.key_hash import partition_of

QUESTION = "Does a key with a million waiting jobs slow the other keys down?"

CALL = 1_000
KEYS = 1_000
PARTITIONS = 4
DEEP = "deep"
HELD_SECONDS = 3_600


class Pace(NamedTuple):
    """How some partitions' jobs were worked off; the seconds count from when the worker had registered."""

    rate: float
    first_start_seconds: float


class Drain(NamedTuple):
    """The others, those of them that share the deep key's partition, and what the worker took for it."""

    others: Pace
    neighbours: Pace
    highest_bytes: int


def measure(run: Run) -> None:
    deep, others = run.size(1_000_000, 20_000), run.size(100_000, 10_000)
    beside: list[Drain] = []
    alone: list[Drain] = []
    with run.server.database() as filled, run.server.database() as bare:
        run.say(f"deep_key: enqueue {deep:,} jobs of one key")
        fill(filled, deep, others)
        fill(bare, 0, others)
        for _ in run.repeats():
            beside.append(drain(run.server, filled, others))
            alone.append(drain(run.server, bare, others))
    for name, of, bar in (("the others", "others", 0.8), ("those in its partition", "neighbours", None)):
        values, against = ([getattr(each, of) for each in side] for side in (beside, alone))
        rates, rates_without = ([pace.rate for pace in paces] for paces in (values, against))
        run.compare(f"{name}, with the deep key", "jobs/s", rates, "without", rates_without, at_least=bar)
        run.compare(
            f"until the first of {name} starts",
            "s",
            [pace.first_start_seconds for pace in values],
            "without",
            [pace.first_start_seconds for pace in against],
        )
    grown = [(mine.highest_bytes - other.highest_bytes) / 1e6 for mine, other in zip(beside, alone, strict=True)]
    run.state("memory of the worker for it", "MB", grown, at_most=100)
    run.note(f"{deep:,} jobs of the deep key, {others:,} of {KEYS:,} others; {PARTITIONS} partitions, 1 worker")


def fill(url: str, deep: int, others: int) -> None:
    """Enqueue the deep key's jobs, then those of the others."""
    rows = ARGUMENTS[:KEYS]
    deep_rows = [{**row, "customer_id": DEEP} for row in ARGUMENTS[:CALL]]
    app, task = _declare(url)
    with app:
        for _ in range(deep // CALL):
            task.enqueue_many(deep_rows)
        for _ in range(others // KEYS):
            task.enqueue_many(rows)
    with connect(url) as connection:
        settle_down(connection)


def drain(server: Server, filled: str, others: int) -> Drain:
    """Work off the others in a copy of this database."""
    with server.database(like=filled) as url, connect(url) as connection, running(_work, url) as worker:
        highest = 0
        while completed(connection) < others:
            if worker.exitcode is not None:
                raise RuntimeError("the worker ended too early; what it said stands above")
            highest = max(highest, resident_bytes(worker))
            time.sleep(0.1)
        highest = max(highest, resident_bytes(worker))
        return Drain(
            _pace(connection, range(PARTITIONS)),
            _pace(connection, [partition_of(DEEP.encode(), PARTITIONS)]),
            highest,
        )


def _pace(connection: Connection, partitions: Sequence[int]) -> Pace:
    jobs, seconds, first_start = connection.execute(
        """
        select count(*), extract(epoch from max(f.finished_at) - min(f.started_at))::double precision,
               extract(epoch from min(f.started_at) - (select started_at from penstock.worker))::double precision
          from penstock.finished_job as f join penstock.partition as p on p.id = f.partition_id
         where f.outcome = 0 and p.number = any (%s)
        """,
        [list(partitions)],
    ).fetchone()
    return Pace(jobs / seconds, first_start)


def _declare(url: str) -> tuple[App, Any]:
    return declare(url, handler=_put_off_the_deep_one, key="customer_id", order="key", partitions=PARTITIONS)


def _put_off_the_deep_one(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None:
    if customer_id == DEEP:
        raise Retry(after=HELD_SECONDS)


def _work(url: str) -> None:
    app, _ = _declare(url)
    with app:
        app.work()
