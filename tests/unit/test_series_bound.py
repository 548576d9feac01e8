"""There are only so many series, and what is told together adds up to what was told one by one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.series_bound import Bounded, bound_series
from penstock.storage.inspect.system_figures import PartitionFigures


def partition(queue: str, number: int = 0, **facts: float) -> PartitionFigures:
    names = ("waiting", "running", "scheduled", "blocked", "dead", "oldest_wait_seconds", "enqueued", "completed",
             "failed", "cancelled", "discarded", "expired")  # fmt: skip
    return PartitionFigures(queue, f"{queue}{number}", **{**dict.fromkeys(names, 1), **facts})  # type: ignore[arg-type]


def bound(partitions: list[PartitionFigures], most_partitions: int, most_queues: int = 1_000) -> Bounded:
    queues = {each.queue for each in partitions}
    return bound_series(
        [(1, each) for each in partitions], queues, most_partitions=most_partitions, most_queues=most_queues
    )


def test_within_the_bound_each_partition_is_told() -> None:
    given_ = [partition("a", n) for n in range(4)]
    assert bound(given_, 4) == Bounded([(1, each) for each in given_], frozenset("a"), 0, 0)


def test_the_largest_queue_is_folded_first() -> None:
    told = bound([partition("a"), *(partition("b", n) for n in range(5)), *(partition("c", n) for n in range(3))], 5)
    assert [(each.queue, each.partition) for _, each in told.partitions] == [
        ("a", "a0"), ("c", "c0"), ("c", "c1"), ("c", "c2"), ("b", ""),
    ]  # fmt: skip
    assert (told.folded_partitions, told.folded_queues) == (5, 0)


def test_what_is_folded_has_the_largest_age_and_a_limit_only_where_all_have_one() -> None:
    limited = partition("a", 0, oldest_wait_seconds=5, running_limit=2, max_length=10)
    told = bound([limited, partition("a", 1, oldest_wait_seconds=9, running_limit=3)], 1)
    (_, folded) = told.partitions[0]
    assert (folded.oldest_wait_seconds, folded.running_limit, folded.max_length) == (9, 5, None)


def test_queues_beyond_the_bound_are_one_without_a_name() -> None:
    told = bound([partition("a"), partition("b"), partition("c")], 10, most_queues=1)
    assert [(each.queue, each.partition, each.waiting) for _, each in told.partitions] == [("a", "a0", 1), ("", "", 2)]
    assert (told.queues, told.folded_partitions, told.folded_queues) == (frozenset("a"), 2, 2)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.integers(1, 2)), max_size=60),
    st.integers(1, 20),
    st.integers(1, 8),
)
def test_sums_stay_right_and_there_are_no_more_series_than_may_be(
    rows: list[tuple[str, int, int]], most_partitions: int, most_queues: int
) -> None:
    given_ = [(shard, partition(queue, n, waiting=waiting)) for n, (queue, waiting, shard) in enumerate(rows)]
    queues = {queue for queue, _, _ in rows}
    told = bound_series(given_, queues, most_partitions=most_partitions, most_queues=most_queues)
    assert sum(each.waiting for _, each in told.partitions) == sum(waiting for _, waiting, _ in rows)
    of_queue = Counter[str]()
    for _, each in told.partitions:
        of_queue[each.queue] += each.waiting
    for queue in told.queues:
        assert of_queue[queue] == sum(waiting for name, waiting, _ in rows if name == queue)
    # A queue has a series for each shard at least.
    assert len(told.partitions) <= max(most_partitions, 2 * min(most_queues, len(queues))) + 2
    labels = [(shard, each.queue, each.partition) for shard, each in told.partitions]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("most", [1, 2])
def test_what_was_folded_is_counted(most: int) -> None:
    told = bound([partition("a", n) for n in range(3)], most)
    assert told.folded_partitions == 3
