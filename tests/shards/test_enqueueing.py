"""G10, G11: calls over several shards. What one does not take is written on another, once and whole, or refused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Cut, Proxy
from tests.fault.test_lost_answers import is_commit_in
from tests.shards.scene import becomes, entry_of, execute, key_on, set_map_state, stored, task_on, where
from tests.system.meeting import Meeting

from penstock import App, InvalidInput, PartitionUnavailable, QueueFull, RequestTimeout, SchemaMismatch
from penstock.client import callers_writer
from penstock.routing import home_of, shard_of
from penstock.shards import depths
from penstock.storage.enqueue.callers_database import CallersDatabase, identify_database
from penstock.storage.enqueue.steps import Steps

COUNTS = pytest.mark.parametrize("count", [1, 5, 150], ids=["single", "few", "copied"])
# The shard that fails: the one that leads, or the other.
FAILING = pytest.mark.parametrize("failing", [1, 2], ids=["the lead", "the other"])


class Scene:
    """Two shards, one of them behind a proxy."""

    def __init__(self, urls: list[str], failing: int) -> None:
        self.urls = urls
        self.failing = failing
        self.sound = 3 - failing
        self.proxy = Proxy(urls[failing - 1])
        self.app = self.open()

    def open(self) -> App:
        urls = list(self.urls)
        urls[self.failing - 1] = self.proxy.url
        return App(shards=urls, request_timeout=60.0)

    def prefer_failing(self, task: Any) -> None:
        """Make the failing shard the one that a call without a key goes to, and use it."""
        with psycopg.connect(self.urls[self.sound - 1]) as connection:
            task.options(connection=connection).enqueue_many([{"n": -1}] * 1000)
        for _ in range(3):  # By then its statements are prepared.
            becomes(lambda: self.goes_there([task.enqueue(n=-1)]))
            becomes(lambda: self.goes_there(task.enqueue_many([{"n": -1}] * 150)))
        self.forget_depths()

    def goes_there(self, jobs: list[int]) -> bool:
        """Whether these went to the failing shard: on a busy machine it may have answered too late to be asked."""
        self.forget_depths()
        return {shard_of(job) for job in jobs} == {self.failing}

    def forget_depths(self) -> None:
        time.sleep(2 * depths.LIFETIME_SECONDS)

    def make_read_only(self) -> None:
        url = self.urls[self.failing - 1]
        self._alter("set default_transaction_read_only = on")
        ours = "datname = current_database() and application_name = 'penstock'"
        execute(url, f"select pg_terminate_backend(pid) from pg_stat_activity where {ours}")
        becomes(lambda: not execute(url, f"select from pg_stat_activity where {ours}"))

    def make_writable(self) -> None:
        self._alter("reset all")

    def _alter(self, change: str) -> None:
        name = self.urls[self.failing - 1].rpartition("/")[2]
        execute(self.urls[self.sound - 1], f"alter database {name} {change}")

    def counted(self) -> Counter[int]:
        """How often each job is stored, without those that only filled a partition."""
        found = stored(self.urls)
        del found[-1]
        return found

    def close(self) -> None:
        self.proxy.flow()
        self.app.close()
        self.proxy.close()


@pytest.fixture
def scene(shard_urls: list[str], request: pytest.FixtureRequest) -> Iterator[Scene]:
    given = getattr(request.node, "callspec", None)
    scene = Scene(shard_urls, given.params.get("failing", 2) if given else 2)
    yield scene
    scene.close()


@pytest.fixture
def all_depths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shard's depths are waited for: on a busy machine those of the failing one come later than a call waits,
    which then goes to the sound one and meets no fault. Not for shards that hang."""
    monkeypatch.setattr(depths, "OTHERS_SECONDS", 30.0)


def rows(count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(count)]


def once(count: int) -> Counter[int]:
    return Counter(range(count))


# Calls without a key


@COUNTS
@FAILING
@pytest.mark.parametrize("fault", ["refuses", "hangs", "is read-only"])
def test_g11_a_call_without_a_key_moves_on_whole(scene: Scene, fault: str, failing: int, count: int) -> None:
    task = task_on(scene.app, partitions=2)
    scene.prefer_failing(task)
    if fault == "refuses":
        scene.proxy.go_down()
    elif fault == "hangs":
        scene.proxy.stall()
    else:
        scene.make_read_only()
    ids = task.enqueue_many(rows(count))
    assert {shard_of(job) for job in ids} == {scene.sound}
    assert [where(scene.urls)[scene.sound][job] for job in ids] == list(range(count))
    assert scene.counted() == once(count)
    # It is used again when it is back.
    scene.proxy.come_up() if fault == "refuses" else scene.proxy.flow() if fault == "hangs" else scene.make_writable()
    becomes(lambda: shard_of(task.enqueue(n=-1)) == scene.failing)
    assert scene.counted() == once(count)


@pytest.mark.usefixtures("all_depths")
@COUNTS
@pytest.mark.parametrize("cut", ["answered", "racing", "unsent"])
def test_g1_a_call_whose_answer_is_lost_is_found_or_moved_and_written_once(scene: Scene, cut: Cut, count: int) -> None:
    task = task_on(scene.app, partitions=2)
    scene.prefer_failing(task)
    scene.proxy.cut_next(cut, lambda chunk, said: is_commit_in(chunk, said) if count >= 100 else b'"n"' in chunk)
    ids = task.enqueue_many(rows(count))
    assert scene.proxy.cut_count == 1
    assert scene.counted() == once(count)
    assert len({shard_of(job) for job in ids}) == 1
    assert [where(scene.urls)[shard_of(job)][job] for job in ids] == list(range(count))
    if cut == "answered":
        assert shard_of(ids[0]) == scene.failing
    if cut == "unsent":
        assert shard_of(ids[0]) == scene.sound


@pytest.mark.usefixtures("all_depths")
@COUNTS
def test_g11_a_lost_answer_that_cannot_be_found_out_is_told_as_unknown(scene: Scene, count: int) -> None:
    task = task_on(scene.app, partitions=2)
    scene.prefer_failing(task)

    scene.proxy.goes_down_when_answered = True
    scene.proxy.cut_next("answered", lambda chunk, said: is_commit_in(chunk, said) if count >= 100 else b'"n"' in chunk)
    with pytest.raises(RequestTimeout, match="shard 2") as refused:
        task.options(request_timeout=1.0).enqueue_many(rows(count))
    assert refused.value.outcome == "unknown"
    assert refused.value.written == [None] * count
    assert scene.counted() == once(count), "it was written, and not a second time elsewhere"


@pytest.mark.parametrize("count", [1, 5], ids=["single", "few"])
def test_g11_a_small_call_that_was_sent_to_a_server_that_hangs_is_not_sent_to_another(
    scene: Scene, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_on(scene.app, partitions=2)
    scene.prefer_failing(task)
    task.enqueue(n=-1)
    monkeypatch.setattr(depths, "LIFETIME_SECONDS", 3600.0)
    monkeypatch.setattr(depths, "RENEWED_SECONDS", 3600.0)
    scene.proxy.stall()
    with pytest.raises(RequestTimeout) as refused:
        task.options(request_timeout=1.0).enqueue_many(rows(count))
    assert refused.value.outcome == "unknown"
    scene.proxy.flow()
    becomes(lambda: scene.app.databases.of(scene.failing).breaker.is_writable)
    assert scene.counted() in (Counter(), once(count)), "it may have been done when the server went on, and only there"
    assert not any(n >= 0 for n in where(scene.urls)[scene.sound].values())


def test_g11_a_large_call_that_met_a_server_that_hangs_is_written_on_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_on(scene.app, partitions=2)
    scene.prefer_failing(task)
    task.enqueue(n=-1)
    monkeypatch.setattr(depths, "LIFETIME_SECONDS", 3600.0)
    monkeypatch.setattr(depths, "RENEWED_SECONDS", 3600.0)
    scene.proxy.stall()
    ids = task.enqueue_many(rows(150))
    assert {shard_of(job) for job in ids} == {scene.sound}
    scene.proxy.flow()
    becomes(lambda: scene.app.databases.of(scene.failing).breaker.is_writable)
    assert scene.counted() == once(150)


@COUNTS
def test_g11_a_call_that_no_shard_takes_is_refused_whole(scene: Scene, count: int) -> None:
    assert list(scene.app.databases)
    with closing(Proxy(scene.urls[0])) as other, App(shards=[other.url, scene.proxy.url], request_timeout=60.0) as app:
        task = task_on(app, partitions=2)
        task.enqueue(n=-1)
        other.go_down()
        scene.proxy.go_down()
        with pytest.raises(RequestTimeout, match="no shard of their queue") as refused:
            task.options(request_timeout=1.0).enqueue_many(rows(count))
        assert refused.value.outcome == "not written"
        assert refused.value.written == [None] * count
    assert scene.counted() == Counter()


def test_g11_a_slow_shard_delays_no_call_that_need_not_go_there(scene: Scene) -> None:
    task = task_on(scene.app, partitions=2)
    task.enqueue(n=-1)
    scene.proxy.delay = 0.3
    ids = [task.enqueue(n=n) for n in range(40)]
    scene.proxy.delay = 0.0
    assert scene.counted() == once(40)
    assert sum(shard_of(job) == scene.sound for job in ids) > 30


def test_g11_calls_without_a_key_are_spread_evenly(four_shard_urls: list[str]) -> None:
    apps = [App(shards=four_shard_urls) for _ in range(4)]
    tasks = [task_on(app, partitions=8) for app in apps]

    def enqueue(producer: int) -> None:
        for call in range(producer, 1000, 4):
            tasks[producer].enqueue_many(rows(1 + call * 37 % 100))

    tasks[0].enqueue(n=0)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(enqueue, range(4)))
    found = Counter[int]()
    for url in four_shard_urls:
        found.update(dict(execute(url, "select partition_id, count(*) from penstock.job group by 1")))
    for app in apps:
        app.close()
    mean = sum(found.values()) / 8
    assert len(found) == 8
    assert max(found.values()) <= 1.2 * mean


def test_jobs_without_a_key_of_several_queues_stay_together(scene: Scene) -> None:
    first, second = task_on(scene.app, "a", partitions=4), task_on(scene.app, "b", partitions=4)
    lone = task_on(scene.app, "c")
    for n in range(6):
        ids = scene.app.enqueue_many([first.job(n=n), second.job(n=n), lone.job(n=n)])
        assert len({shard_of(job) for job in ids}) == 1


def test_jobs_without_a_key_go_where_the_call_goes_anyway(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    for shard in (1, 2, 1, 2):
        keyed = task.options(key=key_on(scene.app, shard)).job(n=1)
        assert {shard_of(job) for job in scene.app.enqueue_many([task.job(n=0), keyed, task.job(n=2)])} == {shard}


# Calls with a key


def test_g11_keys_of_a_shard_that_hangs_wait_and_those_of_others_do_not(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4, order="key")
    here, there = (key_on(scene.app, shard) for shard in (scene.sound, scene.failing))
    task.options(key=there).enqueue(n=-1)
    scene.proxy.stall()
    refusals: list[Exception] = []

    def enqueue_there() -> None:
        try:
            task.options(key=there, request_timeout=1.0).enqueue_many(rows(150))
        except Exception as error:
            refusals.append(error)

    waiting = threading.Thread(target=enqueue_there)
    waiting.start()
    for n in range(50):
        assert shard_of(task.options(key=here).enqueue(n=n)) == scene.sound
    assert waiting.is_alive() or refusals
    waiting.join()
    (refused,) = refusals
    assert isinstance(refused, PartitionUnavailable)
    assert refused.shard == scene.failing
    assert refused.partition in entry_of(scene.app).partition_names
    assert repr(refused.partition) in str(refused)
    assert f"shard {scene.failing}" in str(refused)
    assert refused.written == [None] * 150
    scene.proxy.flow()
    assert shard_of(task.options(key=there).enqueue(n=50)) == scene.failing
    assert scene.counted() == once(51)


@COUNTS
@pytest.mark.parametrize("fault", ["refuses", "is read-only"])
def test_g11_a_call_with_a_key_waits_for_its_shard(scene: Scene, fault: str, count: int) -> None:
    task = task_on(scene.app, partitions=4)
    key = key_on(scene.app, scene.failing)
    task.options(key=key).enqueue(n=-1)
    scene.proxy.go_down() if fault == "refuses" else scene.make_read_only()
    with pytest.raises(PartitionUnavailable, match=f"shard {scene.failing}"):
        task.options(key=key, request_timeout=0.5).enqueue_many(rows(count))
    becomes(lambda: not scene.app.databases.of(scene.failing).breaker.is_writable)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(task.options(key=key).enqueue_many, rows(count))
        time.sleep(0.3)
        assert not waiting.done()
        scene.proxy.come_up() if fault == "refuses" else scene.make_writable()
        assert {shard_of(job) for job in waiting.result()} == {scene.failing}
    assert scene.counted() == once(count)


# Calls over several shards


@pytest.mark.parametrize("options", [{}, {"order": "key"}], ids=["plain", "ordered"])
def test_a_call_over_both_shards_has_its_ids_in_order(scene: Scene, options: dict[str, Any]) -> None:
    task = task_on(scene.app, partitions=4, **options)
    ids = scene.app.enqueue_many([task.options(key=f"k{n}").job(n=n) for n in range(300)])
    found = where(scene.urls)
    assert [found[shard_of(job)][job] for job in ids] == list(range(300))
    assert all(found.values())
    assert task_on(scene.app, "other").enqueue_many(rows(3))


@pytest.mark.parametrize("options", [{}, {"order": "key"}], ids=["plain", "ordered"])
@pytest.mark.parametrize("fault", ["refuses", "is read-only", "answer lost"])
def test_a_call_of_which_a_part_failed_says_what_was_written_and_is_completed_by_a_repeat(
    scene: Scene, fault: str, options: dict[str, Any]
) -> None:
    task = task_on(scene.app, partitions=4, **options)
    calls = [task.options(key=f"k{n}", idempotency_key=f"i{n}").job(n=n) for n in range(200)]
    ids = scene.app.enqueue_many([task.options(key=f"k{n}").job(n=-1) for n in range(200)])
    assert {shard_of(job) for job in ids} == {1, 2}

    if fault == "refuses":
        scene.proxy.go_down()
    elif fault == "is read-only":
        scene.make_read_only()
    else:
        scene.proxy.goes_down_when_answered = True
        scene.proxy.cut_next("answered", is_commit_in)
    with pytest.raises((PartitionUnavailable, RequestTimeout)) as refused:
        scene.app.enqueue_many(calls, request_timeout=1.0)
    error = refused.value
    found = where(scene.urls)
    written = {job: n for job, n in found[scene.sound].items() if n >= 0}
    assert {job: n for n, job in enumerate(error.written) if job is not None} == written
    assert 0 < len(written) < 200
    assert f"{len(written)} of the call's 200 jobs were written" in str(error)
    assert f"shard {scene.failing}" in str(error)
    if fault == "answer lost":
        assert isinstance(error, RequestTimeout)
        assert error.outcome == "unknown"
    else:
        assert isinstance(error, PartitionUnavailable)
        assert error.shard == scene.failing
        assert scene.counted() == Counter(written.values())
    scene.proxy.come_up()
    scene.make_writable()
    again = scene.app.enqueue_many(calls)
    assert [job for job, before in zip(again, error.written, strict=True) if before not in (None, job)] == []
    assert scene.counted() == once(200)
    assert scene.app.enqueue_many(calls) == again


def test_a_mixed_call_waits_with_its_keys_and_moves_the_rest(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    key = key_on(scene.app, scene.failing)
    calls = [task.options(key=key).job(n=0), task.job(n=1), task.options(key=key).job(n=2), task.job(n=3)]
    assert {shard_of(job) for job in scene.app.enqueue_many(calls)} == {scene.failing}
    scene.make_read_only()
    with pytest.raises(PartitionUnavailable) as refused:
        scene.app.enqueue_many(calls, request_timeout=1.0)
    written = refused.value.written
    assert [job is not None and shard_of(job) for job in written] == [False, scene.sound, False, scene.sound]
    assert scene.counted() == Counter({0: 1, 1: 2, 2: 1, 3: 2})


def test_a_full_partition_refuses_a_call_before_any_of_it_is_written(scene: Scene) -> None:
    task = task_on(scene.app, partitions=2, max_length=10)
    here, there = (key_on(scene.app, shard) for shard in (1, 2))
    calls = [task.options(key=here).job(n=n) for n in range(5)] + [task.options(key=there).job(n=n) for n in range(11)]
    with pytest.raises(QueueFull):
        scene.app.enqueue_many(calls)
    assert scene.counted() == Counter()
    assert len(scene.app.enqueue_many(calls[:15])) == 15


# In the caller's transaction


def test_g10_a_call_is_written_on_the_shard_of_its_connection(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    for shard in (1, 2):
        with psycopg.connect(scene.urls[shard - 1]) as connection:
            ids = [task.options(connection=connection).enqueue(n=n) for n in range(3)]
            ids += task.options(connection=connection).enqueue_many(rows(150))
            ids += [task.options(connection=connection, key=key_on(scene.app, shard)).enqueue(n=0)]
            assert {shard_of(job) for job in ids} == {shard}
            connection.rollback()
        assert not where(scene.urls)[shard]
    with psycopg.connect(scene.urls[1]) as connection:
        task.options(connection=connection).enqueue(n=7)
    assert list(where(scene.urls)[2].values()) == [7]


def test_g10_what_lives_elsewhere_is_refused_with_the_shard_and_the_remedy(scene: Scene) -> None:
    task, lone = task_on(scene.app, partitions=4), task_on(scene.app, "lone")
    home = entry_of(scene.app, "lone").partition_shards[0]
    calls: list[tuple[int, str, Callable[[Any], object]]] = [
        (2, "key", lambda c: task.options(connection=c, key=key_on(scene.app, 1)).enqueue(n=1)),
        (2, "key", lambda c: scene.app.enqueue_many([task.options(key=key_on(scene.app, 1)).job(n=1)], connection=c)),
        (2, "key", lambda c: task.options(connection=c, key=key_on(scene.app, 1)).enqueue_many(rows(2))),
        (3 - home, "connection", lambda c: lone.options(connection=c).enqueue(n=1)),
        *(
            (
                3 - shard,
                "idempotency_key",
                lambda c, key=key: task.options(connection=c, idempotency_key=key).enqueue(n=1),
            )
            for shard, key in [(1, idempotency_key_on(scene.app, 1)), (2, idempotency_key_on(scene.app, 2))]
        ),
    ]
    for shard, field, enqueue in calls:
        with psycopg.connect(scene.urls[shard - 1]) as connection:
            with pytest.raises(InvalidInput, match=f"to shard {3 - shard}.*without connection=") as refused:
                enqueue(connection)
            assert refused.value.field == field
            # The caller's transaction lives on.
            task.options(connection=connection).enqueue(n=-1)
    assert scene.counted() == Counter()


def test_g10_a_connection_to_another_system_is_refused(scene: Scene, database_url: str) -> None:
    with App(database_url) as other:
        other.migrate()
    task = task_on(scene.app, partitions=4)
    with psycopg.connect(database_url) as connection, pytest.raises(InvalidInput, match="no shard of this app"):
        task.options(connection=connection).enqueue(n=1)


@COUNTS
def test_g10_a_connection_to_another_database_is_refused_where_an_app_has_one(
    database_url: str, empty_database_url: str, count: int
) -> None:
    """The partition of another queue has the same number there."""
    with App(database_url) as app, App(empty_database_url) as other:
        other.migrate()
        task, there = task_on(app, "mail"), task_on(other, "payments")
        for each in (task, there):
            each.enqueue(n=0)

        async def enqueue() -> None:
            async with await psycopg.AsyncConnection.connect(empty_database_url) as connection:
                await task.options(connection=connection).aenqueue_many(rows(count))

        with psycopg.connect(empty_database_url) as connection:
            with pytest.raises(InvalidInput, match=r"no shard of this app; connect to \S+$") as refused:
                task.options(connection=connection).enqueue_many(rows(count))
            assert refused.value.field == "connection"
            # The caller's transaction lives on.
            there.options(connection=connection).enqueue(n=1)
        with pytest.raises(InvalidInput, match="no shard of this app"):
            asyncio.run(enqueue())
        assert other.stats("payments").queue_length == 2


def test_g10_a_connection_is_asked_once_which_database_it_leads_to(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def identify() -> Steps[CallersDatabase]:
        asked.append(1)
        return identify_database()

    monkeypatch.setattr(callers_writer, "identify_database", identify)
    with App(database_url) as app, psycopg.connect(database_url) as connection:
        task = task_on(app)
        for n in range(3):
            task.options(connection=connection).enqueue(n=n)
        assert asked == [1]


def test_a_connection_to_functions_that_this_program_is_too_old_for_is_refused(database_url: str) -> None:
    with App(database_url) as app:
        task = task_on(app)
        task.enqueue(n=0)
        execute(database_url, "update penstock.function_set set oldest_program = 99")
        with psycopg.connect(database_url) as connection, pytest.raises(SchemaMismatch, match="version 99 or later"):
            task.options(connection=connection).enqueue(n=1)
        assert app.stats("q").queue_length == 1


def test_g10_a_connection_to_a_database_without_the_schema_is_refused(scene: Scene, empty_database_url: str) -> None:
    task = task_on(scene.app, partitions=4)
    with psycopg.connect(empty_database_url) as connection:
        with pytest.raises(InvalidInput, match="without Penstock's schema"):
            task.options(connection=connection).enqueue(n=1)
        assert connection.execute("select 1").fetchone() == (1,)


def test_g10_the_same_in_coroutines(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(scene.urls[1]) as connection:
            ids = [await task.options(connection=connection).aenqueue(n=n) for n in range(3)]
            ids += await task.options(connection=connection).aenqueue_many(rows(150))
            assert {shard_of(job) for job in ids} == {2}
            with pytest.raises(InvalidInput, match="lives on shard 1"):
                await task.options(connection=connection, key=key_on(scene.app, 1)).aenqueue(n=1)

    asyncio.run(main())
    assert len(where(scene.urls)[2]) == 153


# Parents


def test_a_parent_may_be_on_another_shard(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    parent = task.options(key=key_on(scene.app, 1)).enqueue(n=0)
    child = task.options(key=key_on(scene.app, 2), after=[parent]).enqueue(n=1)
    assert (shard_of(parent), shard_of(child)) == (1, 2)
    assert execute(scene.urls[1], "select job_id, parents from penstock.blocked") == [(child, [parent])]
    with psycopg.connect(scene.urls[1]) as connection:
        second = task.options(connection=connection, after=[parent]).enqueue(n=2)
    assert shard_of(second) == 2


@pytest.mark.parametrize("shard", [1, 2])
def test_a_parent_that_is_nowhere_is_refused_wherever_it_would_be(scene: Scene, shard: int) -> None:
    task = task_on(scene.app, partitions=4)
    gone = (1024 * 5000 + shard) * 1024
    for key in (key_on(scene.app, 1), key_on(scene.app, 2), None):
        for unknown in (gone, 7, 1024 * 900):
            with pytest.raises(InvalidInput, match=f"job {unknown} is unknown"):
                task.options(key=key, after=[unknown]).enqueue(n=0)
    both = [
        task.options(key=key_on(scene.app, 1)).job(n=0),
        task.options(key=key_on(scene.app, 2), after=[gone]).job(n=1),
    ]
    with pytest.raises(InvalidInput, match=f"job {gone} is unknown"):
        scene.app.enqueue_many(both)
    assert scene.counted() == Counter()


def test_a_parent_on_a_shard_that_is_down_cannot_be_waited_for_yet(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    parent = task.options(key=key_on(scene.app, scene.failing)).enqueue(n=0)
    scene.proxy.go_down()
    with pytest.raises(PartitionUnavailable, match=f"shard {scene.failing}"):
        task.options(key=key_on(scene.app, scene.sound), after=[parent], request_timeout=0.5).enqueue(n=1)
    assert scene.counted() == once(1)


@FAILING
def test_parents_of_the_same_call_on_another_shard_are_written_first(scene: Scene, failing: int) -> None:
    task = task_on(scene.app, partitions=4)
    here, there = key_on(scene.app, failing), key_on(scene.app, scene.sound)
    scene.proxy.delay = 0.1
    first = task.options(key=here).job(n=0)
    second = task.options(key=there, after=[first]).job(n=1)
    third = task.options(key=there, after=[first, second]).job(n=2)
    ids = scene.app.enqueue_many([first, second, third])
    blocked = execute(scene.urls[scene.sound - 1], "select job_id, parents from penstock.blocked order by job_id")
    assert blocked == [(ids[1], ids[:1]), (ids[2], ids[:2])]


def test_a_child_is_not_written_where_its_parent_was_not(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    here, there = key_on(scene.app, scene.sound), key_on(scene.app, scene.failing)
    first = task.options(key=there).job(n=0)
    calls = [first, task.options(key=here, after=[first]).job(n=1)]
    task.options(key=there).enqueue(n=-1)
    scene.proxy.go_down()
    with pytest.raises(PartitionUnavailable) as refused:
        scene.app.enqueue_many(calls, request_timeout=0.5)
    assert refused.value.written == [None, None]
    assert scene.counted() == Counter()


def test_shards_that_would_wait_for_each_other_are_refused(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    here, there = key_on(scene.app, 1), key_on(scene.app, 2)
    first = task.options(key=here).job(n=0)
    second = task.options(key=there, after=[first]).job(n=1)
    third = task.options(key=here, after=[second]).job(n=2)
    with pytest.raises(InvalidInput, match="make two calls"):
        scene.app.enqueue_many([first, second, third])
    assert scene.counted() == Counter()
    # Without keys they stay together.
    first = task.job(n=0)
    second = task_on(scene.app, "other", partitions=4).options(after=[first]).job(n=1)
    ids = scene.app.enqueue_many([first, second, task.options(after=[second]).job(n=2)])
    assert len({shard_of(job) for job in ids}) == 1


# Maps that are not open


@contextmanager
def closed_map(scene: Scene) -> Iterator[None]:
    """Nobody may write by the queue's map."""
    for url in scene.urls:
        execute(url, set_map_state("announced"))
    try:
        yield
    finally:
        for url in scene.urls:
            execute(url, set_map_state("open"))


@COUNTS
def test_a_map_that_is_not_open_yet_is_waited_for(scene: Scene, count: int) -> None:
    task = task_on(scene.app, partitions=4, order="key")
    key = key_on(scene.app, 2)
    task.options(key=key).enqueue(n=-1)
    with ThreadPoolExecutor(2) as threads:
        with closed_map(scene):
            with pytest.raises(PartitionUnavailable, match="another map") as refused:
                task.options(key=key, request_timeout=2.0).enqueue_many(rows(count))
            assert refused.value.shard == 2
            by_client = threads.submit(task.options(key=key).enqueue_many, rows(count))
            by_sql = threads.submit(sql_enqueue, scene.urls[1], "q", key=key)
            time.sleep(0.2)
            assert not by_client.done()
            assert not by_sql.done()
        assert {shard_of(job) for job in by_client.result()} == {2}
        assert shard_of(by_sql.result()) == 2
    assert scene.counted() == once(count)


@pytest.mark.parametrize("when", ["the map is learnt anew", "the part is tried again"])
def test_what_a_call_waited_for_is_told_wherever_its_time_runs_out(scene: Scene, when: str) -> None:
    task = task_on(scene.app, partitions=4, order="key")
    key = key_on(scene.app, 2)
    task.options(key=key).enqueue(n=-1)
    producer = scene.app.sender.producer
    assert producer is not None
    owner: Any = producer._map_wait if when == "the map is learnt anew" else producer._committer
    name = "_find_queue_now" if when == "the map is learnt anew" else "try_commit"
    act, seen = getattr(owner, name), 0

    def slowly(*args: Any) -> Any:
        nonlocal seen
        seen += 1
        if name == "_find_queue_now" or seen > 1:
            time.sleep(1.1)
        return act(*args)

    with closed_map(scene), pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, slowly)
        with pytest.raises(PartitionUnavailable, match="another map") as refused:
            task.options(key=key, request_timeout=1.0).enqueue_many(rows(150))
    assert refused.value.shard == 2
    assert scene.counted() == Counter()


# From SQL


def sql_enqueue(url: str, queue: str, **options: Any) -> int:
    named = "".join(f", {name} => %s" for name in options)
    rows = execute(url, f"select penstock.enqueue(%s, 't', '{{\"n\": -1}}'{named})", queue, *options.values())
    return int(rows[0][0])


def test_sql_writes_what_lives_on_its_shard_and_refuses_the_rest(scene: Scene) -> None:
    task_on(scene.app, partitions=4)
    task_on(scene.app, "ordered", partitions=4, order="key")
    lone = task_on(scene.app, "lone")
    lone.enqueue(n=-1)
    home = entry_of(scene.app, "lone").partition_shards[0]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"queue: .* lives on shard {home}"):
        sql_enqueue(scene.urls[2 - home], "lone")
    for shard, url in enumerate(scene.urls, 1):
        assert shard_of(sql_enqueue(url, "q")) == shard
        for queue in ("q", "ordered"):
            here, there = (key_on(scene.app, each, queue) for each in (shard, 3 - shard))
            assert shard_of(sql_enqueue(url, queue, key=here)) == shard
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"key: .* lives on shard {3 - shard}"):
                sql_enqueue(url, queue, key=there)
        # A key that lives with its ordering key has no other home.
        here = key_on(scene.app, shard, "ordered")
        for each in (1, 2):
            once_key = idempotency_key_on(scene.app, each, "ordered")
            assert shard_of(sql_enqueue(url, "ordered", key=here, idempotency_key=once_key)) == shard


def test_sql_and_the_client_know_the_same_idempotency_keys(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    for shard, url in enumerate(scene.urls, 1):
        here, there = (idempotency_key_on(scene.app, each) for each in (shard, 3 - shard))
        first = sql_enqueue(url, "q", idempotency_key=here)
        assert shard_of(first) == shard
        assert task.options(idempotency_key=here).enqueue(n=0) == first
        assert task.options(idempotency_key=here, key="any").enqueue(n=0) == first
        assert sql_enqueue(url, "q", idempotency_key=here, key="other") == first
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"idempotency_key: .* shard {3 - shard}"):
            sql_enqueue(url, "q", idempotency_key=there)
    assert scene.counted() == Counter()


def test_sql_and_the_client_send_a_key_with_an_idempotency_key_to_the_same_partition(scene: Scene) -> None:
    task = task_on(scene.app, partitions=5)
    places = "select partition_id from penstock.job where id = %s"
    for shard, url in enumerate(scene.urls, 1):
        keys = [key for n in range(200) if home(scene.app, key := f"i{n}") == shard]
        for number, (one, other) in enumerate(zip(keys[:20:2], keys[1:20:2], strict=True)):
            by_sql = sql_enqueue(url, "q", idempotency_key=one, key=f"k{number}")
            by_client = task.options(idempotency_key=other, key=f"k{number}").enqueue(n=-1)
            assert execute(url, places, by_sql) == execute(url, places, by_client)


def test_sql_takes_parents_of_other_shards(scene: Scene) -> None:
    task = task_on(scene.app, partitions=4)
    parent = task.options(key=key_on(scene.app, 1)).enqueue(n=0)
    child = sql_enqueue(scene.urls[1], "q", after=[parent])
    assert execute(scene.urls[1], "select job_id, parents from penstock.blocked") == [(child, [parent])]
    for unknown in (1024 * 900, parent + 1023 * 1024 * 1024):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="after: "):
            sql_enqueue(scene.urls[shard_of(unknown) == 2], "q", after=[unknown])


def home(app: App, key: str, queue: str = "q") -> int:
    return home_of(key, entry_of(app, queue).homes)


def idempotency_key_on(app: App, shard: int, queue: str = "q") -> str:
    """An idempotency key that is remembered on a shard."""
    return next(key for n in range(10_000) if home(app, key := f"i{n}", queue) == shard)


@FAILING
def test_g11_calls_in_line_for_a_shard_that_goes_down_are_written_elsewhere_or_end_by_their_deadline(
    scene: Scene, failing: int
) -> None:
    task = task_on(scene.app, partitions=2)
    scene.prefer_failing(task)
    key = key_on(scene.app, scene.failing)
    bound = task.options(key=key, request_timeout=2.0)
    with Meeting(scene.app, scene.failing) as meeting:
        free = [meeting.call(task.enqueue, n=n) for n in range(4)]
        of_key = meeting.call(bound.enqueue, n=10)
        scene.proxy.go_down()
        scene.app.databases.of(scene.failing).breaker.note_failure()
        # Those that may go elsewhere do not wait until there is room.
        assert {shard_of(call.result()) for call in free} == {scene.sound}
        error = of_key.exception()
    assert isinstance(error, PartitionUnavailable)
    assert scene.counted() == Counter(dict.fromkeys(range(4), 1))
