"""Two shards to ask about: jobs put on either by the storage's own acts, and one that can be made to vanish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from penstock import App
from penstock.storage import Database
from penstock.storage.connection.queries import query
from penstock.storage.work.exchange import exchange
from penstock.storage.work.settle import End, Succeeded, succeeded_parameters
from penstock.storage.work.workers import register


class Place:
    """An app on two shards, and what happens to jobs on each."""

    def __init__(self, app: App, direct: Sequence[str]) -> None:
        self.app = app
        # Past any proxy: what a test does itself is not cut off.
        self.urls = dict(zip((1, 2), direct, strict=True))

    def database(self, shard: int) -> Database:
        return self.app.databases.of(shard)

    def execute(self, shard: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls[shard], autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, shard: int, count: int = 1, queue: str = "q", **options: Any) -> list[int]:
        """Jobs on one shard, in the order of their ids."""
        names = "".join(f", {name} => %s" for name in options)
        rows = self.execute(
            shard,
            f"select penstock.enqueue(%s, 't', jsonb_build_object('n', n){names}) from generate_series(1, %s) as n",
            queue,
            *options.values(),
            count,
        )
        return sorted(row[0] for row in rows)

    def child(self, shard: int, parents: Sequence[int], queue: str = "q", *, on_parent_failure: str = "cancel") -> int:
        """A job on one shard that waits for jobs on any."""
        ((partition,),) = self.execute(
            shard,
            "select p.id from penstock.partition as p join penstock.queue as q on q.id = p.queue_id"
            " where q.name = %s and p.shard = %s order by p.number limit 1",
            queue,
            shard,
        )
        ((job_id,),) = self.execute(
            shard,
            "insert into penstock.job (id, enqueued_at, partition_id, priority, task, args)"
            " select penstock.draw_range() * 1024, now(), %s, 5, 't', '{}' returning id",
            partition,
        )
        self.execute(
            shard,
            "select penstock.block_jobs(array[%s::bigint], array[%s], array[5::smallint], array['t'],"
            " array[null::timestamptz], array[%s::text], array[%s::json])",
            job_id,
            partition,
            on_parent_failure,
            str(list(parents)),
        )
        return int(job_id)

    def claim(self, shard: int, slots: int = 1, queue: str = "q") -> list[int]:
        """Jobs that a worker of this shard now runs."""
        return [job for _, job in self._claim(shard, slots, queue)]

    def succeed(self, shard: int, slots: int = 1, queue: str = "q") -> list[int]:
        """Jobs that were run on this shard, and succeeded."""
        held = self._claim(shard, slots, queue)
        with Database(self.urls[shard]).connect() as connection:
            for lease, job in held:
                done = Succeeded(lease, 7, job // 1024)
                done.positions, done.ages, done.runs = [job % 1024], [2_000_000], [1_000_000]
                done.results = [b"7"]
                connection.execute(
                    query("settle_succeeded_if_leased"), succeeded_parameters(self.worker, "worker-a", [done])
                )
        return [job for _, job in held]

    def fail(self, shard: int, slots: int = 1, queue: str = "q") -> list[int]:
        """Jobs that were run on this shard, and became dead letters."""
        held = self._claim(shard, slots, queue)
        ends = [End(lease, 7, job % 1024, job // 1024, "failed", "ValueError: no") for lease, job in held]
        with Database(self.urls[shard]).connect() as connection:
            exchange(connection, self.worker, "worker-a", [], ends, None)
        return [job for _, job in held]

    def _claim(self, shard: int, slots: int, queue: str) -> list[tuple[int, int]]:
        with Database(self.urls[shard]).connect() as connection:
            ((queue_id,),) = connection.execute("select id from penstock.queue where name = %s", [queue]).fetchall()
            partitions = [
                row[0]
                for row in connection.execute(
                    "select id from penstock.partition where queue_id = %s and shard = %s", [queue_id, shard]
                )
            ]
            self.worker = register(
                connection,
                name="worker-a",
                host="here",
                pid=1,
                version="0",
                concurrency=10,
                lease_seconds=3600.0,
                tasks=[(queue_id, "t")],
            )
            rows = connection.execute(
                "select id, range * 1024 + m from penstock.claim(%s, 7, %s, %s, %s, 0) as l,"
                " unnest(penstock.positions(l.low, l.high, l.members)) as m order by 2",
                (self.worker, partitions, partitions, slots),
            ).fetchall()
        return [(row[0], row[1]) for row in rows]
