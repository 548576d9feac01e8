"""In which order a claim tries partitions: queues take turns, and the partitions of each."""

from __future__ import annotations

from collections import Counter

from penstock.policy.claim_order import ClaimOrder, PlacedPartition

NOBODY: frozenset[int] = frozenset()


def order_of(queues: dict[int, list[int]]) -> ClaimOrder:
    """For a worker of these queues; partitions are numbered through, and each has the place of its number."""
    order = ClaimOrder()
    order.set_partitions(PlacedPartition(id_, queue, id_) for queue, ids in queues.items() for id_ in ids)
    return order


def firsts(order: ClaimOrder, ready: set[int], turns: int, without: frozenset[int] = NOBODY) -> list[int]:
    """The partition that gives first, turn after turn, where each that has something has enough for the whole turn."""
    found = []
    for _ in range(turns):
        tried = [id_ for first, last in order.next(without) for id_ in range(first, last + 1)]
        assert len(tried) == len(set(tried))
        gave = [id_ for id_ in tried if id_ in ready][:1]
        order.learn(gave)
        found += gave
    return found


def test_every_partition_is_tried_once_whoever_s_turn_it_is() -> None:
    order = order_of({1: [1, 2, 9], 2: [3], 3: [4, 5, 6], 4: [7, 8]})
    for turn in range(20):
        tried = [id_ for first, last in order.next(NOBODY) for id_ in range(first, last + 1)]
        assert sorted(tried) == list(range(1, 10))
        order.learn([tried[turn % 4]])


def test_queues_take_turns_however_many_partitions_one_has() -> None:
    order = order_of({1: [1, 2, 3, 4], 2: [5]})
    found = firsts(order, {1, 2, 3, 4, 5}, 40)
    assert Counter(found)[5] == 20
    assert {Counter(found)[partition] for partition in (1, 2, 3, 4)} == {5}


def test_two_full_queues_among_a_thousand_empty_ones_take_turns() -> None:
    order = order_of({queue: list(range(queue * 10, queue * 10 + 10)) for queue in range(1, 1_001)})
    found = firsts(order, {10, 11, 9_000}, 60)
    assert 28 <= Counter(found)[9_000] <= 32
    assert abs(Counter(found)[10] - Counter(found)[11]) <= 2


def test_a_queue_that_was_empty_has_its_turn_soon_though_others_are_full() -> None:
    order = order_of({queue: [queue] for queue in range(1, 101)})
    firsts(order, {1, 2, 3}, 20)
    assert 77 in firsts(order, {1, 2, 3, 77}, 5)


def test_partitions_of_a_queue_that_was_resized_take_turns() -> None:
    order = order_of({1: [1, 2, 5, 6], 2: [3, 4]})
    found = Counter(firsts(order, {1, 2, 3, 4, 5, 6}, 80))
    assert {found[partition] for partition in (1, 2, 5, 6)} == {10}
    assert {found[partition] for partition in (3, 4)} == {20}


def test_a_queue_that_is_left_out_is_in_no_span() -> None:
    order = order_of({1: [1, 2], 2: [3], 3: [4]})
    assert order.next(NOBODY) == [(1, 4)]
    assert order.next(frozenset({2})) == [(1, 2), (4, 4)]
    assert firsts(order, {1, 2, 3, 4}, 6, frozenset({2})) == [1, 4, 2, 4, 1, 4]
    assert order.next(frozenset({1, 2, 3})) == []
    assert 3 in firsts(order, {1, 2, 3, 4}, 3)


def test_a_partition_of_a_queue_that_is_not_served_lies_in_no_span() -> None:
    order = ClaimOrder()
    # There is one between 2 and 5; the numbers between 5 and 9 are of other shards.
    order.set_partitions(
        [PlacedPartition(1, 1, 1), PlacedPartition(2, 1, 2), PlacedPartition(5, 2, 4), PlacedPartition(9, 3, 5)]
    )
    assert order.next(NOBODY) == [(1, 2), (5, 9)]


def test_ten_thousand_partitions_are_told_in_a_few_spans() -> None:
    order = order_of({queue: list(range(queue * 10, queue * 10 + 10)) for queue in range(1, 1_001)})
    busy = {id_ for queue in range(1, 1_001, 100) for id_ in range(queue * 10, queue * 10 + 10)}
    for _ in range(100):
        spans = order.next(NOBODY)
        assert len(spans) <= 2 * 10 + 3 * 10
        tried = next(id_ for first, last in spans for id_ in range(first, last + 1) if id_ in busy)
        order.learn([tried])
