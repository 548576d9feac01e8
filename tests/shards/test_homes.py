"""G7: an idempotency key is one job, also while a new map of its queue gives it another home."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest

from penstock import App
from penstock.client.task import Task
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.shards import idempotency_keys
from penstock.shards.idempotency_keys import carry_keys, forget_carried_keys
from penstock.storage.connection import queries

KEYS = [f"k-{number}" for number in range(60)]


@pytest.fixture
def app(shard_urls: list[str]) -> Iterator[App]:
    with App(shards=shard_urls) as app:
        yield app


def plain(app: App) -> Task[..., None]:
    @app.queue("plain", partitions=2).task
    def work(n: int) -> None: ...

    return work


def ordered(app: App) -> Task[..., None]:
    @app.queue("ordered", partitions=2, order="key").task(key="n")
    def work(n: int) -> None: ...

    return work


def enqueue_all(app: App, task: Task[..., None]) -> dict[str, int]:
    jobs = [task.options(idempotency_key=key).job(n=number) for number, key in enumerate(KEYS)]
    return dict(zip(KEYS, app.enqueue_many(jobs), strict=True))


def stored(app: App) -> Counter[str]:
    """How many jobs there are for each key."""
    rows = app.databases.each(
        lambda c: c.execute("select attributes ->> 'idempotency_key' from penstock.job").fetchall()
    )
    return Counter(row[0] for each in rows for row in each)


def keys_on(app: App, shard: int) -> int:
    row = app.databases.of(shard).run(lambda c: c.execute("select count(*) from penstock.dedup").fetchone())
    assert row is not None
    return int(row[0])


def move_away(app: App, queue: str) -> None:
    """Another map: nothing of the queue is on shard 1 any more."""
    for number, part in enumerate(app.stats(queue).partitions):
        if part.shard == "1":
            app.move_partition(queue, number, 2)


@pytest.mark.parametrize("make", [plain, ordered])
def test_g7_keys_hold_before_while_and_after_they_are_carried(app: App, make: Callable[[App], Task[..., None]]) -> None:
    task = make(app)
    first = enqueue_all(app, task)
    on_one = keys_on(app, 1)
    assert on_one
    move_away(app, task.queue)
    assert enqueue_all(app, task) == first
    assert carry_keys(app.databases) == on_one
    assert keys_on(app, 1) == 0
    assert keys_on(app, 2) == len(KEYS)
    assert not app.databases.lead.run(
        lambda c: c.execute("select from penstock.queue_map where not is_carried").fetchall()
    )
    assert enqueue_all(app, task) == first
    assert set(stored(app).values()) == {1}


def test_g7_a_carry_that_was_killed_goes_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    task = plain(app)
    first = enqueue_all(app, task)
    move_away(app, "plain")
    monkeypatch.setattr(idempotency_keys, "BATCH", 7)
    letting_go = queries.query
    asked = 0

    def die(name: str) -> str:
        nonlocal asked
        asked += name == "let_go_keys"
        if asked == 2:
            raise RuntimeError("killed")
        return letting_go(name)

    monkeypatch.setattr(idempotency_keys, "query", die)
    with pytest.raises(RuntimeError, match="killed"):
        carry_keys(app.databases)
    monkeypatch.setattr(idempotency_keys, "query", letting_go)
    assert keys_on(app, 1) > 0
    assert enqueue_all(app, task) == first
    carry_keys(app.databases)
    assert keys_on(app, 1) == 0
    assert enqueue_all(app, task) == first
    assert set(stored(app).values()) == {1}


def test_g7_a_key_in_an_open_transaction_of_the_earlier_map_is_waited_for(app: App, shard_urls: list[str]) -> None:
    task = plain(app)
    app.stats("plain")
    slow = psycopg.connect(shard_urls[0])
    key = next(key for key in KEYS if _is_at(app, slow, task, key))
    move_away(app, "plain")
    with pytest.raises(PartitionUnavailable, match="still open"):
        task.options(idempotency_key=key, request_timeout=0.5).enqueue(n=2)
    assert carry_keys(app.databases) == 0
    late: list[int] = []
    waiting = threading.Thread(target=lambda: late.append(task.options(idempotency_key=key).enqueue(n=2)))
    waiting.start()
    slow.commit()
    waiting.join()
    slow.close()
    assert stored(app) == {key: 1}
    assert app.job(late[0]).args == {"n": 1}


def _is_at(app: App, connection: psycopg.Connection[tuple[object, ...]], task: Task[..., None], key: str) -> bool:
    """Enqueue through a connection, where the key's home is the shard that it leads to."""
    try:
        task.options(idempotency_key=key, connection=connection).enqueue(n=1)
    except InvalidInput:
        return False
    return True


def test_g7_keys_hold_while_partitions_move_back_and_forth(app: App) -> None:
    task = plain(app)
    app.stats("plain")
    answers: list[dict[str, int]] = []
    is_over = threading.Event()

    def move() -> None:
        while not is_over.is_set():
            for shard in (2, 1):
                app.move_partition("plain", 0, shard)
                app.move_partition("plain", 1, shard)
                carry_keys(app.databases)

    def produce() -> None:
        answers.extend({key: task.options(idempotency_key=key).enqueue(n=1) for key in KEYS} for _ in range(3))

    mover = threading.Thread(target=move)
    producers = [threading.Thread(target=produce) for _ in range(3)]
    for thread in (mover, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    is_over.set()
    mover.join()
    assert len(answers) == 9
    assert all(answer == answers[0] for answer in answers)
    assert set(stored(app).values()) == {1}


def test_a_carried_key_goes_when_its_job_is_forgotten(app: App) -> None:
    task = plain(app)
    enqueue_all(app, task)
    on_one = keys_on(app, 1)
    move_away(app, "plain")
    carry_keys(app.databases)
    assert forget_carried_keys(app.databases) == 0
    with app.databases.of(1).connection() as connection:
        connection.execute("delete from penstock.job")
        connection.execute("delete from penstock.ready")
    assert forget_carried_keys(app.databases) == on_one
    assert keys_on(app, 2) == len(KEYS) - on_one


def test_sql_says_that_keys_are_on_their_way(app: App, shard_urls: list[str]) -> None:
    task = plain(app)
    enqueue_all(app, task)
    move_away(app, "plain")
    with psycopg.connect(shard_urls[1]) as connection, pytest.raises(psycopg.Error, match="on their way"):
        connection.execute("select penstock.enqueue('plain', 'work', '{\"n\": 1}', idempotency_key => 'k-1')")


def test_g7_a_carrier_that_comes_late_lets_no_key_go_that_is_home_again(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = plain(app)
    first = enqueue_all(app, task)
    move_away(app, "plain")
    reading = queries.query

    def come_back_first(name: str) -> str:
        if name == "let_go_keys":
            monkeypatch.setattr(idempotency_keys, "query", reading)
            for number in (0, 1):
                app.move_partition("plain", number, 1)
            carry_keys(app.databases)
        return reading(name)

    monkeypatch.setattr(idempotency_keys, "query", come_back_first)
    carry_keys(app.databases)
    carry_keys(app.databases)
    assert keys_on(app, 1) == len(KEYS)
    assert enqueue_all(app, task) == first
    assert set(stored(app).values()) == {1}
