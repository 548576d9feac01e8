"""History as one row for what a settle ended of one lease, its jobs' facts in arrays, or as one row a job: writing them
from the same parameters, WAL and size a job, and looking one job up. With leases of 1,000 jobs, as fast handlers have
them, and of 16, as slow ones do; a transaction settles one lease.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from bench.run import Run
from bench.server import Connection, Server, connect, wal_position
from penstock.storage.connection.arrays import array_text

QUESTION = "What does history cost as a row a settled lease, against a row a job?"

LEASES = (1_000, 16)
LOOK_UPS = 2_000

TABLES = """
    create table by_lease (like penstock.finished including all);
    create table by_job (
        slice int not null, job_id bigint not null, partition_id int not null, outcome smallint not null,
        attempt smallint not null, finished_at timestamptz not null default now(), worker text,
        start_age bigint, run_time bigint, result json, error text);
    create index by_job_of_job on by_job (job_id)
"""
WRITE = {
    "by_lease": """
        insert into by_lease (slice, range, partition_id, outcome, attempt, worker, positions, start_ages, run_times)
        values (1, %(range)s, 1, 0, 1, 'host:12345#1',
                %(positions)s::smallint[], %(ages)s::bigint[], %(runs)s::bigint[])
    """,
    "by_job": """
        insert into by_job (slice, job_id, partition_id, outcome, attempt, worker, start_age, run_time)
        select 1, %(range)s * 1024 + u.position, 1, 0, 1, 'host:12345#1', u.age, u.run
          from unnest(%(positions)s::smallint[], %(ages)s::bigint[], %(runs)s::bigint[]) as u(position, age, run)
    """,
}
LOOK_UP = {
    "by_lease": """
        select f.finished_at, u.age, u.run
          from by_lease as f, unnest(f.positions, f.start_ages, f.run_times) as u(position, age, run)
         where f.range = %(id)s / 1024 and u.position = %(id)s %% 1024
    """,
    "by_job": "select finished_at, start_age, run_time from by_job where job_id = %(id)s",
}


class Kept(NamedTuple):
    """What one form costs."""

    written_a_second: float
    wal_bytes: float
    stored_bytes: float
    looked_up_a_second: float


def measure(run: Run) -> None:
    for lease in LEASES:
        jobs = run.size(500_000, 50_000) if lease > 100 else run.size(80_000, 8_000)
        found: dict[str, list[Kept]] = {"by_lease": [], "by_job": []}
        for _ in run.repeats():
            for form, results in found.items():
                results.append(keep(run.server, form, jobs, lease))
        for name, unit, index in (
            ("written", "jobs/s", 0),
            ("WAL a job", "bytes", 1),
            ("stored a job, with its index", "bytes", 2),
            ("looked up one by one", "jobs/s", 3),
        ):
            values = {form: [each[index] for each in results] for form, results in found.items()}
            title = f"a row a lease of {lease:,}: {name}"
            run.compare(title, unit, values["by_lease"], "a row a job", values["by_job"])


def keep(server: Server, form: str, jobs: int, lease: int) -> Kept:
    chance = random.Random(7)
    facts = {
        "positions": array_text(range(lease)),
        "ages": array_text(chance.randrange(2_000, 40_000) for _ in range(lease)),
        "runs": array_text(chance.randrange(1, 90) for _ in range(lease)),
    }
    with server.database() as url, connect(url) as connection:
        connection.execute(TABLES)
        count = jobs // lease
        wal_before, began = wal_position(connection), time.perf_counter()
        for number in range(count):
            connection.execute(WRITE[form], {"range": number, **facts}, prepare=True)
        written = time.perf_counter() - began
        wal_bytes = wal_position(connection) - wal_before
        size = connection.execute("select pg_total_relation_size(%s::regclass)", [form]).fetchone()[0]
        done = count * lease
        return Kept(done / written, wal_bytes / done, size / done, _look_up(connection, form, count, lease, chance))


def _look_up(connection: Connection, form: str, count: int, lease: int, chance: random.Random) -> float:
    connection.execute(f"vacuum (analyze) {form}")
    ids = [chance.randrange(count) * 1024 + chance.randrange(lease) for _ in range(LOOK_UPS)]
    began = time.perf_counter()
    for job_id in ids:
        assert connection.execute(LOOK_UP[form], {"id": job_id}, prepare=True).fetchone() is not None
    return LOOK_UPS / (time.perf_counter() - began)
