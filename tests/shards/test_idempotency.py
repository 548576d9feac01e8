"""G7: one job for each idempotency key on any number of shards, from many producers whose connections are cut."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.resources import files
from typing import Any

import pytest
from tests.shards.scene import entry_of, execute, set_map_state, stored, task_on, where

from penstock import App, PartitionUnavailable, RequestTimeout, Task
from penstock.routing import home_of, shard_of

PUBLISHED: dict[str, Any] = json.loads(files("penstock.routing").joinpath("vectors.json").read_text(encoding="utf-8"))
KEYS = 240
CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and application_name = 'penstock' order by random() limit 2
"""


@pytest.mark.parametrize(
    ("options", "has_key"),
    [({}, False), ({}, True), ({"order": "key"}, True), ({"order": "key"}, False)],
    ids=["plain", "plain, with keys", "ordered", "ordered, without keys"],
)
def test_g7_repeats_from_many_producers_whose_connections_are_cut_make_one_job_each(
    four_shard_urls: list[str], options: dict[str, Any], has_key: bool
) -> None:
    apps = [App(shards=four_shard_urls) for _ in range(8)]
    tasks = [task_on(app, partitions=8, **options) for app in apps]
    assert list(apps[0].databases)
    is_over = threading.Event()
    cuts: list[int] = []

    def cut() -> None:
        while not is_over.wait(0.05):
            cuts.extend(len(execute(url, CUT)) for url in four_shard_urls)

    def produce(number: int) -> dict[int, int]:
        app, task = apps[number], tasks[number]
        order = random.Random(number)
        left = order.sample(range(KEYS), KEYS)
        found: dict[int, int] = {}
        while left:
            some = left[: order.choice((1, 3, 40))]
            jobs = [
                task.options(idempotency_key=f"i{n}", key=f"k{n % 50}" if has_key else None).job(n=n)
                for n in [*some, some[0]]
            ]
            try:
                ids = app.enqueue_many(jobs)
            except (PartitionUnavailable, RequestTimeout):
                continue  # As a user does: the same again.
            assert ids[-1] == ids[0]
            found.update(zip(some, ids, strict=False))
            left = left[len(some) :]
        return found

    cutter = threading.Thread(target=cut)
    cutter.start()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(produce, range(8)))
    is_over.set()
    cutter.join()
    for app in apps:
        app.close()
    assert sum(cuts) > 20
    assert stored(four_shard_urls) == Counter(range(KEYS))
    ids = {n: job for jobs in where(four_shard_urls).values() for job, n in jobs.items()}
    assert all(answer == ids for answer in answers)
    assert {shard_of(job) for job in ids.values()} == {1, 2, 3, 4}


def test_a_job_is_written_on_the_shard_that_remembers_its_idempotency_key(four_shard_urls: list[str]) -> None:
    with App(shards=four_shard_urls) as app:
        plain, ordered = task_on(app, "plain", partitions=8), task_on(app, "ordered", partitions=8, order="key")
        alike: list[tuple[Task[..., Any], str | None]] = [(plain, None), (plain, "k"), (ordered, None)]
        for task, key in alike:
            homes = entry_of(app, task.queue).homes
            assert homes == (1, 2, 3, 4)
            for n in range(20):
                job = task.options(key=key, idempotency_key=f"{key}-{n}").enqueue(n=n)
                assert shard_of(job) == home_of(f"{key}-{n}", homes)
        # With a rule about keys it lives with the ordering key.
        ids = {ordered.options(key="k", idempotency_key=f"i{n}").enqueue(n=n) for n in range(20)}
        assert len(ids) == 20
        assert len({shard_of(job) for job in ids}) == 1


def test_an_idempotency_key_is_written_only_by_a_map_that_is_open(shard_urls: list[str]) -> None:
    # The map says where keys are remembered: two at once, and two producers would not know of each other.
    with App(shards=shard_urls) as app:
        task = task_on(app, partitions=4)
        task.enqueue(n=0)
        for url in shard_urls:
            execute(url, set_map_state("announced"))
        with pytest.raises(PartitionUnavailable, match="another map"):
            task.options(idempotency_key="i", request_timeout=0.3).enqueue(n=1)
        assert task.enqueue(n=2)
        home = home_of("i", entry_of(app).homes)
        enqueue = "select penstock.enqueue('q', 't', '{\"n\": 1}', idempotency_key => 'i')"
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(execute, shard_urls[home - 1], enqueue)
            assert not wait([waiting], timeout=0.2).done
            for url in shard_urls:
                execute(url, set_map_state("open"))
            ((first,),) = waiting.result()
        assert task.options(idempotency_key="i").enqueue(n=1) == first
    assert stored(shard_urls) == Counter(range(3))


@pytest.mark.parametrize("vector", PUBLISHED["idempotency"]["vectors"], ids=lambda vector: ascii(vector["key"])[1:25])
def test_sql_knows_the_published_homes(database_url: str, vector: dict[str, Any]) -> None:
    for count, home in vector["home"].items():
        shards = [100 + number for number in range(int(count))]
        found = execute(database_url, "select penstock.home_of(%s, %s::smallint[])", vector["key"], shards)
        assert found == [(100 + home,)]
