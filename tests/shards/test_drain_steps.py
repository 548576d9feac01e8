"""The steps of a drain, one by one: what may leave, when, and who was told before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.shards.drained_world import World, states

from penstock.routing.key_hash import partition_of
from penstock.shards import carrying, draining, map_changes
from penstock.shards.idempotency_keys import carry_keys
from penstock.storage.catalogue import resize
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.catalogue.resize import UndrainedKeyMaps
from penstock.storage.connection.queries import query

LATER = datetime.now(UTC) + timedelta(days=1)


def send(world: World, shard: int, rows: int) -> int:
    """Put some into the outbox, and carry nothing."""
    return int(world.fetch(shard, "select penstock.send_off(%s)", rows)[0][0])


def begin(world: World, shard: int) -> None:
    """As far as nothing is sent yet."""
    draining.begin_draining(world.databases, shard)
    for queue in ("o", "p"):
        map_changes.change(
            world.databases,
            queue,
            lambda c: bool(c.execute("select penstock.vacate_queue(%s, %s)", [queue, shard]).fetchone()),  # noqa: B023
        )
    world.databases.each(resize.close)


def held(world: World, shard: int) -> set[tuple[int, bytes]]:
    """The keys that wait on a shard for an earlier map, for all that is known there."""
    queue = world.databases.read(lambda c: find_queue(c, "o")).id
    rows = world.databases.of(shard).run(lambda c: c.execute(query("undrained_maps"), {"queue": queue}).fetchall())
    return UndrainedKeyMaps.of(rows).held


def test_a_shard_that_has_let_a_key_go_is_not_the_last_to_be_waited_for(world: World, empty_database_url: str) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    world.app.pause("o")
    world.handle.enqueue(key=key, n=0)
    world.app.move_partition("o", partition_of(key.encode(), 2), 3)
    begin(world, 2)
    assert send(world, 2, 50) == 1
    map_changes.tell_rest(world.databases)
    assert [held(world, number) for number in (1, 2, 3)] == [{(1, key.encode())}] * 3, "it is on its way"
    assert carrying.carry(world.databases) == 1
    map_changes.tell_rest_of(world.databases, world.databases.of(2))
    assert [held(world, number) for number in (1, 2, 3)] == [{(1, key.encode())}] * 3, "it waits there"
    world.app.resume("o")
    world.work()
    assert world.ran[key] == [0]
    map_changes.tell_rest(world.databases)
    assert [held(world, number) for number in (1, 2, 3)] == [set()] * 3


def test_a_job_does_not_leave_before_every_shard_was_told(
    world: World, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    world.app.pause("o")
    world.handle.enqueue(key=key, n=0)
    begin(world, 2)
    send(world, 2, 50)
    entry = world.databases.read(lambda c: find_queue(c, "o"))
    third = world.databases.of(4 - entry.partition_shards[partition_of(key.encode(), 2)])
    with monkeypatch.context() as patched:
        patched.setattr(type(third.breaker), "is_down", property(lambda self: self is third.breaker))
        carrying.carry(world.databases)
    assert world.fetch(2, "select count(*) from penstock.outbox") == [(1,)]
    assert carrying.carry(world.databases) == 1
    assert world.fetch(2, "select count(*) from penstock.outbox") == [(0,)]
    assert sum(world.fetch(number, "select count(*) from penstock.ready")[0][0] for number in (1, 2, 3)) == 1


def test_an_older_report_never_replaces_a_newer_one(world: World) -> None:
    world.app.pause("o")
    world.handle.enqueue(key=world.key(1), n=0)
    world.app.move_partition("o", 0, 2)
    world.app.move_partition("o", 1, 2)
    queue = world.databases.read(lambda c: find_queue(c, "o")).id
    for number, keys in ((8, [b"k"]), (7, []), (8, [])):
        given = {"queue": queue, "epoch": 1, "shard": 1, "open_ids": [], "held_keys": keys, "number": number + 10**6}
        world.databases.of(2).run(lambda c: c.execute(query("note_rest"), given))  # noqa: B023
    assert (1, b"k") in held(world, 2)


def test_nothing_starts_where_the_rest_of_a_key_is_on_its_way(world: World) -> None:
    key = world.key(2)
    world.app.pause("o")
    for n in range(60):
        world.handle.enqueue(key=key, n=n)
    begin(world, 2)
    send(world, 2, 10)
    world.app.resume("o")
    world.work()
    world.drain(2)
    world.work()
    assert world.ran == {key: list(range(60))}


def test_what_holds_a_key_leaves_before_what_stands_behind_it(world: World) -> None:
    keys = [world.key(2, n) for n in range(6)]
    world.fails.add("late")
    for n, key in enumerate(keys):
        (world.again.enqueue if n % 2 else world.handle.options(priority=3).enqueue)(
            **{"key": key, "n": 0} | ({} if n % 2 else {"how": "bad"})
        )
    world.work()
    for key in keys:
        world.handle.options(priority=1).enqueue(key=key, n=1)
    begin(world, 2)
    seen: list[str] = []
    while send(world, 2, 1):
        seen = [row[0] for row in world.fetch(2, "select facts ->> 'state' from penstock.outbox order by id")]
    assert sorted(seen[:6]) == ["dead"] * 3 + ["scheduled"] * 3
    assert seen[6:] == ["ready"] * 6


def test_a_key_is_not_parted_by_a_change_on_its_way(world: World, empty_database_url: str) -> None:
    world.app.add_shard(empty_database_url)
    key = world.key(2)
    number = partition_of(key.encode(), 2)
    world.app.pause("o")
    for n in range(60):
        world.handle.enqueue(key=key, n=n)
    begin(world, 2)
    first = world.databases.read(lambda c: find_queue(c, "o")).partition_shards[number]
    send(world, 2, 20)
    assert carrying.carry(world.databases) == 20
    world.app.move_partition("o", number, 4 - first)
    world.handle.enqueue(key=key, n=60)
    world.drain(2)
    world.app.resume("o")
    world.work()
    assert world.ran == {key: list(range(61))}


def test_a_child_takes_along_how_its_parents_ended(world: World) -> None:
    ended = world.plain(2)
    world.work()
    later = world.plain(1, run_at=LATER)
    child = world.plain(2, after=[ended, later])
    begin(world, 2)
    assert send(world, 2, 10) == 1
    # Nobody keeps it for the child any more.
    world.fetch(2, "delete from penstock.finished returning 1")
    world.drain(2)
    world.app.retry(later)
    world.work()
    assert world.app.job(child).state == "succeeded"


def test_nobody_has_to_ask_a_drained_shard_for_idempotency_keys(world: World) -> None:
    begin(world, 2)
    for _ in range(3):
        draining.advance_draining(world.databases)
    assert states(world.databases)[2] == "draining"
    assert {(each.queue, each.kind) for each in draining.count_rest(world.databases, 2)} == {
        ("o", "idempotency keys"),
        ("p", "idempotency keys"),
    }
    carry_keys(world.databases)
    draining.advance_draining(world.databases)
    assert states(world.databases)[2] == "drained"
