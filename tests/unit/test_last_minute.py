"""What a worker tells of the last minute with each renewal."""

from __future__ import annotations

from penstock.storage.work.workers import Ended
from penstock.worker.last_minute import LastMinute


def test_a_worker_tells_what_ended_since_it_began_until_it_is_a_minute_old() -> None:
    last = LastMinute(100.0)
    assert last.note(Ended(0, 0), 101.0) == (0, 0)
    assert last.note(Ended(40, 3), 130.0) == (40, 3)
    assert last.note(Ended(50, 3), 160.0) == (50, 3)


def test_what_ended_longer_ago_counts_no_more() -> None:
    last = LastMinute(0.0)
    for second in range(1, 301):
        told = last.note(Ended(10 * second, second), float(second))
        assert told == (10 * min(second, 60), min(second, 60))
    assert last.note(Ended(3_000, 300), 400.0) == (0, 0)


def test_no_more_is_kept_than_a_minute_of_renewals() -> None:
    last = LastMinute(0.0)
    for second in range(1_000):
        last.note(Ended(second, 0), float(second))
    assert len(last._seen) == 61
