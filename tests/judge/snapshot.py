"""Where every job stands, read from the tables themselves and not through the code under test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import psycopg

__all__ = ["Snapshot", "has_open_jobs", "read_snapshot"]

_ENDS = ("succeeded", "failed", "cancelled", "discarded", "expired")
_TOTALS = ("opened", "scheduled", "blocked", "dead", "enqueued", "completed", "cancelled", "discarded", "expired")


@dataclass(slots=True)
class Snapshot:
    """`labels`: each stored job's label; `places`: (job, state) for each place a job was found in, in any order."""

    labels: dict[int, str] = field(default_factory=dict)
    places: list[tuple[int, str]] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def states(self) -> Counter[str]:
        return Counter(state for _, state in self.places)

    @property
    def is_drained(self) -> bool:
        """Whether every job has ended."""
        return len(self.places) >= len(self.labels) and all(state in _ENDS for _, state in self.places)

    def state_of(self, job: int) -> str | None:
        return next((state for found, state in self.places if found == job), None)


def read_snapshot(*urls: str) -> Snapshot:
    """One consistent look at each database. The label of a job is its argument `label`."""
    whole = Snapshot(totals=dict.fromkeys(_TOTALS, 0))
    for url in urls:
        one = _read(url)
        whole.labels |= one.labels
        whole.places += one.places
        for name in _TOTALS:
            whole.totals[name] += one.totals[name]
    return whole


def has_open_jobs(url: str) -> bool:
    """Whether there is certainly a job that has not ended: cheap to ask, where a snapshot reads everything."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select exists (select from penstock.ready) or exists (select from penstock.lease)"
            " or exists (select from penstock.scheduled)"
            " or exists (select from penstock.blocked where cancelled_at is null)"
        ).fetchone()
    assert row is not None
    return bool(row[0])


def _read(url: str) -> Snapshot:
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read, read only")
        labels = {
            int(job): str(label or job)
            for job, label in connection.execute(
                # What a driver staged that died before its commit is no job; the janitor forgets it.
                "select id, args ->> 'label' from penstock.job_stored"
                " where id / 1024 not in (select range from penstock.load_range where load_id is null)"
            ).fetchall()
        }
        places = [
            (int(job), str(state))
            for job, state in connection.execute(
                """
                select range * 1024 + m, 'ready' from penstock.ready,
                       unnest(penstock.positions(low, high, members)) as m
                union all
                select range * 1024 + m, 'running' from penstock.lease,
                       unnest(penstock.positions(low, high, members)) as m
                union all
                select range * 1024 + m, 'scheduled' from penstock.scheduled,
                       unnest(penstock.positions(low, high, members)) as m
                union all
                select job_id, case when cancelled_at is null then 'blocked' else 'cancelled' end from penstock.blocked
                union all
                select job_id, 'failed' from penstock.dead
                union all
                select range * 1024 + m,
                       (array['succeeded', 'failed', 'cancelled', 'discarded', 'expired'])[outcome + 1]
                  from penstock.finished, unnest(positions) as m
                """
            ).fetchall()
        ]
        row = connection.execute(
            "select coalesce(sum(opened), 0), coalesce(sum(scheduled), 0), coalesce(sum(blocked), 0),"
            " coalesce(sum(dead), 0), coalesce(sum(enqueued), 0), coalesce(sum(completed), 0),"
            " coalesce(sum(cancelled), 0), coalesce(sum(discarded), 0), coalesce(sum(expired), 0) from penstock.depth"
        ).fetchone()
    assert row is not None
    return Snapshot(labels, places, {name: int(value) for name, value in zip(_TOTALS, row, strict=True)})
