"""A turn of a worker is one transaction, with one statement in it or several."""

from __future__ import annotations

from collections import Counter

import msgspec
import psycopg
import pytest
from tests.database.conftest import TOKEN, Scene

from penstock.storage.work.exchange import ClaimWish, exchange
from penstock.storage.work.settle import Succeeded


def done(lease: int, job: int) -> Succeeded:
    return Succeeded(lease, TOKEN, job // 1024, is_whole=True, positions=[job % 1024], ages=[1], runs=[1])


def test_a_turn_whose_claim_fails_has_settled_nothing(scene: Scene) -> None:
    scene.enqueue(2)
    ((lease, job),) = scene.claim(1)
    scene.connection.execute("update penstock.queue set rules = '{\"limit\": 2}'")
    scene.connection.execute("set lock_timeout = '10ms'")
    wish = ClaimWish(scene.queue.partition_ids, scene.queue.partition_ids, 1, 0)
    with scene.connect() as other, other.transaction():
        other.execute("select from penstock.partition for update")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            exchange(scene.connection, scene.worker, "w", [done(lease, job)], [], wish)
        assert scene.places()[job] == ["running"]
    assert exchange(scene.connection, scene.worker, "w", [done(lease, job)], [], None).not_held == []
    assert scene.places()[job] == ["succeeded"]


def test_a_claim_that_is_refused_costs_no_end(scene: Scene) -> None:
    """G13: only the claim is left out."""
    scene.enqueue(1)
    ((lease, job),) = scene.claim(1)
    unreadable = ClaimWish(scene.queue.partition_ids, ["none"], 1, 0)  # type: ignore[list-item]
    turn = exchange(scene.connection, scene.worker, "w", [done(lease, job)], [], unreadable)
    assert (turn.not_held, turn.aside, turn.leases) == ([], [], [])
    assert scene.places()[job] == ["succeeded"]


def test_a_claim_alone_is_committed(scene: Scene) -> None:
    scene.enqueue(1)
    wish = ClaimWish(scene.queue.partition_ids, scene.queue.partition_ids, 1, 0)
    (lease,) = exchange(scene.connection, scene.worker, "w", [], [], wish).leases
    with scene.connect() as other:
        assert other.execute("select id from penstock.lease").fetchall() == [(lease.id,)]


def test_a_claim_looks_on_behind_jobs_of_which_it_is_given_one(scene: Scene) -> None:
    suspects, plain = scene.enqueue(2), scene.enqueue(1)
    scene.connection.execute("update penstock.ready set rescues = 2 where range = %s", [suspects[0] // 1024])
    assert sorted(job for _, job in scene.claim(8)) == [suspects[0], *plain]


def test_a_batch_counts_as_one_where_slots_and_caps_are_counted(scene: Scene) -> None:
    scene.enqueue(20)
    batches = msgspec.json.encode({scene.queue.id: {"t": (3, 0.0)}}).decode()

    def batch_sizes(slots: int, caps: dict[int, int] | None = None) -> list[int]:
        partitions = scene.queue.partition_ids[:1]
        wish = ClaimWish(partitions, partitions, slots, 0, caps=caps, batch_sizes=batches)
        sizes = Counter[int | None]()
        for lease in exchange(scene.connection, scene.worker, "w", [], [], wish).leases:
            sizes[lease.batch] += len(lease.positions)
        return sorted(sizes.values())

    assert batch_sizes(2) == [3, 3]
    assert batch_sizes(4, caps={scene.queue.id: 1}) == [3]
    assert batch_sizes(16) == [2, 3, 3, 3]
