"""The values a call is written by: parents that have no id yet, idempotency keys as they are stored, ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.storage.enqueue.job_group import (
    Destination,
    EarlierJob,
    IdempotencyKeys,
    JobGroup,
    Parents,
    split,
)

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
PLAIN = Destination(1, 7, 5, "t")
OWNED = Destination(1, 7, 5, "", epoch=3)


def test_parents_are_named_in_the_order_given_whether_they_have_an_id_or_not() -> None:
    parents = Parents([90_000, EarlierJob(0), 80_000, EarlierJob(2)])
    assert parents.stored == [90_000, 80_000]
    assert parents.earlier == [0, 2]
    assert parents.ids([1024, 1025, 4096]) == [90_000, 1024, 80_000, 4096]


def test_the_first_job_of_a_call_and_the_job_of_id_zero_are_different_parents() -> None:
    assert Parents([0]).ids([1024]) == [0]
    assert Parents([EarlierJob(0)]).ids([1024]) == [1024]


def test_an_idempotency_key_is_unique_for_each_ordering_key_where_the_queue_has_an_owner() -> None:
    columns = {"args": [b"{}"] * 3, "keys": [b"a", None, b"b"], "idempotency_keys": IdempotencyKeys(["x", "x", None])}
    plain, owned = (JobGroup(destination, range(3), **columns) for destination in (PLAIN, OWNED))  # type: ignore[arg-type]
    assert [plain.stored_idempotency_key(row) for row in range(3)] == ["x", "x", None]
    assert [owned.stored_idempotency_key(row) for row in range(3)] == ["61:x", ":x", None]


def test_jobs_are_due_at_their_time_or_so_long_after_the_call_is_written() -> None:
    later = NOW + timedelta(hours=1)
    assert PLAIN.due_at(NOW) is None
    assert PLAIN._replace(run_at=later).due_at(NOW) == later
    assert PLAIN._replace(delay=90.0).due_at(NOW) == NOW + timedelta(seconds=90)


def test_a_group_becomes_ranges_of_at_most_1024_jobs_in_the_calls_order() -> None:
    first, second = JobGroup(PLAIN, range(1500), [b"{}"] * 1500), JobGroup(OWNED, [1500, 1502], [b"{}"] * 2)
    ranges = split([first, second])
    assert [(new.group, list(new.indexes)) for new in ranges] == [
        (first, list(range(1024))),
        (first, list(range(1024, 1500))),
        (second, [1500, 1502]),
    ]
    assert [list(new.positions) for new in ranges] == [list(range(1024)), list(range(476)), [0, 1]]
