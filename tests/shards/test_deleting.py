"""A queue is deleted on every shard, also on those that are away meanwhile."""

from __future__ import annotations

import pytest
from tests.fault.proxy import Proxy
from tests.shards.drained_world import World
from tests.shards.place import Place

from penstock import PartitionUnavailable
from penstock.shards.membership import read_digest
from penstock.storage.repair.deleting import end_deleted


def names(place: Place, shard: int) -> list[str]:
    return sorted(
        name for (name,) in place.execute(shard, "select name from penstock.partition where shard = %s", shard)
    )


def test_one_that_is_away_learns_it_later_with_the_queue_that_has_the_name_by_then(place: Place, second: Proxy) -> None:
    here, there = place.enqueue(1, 3), place.enqueue(2, 4)
    place.app.databases.change(lambda connection: None)
    second.go_down()
    with pytest.raises(PartitionUnavailable, match=r"'q' is not deleted: shard 2 does not answer.*force=True") as e:
        place.app.delete_queue("q")
    assert e.value.shard == 2
    assert place.app.delete_queue("q", force=True) == 3
    again = place.app.queue("q", partitions=2, order="key")
    assert place.app.stats(again).queue_length == 0
    assert {place.app.job(id_).error for id_ in here} == {"its queue was deleted"}
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    place.app.databases.level().all()
    assert len(set(place.app.databases.each(read_digest))) == 1
    assert [names(place, shard) for shard in (1, 2)] == [["q", "q (deleted 1)", "q__p1"], ["q (deleted 1)__p1"]]
    assert [place.database(2).run(end_deleted) for _ in range(2)] == [4, 0]
    assert {place.app.job(id_).error for id_ in there} == {"its queue was deleted"}


def test_a_cron_and_the_keys_of_a_shard_that_was_away_go_when_it_is_back(place: Place, second: Proxy) -> None:
    queue = place.app.queue("ordered", partitions=2, order="key")
    task = queue.task(name="t", key="key")(lambda key: None)
    for n in range(10):
        task.options(idempotency_key=f"once-{n}").enqueue(key=f"k{n}")
        place.app.cron(f"nightly-{n}", "0 3 * * *", task, args={"key": f"k{n}"})
    assert len(place.app.crons()) == 10
    second.go_down()
    place.app.delete_queue("ordered", force=True)
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    place.app.databases.level().all()
    place.database(2).run(end_deleted)
    for table in ("cron", "dedup", "ready", "lease"):
        assert [place.execute(shard, f"select count(*) from penstock.{table}") for shard in (1, 2)] == [[(0,)]] * 2, (
            table
        )
    assert place.app.crons() == []


def test_a_shard_with_what_deleted_queues_left_is_drained(world: World) -> None:
    for queue in (world.app.queue("ordered", partitions=2, order="key"), world.app.queue("plain", partitions=2)):
        task = queue.task(name="t")(lambda n: None)
        for n in range(10):
            task.options(key=f"k{n}".encode(), idempotency_key=f"once-{n}").enqueue(n=n)
        world.app.delete_queue(queue, force=True)
    assert world.drain(2).state == "drained"
