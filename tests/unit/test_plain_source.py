"""Where a claim begins: with another queue each time, and with another partition of it."""

from __future__ import annotations

from penstock.engine.plain_source import PlainSource


def _first_partitions(source: PlainSource, wishes: int) -> list[int]:
    claims = [source.wish(1, 0, 0, float(number)).claim for number in range(wishes)]
    return [claim.partitions[0] for claim in claims if claim is not None]


def test_queues_take_turns_however_many_partitions_one_has() -> None:
    source = PlainSource(1, [1, 2], {11: 1, 12: 1, 13: 1, 14: 1, 21: 2})
    assert _first_partitions(source, 8) == [21, 12, 21, 13, 21, 14, 21, 11]


def test_a_queue_that_is_at_its_cap_is_passed_over_and_the_others_are_told_theirs() -> None:
    source = PlainSource(1, [1, 2], {11: 1, 12: 1, 21: 2})
    source.cap({1: 0})
    assert _first_partitions(source, 3) == [21, 21, 21]
    source.cap({1: 3})
    claim = source.wish(8, 0, 0, 9.0).claim
    assert claim is not None
    assert claim.caps is not None
    told = dict(zip(claim.partitions, claim.caps, strict=True))
    assert told[11] == told[12] == 3
    assert told[21] > 1_000
    source.cap({1: 0, 2: 0})
    assert not source.wish(8, 0, 0, 10.0)
