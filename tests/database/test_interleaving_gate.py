"""What one statement does when a row changes between its snapshot and its lock on the row."""

from __future__ import annotations

from tests.database.conftest import Scene
from tests.database.ledger import check
from tests.database.stepwise import GATE, Actor, gate

from penstock.storage import Connection


def take(scene: Scene, connection: Connection) -> list[tuple[int, ...]]:
    return connection.execute(
        "select id, low, high from penstock.take(%s, %s, 5, 0, 'infinity', '{t}', 3, 3, 3)",
        [scene.worker, scene.queue.partition_ids[0]],
    ).fetchall()


def test_a_claim_that_meets_a_row_changed_since_its_snapshot_takes_each_job_once(scene: Scene) -> None:
    scene.enqueue(10)
    gate(scene.connection, "ready")
    late = scene.connect()
    late.execute("set role gated")
    actor = Actor("late", late)
    scene.connection.execute(f"select pg_advisory_lock({GATE})")
    actor.start(lambda connection: take(scene, connection))
    assert not actor.has_ended(scene.connection)
    first = scene.claim(3)
    scene.connection.execute(f"select pg_advisory_unlock({GATE})")
    assert actor.has_ended(scene.connection)
    actor.close()
    second = actor.results[0]
    check(scene.connection)
    assert [job % 1024 for _, job in first] == [0, 1, 2]
    assert [(low, high) for _, low, high in second] == [(3, 6)]
