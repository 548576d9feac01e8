"""The offset of a stream of jobs: which leases its last batch holds, shard by shard, and which worker holds them there.

It is a set of leases, never a position in the order of ids: a job that is committed late would lie before it. An
offset names everything that is needed to read the same batch again, whatever has become of the leases since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work.leases import Lease, members_of
from penstock.storage.work.settle import Succeeded

__all__ = ["ClaimedRange", "ShardOffset", "StreamOffset"]


class ClaimedRange(NamedTuple):
    """Jobs of one range under one lease; `members_hex` says which of them, where it is not all from low to high."""

    lease: int
    token: int
    range: int
    low: int
    high: int
    members_hex: str | None
    attempt: int
    task: str

    @classmethod
    def of(cls, lease: Lease) -> ClaimedRange:
        members_hex = None if lease.members is None else f"{int(lease.members, 2):0256x}"
        return cls(lease.id, lease.token, lease.range, lease.low, lease.high, members_hex, lease.attempt, lease.task)

    @property
    def members(self) -> str | None:
        return None if self.members_hex is None else f"{int(self.members_hex, 16):01024b}"

    @property
    def positions(self) -> Sequence[int]:
        return members_of(self.low, self.high, self.members)

    @property
    def jobs(self) -> list[int]:
        return [self.range * RANGE + position for position in self.positions]


class ShardOffset(NamedTuple):
    """What one batch of a stream holds of one shard. Worker 0: nothing was claimed so far."""

    worker: int = 0
    claimed: tuple[ClaimedRange, ...] = ()

    @classmethod
    def of(cls, worker: int, leases: Iterable[Lease]) -> ShardOffset:
        return cls(worker, tuple(ClaimedRange.of(lease) for lease in leases))

    @classmethod
    def read(cls, written: dict[str, Any]) -> ShardOffset:
        """From the JSON that Spark keeps."""
        tasks, leases = written["tasks"], written["leases"]
        return cls(written["worker"], tuple(ClaimedRange._make([*each[:7], tasks[each[7]]]) for each in leases))

    def write(self) -> dict[str, Any]:
        """As JSON, each task's name once."""
        tasks = sorted({each.task for each in self.claimed})
        task_numbers = {task: number for number, task in enumerate(tasks)}
        return {
            "worker": self.worker,
            "tasks": tasks,
            "leases": [[*each[:7], task_numbers[each.task]] for each in self.claimed],
        }

    @property
    def jobs(self) -> int:
        return sum(len(each.positions) for each in self.claimed)

    def succeeded(self, age: int) -> list[Succeeded]:
        """All of it as what succeeded so many microseconds after it was claimed."""
        done = []
        for each in self.claimed:
            positions = list(each.positions)
            ages = [age] * len(positions)
            done.append(Succeeded(each.lease, each.token, each.range, True, positions, ages, ages))
        return done

    def attempts(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By lease and position, the job and which attempt this is."""
        return {
            (each.lease, position): (each.range * RANGE + position, each.attempt)
            for each in self.claimed
            for position in each.positions
        }


class StreamOffset(NamedTuple):
    """What one batch of a stream holds, by shard in order of number."""

    by_shard: tuple[tuple[int, ShardOffset], ...] = ()

    @classmethod
    def of(cls, offsets: Mapping[int, ShardOffset]) -> StreamOffset:
        return cls(tuple(sorted(offsets.items())))

    @classmethod
    def read(cls, written: dict[str, Any]) -> StreamOffset:
        """From the JSON that Spark keeps."""
        return cls.of({int(number): ShardOffset.read(offset) for number, offset in written.items()})

    def write(self) -> dict[str, Any]:
        """As JSON."""
        return {str(number): offset.write() for number, offset in self.by_shard}

    def of_shard(self, shard: int) -> ShardOffset:
        """What it holds of a shard."""
        return dict(self.by_shard).get(shard, ShardOffset())

    @property
    def jobs(self) -> int:
        return sum(offset.jobs for _, offset in self.by_shard)
