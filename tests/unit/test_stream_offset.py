"""The offset of a stream of jobs, as Spark keeps it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.streaming.stream_offset import ShardOffset
from penstock.storage.connection.arrays import members_text
from penstock.storage.work.leases import Lease

positions = st.sets(st.integers(0, 1023), min_size=1)


def _lease(number: int, chosen: set[int], task: str) -> Lease:
    low, high = min(chosen), max(chosen) + 1
    members = None if len(chosen) == high - low else members_text(chosen)
    facts: dict[str, Any] = {"partition_id": 1, "priority": 5, "pos": 7, "rescues": 0, "is_ahead": False}
    return Lease(
        id=number,
        range=number * 3,
        low=low,
        high=high,
        members=members,
        attempt=2,
        task=task,
        waited_seconds=0.0,
        token=2**63 - number,
        **facts,
    )


@given(st.lists(st.tuples(positions, st.sampled_from(["a", "b", "ä"])), max_size=5))
def test_an_offset_comes_back_from_json_with_the_same_jobs(given_leases: list[tuple[set[int], str]]) -> None:
    leases = [_lease(number, chosen, task) for number, (chosen, task) in enumerate(given_leases, 1)]
    offset = ShardOffset.of(9, leases)
    again = ShardOffset.read(json.loads(json.dumps(offset.write())))
    assert again == offset
    assert [each.jobs for each in again.claimed] == [
        [number * 3 * 1024 + position for position in sorted(chosen)]
        for number, (chosen, _) in enumerate(given_leases, 1)
    ]
    assert again.jobs == sum(len(chosen) for chosen, _ in given_leases)
    assert [done.positions for done in again.succeeded(5)] == [sorted(chosen) for chosen, _ in given_leases]
