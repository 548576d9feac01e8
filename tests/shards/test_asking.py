"""Questions are answered by all shards as one, and by those that are there while one is not.

The app keeps trying for an hour: an answer that waited for the dead shard would never come.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.shards.place import Place

from penstock import App, NotFound, PartitionUnavailable
from penstock.admin.doctor import doctor
from penstock.errors import ResultTimeout
from penstock.storage.connection import flow
from penstock.storage.inspect import selection


def test_figures_of_a_queue_are_added_up_over_all_shards(place: Place) -> None:
    place.enqueue(1, 3)
    place.enqueue(2, 5)
    place.claim(2)
    stats = place.app.stats("q")
    assert (stats.queue_length, stats.active_count, stats.total_enqueued, stats.unavailable) == (7, 1, 8, [])
    assert [(each.name, each.shard, each.queue_length) for each in stats.partitions] == [
        ("q", "1", 3),
        ("q__p1", "2", 4),
    ]
    assert [each.queue_length for each in place.app.queues()] == [7]


def test_a_partition_that_moved_is_shown_once_with_what_is_left_of_it(place: Place) -> None:
    place.enqueue(2, 3)
    place.app.move_partition("q", 1, 1)
    place.enqueue(1, 4)
    stats = place.app.stats("q")
    assert [(each.name, each.shard) for each in stats.partitions] == [("q", "1"), ("q__p1", "1")]
    assert (stats.queue_length, sum(each.queue_length for each in stats.partitions)) == (7, 7)


def test_a_dead_shard_is_named_and_the_others_answer(place: Place, second: Proxy) -> None:
    place.enqueue(1, 3)
    place.enqueue(2, 5)
    second.go_down()
    stats = place.app.stats("q")
    assert (stats.queue_length, stats.unavailable) == (3, ["2"])
    assert [(each.shard, each.queue_length) for each in stats.partitions] == [("1", 3), ("2", 0)]
    assert [each.unavailable for each in place.app.queues()] == [["2"]]
    second.come_up()


def test_every_question_is_answered_without_the_dead_shard(
    place: Place, second: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    here = place.enqueue(1, 2)
    place.enqueue(2, 2)
    place.claim(1)
    second.go_down()
    app = place.app
    with caplog.at_level(logging.WARNING, "penstock"):
        assert [each.id for each in app.jobs()] == here[::-1]
    assert "left out: shard 2" in caplog.text
    assert len(app.workers()) == 1
    assert not [*app.crons(), *app.loads(), *app.blocked_keys("q")]
    assert app.job(here[0]).state == "running"
    assert app.explain(here[1]).state == "ready"
    assert [(each.name, each.health) for each in app.shards] == [("1", "up"), ("2", "down")]
    second.come_up()


def test_a_job_on_a_dead_shard_is_refused_at_once_with_the_shards_name(place: Place, second: Proxy) -> None:
    (there,) = place.enqueue(2)
    second.go_down()
    for ask in (place.app.job, place.app.explain):
        with pytest.raises(PartitionUnavailable, match="shard 2") as refused:
            ask(there)
        assert refused.value.shard == 2
    second.come_up()


def test_a_question_to_a_shard_that_hangs_is_answered_by_the_others(place: Place, second: Proxy) -> None:
    place.enqueue(1, 3)
    second.stall()
    stats = place.app.stats("q")
    assert (stats.queue_length, stats.unavailable) == (3, ["2"])
    second.go_down()


@pytest.fixture
def heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a server takes its time to say that it was told to cancel a statement."""
    monkeypatch.setattr(flow, "GRACE_SECONDS", 30.0)


@pytest.mark.usefixtures("heard_out")
@pytest.mark.parametrize("table", ["job", "ready", "tally", "lease"])
def test_a_question_to_a_shard_with_a_locked_table_is_answered_by_the_others(
    place: Place, shard_urls: list[str], caplog: pytest.LogCaptureFixture, table: str
) -> None:
    here = place.enqueue(1, 3)
    place.enqueue(2, 5)
    with App(shards=shard_urls, request_timeout=2.0) as app, psycopg.connect(shard_urls[1]) as connection:
        assert app.stats("q").queue_length == 8
        connection.execute(f"lock penstock.{table} in access exclusive mode".encode())
        stats = app.stats("q")
        assert (stats.queue_length, stats.unavailable) == (3, ["2"])
        assert [each.unavailable for each in app.queues()] == [["2"]]
        if table != "tally":
            assert [each.id for each in app.jobs()] == here[::-1]
            assert "shard 2" in caplog.text
            assert "holds a lock" in caplog.text
        connection.rollback()
        assert app.stats("q").queue_length == 8


@pytest.mark.usefixtures("heard_out")
@pytest.mark.parametrize("table", ["job", "ready", "queue"])
def test_a_question_to_the_only_database_with_a_locked_table_is_refused_in_time(database_url: str, table: str) -> None:
    with App(database_url, request_timeout=2.0) as app, psycopg.connect(database_url) as connection:

        @app.queue("q").task
        def task() -> None: ...

        job = task.enqueue()
        connection.execute(f"lock penstock.{table} in access exclusive mode".encode())
        for ask in (lambda: app.stats("q"), lambda: app.jobs(queue="q"), app.queues, lambda: app.explain(job)):
            with pytest.raises(PartitionUnavailable, match="holds a lock"):
                ask()
        connection.rollback()
        assert app.stats("q").queue_length == 1


def test_an_app_opens_without_the_dead_shard(place: Place, second: Proxy, shard_urls: list[str]) -> None:
    place.enqueue(1, 3)
    second.go_down()
    with App(shards=[shard_urls[0], second.url], request_timeout=3600.0) as app:
        assert app.stats("q").unavailable == ["2"]
    with App(shard_urls[0], request_timeout=3600.0) as app:
        assert app.stats("q").unavailable == ["2"]
    second.come_up()


def test_jobs_of_all_shards_are_listed_newest_first_page_by_page(place: Place) -> None:
    ids = [id_ for _ in range(4) for shard in (1, 2) for id_ in place.enqueue(shard, 3)]
    ids += [id_ for _ in range(3) for id_ in place.enqueue(2, 4)]
    expected = sorted(ids, reverse=True)
    assert [each.id for each in place.app.jobs()] == expected
    for filters in ({}, {"queue": "q"}, {"queue": "q", "state": "ready"}, {"task": "t"}):
        listed: list[int] = []
        while page := place.app.jobs(limit=5, before=listed[-1] if listed else None, **filters):
            listed += [each.id for each in page]
        assert listed == expected, filters


def test_a_page_ends_where_all_shards_have_looked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # One look of a few jobs a shard: what is rare on one lies below what the other has looked at.
    monkeypatch.setattr(selection, "FULL_LOOK", selection.FULL_LOOK._replace(jobs=5))
    monkeypatch.setattr("penstock.storage.inspect.jobs.MOST_LOOKS", 1)
    place.enqueue(1, 2, tags=["rare"])
    place.enqueue(1, 30)
    rare = [*place.enqueue(2, 2, tags=["rare"]), *place.enqueue(1, 1, tags=["rare"])]
    assert max(rare) == rare[-1]
    listed = [each.id for each in place.app.jobs(tag="rare")]
    # The first shard has seen five jobs only: what the other one found below them comes with a later page.
    assert listed == [rare[-1]]


def test_a_job_is_found_by_its_id_wherever_it_is(place: Place) -> None:
    ids = [*place.enqueue(1), *place.enqueue(2)]
    assert [place.app.job(str(id_)).id for id_ in ids] == ids
    assert [place.app.explain(id_).job_id for id_ in ids] == ids
    with pytest.raises(NotFound, match="no shard 7"):
        place.app.job(7 << 10)
    with pytest.raises(NotFound, match="is not stored"):
        place.app.job(999_999 << 20 | 2 << 10)


def test_registrations_of_one_worker_on_several_shards_are_one(place: Place) -> None:
    place.enqueue(1, 2)
    place.enqueue(2, 3)
    place.claim(1, 2)
    place.claim(2, 3)
    assert sorted(each.running for each in place.app.workers()) == [2, 3]
    instance = "0f8fad5b-d9cb-469f-a165-70867728950e"
    for shard in (1, 2):
        place.execute(shard, "update penstock.worker set instance = %s", instance)
    (worker,) = place.app.workers()
    assert (worker.running, worker.queues, worker.concurrency) == (5, ["q"], 10)
    assert (worker.ended_last_minute, worker.failed_last_minute) == (None, None)
    place.execute(2, "update penstock.worker set ended_lately = 4, failed_lately = 1")
    assert [(each.ended_last_minute, each.failed_last_minute) for each in place.app.workers()] == [(4, 1)]
    place.execute(1, "update penstock.worker set ended_lately = 3, failed_lately = 0")
    assert [(each.ended_last_minute, each.failed_last_minute) for each in place.app.workers()] == [(7, 1)]


def test_loads_are_added_up_over_all_shards_by_name(place: Place) -> None:
    for shard, (name, rows) in {1: ("l", 10), 2: ("l", 7)}.items():
        _load(place, shard, name, rows)
    _load(place, 2, "other", 3)
    whole = {each.name: each for each in place.app.loads()}
    assert (whole["l"].rows, whole["l"].done, whole["l"].batches, whole["l"].state) == (17, 17, 1, "done")
    assert whole["other"].rows == 3
    assert [each.name for each in place.app.loads(limit=1)] == ["other"]


def _load(place: Place, shard: int, name: str, rows: int) -> None:
    place.execute(
        shard,
        "with l as (insert into penstock.load (name, queue_id, is_stream) select %s, id, false from penstock.queue"
        " returning id) insert into penstock.load_batch (load_id, batch, rows, duplicates, bad_rows)"
        " select id, 0, %s, 0, 0 from l",
        name,
        rows,
    )


def test_the_result_of_a_job_is_waited_for_on_its_shard(place: Place) -> None:
    (there,) = place.enqueue(2)
    results: list[Any] = []
    waiter = threading.Thread(target=lambda: results.append(place.app.result(there, timeout=60)))
    waiter.start()
    place.succeed(2)
    waiter.join()
    assert results == [7]


def test_keys_of_all_shards_are_listed_and_released(place: Place) -> None:
    (here,), (there,) = place.enqueue(1), place.enqueue(2)
    for shard, key, job in ((1, b"a", here), (2, b"b", there)):
        place.execute(
            shard,
            "insert into penstock.halted (queue_id, key, job_id, epoch) select id, %s, %s, epoch from penstock.queue",
            key,
            job,
        )
    assert {each.key: each.job_id for each in place.app.blocked_keys("q")} == {"a": here, "b": there}
    place.app.release("q", "b")
    assert [each.key for each in place.app.blocked_keys("q")] == ["a"]
    with pytest.raises(NotFound, match="is not halted"):
        place.app.release("q", "b")


def test_a_result_is_waited_for_no_longer_than_was_said(place: Place, second: Proxy) -> None:
    (job,) = place.enqueue(2)
    second.go_down()
    with pytest.raises(ResultTimeout):
        place.app.result(job, timeout=0.2)
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    place.succeed(2)
    assert place.app.result(job, timeout=60.0) == 7


def test_the_doctor_tells_of_a_shard_that_takes_no_writes_and_asks_for_no_drained_one(place: Place) -> None:
    name = place.urls[2].rpartition("/")[2]
    place.execute(1, f"alter database {name} set default_transaction_read_only = on")
    try:
        said = {(check.name, check.shard): check.ok for check in doctor(list(place.app.databases))}
    finally:
        place.execute(1, f"alter database {name} reset default_transaction_read_only")
    assert (said["writes", "1"], said["writes", "2"]) == (True, False)
    while place.app.drain_shard(2).state != "drained":
        continue
    with App(place.urls[1]) as app:
        assert all(check.ok for check in doctor(list(app.databases))), doctor(list(app.databases))
        with pytest.raises(NotFound, match="shard 2 wrote it and is drained: give its URL too"):
            app.job(2 * 1024 + 2**40)
