"""Two acts of the engine at once, on two connections, in every order of their statements and commits.

Each play sets a scene with jobs, gives the steps of both sessions, and says what must hold at the end. After every
step the ledger must balance: each job in one place, each figure equal to a recount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.database.conftest import TOKEN, Scene
from tests.database.ledger import Ledger, check
from tests.database.stepwise import Played, Step, clear, lasting_scene, orders, play, transaction

from penstock.storage import Connection
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.queries import query
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.work.settle import split_lease

LATER = datetime.now(UTC) + timedelta(days=1)
Held = Sequence[tuple[int, int]]


@dataclass(slots=True)
class Play:
    """The steps of two sessions, and what must hold once both are done and upkeep has swept."""

    a: list[Step]
    b: list[Step]
    verdict: Callable[[Played, Ledger], None] = lambda played, ledger: None


def kill(scene: Scene) -> None:
    """The scene's worker has been silent for too long; another one lives."""
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity' where id = %s", [scene.worker])


def due(scene: Scene, count: int = 1) -> list[int]:
    """Jobs whose time has come, in two rows."""
    ids = scene.enqueue(count, run_at=LATER) + scene.enqueue(count, run_at=LATER)
    scene.connection.execute("update penstock.scheduled set due_at = now()")
    return ids


def claim(scene: Scene, slots: int = 4, worker: int | None = None) -> Step:
    return lambda connection: scene.claim(slots, worker=worker, connection=connection)


def succeed(scene: Scene, held: Held) -> Step:
    return lambda connection: scene.succeed(held, connection=connection)


def end(scene: Scene, held: Held, how: str, due_in: float = 0.0) -> Step:
    return lambda connection: scene.end(held, how, error="no", due_in=due_in, connection=connection)


def cancel(ids: Sequence[int]) -> Step:
    return lambda connection: control.cancel_jobs(connection, ids)


def children_of(parents: Sequence[int]) -> Step:
    def step(connection: Connection) -> list[int]:
        ranges = array_text({parent // 1024 for parent in parents})
        return [row[1] for row in connection.execute(query("children_of_ranges"), {"ranges": ranges})]

    return step


def run(name: str, **parameters: Any) -> Step:
    return lambda connection: connection.execute(query(name), parameters).fetchall()


def jobs_of(held: Held) -> list[int]:
    return [job for _, job in held]


def claim_and_claim(scene: Scene) -> Play:
    scene.enqueue(10)
    singles = [scene.enqueue(1)[0] for _ in range(3)]

    def verdict(played: Played, ledger: Ledger) -> None:
        a, b = jobs_of(played.a[0]), jobs_of(played.b[0])
        assert not set(a) & set(b)
        # The second passes over the row that the first holds, and never waits for it.
        assert sorted([len(a), len(b)]) == [4, 4] or singles in (a, b)
        assert played.waited == []

    return Play(transaction(claim(scene)), transaction(claim(scene)), verdict)


def claim_and_rescue(scene: Scene) -> Play:
    scene.enqueue(10)
    lost = jobs_of(scene.claim(5))
    kill(scene)
    living = scene.register()

    def verdict(played: Played, ledger: Ledger) -> None:
        assert len(played.a[0]) == 4
        assert all(ledger.attempts[job] == 2 for job in lost)
        assert played.waited == []

    return Play(transaction(claim(scene, worker=living)), transaction(sweep.rescue), verdict)


def late_claim_and_rescue(scene: Scene) -> Play:
    """A worker that claims while it is declared dead holds nothing in the end."""
    scene.enqueue(10)
    kill(scene)
    scene.register()

    def verdict(played: Played, ledger: Ledger) -> None:
        assert ledger.of("running") == set()
        assert len(ledger.of("ready")) == 10

    return Play(transaction(claim(scene)), transaction(sweep.rescue), verdict)


def settle_and_rescue(scene: Scene) -> Play:
    scene.enqueue(10)
    held = scene.claim(5)
    kill(scene)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[0] in (0, 2), "the worker is told of both or of none"
        assert ledger.of("succeeded") == (set() if played.a[0] else set(jobs_of(held[:2])))
        assert ledger.of("running") == set()
        assert "B" not in played.waited, "a handler that settles in its own transaction keeps no rescue waiting"

    return Play(transaction(succeed(scene, held[:2])), transaction(sweep.rescue), verdict)


def ends_and_rescue(how: str, due_in: float = 0.0) -> Callable[[Scene], Play]:
    def prepare(scene: Scene) -> Play:
        scene.enqueue(6)
        held = scene.claim(4)
        kill(scene)

        def verdict(played: Played, ledger: Ledger) -> None:
            assert played.a[0] in (0, 2)
            assert len(ledger.places) == 6
            assert ledger.of("running") == set()

        return Play(transaction(end(scene, held[:2], how, due_in)), transaction(sweep.rescue), verdict)

    return prepare


def settle_and_settle(scene: Scene) -> Play:
    """The answer was lost and the settle is repeated while the first may still be under way."""
    scene.enqueue(5)
    held = scene.claim(5)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert sorted([played.a[0], played.b[0]]) == [0, 3]
        assert ledger.of("succeeded") == set(jobs_of(held[:3]))

    return Play(transaction(succeed(scene, held[:3])), transaction(succeed(scene, held[:3])), verdict)


def settle_and_cancel(scene: Scene) -> Play:
    scene.enqueue(6)
    held = scene.claim(4)
    wanted = [*jobs_of(held[1:3]), jobs_of(held)[0] + 4]

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[0] == 0, "cancelling never takes a running job from its worker"
        assert ledger.of("succeeded") == set(jobs_of(held[:2]))
        assert ledger.of("cancelled") == {wanted[-1]}

    return Play(transaction(succeed(scene, held[:2])), transaction(cancel(wanted)), verdict)


def release_and_cancel(scene: Scene) -> Play:
    ids = scene.enqueue(6)
    held = scene.claim(4)

    def verdict(played: Played, ledger: Ledger) -> None:
        done = played.b[0]
        assert set(done.ended) | set(done.asked) <= set(ids)
        # A job that was asked to stop ends when it is handed back.
        assert set(done.ended) <= ledger.of("cancelled") <= set(done.ended) | set(done.asked)

    return Play(transaction(end(scene, held, "release")), transaction(cancel(ids)), verdict)


def claim_and_cancel(scene: Scene) -> Play:
    ids = scene.enqueue(10)
    wanted = [ids[1], ids[2], ids[7]]

    def verdict(played: Played, ledger: Ledger) -> None:
        claimed, done = set(jobs_of(played.a[0])), played.b[0]
        assert set(done.ended) | set(done.asked) == set(wanted)
        assert claimed & set(done.ended) == set()
        assert set(done.asked) == claimed & set(wanted)
        assert ledger.of("cancelled") == set(done.ended)

    return Play(transaction(claim(scene)), transaction(cancel(wanted)), verdict)


def child_and_settle(parent_end: str | None, on_parent_failure: str = "cancel") -> Callable[[Scene], Play]:
    def prepare(scene: Scene) -> Play:
        (parent,) = scene.enqueue(1)
        held = scene.claim(1)
        child: list[int] = []

        def settle(connection: Connection) -> Any:
            if parent_end is None:
                return scene.succeed(held, connection=connection)
            return scene.end(held, parent_end, error="no", connection=connection)

        def write(connection: Connection) -> None:
            child[:] = scene.enqueue(1, after=[parent], on_parent_failure=on_parent_failure, connection=connection)

        told: list[int] = []

        def look(connection: Connection) -> None:
            told[:] = children_of([parent])(connection)

        def verdict(played: Played, ledger: Ledger) -> None:
            runs = parent_end is None or on_parent_failure == "run"
            assert ledger.places[child[0]] == ("ready" if runs else "cancelled")

        return Play(
            [*transaction(settle, look), lambda connection: sweep.unblock(connection, told)],
            [*transaction(write), lambda connection: sweep.unblock(connection, child)],
            verdict,
        )

    return prepare


def rescue_and_rescue(scene: Scene) -> Play:
    for _ in range(3):
        scene.enqueue(4)
    held = [*scene.claim(3), *scene.claim(3), *scene.claim(3)]
    kill(scene)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[0].jobs + played.b[0].jobs == 9
        assert played.a[0].workers + played.b[0].workers == 1
        assert all(ledger.attempts[job] == 2 for job in jobs_of(held))
        assert len(ledger.of("ready")) == 12
        assert played.waited == []

    return Play(transaction(sweep.rescue), transaction(sweep.rescue), verdict)


def rescue_and_cancel(scene: Scene) -> Play:
    ids = scene.enqueue(4)
    scene.claim(4)
    kill(scene)

    def verdict(played: Played, ledger: Ledger) -> None:
        done = played.b[0]
        assert set(done.ended) | set(done.asked) <= {ids[0]}
        assert len(ledger.of("ready")) + len(ledger.of("cancelled")) == 4

    return Play(transaction(sweep.rescue), transaction(cancel(ids[:1])), verdict)


def promote_and_promote(scene: Scene) -> Play:
    ids = due(scene, 3)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[0] + played.b[0] == 6
        assert ledger.of("ready") == set(ids)
        assert played.waited == []

    return Play(transaction(sweep.promote), transaction(sweep.promote), verdict)


def promote_and_cancel(scene: Scene) -> Play:
    ids = due(scene, 3)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert ledger.of("cancelled") == set(played.b[0].ended)
        assert ledger.of("ready") == set(ids) - set(played.b[0].ended)
        assert played.b[0].asked == []

    return Play(transaction(sweep.promote), transaction(cancel([ids[0], ids[4]])), verdict)


def promote_and_reschedule(scene: Scene) -> Play:
    ids = due(scene, 3)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert ledger.of("ready") | ledger.of("scheduled") == set(ids)

    return Play(transaction(sweep.promote), transaction(run("reschedule_job", id=ids[1], run_at=LATER)), verdict)


def blocked_with_ended_parents(scene: Scene) -> list[int]:
    parents = scene.enqueue(2)
    children = scene.enqueue(3, after=parents)
    scene.succeed(scene.claim(2))
    return children


def unblock_and_unblock(scene: Scene) -> Play:
    children = blocked_with_ended_parents(scene)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[0] + played.b[0] == 3
        assert ledger.of("ready") == set(children)
        assert played.waited == []

    return Play(
        transaction(lambda connection: sweep.unblock(connection, children)), transaction(sweep.unblock_all), verdict
    )


def unblock_and_cancel(scene: Scene) -> Play:
    children = blocked_with_ended_parents(scene)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert ledger.of("cancelled") == set(played.b[0].ended)
        assert ledger.of("ready") == set(children) - ledger.of("cancelled")

    return Play(transaction(sweep.unblock_all), transaction(cancel(children[1:])), verdict)


def unblock_and_reschedule(scene: Scene) -> Play:
    children = blocked_with_ended_parents(scene)

    def verdict(played: Played, ledger: Ledger) -> None:
        (((state,),),) = (played.b[0],)
        assert ledger.places[children[0]] == ("scheduled" if state == "blocked" else state or "ready")

    return Play(
        transaction(sweep.unblock_all), transaction(run("reschedule_job", id=children[0], run_at=LATER)), verdict
    )


def two_parents_end_at_once(scene: Scene) -> Play:
    parents = [scene.enqueue(1)[0] for _ in range(2)]
    (child,) = scene.enqueue(1, after=parents)
    one, other = scene.claim(2)
    told: dict[str, list[int]] = {}

    def session(name: str, held: tuple[int, int]) -> list[Step]:
        def look(connection: Connection) -> None:
            told[name] = children_of([held[1]])(connection)

        return [
            *transaction(succeed(scene, [held]), look),
            lambda connection: sweep.unblock(connection, told[name]),
        ]

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[-1] + played.b[-1] == 1, "no sweep is needed where each tells after its commit"
        assert ledger.places[child] == "ready"

    return Play(session("A", one), session("B", other), verdict)


def same_key_twice(scene: Scene) -> Play:
    def write(connection: Connection) -> list[int]:
        return scene.enqueue(2, idempotency_key="k", connection=connection)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert len({*played.a[0], *played.b[0]}) == 1
        assert len(ledger.places) == 1

    return Play(transaction(write), transaction(write), verdict)


def same_key_by_sql(scene: Scene) -> Play:
    def write(connection: Connection) -> Any:
        row = connection.execute("select penstock.enqueue('q', 't', idempotency_key => 'k')").fetchone()
        return row and row[0]

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[0] == played.b[0]
        assert set(ledger.places) == {played.a[0]}

    return Play(transaction(write), transaction(write), verdict)


def fold_and_settle(scene: Scene) -> Play:
    scene.enqueue(6)
    held = scene.claim(4)
    return Play(transaction(sweep.fold), transaction(succeed(scene, held[:2]), end(scene, held[2:], "failed")))


def fold_and_fold(scene: Scene) -> Play:
    scene.enqueue(6)
    scene.succeed(scene.claim(4))
    return Play(transaction(sweep.fold), transaction(sweep.fold))


def keep(connection: Connection) -> None:
    connection.execute("select penstock.keep_jobs(0, 67108864, 10000)")


def prune_and_claim(scene: Scene) -> Play:
    scene.enqueue(8)
    held = scene.claim(4)

    def verdict(played: Played, ledger: Ledger) -> None:
        kept = {row[0] for row in scene.connection.execute("select id from penstock.job_kept")}
        assert kept == set(ledger.places)

    return Play(transaction(keep), [*transaction(succeed(scene, held[:2]), claim(scene, 2))], verdict)


def prune_and_release(scene: Scene) -> Play:
    scene.enqueue(4)
    held = scene.claim(3)

    def verdict(played: Played, ledger: Ledger) -> None:
        kept = {row[0] for row in scene.connection.execute("select id from penstock.job_kept")}
        assert kept == set(ledger.places)

    return Play(
        transaction(keep),
        [*transaction(end(scene, held[:1], "release")), *transaction(end(scene, held[1:], "retry", 60.0))],
        verdict,
    )


def split_and_rescue(scene: Scene) -> Play:
    scene.enqueue(4)
    held = scene.claim(4)
    kill(scene)
    lease, job = held[2]
    own: list[int | None] = []

    def split(connection: Connection) -> None:
        own[:] = [split_lease(connection, scene.worker, lease, TOKEN, job)]

    def settle(connection: Connection) -> int:
        return 1 if own[0] is None else scene.succeed([(own[0], job)], connection=connection)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert ledger.of("succeeded") == (set() if played.a[-2] else {job})
        assert ledger.of("running") == set()

    return Play([*transaction(split), *transaction(settle)], transaction(sweep.rescue), verdict)


def split_and_settle(scene: Scene) -> Play:
    """A handler settles its job in its own transaction while the worker settles the others."""
    scene.enqueue(4)
    held = scene.claim(4)
    lease, job = held[2]
    own: list[int | None] = []

    def split(connection: Connection) -> None:
        own[:] = [split_lease(connection, scene.worker, lease, TOKEN, job)]

    def settle(connection: Connection) -> int:
        assert own[0] is not None
        return scene.succeed([(own[0], job)], connection=connection)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert played.a[-2] == played.b[0] == 0
        assert ledger.of("succeeded") == set(jobs_of(held))
        assert len(played.waited) <= 1

    others = [each for each in held if each[1] != job]
    return Play([*transaction(split), *transaction(settle)], transaction(succeed(scene, others)), verdict)


def retry_and_retry(scene: Scene) -> Play:
    ids = scene.dead(3)

    def retry(connection: Connection) -> list[int]:
        return control.retry_dead(connection, ids)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert sorted(played.a[0] + played.b[0]) == ids
        assert ledger.of("ready") == set(ids)

    return Play(transaction(retry), transaction(retry), verdict)


def retry_and_bury(scene: Scene) -> Play:
    ids = scene.dead(3)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert len(played.a[0]) + played.b[0] == 3
        assert ledger.of("ready") == set(played.a[0])

    return Play(
        transaction(lambda connection: control.retry_dead(connection, ids)),
        transaction(lambda connection: control.bury_dead(connection, ids)),
        verdict,
    )


def purge_and_claim(scene: Scene) -> Play:
    scene.enqueue(6)
    scene.enqueue(6)

    def purge(connection: Connection) -> Any:
        where = {
            "partition": scene.queue.partition_ids[0],
            "priority": 5,
            "from": 0,
            "until": 2**52,
            "limit": 100,
            "reason": "not wanted",
        }
        row = connection.execute(query("purge_ready"), where).fetchone()
        assert row is not None
        return row[1]

    def verdict(played: Played, ledger: Ledger) -> None:
        assert len(ledger.of("cancelled")) == played.a[0]
        assert ledger.of("running") == set(jobs_of(played.b[0]))
        assert played.waited == []

    return Play(transaction(purge), transaction(claim(scene)), verdict)


def park_and_claim(scene: Scene) -> Play:
    strange = scene.enqueue(3, task="unknown")
    scene.enqueue(6)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert not set(strange) & set(jobs_of(played.b[0]))
        assert len(played.b[0]) in (0, 4), "what park looks at is passed over, not waited for"
        assert played.waited == []

    return Play(transaction(sweep.park), transaction(claim(scene)), verdict)


def expire_and_claim(scene: Scene) -> Play:
    scene.enqueue(3)
    scene.connection.execute("update penstock.queue set rules = '{\"max_wait\": 10}'")
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '11 s'")
    fresh = scene.enqueue(2)

    def verdict(played: Played, ledger: Ledger) -> None:
        assert len(ledger.of("expired")) == 3
        assert set(jobs_of(played.b[0])) <= set(fresh)
        assert played.waited == []

    return Play(transaction(sweep.expire), transaction(claim(scene)), verdict)


PLAYS: dict[str, Callable[[Scene], Play]] = {
    "claim and claim": claim_and_claim,
    "claim and rescue": claim_and_rescue,
    "a dead worker's claim and rescue": late_claim_and_rescue,
    "settle and rescue": settle_and_rescue,
    "retry at once and rescue": ends_and_rescue("retry"),
    "retry later and rescue": ends_and_rescue("retry", 60.0),
    "snooze and rescue": ends_and_rescue("snooze", 60.0),
    "failed and rescue": ends_and_rescue("failed"),
    "release and rescue": ends_and_rescue("release"),
    "discard and rescue": ends_and_rescue("discarded"),
    "settle and the same settle": settle_and_settle,
    "settle and cancel": settle_and_cancel,
    "release and cancel": release_and_cancel,
    "claim and cancel": claim_and_cancel,
    "a child and its parent's success": child_and_settle(None),
    "a child and its parent's failure": child_and_settle("failed"),
    "a child that runs on failure and its parent's": child_and_settle("discarded", "run"),
    "rescue and rescue": rescue_and_rescue,
    "rescue and cancel": rescue_and_cancel,
    "promote and promote": promote_and_promote,
    "promote and cancel": promote_and_cancel,
    "promote and reschedule": promote_and_reschedule,
    "unblock and unblock": unblock_and_unblock,
    "unblock and cancel": unblock_and_cancel,
    "unblock and reschedule": unblock_and_reschedule,
    "two parents of a child": two_parents_end_at_once,
    "the same idempotency key twice": same_key_twice,
    "the same idempotency key twice by SQL": same_key_by_sql,
    "fold and settle": fold_and_settle,
    "fold and fold": fold_and_fold,
    "keeping jobs of an old table and claim": prune_and_claim,
    "keeping jobs of an old table and release": prune_and_release,
    "splitting a lease and rescue": split_and_rescue,
    "splitting a lease and settle": split_and_settle,
    "retry of a dead letter, twice": retry_and_retry,
    "retry and burial of a dead letter": retry_and_bury,
    "purge and claim": purge_and_claim,
    "park and claim": park_and_claim,
    "expire and claim": expire_and_claim,
}


@pytest.fixture(scope="module")
def scene(server_url: str, template_database: str) -> Iterator[Scene]:
    with lasting_scene(server_url, template_database, "pairs") as scene:
        yield scene


@pytest.fixture(scope="module")
def connections(scene: Scene) -> tuple[Connection, Connection]:
    return scene.connect(), scene.connect()


@pytest.mark.parametrize("name", PLAYS)
def test_every_order_of_two_acts_keeps_each_job_in_one_place(
    name: str, scene: Scene, connections: tuple[Connection, Connection]
) -> None:
    clear(scene)
    shape = PLAYS[name](scene)
    for order in orders(len(shape.a), len(shape.b)):
        clear(scene)
        each = PLAYS[name](scene)
        played = play(order, each.a, each.b, connections, scene.connection, lambda: check(scene.connection))
        for act in (sweep.rescue, sweep.promote, sweep.unblock_all):
            act(scene.connection)
        try:
            each.verdict(played, check(scene.connection))
        except AssertionError as error:
            raise AssertionError(f"in the order {order}: {error}") from error
