"""A cron entry lives on one shard, fires there, and moves with the partition its jobs go to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fault.proxy import Proxy
from tests.shards.place import Place

from penstock import App, NotFound
from penstock.errors import PartitionUnavailable
from penstock.routing.key_hash import partition_of
from penstock.shards.crons import move_crons, take
from penstock.storage import Connection
from penstock.upkeep.cron import fire_crons

DUE = "update penstock.cron set next_at = now() - interval '1 second'"
# A key for each of two partitions, by the shard it is on: those of a second queue begin on the second shard.
KEYS = {
    shard: next(f"k{n}" for n in range(100) if partition_of(f"k{n}".encode(), 2) == number)
    for shard, number in ((1, 1), (2, 0))
}


@pytest.fixture
def crons(place: Place) -> Place:
    """An ordered queue, and an entry for a key of each shard."""
    queue = place.app.queue("ordered", partitions=2, order="key")

    @queue.task(key="key")
    def tick(key: str) -> None: ...

    assert [each.shard for each in place.app.stats("ordered").partitions] == ["2", "1"]
    for shard, key in KEYS.items():
        # Seldom: what is due is due by DUE alone, whatever the minute.
        place.app.cron(f"on-{shard}", "0 0 1 1 *", tick, args={"key": key})
    return place


def homes(place: Place) -> dict[str, int]:
    """Where entries are."""
    return {name: shard for shard in (1, 2) for (name,) in place.execute(shard, "select name from penstock.cron")}


def fire(place: Place) -> list[int]:
    return [place.database(shard).run(fire_crons) for shard in (1, 2)]


def swap(place: Place) -> None:
    """Both partitions change their places."""
    for number, partition in enumerate(place.app.stats("ordered").partitions):
        place.app.move_partition("ordered", number, 3 - int(partition.shard))


def test_an_entry_is_written_once_on_the_shard_its_jobs_go_to(crons: Place) -> None:
    assert [each.name for each in crons.app.crons()] == ["on-1", "on-2"]
    assert homes(crons) == {"on-1": 1, "on-2": 2}
    with App(shards=list(crons.urls.values())) as app:
        queue = app.queue("ordered", partitions=2, order="key")
        task = queue.task(name="tick", key="key")(lambda key: None)
        app.cron("on-1", "0 * * * *", task, args={"key": KEYS[1]})
        app.cron("on-2", "* * * * *", task, args={"key": KEYS[2]})
        assert [each.expression for each in app.crons()] == ["0 * * * *", "* * * * *"]
    assert homes(crons) == {"on-1": 1, "on-2": 2}


def test_an_entry_fires_once_into_its_own_shard(crons: Place) -> None:
    crons.app.crons()
    for shard in (1, 2):
        crons.execute(shard, DUE)
    assert fire(crons) == [1, 1]
    assert fire(crons) == [0, 0]
    jobs = crons.app.jobs(queue="ordered")
    assert {(each.id >> 10) & 1023: each.key for each in jobs} == KEYS


def test_an_entry_without_a_key_fires_where_partition_0_is(place: Place) -> None:
    queue = place.app.queue("other", partitions=2)

    @queue.task
    def tick() -> None: ...

    place.app.cron("plain", "0 0 1 1 *", tick)
    (partition_0, _) = place.app.stats("other").partitions
    place.app.crons()
    assert homes(place) == {"plain": int(partition_0.shard)}
    for shard in (1, 2):
        place.execute(shard, DUE)
    assert sum(fire(place)) == 1
    (job,) = place.app.jobs(queue="other")
    assert str((job.id >> 10) & 1023) == partition_0.shard
    assert (place.app.run_cron("plain") >> 10) & 1023 == int(partition_0.shard)


def test_entries_are_paused_resumed_run_and_removed_wherever_they_are(crons: Place) -> None:
    app = crons.app
    for shard, key in KEYS.items():
        name = f"on-{shard}"
        app.pause_cron(name)
        assert {each.name: each.is_paused for each in app.crons()}[name]
        app.resume_cron(name)
        assert not {each.name: each.is_paused for each in app.crons()}[name]
        assert app.job(app.run_cron(name)).key == key
        app.remove_cron(name)
        for act in (app.pause_cron, app.resume_cron, app.remove_cron, app.run_cron):
            with pytest.raises(NotFound, match="there is no cron"):
                act(name)
    assert app.crons() == []


def test_an_entry_moves_with_its_partition_and_does_not_fire_before(crons: Place) -> None:
    crons.app.crons()
    before = {each.name: each.next_at for each in crons.app.crons()}
    swap(crons)
    assert [each.shard for each in crons.app.stats("ordered").partitions] == ["1", "2"]
    for shard in (1, 2):
        crons.execute(shard, DUE)
    assert fire(crons) == [0, 0]
    assert move_crons(crons.app.databases) == 2
    assert homes(crons) == {"on-1": 2, "on-2": 1}
    assert fire(crons) == [1, 1]
    assert move_crons(crons.app.databases) == 0
    assert fire(crons) == [0, 0]
    assert set(before) == {each.name for each in crons.app.crons()}
    swap(crons)
    assert move_crons(crons.app.databases) == 2
    assert homes(crons) == {"on-1": 1, "on-2": 2}


@pytest.mark.parametrize("dies_before", ["take", "drop_left"])
def test_a_move_that_died_halfway_is_finished_and_nothing_fires_twice(
    crons: Place, dies_before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crons.app.crons()
    swap(crons)
    for shard in (1, 2):
        crons.execute(shard, DUE)

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(f"penstock.shards.crons.{dies_before}", die)
        with pytest.raises(RuntimeError, match="killed"):
            move_crons(crons.app.databases)
    fired = sum(fire(crons))
    assert {each.name for each in crons.app.crons()} == {"on-1", "on-2"}
    while move_crons(crons.app.databases):
        fired += sum(fire(crons))
    fired += sum(fire(crons))
    assert fired == 2
    assert homes(crons) == {"on-1": 2, "on-2": 1}
    assert [crons.execute(shard, "select count(*) from penstock.cron") for shard in (1, 2)] == [[(1,)], [(1,)]]


def test_what_a_dead_mover_left_behind_never_fires_again_not_even_at_home(
    crons: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    crons.app.crons()
    swap(crons)
    for shard in (1, 2):
        crons.execute(shard, DUE)
    taken = list[dict[str, Any]]()

    def note(connection: Connection, values: dict[str, Any]) -> None:
        take(connection, values)
        taken.append(values)

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.shards.crons.take", note)
        patch.setattr("penstock.shards.crons.drop_left", die)
        with pytest.raises(RuntimeError, match="killed"):
            move_crons(crons.app.databases)
    assert [each["name"] for each in taken] == ["on-1"]
    assert fire(crons) == [0, 1]
    # Another mover, who was slower: the entry that he brings has fired by now.
    crons.database(2).run(lambda connection: take(connection, taken[0]))
    assert fire(crons) == [0, 0]
    # Home again, where the mark still lies; the other entry was not moved at all.
    swap(crons)
    assert fire(crons) == [0, 1]

    def take_and_fire(connection: Connection, values: dict[str, Any]) -> None:
        take(connection, values)
        assert fire(crons) == [0, 0]

    monkeypatch.setattr("penstock.shards.crons.take", take_and_fire)
    while move_crons(crons.app.databases):
        pass
    assert fire(crons) == [0, 0]
    assert homes(crons) == {"on-1": 1, "on-2": 2}
    assert crons.execute(2, "select 1 from penstock.cron where name = 'on-1'") == []


def test_an_entry_that_cannot_be_written_yet_is_put_off_and_written_when_all_are_back(
    place: Place, second: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    queue = place.app.queue("ordered", partitions=2, order="key")

    @queue.task(key="key")
    def tick(key: str) -> None: ...

    place.app.stats("ordered")
    second.go_down()
    for n, key in KEYS.items():
        place.app.cron(f"c{n}", "* * * * *", tick, args={"key": key})
    assert place.app.stats("ordered").unavailable == ["2"]  # The app works.
    assert place.app.crons() == []
    assert "cron 'c1' is not written yet" in caplog.text
    with pytest.raises(PartitionUnavailable, match="shard 2"):
        place.app.pause_cron("c1")
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    place.app._declarations.write_rest()
    assert [each.name for each in place.app.crons()] == ["c1", "c2"]
