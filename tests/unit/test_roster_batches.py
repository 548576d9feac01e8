"""Batches in a roster: of one key, in order, counted as one for `per_key` and as its jobs for limits and shares."""

from __future__ import annotations

from typing import Any

from penstock.model.rules import QueueRules
from penstock.policy.batch_size import BatchSize
from penstock.policy.job_sequence import BATCH_SHIFT, HAS_HANDLER
from penstock.policy.roster import JobTuple, Roster

BATCHED = HAS_HANDLER | 1 << BATCH_SHIFT


def roster(size: BatchSize, **options: Any) -> Roster:
    return Roster(QueueRules.declared("q", **{"order": "key", **options}), 1, 0.0, [size])


def job(number: int, key: bytes | None = b"k", mark: int = BATCHED, tenant: str = "") -> JobTuple:
    return (number, key, 5, 1, 0.0, tenant, 1, mark)


def test_a_batch_is_of_one_key_in_order_and_the_next_waits_for_all_of_it() -> None:
    ours = roster(BatchSize(3))
    ours.add([job(n, b"ab"[n % 2 : n % 2 + 1]) for n in range(10)])
    assert ours.take(10, 0.0) == [0, 1]
    assert ours.batches == {0: [0, 2, 4], 1: [1, 3, 5]}
    ours.batches.clear()
    for ended in (0, 2):
        ours.note_end(ended, "succeeded", 0.0)
        assert ours.take(10, 0.0) == []
    ours.note_end(4, "succeeded", 0.0)
    assert ours.take(10, 0.0) == [6]
    assert ours.batches == {6: [6, 8]}


def test_what_runs_alone_is_in_no_batch() -> None:
    ours = roster(BatchSize(3))
    ours.add([job(1), job(2, mark=HAS_HANDLER), job(3), job(4)])
    for expected, batches in (([1], {}), ([2], {}), ([3], {3: [3, 4]})):
        assert ours.take(10, 0.0) == expected
        assert ours.batches == batches
        ours.note_end(expected[0], "succeeded", 0.0)


def test_per_key_counts_batches_and_a_limit_counts_jobs() -> None:
    ours = roster(BatchSize(3), per_key=2, limit=5)
    ours.add([job(n) for n in range(20)])
    assert ours.take(10, 0.0) == [0, 3]
    assert ours.batches == {0: [0, 1, 2], 3: [3, 4]}
    ours.note_end(0, "succeeded", 0.0)
    assert ours.take(10, 0.0) == []
    for ended in (1, 2):
        ours.note_end(ended, "succeeded", 0.0)
    assert ours.take(10, 0.0) == [5]
    assert ours.batches[5] == [5, 6, 7]


def test_a_batch_waits_for_more_until_it_is_full_or_has_waited() -> None:
    ours = roster(BatchSize(3, 1.0))
    ours.add([job(1), job(2)])
    assert ours.take(10, 0.0) == []
    assert ours.next_at(0.5) == 1.0
    assert not ours.is_idle(0.5)
    ours.add([job(3)])
    assert ours.take(10, 0.5) == [1]
    assert ours.batches == {1: [1, 2, 3]}
    for ended in (1, 2, 3):
        ours.note_end(ended, "succeeded", 0.5)
    ours.add([job(4)])
    assert ours.take(10, 0.6) == []
    assert ours.take(10, 1.7) == [4]


def test_a_rate_of_keys_caps_the_batch() -> None:
    ours = roster(BatchSize(100), per_key_rate="2/s")
    ours.add([job(n) for n in range(50)])
    started = sum(len(ours.batches.get(each, [each])) for each in ours.take(10, 100.0))
    assert 1 <= started <= 2


def test_shares_are_charged_for_every_job_of_a_batch() -> None:
    ours = roster(BatchSize(4), order=None, fair_by="tenant")
    ours.add([job(n, None, tenant="large") for n in range(40)])
    ours.add([job(100 + n, None, HAS_HANDLER, "small") for n in range(8)])
    taken = ours.take(6, 0.0)
    assert sorted(len(ours.batches.get(each, [each])) for each in taken) == [1, 1, 1, 1, 4, 4]


def test_jobs_that_come_back_leave_their_batch() -> None:
    ours = roster(BatchSize(3))
    ours.add([job(1), job(2)])
    assert ours.take(1, 0.0) == [1]
    ours.note_end(1, "release", 0.0)
    ours.note_end(2, "release", 0.0)
    assert ours.take(1, 0.0) == []
    ours.add([job(1), job(2)])
    assert ours.take(1, 0.0) == [1]
