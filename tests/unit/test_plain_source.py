"""What a source of plain queues wishes for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.engine import plain_source
from penstock.engine.plain_source import PlainSource
from penstock.policy.claim_order import PlacedPartition
from penstock.storage.work.exchange import ClaimWish, Turn
from penstock.storage.work.leases import Lease

PARTITIONS = [PlacedPartition(11, 1, 1), PlacedPartition(12, 1, 2), PlacedPartition(21, 2, 3)]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> PlainSource:
    """A worker of two queues, one with two partitions."""
    monkeypatch.setattr(plain_source, "read_partitions", lambda connection, queues, known: (1, PARTITIONS))
    source = PlainSource(1, [1, 2])
    source.look(cast(Any, None), 1, 0.0)
    return source


def claim_of(source: PlainSource, now: float = 0.0) -> ClaimWish:
    claim = source.wish(8, 0, 0, now).claim
    assert claim is not None
    return claim


def give(source: PlainSource, partition: int, count: int, pos: int = 1, now: float = 0.0) -> None:
    """Let a claim have given so many leases, of one row each."""
    wish = source.wish(8, 0, 0, now)
    leases = [Lease(n, partition, 5, pos + n, pos + n, 0, 1, None, 1, 0, False, "t", 0.0) for n in range(count)]
    source.learn(wish, Turn(leases=leases), now)


def test_a_queue_that_is_at_its_cap_is_passed_over_and_the_claim_is_told_the_others(source: PlainSource) -> None:
    source.cap({1: 0})
    assert [(claim_of(source).firsts, claim_of(source).lasts) for _ in range(3)] == [((21,), (21,))] * 3
    source.cap({1: 3})
    assert claim_of(source).caps == {1: 3}
    source.cap({1: 0, 2: 0})
    assert not source.wish(8, 0, 0, 0.0)


def test_nothing_is_claimed_of_queues_that_are_withheld(source: PlainSource) -> None:
    source.withhold({1}, frozenset())
    assert claim_of(source).firsts == (21,)
    source.withhold({1}, {2})
    assert not source.wish(8, 0, 0, 0.0)


def test_where_to_begin_is_told_only_of_partitions_that_gave_much_and_until_the_next_sweep(source: PlainSource) -> None:
    assert not claim_of(source).starts
    give(source, 11, plain_source.MANY_LEASES - 1)
    assert not claim_of(source).starts
    give(source, 12, 1)
    give(source, 11, 1, pos=700)
    starts = claim_of(source).starts
    assert starts is not None
    assert list(starts) == [11]
    assert starts[11][5] == 700
    assert max(starts[11][:5]) < 0
    assert not claim_of(source, now=5.0).starts


def test_g13_leases_that_an_owner_chose_may_be_found_after_a_lost_answer(source: PlainSource) -> None:
    """A worker that serves queues of both kinds is told of all that it holds."""
    give(source, 99, 2 * plain_source.MANY_LEASES)
    assert claim_of(source).firsts == (11,)
    assert not claim_of(source).starts


def test_g14_another_server_s_partitions_are_read_whatever_their_version(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[int] = []

    def read(_connection: Any, _queues: Any, version: int) -> Any:
        known.append(version)
        return 1, PARTITIONS

    monkeypatch.setattr(plain_source, "read_partitions", read)
    source = PlainSource(1, [1, 2])
    for now in (0.0, 2.0):
        source.look(cast(Any, None), 1, now)
    source.forget()
    source.look(cast(Any, None), 1, 4.0)
    assert known == [-1, 1, -1]
