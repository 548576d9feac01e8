"""A scene to play on: jobs put into any state by the storage's own acts, one connection for each actor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import msgspec
import pytest
from tests.database.ledger import WRONG_CAUSES

from penstock.model.queue import QueueDefinition
from penstock.shards.databases import Databases
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry, declare_queue
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Destination, IdempotencyKeys, JobGroup, Parents
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_groups
from penstock.storage.work.settle import Succeeded, succeeded_parameters
from penstock.storage.work.workers import full_name, register

# What the claims of a scene bear, but for those made elsewhere.
TOKEN = 4_611_686_018_427_387_905


class Scene:
    """One queue `q` with the task `t`, a worker, and what happens to jobs."""

    def __init__(self, database: Database, connection: Connection, connect: Callable[[], Connection]) -> None:
        self.database = database
        self.databases = Databases([database])
        self.connection = connection
        self.connect = connect
        self.queue = self.declare("q")
        self.worker = self.register()
        self.tokens: dict[int, int] = {}

    def declare(self, name: str, partitions: int = 1, max_length: int | None = None, **options: Any) -> QueueEntry:
        return declare_queue(self.connection, QueueDefinition.of(name, partitions, max_length=max_length, **options))

    def register(self, tasks: Sequence[str] = ("t",), queue: QueueEntry | None = None) -> int:
        queue_id = (queue or self.queue).id
        return register(
            self.connection,
            name="worker-a",
            host="here",
            pid=1,
            version="0",
            concurrency=10,
            lease_seconds=15.0,
            tasks=[(queue_id, task) for task in tasks],
        )

    def enqueue(
        self,
        count: int = 1,
        *,
        queue: QueueEntry | None = None,
        partition: int = 0,
        task: str = "t",
        priority: int = 5,
        run_at: datetime | None = None,
        key: bytes | None = None,
        attributes: dict[str, Any] | None = None,
        after: Sequence[int] | None = None,
        on_parent_failure: str = "cancel",
        idempotency_key: str | None = None,
        connection: Connection | None = None,
    ) -> list[int]:
        """Jobs of one call; their ids."""
        queue = queue or self.queue
        group = JobGroup(
            Destination(queue.id, queue.partition_ids[partition], priority, task, run_at),
            range(count),
            args=[b'{"n":%d}' % n for n in range(count)],
            keys=None if key is None else [key] * count,
            attributes=None if attributes is None else [attributes] * count,
            idempotency_keys=None if idempotency_key is None else IdempotencyKeys([idempotency_key] * count),
            parents=None if after is None else {n: Parents(list(after), on_parent_failure) for n in range(count)},
        )
        ids = [0] * count
        actor = connection or self.connection
        with actor.transaction():
            drive(actor, write_groups([group], ids))
        return ids

    def claim(
        self, slots: int = 10, ahead: int = 0, *, worker: int | None = None, connection: Connection | None = None
    ) -> list[tuple[int, int]]:
        """The (lease, job) pairs a worker gets of the scene's queue."""
        rows = (connection or self.connection).execute(
            "select id, range * 1024 + m from penstock.claim(%s, %s, %s, %s, %s, %s) as l,"
            " unnest(penstock.positions(l.low, l.high, l.members)) as m order by 2",
            (
                worker or self.worker,
                TOKEN,
                list(self.queue.partition_ids),
                list(self.queue.partition_ids),
                slots,
                ahead,
            ),
        )
        return [(row[0], row[1]) for row in rows]

    def succeed(self, held: Sequence[tuple[int, int]], *, connection: Connection | None = None) -> int:
        """Settle these as succeeded with the result {"done": true}; how many were not held."""
        done = {lease: Succeeded(lease, self.tokens.get(lease, TOKEN), job // 1024) for lease, job in held}
        for lease, job in held:
            done[lease].positions.append(job % 1024)
            done[lease].ages.append(2_000_000)
            done[lease].runs.append(1_000_000)
        for each in done.values():
            each.results = [b'{"done":true}' for _ in each.positions]
        rows = (connection or self.connection).execute(
            query("settle_succeeded_if_leased"),
            succeeded_parameters(self.worker, full_name("worker-a", self.worker), list(done.values())),
        )
        return len(rows.fetchall())

    def end(
        self,
        held: Sequence[tuple[int, int]],
        end: str,
        *,
        error: str | None = None,
        due_in: float = 0.0,
        connection: Connection | None = None,
    ) -> int:
        """Settle these in another way; how many were not held."""
        ends = [
            {
                "lease": lease,
                "token": self.tokens.get(lease, TOKEN),
                "range": job // 1024,
                "position": job % 1024,
                "end": end,
                "error": error,
                "due_in": due_in,
                "age": 2_000_000,
                "run": 1_000_000,
            }
            for lease, job in held
        ]
        rows = (connection or self.connection).execute(
            "select * from penstock.settle_ended_if_leased(%s, 'worker-a#1', %s)",
            (self.worker, msgspec.json.encode(ends).decode()),
        )
        return len(rows.fetchall())

    def dead(self, count: int = 1, **options: Any) -> list[int]:
        """New dead letters."""
        ids = self.enqueue(count, **options)
        self.end(self.claim(count), "failed", error="ValueError: no")
        return ids

    def one(self, statement: str, *parameters: Any) -> Any:
        """The first value of the first row."""
        row = self.connection.execute(statement, parameters).fetchone()
        return row and row[0]

    def places(self) -> dict[int, list[str]]:
        """Every job that is anywhere, and where: each must be in one place."""
        rows = self.connection.execute(
            """
            select range * 1024 + m, 'ready' from penstock.ready, unnest(penstock.positions(low, high, members)) as m
            union all
            select range * 1024 + m, 'running' from penstock.lease, unnest(penstock.positions(low, high, members)) as m
            union all
            select range * 1024 + m, 'scheduled'
              from penstock.scheduled, unnest(penstock.positions(low, high, members)) as m
            union all select job_id, 'blocked' from penstock.blocked
            union all select job_id, 'failed' from penstock.dead
            union all
            select job_id, (array['succeeded', 'failed', 'cancelled', 'discarded', 'expired'])[outcome + 1]
              from penstock.finished_job
            """
        )
        places: dict[int, list[str]] = {}
        for id_, place in rows:
            places.setdefault(id_, []).append(place)
        return places

    def assert_conserved(self) -> None:
        """Each job is in one place, and the figures are those of the tables."""
        places = self.places()
        assert {id_: found for id_, found in places.items() if len(found) != 1} == {}
        row = self.connection.execute(
            "select coalesce(sum(opened), 0)::int, coalesce(sum(scheduled), 0)::int, coalesce(sum(blocked), 0)::int,"
            " coalesce(sum(dead), 0)::int from penstock.depth"
        ).fetchone()
        found = [place for (place,) in places.values()]
        opened = found.count("ready") + found.count("running")
        dead = self.one("select count(*) from penstock.dead")
        assert row == (opened, found.count("scheduled"), found.count("blocked"), dead)
        wrong = self.connection.execute(WRONG_CAUSES).fetchall()
        assert wrong == [], wrong


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with ExitStack() as opened:

        def connect() -> Connection:
            return opened.enter_context(database.connect())

        yield Scene(database, connect(), connect)
