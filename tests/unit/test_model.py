"""States, queues and what reads return."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.model import Explanation, Failure, Job, PartitionStats, QueueDefinition, State, Stats, WorkerInfo
from penstock.model.job_state import FINAL, OUTCOME, STATE_OF_OUTCOME
from penstock.model.queue import partition_name, refuse_fixed_options
from penstock.model.rules import LIVE_OPTIONS, QueueRules

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 15, 13, tzinfo=UTC)


def test_a_state_compares_equal_to_its_name() -> None:
    assert [str(state) for state in State] == [
        "scheduled", "blocked", "ready", "running", "succeeded", "failed", "cancelled", "discarded", "expired",
    ]  # fmt: skip
    assert all(state == str(state) and state in {str(state)} for state in State)


def test_the_stored_numbers_of_outcomes_never_change() -> None:
    assert OUTCOME == {"succeeded": 0, "failed": 1, "cancelled": 2, "discarded": 3, "expired": 4}
    assert all(STATE_OF_OUTCOME[number] is state for state, number in OUTCOME.items())
    assert {"succeeded", "failed", "cancelled", "discarded", "expired"} == FINAL


def test_what_a_read_returns_cannot_be_changed() -> None:
    job = Job(id=1, queue="q", partition="q", task="t", args={}, state=State.READY, enqueued_at=NOON)
    worker = WorkerInfo(id=1, name="w", host="h", pid=2, started_at=NOON, renewed_at=NOON, concurrency=16)
    failure = Failure(attempt=1, error="boom", at=NOON, worker=None)
    explanation = Explanation(job_id=1, state=State.READY, reason="no worker")
    for value, name in (
        (job, "state"),
        (worker, "pid"),
        (failure, "error"),
        (explanation, "reason"),
        (Stats(queue="q"), "dead"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)


def test_an_explanation_reads_as_its_reason() -> None:
    assert (
        str(Explanation(job_id=1, state=State.BLOCKED, reason="blocked by 99", detail={"parents": [99]}))
        == "blocked by 99"
    )


def test_the_figures_of_a_queue_are_the_sum_of_its_partitions() -> None:
    first = PartitionStats(
        name="q", shard="1", queue_length=1, active_count=2, scheduled=3, blocked=4, dead=5, oldest_enqueued_at=LATER,
        total_enqueued=6, total_completed=7, total_failed=8, total_cancelled=9, total_discarded=1, total_expired=2,
    )  # fmt: skip
    second = dataclasses.replace(first, name="q__p1", queue_length=10, oldest_enqueued_at=NOON, total_failed=0)
    third = PartitionStats(name="q__p2", shard="1")
    stats = Stats.of("q", iter([first, second, third]), unavailable=["2"])
    assert stats.partitions == [first, second, third]
    assert stats.unavailable == ["2"]
    assert (stats.queue_length, stats.active_count, stats.scheduled, stats.blocked, stats.dead) == (11, 4, 6, 8, 10)
    assert (stats.total_enqueued, stats.total_completed, stats.total_failed) == (12, 14, 8)
    assert (stats.total_cancelled, stats.total_discarded, stats.total_expired) == (18, 2, 4)
    assert stats.oldest_enqueued_at == NOON
    assert Stats.of("q", []).oldest_enqueued_at is None


def test_lesson_awa_partition_0_is_the_queue_itself() -> None:
    assert [partition_name("emails", number) for number in range(3)] == ["emails", "emails__p1", "emails__p2"]


def test_a_queue_is_one_partition_without_bounds_unless_declared_otherwise() -> None:
    queue = QueueDefinition.of("emails")
    assert (queue.partitions, queue.rules.max_length, queue.rules.max_wait) == (1, None, None)
    assert QueueDefinition.of("emails", max_wait=5).rules.max_wait == 5.0


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": ""}, "queue"),
        ({"name": None}, "queue"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": 1025}, "partitions"),
        ({"partitions": True}, "partitions"),
        ({"partitions": 2.0}, "partitions"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": "many"}, "max_length"),
        ({"max_wait": 0}, "max_wait"),
        ({"max_wait": float("nan")}, "max_wait"),
        ({"order": "enqueue"}, "order"),
        ({"order": ""}, "order"),
        ({"per_key": 0}, "per_key"),
        ({"per_key": None}, "per_key"),
        ({"limit": 0}, "limit"),
        ({"limit": 2**31}, "limit"),
        ({"limit": True}, "limit"),
        ({"rate": 100}, "rate"),
        ({"rate": "100"}, "rate"),
        ({"rate": "0/s"}, "rate"),
        ({"per_key_rate": "1/week"}, "per_key_rate"),
        ({"fair_by": "owner"}, "fair_by"),
        ({"fair_by": "tenant", "weights": [("a", 1)]}, "weights"),
        ({"fair_by": "tenant", "weights": {"a": 0}}, "weights"),
        ({"fair_by": "tenant", "weights": {"a": -1.0}}, "weights"),
        ({"fair_by": "tenant", "weights": {"a": float("inf")}}, "weights"),
        ({"fair_by": "tenant", "weights": {"a": True}}, "weights"),
        ({"fair_by": "tenant", "weights": {"": 1}}, "weights"),
        ({"fair_by": "tenant", "weights": {str(n): 1 for n in range(1001)}}, "weights"),
        ({"order": "key", "on_retry": "stop"}, "on_retry"),
        ({"weights": {"a": 1}}, "weights"),
        ({"on_retry": "pass"}, "on_retry"),
        ({"on_dead": "halt"}, "on_dead"),
        ({"limit": 2, "fair_by": "tenant", "on_dead": "halt"}, "on_dead"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_its_field(options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        QueueDefinition.of(**{"name": "emails", **options})  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("options", "running_per_key", "is_owned", "holds_on_retry"),
    [
        ({}, None, False, False),
        ({"limit": 2, "rate": "1/s"}, None, False, False),
        ({"order": "key"}, 1, True, True),
        ({"order": "key", "per_key": 3}, 3, True, True),
        ({"per_key": 3}, 3, True, True),
        ({"order": "key", "on_retry": "pass"}, 1, True, False),
        ({"per_key_rate": "1/s"}, None, True, True),
        ({"fair_by": "tenant"}, None, True, False),
    ],
)
def test_the_kind_of_a_queue_follows_from_its_rules(
    options: dict[str, object], running_per_key: int | None, is_owned: bool, holds_on_retry: bool
) -> None:
    rules = QueueDefinition.of("q", **options).rules  # type: ignore[arg-type]
    assert (rules.per_key, rules.is_owned, rules.holds_on_retry) == (running_per_key, is_owned, holds_on_retry)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            "limt",
            "app.limit has no option 'limt' \\(did you mean 'limit'\\?\\); the options are run, limit, total_limit",
        ),
        ("partitions", "app.limit does not change it; app.resize\\('x', partitions=...\\) does"),
        (
            "order",
            "it stays as queue 'x' was declared; declare .* app.limit can: run, limit, total_limit, rate",
        ),
        ("on_dead", "it stays as queue 'x' was declared"),
    ],
)
def test_what_a_limit_cannot_change_is_refused_with_what_can(option: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        refuse_fixed_options("x", {option: 1})
    assert refused.value.field == option
    refuse_fixed_options("x", LIVE_OPTIONS)


@pytest.mark.parametrize(
    ("options", "field", "told"),
    [
        ({"weights": {"a": 1}}, "weights", "give fair_by='tenant', or no weights"),
        ({"weights": 5, "fair_by": "tenant"}, "weights", r"write weights=\{'acme': 2\}"),
        ({"fair_by": "customer"}, "fair_by", "'customer' is none of its values; give 'tenant', or leave it out"),
        ({"on_retry": "pass"}, "on_retry", "give order='key', per_key or per_key_rate, or leave on_retry out"),
        ({"on_retry": "hold"}, "on_retry", "'hold' is about keys"),
        ({"on_dead": "continue", "fair_by": "tenant"}, "on_dead", "'continue' is about keys"),
    ],
)
def test_rules_that_mean_nothing_together_are_refused_with_the_remedy(
    options: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        QueueDefinition.of("q", **options)
    assert refused.value.field == field


def test_weights_for_a_queue_that_shares_by_nothing_name_what_can_be_done_now() -> None:
    with pytest.raises(InvalidInput, match="declare a queue of another name with fair_by='tenant'"):
        QueueRules().changed("q", {"weights": {"a": 2}})
