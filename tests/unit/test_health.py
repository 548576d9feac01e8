"""When a worker is live, and when it is ready."""

from __future__ import annotations

import pytest
from tests.system.scraped import parse

from penstock.metrics import workers_live, workers_ready
from penstock.metrics.working import worker_metrics
from penstock.worker import DatabaseSnapshot, WorkerSnapshot


def worker(*databases: tuple[str | None, float]) -> WorkerSnapshot:
    """One with databases of which each says why it is not ready, and for how long it is stuck."""
    return WorkerSnapshot(
        slots=4, slots_used=1, left_behind=0, is_loop_blocked=False, processes=0, rescued=0,
        databases=tuple(
            DatabaseSnapshot(number=n, unready=unready, stuck_seconds=stuck, backlog=0, leases_lost=0, figures=())
            for n, (unready, stuck) in enumerate(databases, 1)
        ),
    )  # fmt: skip


def test_before_a_worker_begins_the_process_is_live_and_not_ready() -> None:
    assert workers_live([]) == (True, "live")
    assert workers_ready([]) == (False, "no worker has begun")


def test_a_worker_is_ready_where_one_of_its_databases_is() -> None:
    assert workers_ready([worker(("the database does not answer", 0.0), (None, 0.0))]).is_ok
    health = workers_ready([worker(("the database does not answer", 0.0), ("its lease has run out", 0.0))])
    assert health.status == 503
    assert health.text == "shard 1: the database does not answer; shard 2: its lease has run out"


def test_a_worker_is_live_while_a_database_is_away_and_not_where_a_thread_does_not_turn() -> None:
    assert workers_live([worker(("the database does not answer", 0.0))]).status == 200
    health = workers_live([worker((None, 0.0), (None, 31.4))])
    assert health.status == 503
    assert health.text.startswith("the conductor of shard 2 has not turned for 31 s")


@pytest.mark.parametrize("workers", [[], [worker((None, 0.0))], [worker(("stopping", 40.0))]])
def test_metrics_tell_the_same(workers: list[WorkerSnapshot]) -> None:
    found = parse(worker_metrics(workers))
    assert found.value("penstock_worker_ready") == workers_ready(workers).is_ok
    assert found.value("penstock_worker_live") == workers_live(workers).is_ok
