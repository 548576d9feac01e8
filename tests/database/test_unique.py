"""Jobs that are unique while they wait: what is the same is one text, and whoever comes second meets the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.database.conftest import Scene
from tests.database.ledger import check
from tests.database.stepwise import Step, clear, lasting_scene, orders, play, transaction

from penstock.model.unique_key import jsonb_text, unique_text
from penstock.storage import Connection
from penstock.storage.work.spark_workers import charge_nothing

JSON = [
    "{}",
    '{"b": 1, "a": 2, "ccc": 3, "aa": 4, "é": 5, "z": 6}',
    '{"n": [0, -0, 0.0, -0.0, 1.50, 1e3, 1.5E+2, 1e-7, -2.5e-3, 12345678901234567890123, 1e16, 0.1, 100.0]}',
    '{"t": "\\"\\\\ \\b\\f\\n\\r\\t \\u0001\\u001f\\u007f é \\u20ac \\ud83d\\ude00 / <>"}',
    '{"d": {"y": [null, true, false, {"k": []}], "x": {}}, "c": ""}',
    '{"twice": 1, "twice": 2}',
]


@pytest.fixture(scope="module")
def lasting(server_url: str, template_database: str) -> Iterator[Scene]:
    with lasting_scene(server_url, template_database, "unique_in_every_order") as scene:
        yield scene


@pytest.fixture
def scene(lasting: Scene) -> Scene:
    clear(lasting)
    return lasting


def enqueue(keeps: bool = True) -> Step:
    """As SQL does it, or as a client, which does not hold the job that waits."""

    def step(connection: Connection) -> int:
        if keeps:
            row = connection.execute(
                """select penstock.enqueue('q', 't', '{"n": 1}', "unique" => 'waiting')"""
            ).fetchone()
        else:
            row = connection.execute(
                "with new as materialized (select penstock.draw_range() * 1024 as id)"
                " select coalesce(penstock.take_unique(q.id, 'x', new.id, false), new.id)"
                " from new, penstock.queue as q where q.name = 'q'"
            ).fetchone()
        assert row is not None
        return int(row[0])

    return step


def waiting(scene: Scene) -> int:
    """How many jobs wait that were never leased."""
    return int(scene.one("select count(*) from penstock.job where penstock.waits_unstarted(id)"))


@pytest.mark.parametrize("text", JSON)
def test_arguments_are_the_same_text_in_python_and_in_sql(scene: Scene, text: str) -> None:
    assert jsonb_text(text.encode()) == scene.one("select %s::jsonb::text", text)
    assert unique_text("t", text.encode(), None) == scene.one("select penstock.unique_text('t', %s::jsonb, null)", text)


def test_what_is_not_the_same_has_another_text(scene: Scene) -> None:
    texts = {unique_text(*given) for given in (("t", b"{}", None), ("u", b"{}", None), ("t", b'{"a": 1}', None))}
    texts |= {unique_text("t", b"{}", key) for key in ("t", "{}", "t\x1f{}")}
    assert len(texts) == 6
    assert unique_text("t", b"{}", "k") == unique_text("u", b'{"a": 1}', "k")
    assert scene.one("select penstock.unique_text('u', '{}', 'k')") == unique_text("t", b"{}", "k")


@pytest.mark.parametrize("order", list(orders(2, 2)))
def test_two_that_come_at_once_are_given_one_job(scene: Scene, order: str) -> None:
    played = play(
        order, transaction(enqueue()), transaction(enqueue()), (scene.connect(), scene.connect()), scene.connection,
        lambda: check(scene.connection),
    )  # fmt: skip
    assert played.a[0] == played.b[0]
    assert waiting(scene) == 1


@pytest.mark.parametrize("order", list(orders(2, 2)))
def test_a_job_that_a_transaction_was_given_does_not_start_before_it_ends(scene: Scene, order: str) -> None:
    first = enqueue()(scene.connection)
    seen: list[tuple[int, int]] = []

    def claim(connection: Connection) -> list[int]:
        held = scene.claim(1, connection=connection)
        seen.append((len(seen), len(held)))
        return [job for _, job in held]

    played = play(
        order, transaction(enqueue()), transaction(claim), (scene.connect(), scene.connect()), scene.connection,
        lambda: check(scene.connection),
    )  # fmt: skip
    given, claimed = played.a[0], played.b[0]
    # Whoever comes while it is being claimed waits for that, and gets another.
    assert (given == first) == (claimed == [] or order == "AABB")
    assert waiting(scene) == 1 if given != first or claimed == [] else waiting(scene) == 0


@pytest.mark.parametrize("order", list(orders(2, 2)))
@pytest.mark.parametrize("how", ["snooze", "release"])
def test_a_job_that_waits_again_is_not_given(scene: Scene, how: str, order: str) -> None:
    first = enqueue()(scene.connection)
    held = scene.claim(1)

    def put_back(connection: Connection) -> int:
        return scene.end(held, how, connection=connection)

    played = play(
        order, transaction(enqueue()), transaction(put_back), (scene.connect(), scene.connect()), scene.connection,
        lambda: check(scene.connection),
    )  # fmt: skip
    assert played.a[0] != first
    assert enqueue()(scene.connection) == played.a[0]


def rescue_uncharged(scene: Scene) -> None:
    """As after the death of a Spark stream, whose jobs are charged nothing."""
    charge_nothing(scene.connection, scene.worker)
    scene.connection.execute("select penstock.rescue_leases(array(select id from penstock.lease))")
    assert scene.one("select array[attempt, rescues] from penstock.ready") == [1, 0]


def test_who_was_retried_rescued_or_set_aside_does_not_wait(scene: Scene) -> None:
    acts: tuple[Callable[[Sequence[tuple[int, int]]], Any], ...] = (
        lambda held: scene.end(held, "retry", error="no"),
        lambda held: scene.end(held, "failed", error="no"),
        lambda held: scene.connection.execute("select penstock.rescue_leases(array(select id from penstock.lease))"),
        lambda held: rescue_uncharged(scene),
        lambda held: scene.connection.execute("select penstock.set_lease_aside(%s, 'unreadable')", (held[0][0],)),
        scene.succeed,
    )
    for act in acts:
        clear(scene)
        first = enqueue()(scene.connection)
        assert enqueue()(scene.connection) == first
        act(scene.claim(1))
        second = enqueue()(scene.connection)
        assert second != first
        assert enqueue()(scene.connection) == second


def test_a_client_holds_no_lock_on_the_job_that_waits(scene: Scene) -> None:
    scene.connection.execute(
        "insert into penstock.dedup (queue_id, idempotency_key, job_id, is_unique) values (%s, 'x', %s, true)",
        (scene.queue.id, scene.enqueue()[0]),
    )
    other = scene.connect()
    with other.transaction():
        first = enqueue(keeps=False)(other)
        assert [job for _, job in scene.claim(1)] == [first]
        assert enqueue(keeps=False)(other) != first
