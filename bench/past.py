"""History to read, made by SQL: jobs that ended well in leases of 1,000, as workers leave them."""

from __future__ import annotations

import json

from bench.server import Connection
from bench.workload import ARGUMENTS, TASK

__all__ = ["make_past"]

LEASE = 1_000


def make_past(connection: Connection, queue: str, jobs: int, days_ago: int = 0) -> None:
    """So many jobs of a queue that ended on one day."""
    facts = {"queue": queue, "task": TASK, "leases": jobs // LEASE, "lease": LEASE, "days": days_ago}
    connection.execute(
        "create temp table if not exists argument (n int primary key, key bytea not null, args json not null)"
    )
    if connection.execute("select count(*) from argument").fetchone()[0] == 0:
        with connection.cursor().copy("copy argument (n, key, args) from stdin") as copy:
            for number, each in enumerate(ARGUMENTS):
                copy.write_row((number, each["customer_id"].encode(), json.dumps(each)))
    connection.execute("insert into penstock.queue (name) values (%(queue)s) on conflict do nothing", facts)
    connection.execute(
        "insert into penstock.partition (queue_id, number, name)"
        " select id, 0, name from penstock.queue where name = %(queue)s on conflict do nothing",
        facts,
    )
    with connection.transaction():
        connection.execute("drop table if exists drawn", facts)
        connection.execute(
            "create temp table drawn on commit drop as select penstock.draw_range() as range"
            " from generate_series(1, %(leases)s)",
            facts,
        )
        connection.execute(
            "insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args)"
            " select r.range * 1024 + m, now() - make_interval(days => %(days)s, secs => 60), p.id, 5, %(task)s,"
            "        a.key, a.args"
            "   from drawn as r cross join generate_series(0, %(lease)s - 1) as m"
            "   join argument as a on a.n = (r.range + m) %% 10000 cross join penstock.partition as p"
            "  where p.name = %(queue)s order by 1",
            facts,
        )
        connection.execute(
            "insert into penstock.finished (slice, range, partition_id, outcome, attempt, finished_at, worker,"
            "                               positions, start_ages, run_times)"
            " select penstock.current_slice(), r.range, p.id, 0, 1, now() - make_interval(days => %(days)s),"
            "        'host-1#1',"
            "        array(select m::smallint from generate_series(0, %(lease)s - 1) as m),"
            "        array(select 1500 + m from generate_series(0, %(lease)s - 1) as m),"
            "        array(select 1000 + m from generate_series(0, %(lease)s - 1) as m)"
            "   from drawn as r cross join penstock.partition as p where p.name = %(queue)s",
            facts,
        )
