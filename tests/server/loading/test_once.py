"""A load over HTTP is enqueued exactly once for its name, whoever repeats it, cuts it or dies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from tests.server.loading.bodies import load, ndjson, staged, stored
from tests.server.loading.dying import CHUNK_ROWS, ROWS, die_while_loading
from tests.system.facts import eventually

from penstock import App, InvalidInput, PenstockError, QueueFull
from penstock.server.loading import staging
from penstock.server.loading.load_request import LoadReceipt
from penstock.shards.decided_loads import publish_all_decided
from penstock.storage.loads.loads import forget_stages

BODY = ndjson(ROWS)
MOMENTS = ["body", "staged", "decided", "published"]


@pytest.fixture(autouse=True)
def chunks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_ROWS", CHUNK_ROWS)


class Cut(Exception):
    """What the HTTP layer raises where a client is gone."""


@pytest.fixture
def sharded(shard_urls: list[str]) -> Iterator[App]:
    with App(shards=shard_urls) as app:
        app.queue("q", partitions=4)
        app.queue("keyed", partitions=4, order="key")
        app.migrate()
        yield app


def test_the_same_name_again_is_answered_without_a_look_at_its_body_g8(app: App) -> None:
    done = load(app, ndjson([{"n": 1}, {"n": 2, "idempotency_key": "a"}, {"n": 3, "idempotency_key": "a"}]), task="t")
    assert done == LoadReceipt(name="l", rows=3, duplicates=1, is_new=True)

    def never() -> Iterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    assert load(app, never(), task="t") == LoadReceipt(name="l", rows=3, duplicates=1, is_new=False)
    assert (app.stats("q").total_enqueued, staged(app)) == (2, 0)
    app.queue("other")
    app.migrate()
    with pytest.raises(InvalidInput, match="names a load into queue 'q' already"):
        load(app, never(), task="t", queue="other")


def test_of_two_bodies_of_one_name_at_once_one_is_enqueued_g8(app: App) -> None:
    both_began = threading.Barrier(2)
    done: list[LoadReceipt] = []

    def chunks() -> Iterator[bytes]:
        yield BODY[: len(BODY) // 2]
        both_began.wait()
        yield BODY[len(BODY) // 2 :]

    threads = [threading.Thread(target=lambda: done.append(load(app, chunks(), task="t"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.is_new for each in done) == [False, True]
    assert {each.rows for each in done} == {len(ROWS)}
    assert (app.stats("q").queue_length, staged(app)) == (len(ROWS), 0)


def test_a_body_that_is_cut_enqueues_nothing_and_leaves_nothing_staged(app: App) -> None:
    seen: list[int] = []

    def chunks() -> Iterator[bytes]:
        yield BODY[:-100]
        # The thread that writes is ahead by then: there is something to let go of.
        seen.append(eventually(lambda: staged(app), "some of it is staged"))
        raise Cut

    with pytest.raises(Cut):
        load(app, chunks(), task="t")
    assert seen[0] > 0
    assert (app.stats("q").total_enqueued, staged(app), app.loads()) == (0, 0, [])
    assert load(app, BODY, task="t").is_new


def test_a_full_queue_takes_all_of_a_load_or_nothing(app: App) -> None:
    app.limit("q", max_length=len(ROWS) // 2 - 1)
    with pytest.raises(QueueFull):
        load(app, BODY, task="t")
    assert (app.stats("q").total_enqueued, staged(app)) == (0, 0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_killed_in_the_middle_leaves_a_load_once_or_not_at_all_g8(sharded: App, moment: str) -> None:
    die_while_loading([database.url for database in sharded.databases], moment)
    known = 0 if moment in ("body", "staged") else len(ROWS)
    if moment != "decided":
        assert sharded.stats("q").queue_length == known
    again = load(sharded, BODY, task="t", key="customer")
    assert (again.is_new, again.rows) == (known == 0, len(ROWS))
    stats = sharded.stats("q")
    assert (stats.queue_length, stats.total_enqueued) == (len(ROWS), len(ROWS))
    left = staged(sharded)
    assert (left > 0) == (known == 0)
    # What nobody will ever name is forgotten after a day.
    for database in sharded.databases:
        with psycopg.connect(database.url) as connection:
            connection.execute("update penstock.load_range set created_at = now() - interval '25 hours'")
        with database.connection() as connection:
            forget_stages(connection)
    assert staged(sharded) == 0
    assert sharded.stats("q").queue_length == len(ROWS)


def test_what_a_killed_server_decided_is_gone_on_with_by_upkeep_g8(sharded: App) -> None:
    die_while_loading([database.url for database in sharded.databases], "decided")
    assert sharded.stats("q").queue_length < len(ROWS)
    assert publish_all_decided(sharded.databases) == 1
    assert sharded.stats("q").queue_length == len(ROWS)


def test_each_row_lies_on_the_shard_of_its_key_and_keeps_its_order_g5(sharded: App) -> None:
    seen: dict[str, list[int]] = {}
    sharded.queue("keyed", partitions=4, order="key").task(name="t", key="customer")(
        lambda customer, n, text: seen.setdefault(customer, []).append(n)
    )
    assert load(sharded, BODY, task="t", queue="keyed", rows=len(ROWS), order_by="n").is_new
    stats = sharded.stats("keyed")
    assert {each.shard for each in stats.partitions if each.queue_length} == {"1", "2"}
    sharded.work(until_idle=True)
    assert sum(map(len, seen.values())) == len(ROWS)
    assert all(order == sorted(order) for order in seen.values())


def test_keys_of_an_ordered_queue_run_in_the_order_of_arrival_g5(app: App) -> None:
    app.queue("keyed", partitions=2, order="key")
    app.migrate()
    rows = [{"key": f"k-{n % 3}", "n": (n * 7_919) % 10_007, "text": "x" * 500} for n in range(8_000)]
    load(app, ndjson(rows), task="t", queue="keyed")
    with psycopg.connect(app.url) as connection:
        found = connection.execute(
            "select convert_from(j.key, 'UTF8'), (j.args ->> 'n')::int from penstock.ready as r"
            " cross join generate_series(r.low, r.high - 1) as at(position)"
            " join penstock.job as j on j.id = r.range * 1024 + at.position order by r.pos, at.position"
        ).fetchall()
    by_key: dict[str, list[int]] = {}
    for key, n in found:
        by_key.setdefault(key, []).append(n)
    assert by_key == {f"k-{key}": [row["n"] for row in rows if row["key"] == f"k-{key}"] for key in range(3)}


def test_an_idempotency_key_is_found_wherever_its_row_is_staged_g7(sharded: App) -> None:
    rows = [{"n": n, "idempotency_key": f"once-{n % 500}"} for n in range(1_000)]
    assert load(sharded, ndjson(rows), task="t").duplicates == 500
    assert load(sharded, ndjson(rows), task="t", name="again").duplicates == 1_000
    assert sharded.stats("q").queue_length == 500


def test_rows_whose_keys_went_elsewhere_meanwhile_are_refused_and_may_come_again(sharded: App) -> None:
    def chunks() -> Iterator[bytes]:
        yield BODY[:-100]
        # The thread that writes has some of it on its shards by then.
        eventually(lambda: staged(sharded), "some of it is staged")
        sharded.resize("keyed", partitions=5)
        yield BODY[-100:]

    with pytest.raises(PenstockError, match="run it again under the same name"):
        load(sharded, chunks(), task="t", key="customer", queue="keyed")
    assert (sharded.stats("keyed").total_enqueued, staged(sharded)) == (0, 0)
    assert load(sharded, BODY, task="t", key="customer", queue="keyed").is_new
    assert Counter(row[3] for row in stored(sharded, "l")).keys() <= {f"c-{n}".encode() for n in range(50)}
