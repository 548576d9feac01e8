"""The figures of queues."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.database.conftest import Scene
from tests.database.ledger import check

from penstock import QueueRules
from penstock.admin import all_stats
from penstock.model.job_state import State
from penstock.model.stats import Stats
from penstock.storage.catalogue.queues import find_queue, set_limits, set_paused
from penstock.storage.connection.queries import query
from penstock.storage.inspect.stats import read_stats
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.upkeep.prune import prune
from penstock.storage.upkeep.sweep import fold

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize("is_folded", [False, True])
def test_the_figures_are_those_of_the_tables(scene: Scene, is_folded: bool) -> None:
    scene.enqueue(4)
    scene.succeed(scene.claim(4))
    scene.dead(2)
    first = scene.enqueue(10)
    scene.claim(3)
    scene.enqueue(5, run_at=LATER)
    scene.enqueue(1, after=first[:1])
    if is_folded:
        assert fold(scene.connection) > 0
    stats = read_stats(scene.connection, scene.queue)
    assert (stats.queue_length, stats.active_count, stats.scheduled, stats.blocked, stats.dead) == (7, 3, 5, 1, 2)
    assert (stats.total_enqueued, stats.total_completed, stats.total_failed) == (22, 4, 2)
    assert stats.oldest_enqueued_at == scene.one("select enqueued_at from penstock.job where id = %s", first[3])
    assert (stats.queue, stats.paused, stats.partitions[0].name, stats.partitions[0].shard) == ("q", False, "q", "1")


def ends(stats: Stats) -> tuple[int, int, int]:
    return stats.total_cancelled, stats.total_discarded, stats.total_expired


def test_jobs_that_were_cancelled_discarded_or_expired_are_counted_whichever_way_they_ended(scene: Scene) -> None:
    waiting, parent = scene.enqueue(2)
    (scheduled,), (blocked,) = scene.enqueue(run_at=LATER), scene.enqueue(after=[parent])
    control.cancel_jobs(scene.connection, [waiting, scheduled, blocked])
    assert ends(read_stats(scene.connection, scene.queue)) == (3, 0, 0)
    scene.enqueue(3)
    for end, held in zip(("cancelled", "discarded", "expired", "retry"), scene.claim(4), strict=True):
        if end == "retry":
            control.cancel_jobs(scene.connection, [held[1]])  # It is asked to stop, and does not run again.
        scene.end([held], end)
    assert ends(read_stats(scene.connection, scene.queue)) == (5, 1, 1)

    scene.enqueue(2)
    scene.connection.execute("update penstock.queue set rules = '{\"max_wait\": 60}'")
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '2 min'")
    assert sweep.expire(scene.connection) == 2
    assert ends(read_stats(scene.connection, scene.queue)) == (5, 1, 3)

    (running,), (parent,) = scene.enqueue(), scene.enqueue()
    scene.claim(1)
    control.cancel_jobs(scene.connection, [running])
    scene.connection.execute("update penstock.worker set renewed_at = '2000-01-01'")
    assert sweep.rescue(scene.connection).jobs == 1
    assert ends(read_stats(scene.connection, scene.queue)) == (6, 1, 3)

    scene.enqueue(4, task="unknown")
    scene.connection.execute("update penstock.ready set is_parked = true where task = 'unknown'")
    scene.enqueue(3, run_at=LATER)
    scene.enqueue(2, after=[parent])
    for state in (State.BLOCKED, State.SCHEDULED, State.READY):
        control.purge(scene.connection, scene.queue.partition_ids, state)
        check(scene.connection)
    assert ends(read_stats(scene.connection, scene.queue)) == (16, 1, 3)
    fold(scene.connection)
    prune(scene.database, dict.fromkeys(("succeeded", "failed", "cancelled", "discarded", "expired"), 0.0))
    stats = read_stats(scene.connection, scene.queue)
    assert ends(stats) == ends(read_stats(scene.connection, scene.queue)) == (16, 1, 3), "whatever becomes of history"
    assert (stats.total_enqueued, stats.total_completed, stats.queue_length) == (20, 0, 0)


def test_a_queue_adds_up_its_partitions(scene: Scene) -> None:
    queue = scene.declare("wide", partitions=3)
    scene.enqueue(5, queue=queue, partition=0)
    scene.enqueue(7, queue=queue, partition=2)
    stats = read_stats(scene.connection, queue)
    assert [part.queue_length for part in stats.partitions] == [5, 0, 7]
    assert stats.queue_length == 12
    assert [each.queue for each in all_stats(scene.databases)] == ["q", "wide"]


def test_the_rules_of_a_queue_are_told_as_they_are_declared_and_as_they_are_now(scene: Scene) -> None:
    plain = read_stats(scene.connection, scene.queue).rules
    assert plain == QueueRules()
    options: dict[str, Any] = {
        "order": "key", "per_key": 3, "limit": 7, "total_limit": 20, "rate": "100/s", "total_rate": "90/m",
        "per_key_rate": "30/m",
        "fair_by": "tenant", "weights": {"acme": 2.0}, "on_retry": "pass", "on_dead": "halt", "max_length": 9,
        "max_wait": 1.5,
    }  # fmt: skip
    scene.declare("ruled", **options)
    ruled = {each.queue: each.rules for each in all_stats(scene.databases)}["ruled"]
    assert dataclasses.asdict(ruled) == {**options, "run": 1, "paused": False}
    with pytest.raises(dataclasses.FrozenInstanceError):
        ruled.rate = None  # type: ignore[misc]
    set_limits(scene.connection, "ruled", {"rate": None, "limit": 8})
    set_paused(scene.connection, "ruled", is_paused=True)
    now = read_stats(scene.connection, find_queue(scene.connection, "ruled")).rules
    assert now == dataclasses.replace(ruled, rate=None, limit=8, paused=True)
    usual = read_stats(scene.connection, scene.declare("usual", order="key")).rules
    assert usual == QueueRules(order="key", per_key=1, on_retry="hold", on_dead="continue")
    rated = read_stats(scene.connection, scene.declare("rated", rate="1/h")).rules
    assert rated == QueueRules(rate="1/h")


def test_the_oldest_is_found_among_retried_parked_and_cancelled_ones(scene: Scene) -> None:
    first, second, third = (scene.enqueue()[0] for _ in range(3))
    scene.end(scene.claim(1), "retry", error="x")

    def oldest() -> object:
        return read_stats(scene.connection, scene.queue).oldest_enqueued_at

    def enqueued(job_id: int) -> object:
        return scene.one("select enqueued_at from penstock.job where id = %s", job_id)

    assert oldest() == enqueued(first)
    scene.connection.execute("delete from penstock.ready where range = %s", (first // 1024,))
    scene.connection.execute("update penstock.ready set is_parked = true where range = %s", (second // 1024,))
    assert oldest() == enqueued(second)
    scene.connection.execute("delete from penstock.ready where range = %s", (second // 1024,))
    assert oldest() == enqueued(third)


def test_a_long_tally_that_nobody_folds_is_folded_by_the_reader(scene: Scene) -> None:
    scene.connection.execute(
        "insert into penstock.tally (partition_id, enqueued, opened) select %s, 1, 1 from generate_series(1, 20000)",
        (scene.queue.partition_ids[0],),
    )
    assert read_stats(scene.connection, scene.queue).queue_length == 20_000
    assert scene.one("select count(*) from penstock.tally") == 0


def test_the_figures_read_nothing_that_grows_with_the_backlog(scene: Scene) -> None:
    scene.connection.execute(
        "insert into penstock.ready (partition_id, priority, pos, range, low, high, task)"
        " select %s, 5, n, n, 0, 1, 't' from generate_series(1, 200000) as n",
        (scene.queue.partition_ids[0],),
    )
    scene.connection.execute("analyze penstock.ready")
    for name in ("read_stats", "ready_heads"):
        plan = scene.connection.execute(
            "explain (analyze, buffers, format json) " + query(name), {"partitions": list(scene.queue.partition_ids)}
        ).fetchone()
        assert plan is not None
        top = msgspec.json.decode(plan[0])[0]["Plan"]
        assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 200, name
