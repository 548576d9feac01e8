"""A scene whose queue has an owner: jobs of keys that are leased one by one, and where each of them stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tests.database.conftest import TOKEN, Scene

from penstock.model.queue import QueueDefinition
from penstock.routing.key_hash import partition_of
from penstock.storage import Connection
from penstock.storage.catalogue.queues import declare_queue, find_queue
from penstock.storage.enqueue.job_group import Destination, IdempotencyKeys, JobGroup, Parents
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_groups

__all__ = ["Owned", "Row"]


class Row(NamedTuple):
    """Where a job stands: its partition's number, its place, the map it was routed by, its task as stored."""

    number: int
    pos: int | None
    epoch: int | None
    task: str


class Owned:
    """The queue `o` of a scene."""

    def __init__(self, scene: Scene, partitions: int = 2, **options: Any) -> None:
        self.scene = scene
        self.connection = scene.connection
        declare_queue(self.connection, QueueDefinition.of("o", partitions, **({"order": "key"} | options)))
        self.worker = scene.register(("t", "u"), self.entry)

    @property
    def entry(self) -> Any:
        return find_queue(self.connection, "o")

    def key(self, number: int, partitions: int, *, moves_to: tuple[int, int] | None = None) -> bytes:
        """A key of that partition, and by another map of another."""
        found = (b"k%d" % n for n in range(100_000))
        return next(
            key
            for key in found
            if partition_of(key, partitions) == number
            and (moves_to is None or partition_of(key, moves_to[1]) == moves_to[0])
        )

    def enqueue(
        self,
        keys: Sequence[bytes | None],
        *,
        tasks: Sequence[str] | None = None,
        run_at: datetime | None = None,
        number: int | None = None,
        connection: Connection | None = None,
        idempotency_keys: Sequence[str] | None = None,
        parents: dict[int, Parents] | None = None,
    ) -> list[int]:
        """Jobs of these keys in one call, all of one partition."""
        entry = self.entry
        if number is None:
            (number,) = {0 if key is None else partition_of(key, entry.partition_count) for key in keys}
        group = JobGroup(
            Destination(entry.id, entry.partition_ids[number], 5, "", run_at, epoch=entry.epoch),
            range(len(keys)),
            args=[b"{}" for _ in keys],
            keys=list(keys),
            tasks=list(tasks or ["t"] * len(keys)),
            idempotency_keys=None if idempotency_keys is None else IdempotencyKeys(list(idempotency_keys)),
            parents=parents,
        )
        ids = [0] * len(keys)
        actor = connection or self.connection
        with actor.transaction():
            assert drive(actor, write_groups([group], ids))
        return ids

    def lease(self, jobs: Sequence[int], *, is_ahead: bool = False) -> list[tuple[int, int]]:
        """Leases of these jobs for the scene's worker, who takes the partitions it needs; (lease, job) pairs."""
        self.connection.execute(
            "update penstock.partition set owner_id = %s, owner_epoch = owner_epoch + 1", [self.worker]
        )
        held = []
        for job in jobs:
            row = self.connection.execute(
                "select l.id from penstock.ready as r join penstock.partition as p on p.id = r.partition_id,"
                " penstock.lease_chosen(%s, %s, %s, penstock.this_server(), array[p.id], array[p.owner_epoch],"
                " array[1], array[r.range], array[penstock.single(%s)], array[%s]) as l"
                " where r.range = %s and penstock.has_member(r.low, r.high, r.members, %s)",
                [self.worker, self.worker, TOKEN, job % 1024, is_ahead, job // 1024, job % 1024],
            ).fetchone()
            assert row is not None
            held.append((row[0], job))
        return held

    def end(self, held: Sequence[tuple[int, int]], end: str, *, due_in: float = 0.0) -> None:
        before, self.scene.worker = self.scene.worker, self.worker
        assert self.scene.end(held, end, due_in=due_in) == 0
        self.scene.worker = before

    def row(self, job: int, table: str = "ready") -> Row:
        """Where a job stands in a table."""
        columns = "p.number, r.pos, r.epoch, r.task"
        (found,) = self.connection.execute(
            f"select {columns} from penstock.{table} as r join penstock.partition as p on p.id = r.partition_id"
            f" where r.range = {job // 1024} and penstock.has_member(r.low, r.high, r.members, {job % 1024})".encode()
        ).fetchall()
        return Row(*found)

    def stamp(self, job: int) -> int:
        """The transaction that wrote a job's ready row."""
        return int(
            self.scene.one(
                "select changed::text::bigint from penstock.ready"
                " where range = %s and penstock.has_member(low, high, members, %s)",
                job // 1024,
                job % 1024,
            )
        )

    def kill(self) -> None:
        """Let the worker die."""
        self.connection.execute("update penstock.worker set renewed_at = '-infinity'")

    def halted(self) -> list[tuple[bytes, int]]:
        return [tuple(row) for row in self.connection.execute("select key, job_id from penstock.halted order by key")]
