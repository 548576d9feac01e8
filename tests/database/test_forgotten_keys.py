"""G7: an idempotency key that is forgotten while somebody enqueues with it is that call's, and remembered.

A trigger holds whoever inserts a key between the conflict and the look at who has it; meanwhile prune forgets the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned
from tests.database.stepwise import GATE, Actor, Step

from penstock.storage import Connection
from penstock.storage.inspect.jobs import find_job

_TRIGGER = f"""
create function penstock.stop_at_gate() returns trigger language plpgsql as $$
begin
    perform pg_advisory_lock_shared({GATE});
    perform pg_advisory_unlock_shared({GATE});
    return null;
end $$;
create trigger gate after insert on penstock.dedup for each statement execute function penstock.stop_at_gate();
"""


@contextmanager
def while_held(scene: Scene, step: Step) -> Iterator[Actor]:
    """Begin a step, and let it go on after the block from behind its first insert of keys."""
    scene.connection.execute(_TRIGGER)
    scene.connection.execute("select pg_advisory_lock(%s)", [GATE])
    actor = Actor("A", scene.connect())
    try:
        actor.start(step)
        assert not actor.has_ended(scene.connection), "it waits at the gate"
        yield actor
        scene.connection.execute("select pg_advisory_unlock(%s)", [GATE])
        assert actor.has_ended(scene.connection)
    finally:
        scene.connection.execute("select pg_advisory_unlock_all()")
        actor.close()


def forget(scene: Scene, key: str) -> None:
    """What prune does when the history of a key's job goes."""
    scene.connection.execute("delete from penstock.dedup where idempotency_key like %s", ["%" + key])


def by_sql(scene: Scene, queue: str) -> Step:
    def act(connection: Connection) -> list[int]:
        statement = "select penstock.enqueue(%s, 't', idempotency_key => 'a', key => 'k')"
        return [row[0] for row in connection.execute(statement, [queue])]

    return act


def by_client(scene: Scene, queue: str) -> Step:
    if queue == "o":
        owned = Owned(scene, partitions=1)
        return lambda c: owned.enqueue([b"k", b"k"], idempotency_keys=["a", "b"], connection=c)[:1]
    return lambda c: scene.enqueue(idempotency_key="a", connection=c)


@pytest.mark.parametrize("queue", ["q", "o"])
@pytest.mark.parametrize("written", [by_sql, by_client])
def test_a_key_that_is_forgotten_before_it_is_read_is_the_next_callers(
    scene: Scene, queue: str, written: Callable[[Scene, str], Step]
) -> None:
    if written is by_sql and queue == "o":
        Owned(scene, partitions=1)
    step = written(scene, queue)
    (first,) = step(scene.connection)
    with while_held(scene, step) as actor:
        forget(scene, "a")
    (ids,) = actor.results
    assert ids != [first], "the key was not that job's any more"
    assert find_job(scene.connection, ids[0]).state == "ready"
    assert step(scene.connection) == ids, "it is remembered"


def test_a_key_that_stays_is_read(scene: Scene) -> None:
    step = by_sql(scene, "q")
    first = step(scene.connection)
    with while_held(scene, step) as actor:
        pass
    assert actor.results == [first]


def test_a_load_enters_keys_that_are_forgotten_meanwhile(scene: Scene) -> None:
    known = {key: scene.enqueue(idempotency_key=key)[0] for key in ("a", "b")}
    loaded = [scene.enqueue(attributes={"idempotency_key": key})[0] for key in ("a", "b", "c", "a")]

    def publish(connection: Connection) -> list[Any]:
        parts = ", ".join(
            f"row({job // 1024}, {place}, {scene.queue.partition_ids[0]}, 5, null, 1, null, true, 't', null)"
            for place, job in enumerate(loaded)
        )
        statement = (
            "select range * 1024 from penstock.queue as q, unnest(penstock.leave_out_known(q,"
            f" array[{parts}]::penstock.range_to_publish[])) as p where q.name = 'q' order by 1"
        )
        return [row[0] for row in connection.execute(statement.encode())]

    with while_held(scene, publish) as actor:
        forget(scene, "a")
    # The first of `a`, and `c`; `b` is known, and the second `a` came later in the load.
    assert actor.results == [[loaded[0], loaded[2]]]
    held: dict[str, int] = dict(
        scene.connection.execute("select idempotency_key, job_id from penstock.dedup").fetchall()
    )
    assert held == {"a": loaded[0], "b": known["b"], "c": loaded[2]}
