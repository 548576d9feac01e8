"""A worker's turn with 10 partitions, queues and some waiting keys, and with thousands of each.

A turn is what a conductor does of it: the source looks and wishes, the exchange settles the jobs of the turn before and
takes as many again, the source learns. After each turn as many jobs are enqueued as were taken, and that is not
measured: what waits stays as it is, ten jobs in each partition, each of another key. Turns on both databases follow
each other in small blocks, so that what else goes on meets both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from bench.run import Run
from bench.server import Connection, connect
from bench.workload import TASK
from penstock.engine.owned_source import OwnedSource
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import Source
from penstock.model.queue import QueueDefinition
from penstock.storage import Database
from penstock.storage.catalogue.queues import declare_queue
from penstock.storage.work.exchange import exchange
from penstock.storage.work.settle import Succeeded
from penstock.storage.work.workers import register

QUESTION = "Does a turn take longer with 10,000 partitions, 1,000 queues and 100,000 waiting keys?"

SLOTS = 4
KEYS_A_PARTITION = 10
TURNS_A_BLOCK = 10
# Who finds nothing turns again after a while. At once, an owner would not even look.
PAUSE_SECONDS = 0.02
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (("plain", {}), ("ordered", {"order": "key"}))

_FILL = """
with given as materialized (
    select penstock.draw_range() as range, p.id as partition, p.queue_id, q.is_owned
      from penstock.partition as p join penstock.queue as q on q.id = p.queue_id
      cross join generate_series(1, %(each)s)
     where p.id = any (%(partitions)s)
), jobs as (
    insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args)
    select range * 1024, clock_timestamp(), partition, 5, %(task)s, range::text::bytea, '{}' from given
), tallied as (
    insert into penstock.tally (partition_id, enqueued, opened) select partition, 1, 1 from given
)
insert into penstock.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)
select partition, 5, range, range, 0, 1, case when is_owned then '' else %(task)s end,
       case when is_owned then 1 end, case when is_owned then pg_current_xact_id() end
  from given
"""


class Place:
    """A database, and a worker that takes turns on it."""

    def __init__(self, connection: Connection, queues: list[int], *, is_owned: bool) -> None:
        self._connection = connection
        self._partitions = [row[0] for row in connection.execute("select id from penstock.partition order by id")]
        self._worker = register(
            connection, name="bench", host="here", pid=1, version="0", concurrency=SLOTS, lease_seconds=3_600.0,
            tasks=[(queue, TASK) for queue in queues],
        )  # fmt: skip
        self._source: Source = (
            OwnedSource(self._worker, {queue: frozenset({TASK}) for queue in queues})
            if is_owned
            else PlainSource(self._worker, queues)
        )
        self._held: list[Succeeded] = []
        self._ended: list[tuple[int, int, str]] = []

    def fill(self) -> None:
        self.enqueue(self._partitions, KEYS_A_PARTITION)
        self._connection.execute("vacuum (analyze) penstock.ready, penstock.job, penstock.tally")

    def enqueue(self, partitions: list[int], each: int = 1) -> None:
        self._connection.execute(_FILL, {"partitions": partitions, "each": each, "task": TASK})

    def turn(self) -> list[int]:
        """Take jobs, and settle those of the turn before; the partitions they came from."""
        now = time.monotonic()
        self._source.look(self._connection, SLOTS, now)
        self._source.note_ends(self._ended, now)
        wish = self._source.wish(SLOTS, 0, 0, now)
        turn = exchange(self._connection, self._worker, "bench", self._held, [], wish.claim, wish.choices)
        leases = self._source.learn(wish, turn, now)
        self._held, self._ended = [], []
        for lease in leases:
            times = [1_000] * len(lease.positions)
            self._held.append(Succeeded(lease.id, lease.token, lease.range, list(lease.positions), times, times))
            self._ended += [(lease.partition_id, lease.range * 1024 + each, "succeeded") for each in lease.positions]
        return [partition for partition, _, _ in self._ended]

    def warm_up(self) -> None:
        """Until everything was read that is there, and what is done often is prepared."""
        self._source.look(self._connection, SLOTS, time.monotonic())
        while self._source.patience(time.monotonic()) == 0.0:
            self._source.look(self._connection, SLOTS, time.monotonic())
        for _ in range(20):
            for partition in self.turn():
                self.enqueue([partition])

    def drain(self) -> None:
        """Leave nothing."""
        self._connection.execute("truncate penstock.ready")
        self._connection.execute("delete from penstock.lease")
        self._held, self._ended = [], []
        self._source.forget()
        for _ in range(20):
            self.turn()


def measure(run: Run) -> None:
    sizes = {"few": (10, 1), "many": (run.size(1_000, 100), 10)}
    blocks = run.size(40, 8)
    for kind, options in KINDS:
        with ExitStack() as opened:
            places = {}
            for size, (queues, partitions) in sizes.items():
                run.say(f"  {queues:,} {kind} queues with {queues * partitions:,} partitions")
                places[size] = opened.enter_context(_place(run, queues, partitions, options))
            for state in ("turn", "turn that finds nothing"):
                taken: dict[str, list[float]] = {size: [] for size in sizes}
                for place in places.values():
                    place.warm_up() if state == "turn" else place.drain()
                for _ in run.repeats():
                    seconds = _interleave(places, blocks, refills=state == "turn")
                    for size, each in seconds.items():
                        taken[size].append(1e3 * median(each))
                queues, partitions = sizes["many"]
                name = f"{state}, {kind}, {queues * partitions:,} partitions of {queues:,} queues"
                run.compare(name, "ms", taken["many"], "10 of 10", taken["few"], at_most=1.5)
    run.note(f"turns of {SLOTS} jobs, {KEYS_A_PARTITION} waiting in each partition, each of another key")
    run.note(f"medians of {blocks} blocks of {TURNS_A_BLOCK} turns")


def _interleave(places: dict[str, Place], blocks: int, *, refills: bool) -> dict[str, list[float]]:
    """The seconds of turns."""
    seconds: dict[str, list[float]] = {size: [] for size in places}
    for block in range(blocks):
        for size in sorted(places, reverse=block % 2 == 1):
            for _ in range(TURNS_A_BLOCK):
                if not refills:
                    time.sleep(PAUSE_SECONDS)
                started = time.perf_counter()
                partitions = places[size].turn()
                seconds[size].append(time.perf_counter() - started)
                if refills:
                    for partition in partitions:
                        places[size].enqueue([partition])
    return seconds


@contextmanager
def _place(run: Run, queues: int, partitions: int, options: dict[str, Any]) -> Iterator[Place]:
    with run.server.database() as url, connect(url) as plain, Database(url).connect() as connection:
        plain.execute("select 1")
        numbers = [
            declare_queue(connection, QueueDefinition.of(f"queue-{number}", partitions, **options)).id
            for number in range(queues)
        ]
        place = Place(connection, numbers, is_owned=bool(options))
        place.fill()
        yield place
