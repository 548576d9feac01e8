"""Changes reach every shard, and say so where one did not answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.fault.proxy import Proxy
from tests.shards.place import Place

from penstock import App, NotFound, PartitionUnavailable
from penstock.model import QueueDefinition
from penstock.shards.membership import read_digest
from penstock.storage.catalogue.queues import declare_queue

LATER = datetime.now(UTC) + timedelta(days=1)


def test_one_job_is_changed_on_its_shard(place: Place) -> None:
    for shard in (1, 2):
        cancelled, moved = place.enqueue(shard, 2)
        assert place.app.cancel(cancelled) == "cancelled"
        assert place.app.reschedule(moved, LATER) == "scheduled"
        assert place.app.retry(moved) == "ready"
        assert [place.app.job(id_).state for id_ in (cancelled, moved)] == ["cancelled", "ready"]


def test_a_filter_reaches_every_shard(place: Place) -> None:
    place.enqueue(1, 3, tags=["a"])
    place.enqueue(2, 4, tags=["a"])
    place.enqueue(2, 2)
    place.enqueue(1, 1, run_at=LATER)
    place.enqueue(2, 1, run_at=LATER)
    assert place.app.cancel(tag="a", preview=True) == 7
    assert place.app.cancel(tag="a") == 7
    assert place.app.retry(queue="q", state="scheduled") == 2
    assert place.app.purge("q", preview=True) == 4
    assert place.app.purge("q") == 4
    assert place.app.stats("q").queue_length == 0


def test_where_a_shard_does_not_answer_the_others_are_changed_and_the_error_says_how_many(
    place: Place, second: Proxy
) -> None:
    place.enqueue(1, 3)
    place.enqueue(2, 4)
    second.go_down()
    with pytest.raises(PartitionUnavailable, match=r"^would purge 3 jobs on the shards that answered; shard 2"):
        place.app.purge("q", preview=True)
    with pytest.raises(PartitionUnavailable, match=r"^cancelled 3 jobs on the shards that answered; shard 2") as e:
        place.app.cancel(queue="q")
    assert e.value.shard == 2
    with pytest.raises(PartitionUnavailable, match=r"^retried 0 jobs on"):
        place.app.retry(queue="q")
    with pytest.raises(PartitionUnavailable, match="shard 2"):
        place.app.release("q", "nobody knows whether it is halted")
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    assert place.app.cancel(queue="q") == 4


def test_a_pause_holds_on_every_shard(place: Place) -> None:
    place.app.pause("q")
    assert [row for shard in (1, 2) for (row,) in place.execute(shard, "select is_paused from penstock.queue")] == [
        True,
        True,
    ]
    place.app.resume("q")
    assert not place.app.stats("q").paused
    assert len(set(place.app.databases.each(read_digest))) == 1


def test_a_pause_reaches_a_shard_that_was_away(place: Place, second: Proxy) -> None:
    second.go_down()
    place.app.pause("q")
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    assert place.execute(2, "select is_paused from penstock.queue") == [(False,)]
    place.app.databases.level()
    assert place.execute(2, "select is_paused from penstock.queue") == [(True,)]


def test_a_load_is_paused_resumed_and_cancelled_on_all_shards(place: Place, second: Proxy) -> None:
    for shard, count in ((1, 3), (2, 4)):
        ids = place.enqueue(shard, count)
        place.execute(
            shard,
            "with l as (insert into penstock.load (name, queue_id, is_stream) select 'l', id, false from penstock.queue"
            " returning id), b as (insert into penstock.load_batch (load_id, batch, rows, duplicates, bad_rows)"
            " select id, 0, %s, 0, 0 from l) insert into penstock.load_range (range, stage, load_id, size,"
            " partition_id, priority, has_idempotency_keys, task)"
            " select j.id / 1024, 's', l.id, 1, j.partition_id, 5, false, 't'"
            " from l, penstock.job as j where j.id = any (%s)",
            count,
            ids,
        )
    place.app.pause_load("l")
    (load,) = place.app.loads()
    assert (load.state, load.rows, load.waiting, place.app.stats("q").queue_length) == ("paused", 7, 7, 0)
    place.app.resume_load("l")
    assert place.app.loads()[0].state == "running"
    second.go_down()
    with pytest.raises(PartitionUnavailable, match=r"^paused load 'l' on the shards that answered; shard 2"):
        place.app.pause_load("l")
    with pytest.raises(PartitionUnavailable, match=r"^would cancel 3 jobs of load 'l' on the shards that answered"):
        place.app.cancel_load("l", preview=True)
    with pytest.raises(PartitionUnavailable, match=r"^cancelled 3 jobs of load 'l' on the shards that answered"):
        place.app.cancel_load("l")
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    assert place.app.cancel_load("l", preview=True) == 4
    assert place.app.cancel_load("l") == 4
    assert place.app.cancel_load("l", preview=True) == 0
    assert place.app.loads()[0].waiting == 0
    with pytest.raises(NotFound, match="load 'x' does not exist"):
        place.app.pause_load("x")


def test_a_shard_that_takes_no_writes_is_read_and_said_to_be_read_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever reads the figures would fold what has gathered.
    monkeypatch.setattr("penstock.storage.upkeep.sweep.MUCH_TALLY_BYTES", 0)
    place.enqueue(1, 3)
    place.enqueue(2, 4)
    name = place.urls[2].rpartition("/")[2]
    place.execute(1, f"alter database {name} set default_transaction_read_only = on")
    place.execute(1, "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", name)
    try:
        stats = place.app.stats("q")
        assert (stats.queue_length, stats.unavailable) == (7, [])
        assert [each.health for each in place.app.shards] == ["up", "read-only"]
        with pytest.raises(
            PartitionUnavailable, match=r"^cancelled 3 jobs on the shards that answered; shard 2.*read-only"
        ):
            place.app.cancel(queue="q")
        assert place.app.stats("q").queue_length == 4
    finally:
        place.execute(1, f"alter database {name} reset default_transaction_read_only")


def test_a_new_queue_is_not_placed_on_a_shard_that_is_down(place: Place, second: Proxy) -> None:
    second.go_down()
    with pytest.raises(PartitionUnavailable):
        place.app.cancel(queue="q")
    place.app.queue("new", partitions=4)
    assert {each.shard for each in place.app.stats("new").partitions} == {"1"}
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    place.app.databases.level().all()
    assert len(set(place.app.databases.each(read_digest))) == 1


def test_a_queue_that_only_the_leading_shard_has_heard_of_can_be_declared_by_others(shard_urls: list[str]) -> None:
    # Whoever declared it first is just about to tell the other shard, or was killed before.
    with App(shards=shard_urls) as first, App(shards=shard_urls) as second:
        assert len(list(second.databases)) == 2
        first.databases.lead.run(lambda connection: declare_queue(connection, QueueDefinition("q", 2)))
        second.queue("q", partitions=2).task(name="t", max_attempts=3)(lambda: None).enqueue()
        announced = first.databases.each(
            lambda connection: connection.execute("select name, max_attempts from penstock.task").fetchall()
        )
        assert announced.all() == [[("t", 3)], [("t", 3)]]
