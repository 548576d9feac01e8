"""One statement's own race: a row changes between the statement's snapshot and its lock on the row.

The late act is held at a gate inside its scan of a table, the quick one runs and commits meanwhile, then the gate
opens. A statement that locks rows gets them as they are now but sees everything else as it was: what it does with
them must fit both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.database.conftest import TOKEN, Scene
from tests.database.ledger import check
from tests.database.stepwise import GATE, Actor, clear, gate, lasting_scene

from penstock.storage import Connection
from penstock.storage.connection.queries import query
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)
Act = Callable[[Connection], Any]
Acts = tuple[Act, Act]


@pytest.fixture(scope="module")
def lasting(server_url: str, template_database: str) -> Iterator[Scene]:
    with lasting_scene(server_url, template_database, "gate") as scene:
        yield scene


@pytest.fixture
def scene(lasting: Scene) -> Scene:
    clear(lasting)
    return lasting


def take(scene: Scene, connection: Connection, wanted: int = 3) -> list[tuple[int, ...]]:
    return connection.execute(
        "select id, low, high from penstock.take(%s, 1, %s, 5, 0, 'infinity', '{t}', %s, %s, 3, false)",
        [scene.worker, scene.queue.partition_ids[0], wanted, wanted],
    ).fetchall()


def run_late(scene: Scene, table: str, late: Act, quick: Act) -> tuple[Any, Any]:
    """Both results; the late act has looked at the table before the quick one began."""
    gate(scene.connection, table)
    with scene.database.connect() as connection, scene.database.connect() as keeper:
        connection.execute("set role gated")
        keeper.execute("select pg_advisory_lock(%s)", [GATE])
        actor = Actor("late", connection)
        actor.start(late)
        assert not actor.has_ended(scene.connection), "the late act never looked at the table"
        done = quick(scene.connection)
        keeper.execute("select pg_advisory_unlock(%s)", [GATE])
        assert actor.has_ended(scene.connection)
        actor.close()
    if isinstance(actor.results[0], Exception):
        raise actor.results[0]
    return actor.results[0], done


def kill(scene: Scene) -> None:
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity'")


def test_two_claims_of_one_range_take_each_job_once(scene: Scene) -> None:
    scene.enqueue(10)
    second, first = run_late(scene, "ready", lambda c: take(scene, c), lambda c: take(scene, c))
    check(scene.connection)
    assert [row[1:] for row in first] == [(0, 3)]
    assert [row[1:] for row in second] == [(3, 6)]


def test_a_child_that_is_put_off_while_it_is_let_go_waits_for_its_time(scene: Scene) -> None:
    children = blocked(scene)
    run_late(scene, "blocked", sweep.unblock_all, lambda c: control.reschedule_job(c, children[0], LATER))
    sweep.unblock_all(scene.connection)
    ledger = check(scene.connection)
    assert (ledger.of("scheduled"), ledger.of("ready")) == ({children[0]}, {children[1]})


def claim_and_cancel(scene: Scene) -> Acts:
    ids = scene.enqueue(10)
    return lambda c: take(scene, c), lambda c: control.cancel_jobs(c, ids[1:4])


def cancel_and_claim(scene: Scene) -> Acts:
    ids = scene.enqueue(10)
    return lambda c: c.execute("select penstock.cancel_in_range(%s, penstock.span(1, 5))", [ids[0] // 1024]), (
        lambda c: take(scene, c)
    )


def claim_and_park(scene: Scene) -> Acts:
    scene.enqueue(10)
    return lambda c: take(scene, c), lambda c: c.execute("update penstock.ready set is_parked = true")


def claim_and_reschedule(scene: Scene) -> Acts:
    ids = scene.enqueue(10)
    return lambda c: take(scene, c), lambda c: control.reschedule_job(c, ids[0], LATER)


def purge_and_claim(scene: Scene) -> Acts:
    scene.enqueue(10)
    partition = scene.queue.partition_ids[0]
    return (
        lambda c: c.execute("select * from penstock.purge_ready(%s, 5, 0, %s, 10)", [partition, 2**52]),
        lambda c: take(scene, c),
    )


def expire_and_claim(scene: Scene) -> Acts:
    scene.enqueue(10)
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '1 h'")
    partition = scene.queue.partition_ids[0]
    return (
        lambda c: c.execute("select penstock.expire_head(%s, interval '1 s')", [partition]),
        lambda c: take(scene, c),
    )


def park_and_claim(scene: Scene) -> Acts:
    scene.enqueue(10)
    scene.connection.execute("update penstock.worker_task set task = 'other'")
    return sweep.park, lambda c: take(scene, c)


def reschedule_and_claim(scene: Scene) -> Acts:
    ids = scene.enqueue(10)
    return lambda c: c.execute(query("reschedule_job"), {"id": ids[4], "run_at": LATER}), lambda c: take(scene, c)


def rescue_and_settle(scene: Scene) -> Acts:
    scene.enqueue(5)
    held = scene.claim(5)
    kill(scene)
    return sweep.rescue, lambda c: scene.succeed(held[:2], connection=c)


def rescue_and_split(scene: Scene) -> Acts:
    scene.enqueue(5)
    ((lease, job), *_) = scene.claim(5)
    kill(scene)
    split = {"worker": scene.worker, "lease": lease, "token": TOKEN, "range": job // 1024, "position": job % 1024}
    return sweep.rescue, lambda c: c.execute(query("split_lease_if_leased"), split)


def settle_and_rescue(scene: Scene) -> Acts:
    scene.enqueue(5)
    held = scene.claim(5)
    kill(scene)
    return lambda c: scene.succeed(held[:2], connection=c), sweep.rescue


def end_and_settle(scene: Scene) -> Acts:
    scene.enqueue(5)
    held = scene.claim(5)
    return (
        lambda c: scene.end(held[1:4], "retry", error="no", connection=c),
        lambda c: scene.succeed(held[:2], connection=c),
    )


def split_and_settle(scene: Scene) -> Acts:
    scene.enqueue(5)
    held = scene.claim(5)
    lease, job = held[0]
    split = {"worker": scene.worker, "lease": lease, "token": TOKEN, "range": job // 1024, "position": job % 1024}
    return lambda c: c.execute(query("split_lease_if_leased"), split), lambda c: scene.succeed(held[:2], connection=c)


def due(scene: Scene) -> list[int]:
    ids = scene.enqueue(5, run_at=LATER)
    scene.connection.execute("update penstock.scheduled set due_at = now()")
    return ids


def promote_and_cancel(scene: Scene) -> Acts:
    ids = due(scene)
    return sweep.promote, lambda c: control.cancel_jobs(c, ids[1:3])


def promote_and_reschedule(scene: Scene) -> Acts:
    ids = due(scene)
    return sweep.promote, lambda c: control.reschedule_job(c, ids[1], LATER)


def cancel_and_promote(scene: Scene) -> Acts:
    ids = due(scene)
    return lambda c: control.cancel_jobs(c, ids[1:3]), sweep.promote


def blocked(scene: Scene) -> list[int]:
    parents = scene.enqueue(1)
    children = scene.enqueue(2, after=parents)
    scene.succeed(scene.claim(1))
    return children


def unblock_and_reschedule(scene: Scene) -> Acts:
    children = blocked(scene)
    return sweep.unblock_all, lambda c: control.reschedule_job(c, children[0], LATER)


def unblock_and_cancel(scene: Scene) -> Acts:
    children = blocked(scene)
    return sweep.unblock_all, lambda c: control.cancel_jobs(c, children[:1])


def unblock_and_unblock(scene: Scene) -> Acts:
    blocked(scene)
    return sweep.unblock_all, sweep.unblock_all


def cancel_and_unblock(scene: Scene) -> Acts:
    children = blocked(scene)
    return lambda c: control.cancel_jobs(c, children), sweep.unblock_all


def retry_and_bury(scene: Scene) -> Acts:
    ids = scene.dead(3)
    return lambda c: control.retry_dead(c, ids), lambda c: control.bury_dead(c, ids[:2])


def bury_and_retry(scene: Scene) -> Acts:
    ids = scene.dead(3)
    return lambda c: control.bury_dead(c, ids), lambda c: control.retry_dead(c, ids[:2])


def fold_and_fold(scene: Scene) -> Acts:
    scene.enqueue(3)
    return sweep.fold, sweep.fold


def fold_and_settle(scene: Scene) -> Acts:
    scene.enqueue(3)
    held = scene.claim(2)
    return sweep.fold, lambda c: scene.succeed(held, connection=c)


def fold_causes_and_bury(scene: Scene) -> Acts:
    ids = scene.dead(3)
    return sweep.fold_causes, lambda c: control.bury_dead(c, ids)


def fold_causes_and_fold_causes(scene: Scene) -> Acts:
    scene.dead(3)
    return sweep.fold_causes, sweep.fold_causes


ACTS: dict[str, tuple[str, Callable[[Scene], Acts]]] = {
    "claim, cancel": ("ready", claim_and_cancel),
    "cancel, claim": ("ready", cancel_and_claim),
    "claim, park": ("ready", claim_and_park),
    "claim, reschedule": ("ready", claim_and_reschedule),
    "purge, claim": ("ready", purge_and_claim),
    "expire, claim": ("ready", expire_and_claim),
    "park, claim": ("ready", park_and_claim),
    "reschedule, claim": ("ready", reschedule_and_claim),
    "rescue, settle": ("lease", rescue_and_settle),
    "rescue, split": ("lease", rescue_and_split),
    "settle, rescue": ("lease", settle_and_rescue),
    "retry, settle": ("lease", end_and_settle),
    "split, settle": ("lease", split_and_settle),
    "promote, cancel": ("scheduled", promote_and_cancel),
    "promote, reschedule": ("scheduled", promote_and_reschedule),
    "cancel, promote": ("scheduled", cancel_and_promote),
    "unblock, reschedule": ("blocked", unblock_and_reschedule),
    "unblock, cancel": ("blocked", unblock_and_cancel),
    "unblock, unblock": ("blocked", unblock_and_unblock),
    "cancel, unblock": ("blocked", cancel_and_unblock),
    "retry of dead letters, burial": ("dead", retry_and_bury),
    "burial of dead letters, retry": ("dead", bury_and_retry),
    "fold, settle": ("tally", fold_and_settle),
    "fold, fold": ("tally", fold_and_fold),
    "fold of causes, burial": ("cause_tally", fold_causes_and_bury),
    "fold of causes, fold of causes": ("cause_tally", fold_causes_and_fold_causes),
}


@pytest.mark.parametrize("name", ACTS)
def test_an_act_that_meets_a_row_changed_since_its_snapshot_keeps_each_job_in_one_place(
    name: str, scene: Scene
) -> None:
    table, prepare = ACTS[name]
    late, quick = prepare(scene)
    run_late(scene, table, late, quick)
    check(scene.connection)
    for act in (sweep.rescue, sweep.promote, sweep.unblock_all):
        act(scene.connection)
    assert check(scene.connection).of("blocked") == set()
