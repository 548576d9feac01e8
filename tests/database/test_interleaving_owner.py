"""Owners of a partition beside each other, in every order of their statements and commits.

What a new owner reads is what it goes by. So whatever the last one still does, a job that the new one sees as ready
must never be leased by the last one afterwards, and what the last one leased must be seen as running; a settle that
comes after the rescue finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.database.conftest import TOKEN, Scene
from tests.database.ledger import check
from tests.database.owned import Owned
from tests.database.stepwise import Actor, Played, Step, orders, play, transaction

from penstock.storage import Connection
from penstock.storage.catalogue import resize
from penstock.storage.catalogue.queues import set_paused
from penstock.storage.connection.queries import query
from penstock.storage.repair.control import release_key
from penstock.storage.upkeep import sweep
from penstock.storage.work import owner as storage
from penstock.storage.work.owner import ChosenJobs, Look, LookWish, Ownership, lease_parameters


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene, partitions=1)


@pytest.fixture
def ownership(owned: Owned) -> Ownership:
    (held,) = storage.share(owned.connection, owned.worker)
    return held


def lease(owned: Owned, ownership: Ownership, jobs: Sequence[int]) -> Step:
    """The owner's claim: the ids it got."""
    server = owned.scene.one("select penstock.this_server()")
    choice = ChosenJobs.of(owned.worker, ownership, server, jobs, len(jobs))

    def act(connection: Connection) -> list[int]:
        rows = connection.execute(query("lease_chosen"), lease_parameters(owned.worker, TOKEN, [choice])).fetchall()
        return [row[4] * 1024 + position for row in rows for position in range(1024) if _has(row, position)]

    return act


def _has(row: tuple[Any, ...], position: int) -> bool:
    low, high, members = row[5], row[6], row[7]
    return low <= position < high and (members is None or str(members)[position] == "1")


def take_over(worker: int) -> Step:
    return lambda connection: storage.share(connection, worker)


def look_as(worker: int) -> Step:
    """What the worker would see of the partition, if it has it."""

    def act(connection: Connection) -> Look | None:
        held = storage.share(connection, worker)
        if not held:
            return None
        return storage.look(connection, [LookWish(held[0], None, [0] * 10, 100, with_others=True)])[0]

    return act


def ready_in(seen: Look) -> set[int]:
    return {row.range * 1024 + position for row in seen.rows for position in row.positions}


def run(owned: Owned, order: str, a: Sequence[Step], b: Sequence[Step]) -> Played:
    connections = (owned.scene.connect(), owned.scene.connect())
    try:
        played = play(order, a, b, connections, owned.connection)
    finally:
        for connection in connections:
            connection.close()
    check(owned.connection)
    return played


@pytest.mark.parametrize("order", list(orders(2, 3)))
def test_what_a_new_owner_sees_as_ready_the_last_one_never_leases(
    owned: Owned, ownership: Ownership, order: str
) -> None:
    key = owned.key(0, 1)
    (job,) = owned.enqueue([key])
    heir = owned.scene.register(("t",), owned.entry)
    owned.connection.execute("delete from penstock.worker where id = %s", [owned.worker])
    claim = transaction(lease(owned, ownership, [job]))
    played = run(owned, order, claim, [*transaction(take_over(heir)), look_as(heir)])
    got, seen = played.a[0], played.b[2]
    if seen is not None:
        assert (job in ready_in(seen)) != (job in {running for running, _ in seen.running or ()})
        if got:
            assert (job, key) in (seen.running or [])
        assert not (got and job in ready_in(seen)), order


@pytest.mark.parametrize("order", list(orders(2, 3)))
def test_what_is_leased_while_a_partition_is_given_up_is_seen_by_who_takes_it(
    owned: Owned, ownership: Ownership, order: str
) -> None:
    key = owned.key(0, 1)
    (job,) = owned.enqueue([key])
    heir = owned.scene.register(("t",), owned.entry)
    owned.connection.execute("delete from penstock.worker_task where worker_id = %s", [owned.worker])

    def give_up(connection: Connection) -> None:
        storage.give_up(connection, owned.worker, [ownership.partition_id])

    claim = transaction(lease(owned, ownership, [job]))
    played = run(owned, order, claim, [*transaction(give_up), look_as(heir)])
    got, seen = played.a[0], played.b[2]
    if seen is not None:
        assert bool(got) == ((job, key) in (seen.running or [])), order
        assert bool(got) != (job in ready_in(seen)), order


@pytest.mark.parametrize("order", list(orders(2, 4)))
def test_a_settle_beside_a_take_over_counts_once_or_not_at_all(owned: Owned, ownership: Ownership, order: str) -> None:
    key = owned.key(0, 1)
    first, second = owned.enqueue([key, key])
    (held,) = owned.lease([first])
    heir = owned.scene.register(("t",), owned.entry)
    owned.connection.execute("update penstock.worker set renewed_at = '-infinity' where id = %s", [owned.worker])
    owned.scene.worker = owned.worker

    def settle(connection: Connection) -> int:
        return owned.scene.succeed([held], connection=connection)

    steps = [*transaction(lambda connection: sweep.rescue(connection)), take_over(heir), look_as(heir)]
    played = run(owned, order, transaction(settle), steps)
    lost, seen = played.a[0], played.b[3]
    assert seen is not None
    running = {job for job, _ in seen.running or ()}
    # Settled: only the second is left. Refused: both are, the first before the second.
    assert not running or running == {first}
    if not running:
        assert ready_in(seen) == ({first, second} if lost else {second}), order
        assert [row.pos for row in seen.rows] == sorted(row.pos for row in seen.rows)


@pytest.mark.parametrize("order", list(orders(2, 3)))
def test_a_take_over_beside_a_resize_serves_every_partition(owned: Owned, order: str) -> None:
    (job,) = owned.enqueue([owned.key(0, 1)])

    def grow(connection: Connection) -> bool:
        return resize.resize(connection, "o", 3)

    run(owned, order, transaction(grow), [*transaction(take_over(owned.worker)), take_over(owned.worker)])
    held = storage.share(owned.connection, owned.worker)
    assert [each.partition_id for each in held] == list(owned.entry.partition_ids)
    assert not any(each.is_surplus for each in held)
    (seen,) = storage.look(owned.connection, [LookWish(held[0], None, [0] * 10, 100, with_others=True)])
    assert ready_in(seen) == {job}
    assert seen.key_maps is not None
    assert max(seen.key_maps.partitions) == 2


def test_shares_differ_by_one_at_most_and_cover_everything(scene: Scene) -> None:
    owned = Owned(scene, partitions=7)
    crew = [owned.worker, *(scene.register(("t", "u"), owned.entry) for _ in range(2))]
    held: dict[int, list[Ownership]] = {}
    for _ in range(3):
        for worker in crew:
            held[worker] = storage.share(owned.connection, worker)
            surplus = [each.partition_id for each in held[worker] if each.is_surplus]
            storage.give_up(owned.connection, worker, surplus)
    held = {worker: storage.share(owned.connection, worker) for worker in crew}
    assert sorted(len(each) for each in held.values()) == [2, 2, 3]
    assert sorted(each.partition_id for some in held.values() for each in some) == list(owned.entry.partition_ids)


def test_nothing_of_a_paused_queue_is_leased(owned: Owned, ownership: Ownership) -> None:
    (job,) = owned.enqueue([owned.key(0, 1)])
    set_paused(owned.connection, "o", is_paused=True)
    assert lease(owned, ownership, [job])(owned.connection) == []
    set_paused(owned.connection, "o", is_paused=False)
    assert lease(owned, ownership, [job])(owned.connection) == [job]


@pytest.mark.parametrize("is_owner_first", [True, False])
@pytest.mark.parametrize("act", ["note_idle", "lease_chosen"])
def test_a_key_is_released_while_its_owner_works_and_neither_waits_for_the_other_in_a_circle(
    scene: Scene, act: str, is_owner_first: bool
) -> None:
    owned = Owned(scene, partitions=2, on_dead="halt")
    held = storage.share(owned.connection, owned.worker)
    server = scene.one("select penstock.this_server()")
    idle = [(each, scene.one("select pg_current_snapshot()::text")) for each in held]
    jobs = [owned.enqueue([owned.key(number, 2)])[0] for number in range(2)]
    # However the tables are gone through, the second partition comes first.
    for each in reversed(idle):
        storage.note_idle(owned.connection, owned.worker, [each], server)
    owned.connection.execute("update penstock.partition set number = 9 where id = %s", [held[0].partition_id])
    owned.connection.execute(
        "insert into penstock.halted (queue_id, key, job_id, epoch) values (%s, 'h', 1, 0)", [owned.entry.id]
    )

    def work(connection: Connection) -> None:
        if act == "note_idle":
            storage.note_idle(connection, owned.worker, idle, server)
        else:
            choices = [
                ChosenJobs.of(owned.worker, each, server, [job], 1) for each, job in zip(held, jobs, strict=True)
            ]
            connection.execute(query("lease_chosen"), lease_parameters(owned.worker, TOKEN, choices))

    connections = [scene.connect() for _ in range(3)]
    worker, person = Actor("worker", connections[0]), Actor("person", connections[1])
    try:
        # Both wait for the first partition's row.
        connections[2].execute("begin")
        connections[2].execute(
            "select from penstock.idle_partition where partition_id = %s for update", [held[0].partition_id]
        )
        steps: list[tuple[Actor, Step]] = [
            (worker, work),
            (person, lambda connection: release_key(connection, owned.entry.id, b"h")),
        ]
        for actor, step in steps if is_owner_first else reversed(steps):
            actor.start(step)
            assert not actor.has_ended(owned.connection)
        connections[2].execute("commit")
        for actor in (worker, person):
            while not actor.has_ended(owned.connection):
                pass  # It waits for the other, or the server ends one of the two.
        assert (worker.results, person.results) == ([None], [True])
    finally:
        for actor in (worker, person):
            actor.close()
        for connection in connections:
            connection.close()
