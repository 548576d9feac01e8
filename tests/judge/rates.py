"""G6: whether more jobs were leased than a total_rate lets start, by what the database says of each lease.

A trigger writes down when each lease was made, by the server's clock: what a handler's first line says may be as late
as its process was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psycopg

from penstock.policy.rate import Rate

__all__ = ["Lease", "RatePeriod", "over_the_rate", "read_leases", "watch_leases"]

_WATCH = """
create table public.lease_log (at timestamptz default clock_timestamp(), queue text not null, jobs int not null);
create function public.note_lease() returns trigger language plpgsql as $$
begin
    insert into public.lease_log (queue, jobs)
    select q.name, penstock.members_count(new.low, new.high, new.members)
      from penstock.partition as p join penstock.queue as q on q.id = p.queue_id where p.id = new.partition_id;
    return null;
end $$;
create trigger note_lease after insert on penstock.lease for each row execute function public.note_lease();
"""


class Lease(NamedTuple):
    """So many jobs were leased at an instant."""

    at: float
    jobs: int


class RatePeriod(NamedTuple):
    """A rate, in starts a second, that held from one instant to another."""

    since: float
    until: float
    per_second: float


def watch_leases(url: str) -> None:
    """Have a database write down its leases."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_WATCH)


def read_leases(urls: Iterable[str], queue: str) -> list[Lease]:
    """The leases of a queue on all shards, in their order."""
    found: list[Lease] = []
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute(
                "select extract(epoch from at)::double precision, jobs from public.lease_log where queue = %s", [queue]
            )
            found += [Lease(*row) for row in rows]
    return sorted(found)


def over_the_rate(leases: Sequence[Lease], periods: Iterable[RatePeriod]) -> list[str]:
    """Where more started than two seconds' worth + rate * time, from any instant of a period to any other of it."""
    findings = []
    for period in periods:
        most = 2 * Rate(period.per_second).burst
        over, last = 0.0, period.since
        for lease in leases:
            if period.since <= lease.at <= period.until:
                over = max(over - (lease.at - last) * period.per_second, 0.0) + lease.jobs
                last = lease.at
                if over > most + 1e-6:
                    findings.append(f"{over:.2f} more than {period.per_second:g} a second, {most} may be")
                    break
    return findings
