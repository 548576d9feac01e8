"""Claims of several workers under a limit, in every order of their statements and commits: it is never exceeded.

What counts are leases, as anybody sees them who looks between two steps; the sum of what both sessions were given and
have not settled must keep the limit too, committed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.database.conftest import Scene
from tests.database.ledger import check
from tests.database.stepwise import Played, Step, clear, lasting_scene, orders, play, transaction

from penstock.storage import Connection
from penstock.storage.catalogue import queues as catalogue

LIMIT = 2
Held = Sequence[tuple[int, int]]


@pytest.fixture(scope="module")
def lasting(server_url: str, template_database: str) -> Iterator[Scene]:
    with lasting_scene(server_url, template_database, "limit") as scene:
        scene.queue = scene.declare("limited", limit=LIMIT)
        yield scene


def claim(scene: Scene, slots: int = 5) -> Step:
    return lambda connection: scene.claim(slots, connection=connection)


def succeed(scene: Scene, held: Held) -> Step:
    return lambda connection: scene.succeed(held, connection=connection)


def running(scene: Scene) -> int:
    return int(scene.one("select coalesce(sum(penstock.members_count(low, high, members)), 0) from penstock.lease"))


def run(scene: Scene, order: str, a: Sequence[Step], b: Sequence[Step], most: int = LIMIT) -> Played:
    seen: list[int] = []

    def between() -> None:
        seen.append(running(scene))

    connections = (scene.connect(), scene.connect())
    try:
        played = play(order, a, b, connections, scene.connection, between)
    finally:
        for connection in connections:
            connection.close()
    between()
    assert max(seen) <= most, f"{seen} in {order}"
    check(scene.connection)
    return played


def given(played: Played) -> list[int]:
    """The jobs both sessions were given."""
    claims: list[Any] = [result for result in (*played.a, *played.b) if isinstance(result, list)]
    return sorted(job for held in claims for _, job in held)


@pytest.mark.parametrize("order", list(orders(2, 2)))
def test_g6_two_claims_at_once_are_given_no_more_than_the_limit(lasting: Scene, order: str) -> None:
    clear(lasting)
    ids = [lasting.enqueue()[0] for _ in range(5)]
    played = run(lasting, order, transaction(claim(lasting)), transaction(claim(lasting)))
    assert given(played) == ids[:LIMIT]


@pytest.mark.parametrize("order", list(orders(3, 2)))
def test_g6_a_slot_freed_and_retaken_in_one_commit_is_given_to_one(lasting: Scene, order: str) -> None:
    clear(lasting)
    ids = [lasting.enqueue()[0] for _ in range(6)]
    held = lasting.claim(LIMIT)
    a = transaction(succeed(lasting, held[:1]), claim(lasting))
    played = run(lasting, order, a, transaction(claim(lasting)))
    assert given(played) == ids[2:3]


@pytest.mark.parametrize("order", list(orders(3, 3)))
def test_g6_two_workers_that_settle_and_claim_take_turns_in_enqueue_order(lasting: Scene, order: str) -> None:
    clear(lasting)
    ids = [lasting.enqueue()[0] for _ in range(6)]
    first, second = lasting.claim(1), lasting.claim(1)
    a = transaction(succeed(lasting, first), claim(lasting))
    b = transaction(succeed(lasting, second), claim(lasting))
    played = run(lasting, order, a, b)
    assert running(lasting) <= LIMIT
    # Who claims while the other has not committed sees its place as taken: then one place is left for the next claim.
    assert given(played) in (ids[2:3], ids[2:4])
    lasting.claim(5)
    assert running(lasting) == LIMIT


@pytest.mark.parametrize("order", list(orders(2, 2)))
def test_g6_a_limit_that_is_raised_beside_a_claim_is_kept_before_and_after(lasting: Scene, order: str) -> None:
    clear(lasting)
    for _ in range(9):
        lasting.enqueue()
    lasting.claim(5)

    def raise_limit(connection: Connection) -> None:
        catalogue.set_limits(connection, "limited", {"limit": 5})

    try:
        run(lasting, order, transaction(raise_limit), transaction(claim(lasting, 9)), most=5)
        lasting.claim(9)
        assert running(lasting) == 5
    finally:
        catalogue.set_limits(lasting.connection, "limited", {"limit": LIMIT})
