"""A key that is held: its job retries in ten minutes and 100,000 wait behind it, while jobs of other keys of the same
partition come at a steady, uneven rate. How soon these start: from when the transaction that claimed a job began until
its handler started, and from the return of its enqueue. Beside it the same without the held key, and that once more:
the ratio of those two is the noise of this machine.

When a job was claimed is noted by a trigger, since its lease is gone when it has ended; both sides carry it.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from bench.completion import wait_for_completed
from bench.pickup import Times, at_a_steady_rate, percentile_of
from bench.processes import processes, running
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE
from penstock import App, Context, Retry

QUESTION = "Do other keys start later while a key is held with 100,000 jobs behind it?"

CALL = 1_000
KEYS = 1_000
HELD = "held"
HELD_SECONDS = 600
JOBS_A_SECOND = 250
WARM_UP = 200
PERCENTILES = (50, 99)
NOTE_CLAIMS = """
create table claim (lease bigint primary key, at_ns bigint not null);
create function note_claim() returns trigger language plpgsql as $$
begin
    insert into claim values (new.id, extract(epoch from new.claimed_at) * 1000000000);
    return null;
end $$;
create trigger note_claim after insert on penstock.lease for each row execute function note_claim();
"""


class Starts(NamedTuple):
    """Of each job of the others, in nanoseconds: claimed and started, by the wall's clock; enqueued and started."""

    claimed: Times
    started_after_claim: Times
    returned: Times
    started_after_return: Times


def measure(run: Run) -> None:
    behind, jobs = run.size(100_000, 5_000), run.size(3_000, 300)
    sides: dict[str, list[Starts]] = {"held": [], "without": [], "again": []}
    for _ in run.repeats(most=2):
        for side, found in sides.items():
            found.append(starts(run.server, jobs, behind if side == "held" else 0))
    for name, first, last in (
        ("claim to start", "claimed", "started_after_claim"),
        ("enqueue to start", "returned", "started_after_return"),
    ):
        for percentile in PERCENTILES:
            spans = {
                side: [percentile_of(getattr(each, first), getattr(each, last), percentile) for each in found]
                for side, found in sides.items()
            }
            text = f"{name} p{percentile}"
            run.compare(f"{text}, a key held", "ms", spans["held"], "without", spans["without"])
            run.compare(f"{text}, without, again", "ms", spans["again"], "without", spans["without"])
    run.note(
        f"{jobs:,} jobs of {KEYS:,} keys at {JOBS_A_SECOND} a second, {behind:,} behind the held one; "
        "1 partition, 1 worker with concurrency 16"
    )


def starts(server: Server, jobs: int, behind: int) -> Starts:
    """Enqueue the others one by one, behind a held key with so many jobs, or without one."""
    notes = [processes.Array("q", jobs + WARM_UP, lock=False) for _ in range(3)]
    leases, started_by_wall, started = notes
    with server.database() as url, connect(url) as connection:
        connection.execute(NOTE_CLAIMS)
        app, task = _declare(url, notes)
        with app:
            for _ in range(behind // CALL):
                task.enqueue_many([{"customer": HELD, "place": 0}] * CALL)
            # What is enqueued here starts when the worker has read past the held key's jobs.
            task.enqueue(customer="first", place=0)
            with running(_work, url, notes) as worker:
                wait_for_completed(connection, 1, [worker])
                _, returned = at_a_steady_rate(
                    jobs + WARM_UP,
                    lambda place: task.enqueue(customer=f"customer-{place % KEYS}", place=place),
                    JOBS_A_SECOND,
                )
                wait_for_completed(connection, 1 + jobs + WARM_UP, [worker])
        claimed = dict(connection.execute("select lease, at_ns from claim").fetchall())
    return Starts(
        [claimed[lease] for lease in leases[WARM_UP:]], started_by_wall[WARM_UP:], returned[WARM_UP:], started[WARM_UP:]
    )


def _declare(url: str, notes: list[Any]) -> tuple[App, Any]:
    leases, started_by_wall, started = notes
    app = App(url)

    def note_start(context: Context, customer: str, place: int) -> None:
        started[place], started_by_wall[place] = time.monotonic_ns(), time.time_ns()
        leases[place] = context.lease
        if customer == HELD:
            raise Retry(after=HELD_SECONDS)

    return app, app.queue(QUEUE, order="key").task(key="customer")(note_start)


def _work(url: str, notes: list[Any]) -> None:
    app, _ = _declare(url, notes)
    with app:
        app.work()
