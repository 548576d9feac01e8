"""One key with a million waiting jobs, enqueued ahead of 1,000 other keys: how fast the others are worked off, against
the same load without it. The deep key's first job is put off for an hour by its handler, so that the key stays as deep
as it is. All are enqueued before the worker starts; both databases are made once, and each repeat works on copies.

A quarter of the others share the deep key's partition and lie behind it: the worker reads past a million jobs once to
come to them. The rate counts from when it has, so from when others have started in every partition, until the last is
completed. What the reading costs is stated by itself: the seconds to that moment, and the rate from the worker's start
on. The memory is the worker's highest resident size, with the deep key less without it.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from bench.backlog import settle_down
from bench.completion import completed
from bench.processes import resident_bytes, running
from bench.run import Run
from bench.server import Server, connect
from bench.workload import ARGUMENTS, declare
from penstock import App, Retry

QUESTION = "Does a key with a million waiting jobs slow the other keys down?"

CALL = 1_000
KEYS = 1_000
PARTITIONS = 4
DEEP = "deep"
HELD_SECONDS = 3_600
PACE = """
with first as (
    select partition_id, min(started_at) as at from penstock.finished_job where outcome = 0 group by partition_id
), moment as (
    select min(at) as first_at, max(at) as begun_at, (select started_at from penstock.worker) as worker_at from first
), done as (
    select count(*) as jobs, count(*) filter (where f.started_at >= m.begun_at) as jobs_since, max(f.finished_at) as at
      from penstock.finished_job as f, moment as m where f.outcome = 0
)
select (jobs_since / extract(epoch from at - begun_at))::double precision,
       (jobs / extract(epoch from at - worker_at))::double precision,
       extract(epoch from first_at - worker_at)::double precision,
       extract(epoch from begun_at - worker_at)::double precision
  from done, moment
"""


class Drain(NamedTuple):
    """How the others were worked off; seconds count from when the worker had registered."""

    rate: float
    rate_from_start: float
    first_seconds: float
    all_begun_seconds: float
    highest_bytes: int


def measure(run: Run) -> None:
    deep, others = run.size(1_000_000, 20_000), run.size(200_000, 10_000)
    beside: list[Drain] = []
    alone: list[Drain] = []
    with run.server.database() as filled, run.server.database() as bare:
        run.say(f"deep_key: enqueue {deep:,} jobs of one key")
        fill(filled, deep, others)
        fill(bare, 0, others)
        for _ in run.repeats(most=2):
            beside.append(drain(run.server, filled, others))
            alone.append(drain(run.server, bare, others))
    for name, unit, of, bar in (
        ("the others, with the deep key", "jobs/s", "rate", 0.8),
        ("the same, from the worker's start", "jobs/s", "rate_from_start", None),
        ("until the first of the others starts", "s", "first_seconds", None),
        ("until others start in every partition", "s", "all_begun_seconds", None),
    ):
        values, against = ([getattr(each, of) for each in side] for side in (beside, alone))
        run.compare(name, unit, values, "without", against, at_least=bar)
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
        return Drain(*connection.execute(PACE).fetchone(), highest)


def _declare(url: str) -> tuple[App, Any]:
    return declare(url, handler=_put_off_the_deep_one, key="customer_id", order="key", partitions=PARTITIONS)


def _put_off_the_deep_one(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None:
    if customer_id == DEEP:
        raise Retry(after=HELD_SECONDS)


def _work(url: str) -> None:
    app, _ = _declare(url)
    with app:
        app.work()
