"""What every executor worker of a run is told; it travels to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.shards.shard_urls import share_out
from penstock.spark.claiming.known_tasks import KnownTasks
from penstock.spark.processing.batch_run import Handler

__all__ = ["WorkPlan"]


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """One call of `ps.process` for its executor workers. Each round fills in the shards that answer."""

    # By shard: where it is, and the number of the driver's own row there.
    urls: Mapping[int, str] = field(repr=False)
    drivers: Mapping[int, int]
    # What the names of the run's workers begin with, and how many executor workers it has.
    run: str
    slots: int
    queue_id: int
    is_owned: bool
    handler: Handler
    tasks: KnownTasks
    # None: by how long batches take.
    batch_size: int | None
    lease_seconds: float
    until_idle: bool
    budget_seconds: float

    def shards_of(self, slot: int) -> list[int]:
        """The shards that the executor worker of this number works on: all of them, each worker beginning with another.
        Where partitions have an owner the shards are shared out: otherwise one of two workers might own all of both.
        """
        return share_out(sorted(self.drivers), slot, self.slots, is_exclusive=self.is_owned)
