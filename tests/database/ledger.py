"""The ledger: every job is in exactly one place, and every figure is what a recount gives.

All maps are unfolded and compared with the jobs that were written and with `penstock.depth`. It holds at any moment
at which a snapshot can be taken, so tests call it between any two steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from penstock.storage import Connection

__all__ = ["WRONG_CAUSES", "Ledger", "check"]

# Causes of which the figure is not what a recount gives, or which bear a task that the dead letter has not.
WRONG_CAUSES = """
select cause, sum(figure)::bigint, sum(counted)::bigint
  from (select id as cause, dead as figure, 0 as counted from penstock.cause
        union all select cause, dead, 0 from penstock.cause_tally
        union all select cause, 0, 1 from penstock.dead) as c
 group by cause having sum(figure) <> sum(counted)
union all
select d.cause, null, d.job_id
  from penstock.dead as d join penstock.partition as p on p.id = d.partition_id
 where d.cause <> penstock.cause_of(p.queue_id, d.task, penstock.error_shape(d.error))
"""

# One statement, so one snapshot.
_PLACES = """
select 'stored', id, partition_id, null::smallint, null::smallint, null::bigint from penstock.job_stored
union all
select 'ready', range * 1024 + m, partition_id, attempt, null, null
  from penstock.ready, unnest(penstock.positions(low, high, members)) as m
union all
select 'running', range * 1024 + m, partition_id, attempt, null, id
  from penstock.lease, unnest(penstock.positions(low, high, members)) as m
union all
select 'scheduled', range * 1024 + m, partition_id, attempt, null, null
  from penstock.scheduled, unnest(penstock.positions(low, high, members)) as m
union all
select case when cancelled_at is null then 'blocked' else 'cancelled' end, job_id, partition_id, 1, null, null
  from penstock.blocked
union all
select 'dead', job_id, partition_id, attempt, null, null from penstock.dead
union all
select 'finished', job_id, partition_id, attempt, outcome, null from penstock.finished_job
union all
select case when bit_count(members) = 0 then 'empty' else 'outside' end, range, partition_id, attempt, null, null
  from (select range, partition_id, attempt, low, high, members, priority from penstock.ready
        union all select range, partition_id, attempt, low, high, members, priority from penstock.lease
        union all select range, partition_id, attempt, low, high, members, priority from penstock.scheduled) as r
 where bit_count(members) = 0 or bit_count(members & ~penstock.span(low, high)) > 0
    or not (0 <= low and low < high and high <= 1024 and priority between 0 and 9)
union all
select 'orphaned edge', child_id, 0, null, null, null from penstock.dependency as d
 where not exists (select from penstock.blocked as b where b.job_id = d.child_id and d.parent_id = any (b.parents))
union all
select 'depth of ' || name, partition_id::bigint, 0, null, null, value
  from penstock.depth
 cross join lateral (values ('opened', opened), ('scheduled', scheduled), ('blocked', blocked), ('dead', dead),
                            ('enqueued', enqueued), ('completed', completed), ('cancelled', cancelled),
                            ('discarded', discarded), ('expired', expired)) as figure(name, value)
"""

_FIGURES = ("opened", "scheduled", "blocked", "dead", "enqueued", "completed", "cancelled", "discarded", "expired")
_OUTCOMES = ("succeeded", "failed", "cancelled", "discarded", "expired")


@dataclass(slots=True)
class Ledger:
    """Where each job is: its id, and one of ready, running, scheduled, blocked, dead, or how it ended."""

    places: dict[int, str] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)

    def of(self, place: str) -> set[int]:
        """The jobs in one place."""
        return {job for job, found in self.places.items() if found == place}


def check(connection: Connection) -> Ledger:
    """Read the ledger and judge it."""
    ledger = Ledger()
    stored: dict[int, int] = {}
    found: dict[int, list[str]] = {}
    counted: Counter[tuple[str, int]] = Counter()
    depth: dict[tuple[str, int], int] = {}
    broken: list[str] = []
    for kind, job, partition, attempt, outcome, number in connection.execute(_PLACES):
        if kind == "stored":
            counted["enqueued", partition] += 1
            if job in stored:
                broken.append(f"job {job} is stored twice")
            stored[job] = partition
        elif kind in ("empty", "outside", "orphaned edge"):
            broken.append(f"{kind}: {job}")
        elif kind.startswith("depth of "):
            depth[kind.removeprefix("depth of "), job] = number
        else:
            place = _OUTCOMES[outcome] if kind == "finished" else kind
            found.setdefault(job, []).append(place)
            ledger.places[job] = place
            ledger.attempts[job] = attempt
            if kind == "running":
                ledger.leases[job] = number
            figure = {"ready": "opened", "running": "opened", "succeeded": "completed"}.get(place, place)
            counted[figure, partition] += 1
            if stored.get(job, partition) != partition:
                broken.append(f"job {job} is in partition {partition}, but was written to {stored[job]}")
    broken += [f"job {job} is in {places}" for job, places in found.items() if len(places) != 1]
    broken += [f"job {job} is lost" for job in stored.keys() - found.keys()]
    broken += [f"job {job} comes from nowhere" for job in found.keys() - stored.keys()]
    broken += [
        f"{name} of partition {partition} is {value}, counted are {counted[name, partition]}"
        for (name, partition), value in depth.items()
        # A child that was cancelled for a dead letter stays counted when it comes back.
        if value != counted[name, partition] and not (name == "cancelled" and value > counted[name, partition])
    ]
    broken += [
        f"{name} of partition {partition}: {count} counted, no figure"
        for (name, partition), count in counted.items()
        if name in _FIGURES and (name, partition) not in depth and count
    ]
    broken += [
        f"cause {cause}: {figure} dead letters by its figure, {counted} counted (or job, of another cause)"
        for cause, figure, counted in connection.execute(WRONG_CAUSES)
    ]
    assert broken == [], broken[:10]
    return ledger
