"""G7, G11 and what is placed where: one job per idempotency key and per cron instant; calls refused whole."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.judge.snapshot import read_snapshot
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

import penstock
from penstock import App
from penstock.routing.key_hash import h64, partition_of


def test_g7_one_job_per_idempotency_key_with_many_producers_one_by_one_and_in_bulk(
    make_app: MakeApp, urls: list[str]
) -> None:
    def produce(seed: int) -> list[int]:
        app = apps[seed]
        task = tasks[seed]
        keys = [f"k-{n}" for n in range(150)]
        if seed % 2:
            keys.reverse()
        given: dict[str, int] = {}
        for low in range(0, 150, 50):
            part = keys[low : low + 50]
            given.update(
                zip(part, app.enqueue_many([task.options(idempotency_key=k).job(n=seed) for k in part]), strict=True)
            )
        for key in keys[::10]:
            assert task.options(idempotency_key=key).enqueue(n=seed) == given[key]
        return [given[f"k-{n}"] for n in range(150)]

    apps = [make_app() for _ in range(4)]
    tasks = [app.queue("q").task(_task) for app in apps]
    apps[0].migrate()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(produce, range(4)))
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0])) == 150
    stored = read_snapshot(*urls)
    assert set(stored.labels) == set(answers[0])
    assert stored.totals["enqueued"] == 150
    apps[0].work(until_idle=True)
    again = apps[1].enqueue_many([tasks[1].options(idempotency_key=f"k-{n}").job(n=9) for n in range(150)])
    assert again == answers[0]


def test_g7_a_key_repeated_within_one_call_gives_the_first_jobs_id(app: App, urls: list[str]) -> None:
    task = app.queue("q").task(_task)
    ids = app.enqueue_many([task.options(idempotency_key=f"k-{n % 3}").job(n=n) for n in range(300)])
    assert ids == [ids[n % 3] for n in range(300)]
    assert len(read_snapshot(*urls).labels) == 3
    app.work(until_idle=True)
    assert read_snapshot(*urls).states == {"succeeded": 3}


def test_g7_one_job_per_cron_entry_and_instant_with_several_workers(
    make_app: MakeApp, urls: list[str], execute: Execute
) -> None:
    apps = [make_app() for _ in range(3)]
    for app in apps:
        app.cron("often", "* * * * *", app.queue("q").task(_task), args={"n": 1})
        app.migrate()
    threads = [threading.Thread(target=app.work) for app in apps]
    for thread in threads:
        thread.start()
    for number in range(1, 4):
        execute("update penstock.cron set next_at = now() - interval '1 second'")
        eventually(lambda: not execute("select from penstock.cron where next_at <= now()"), "the entry was served")
        eventually(lambda: len(read_snapshot(*urls).labels) >= number, "its job is there")  # noqa: B023
    for app in apps:
        app.stop()
    for thread in threads:
        thread.join()
    assert len(read_snapshot(*urls).labels) in (3, 4)  # A minute may have ended meanwhile.


def test_g11_an_unkeyed_call_is_refused_whole_by_its_timeout() -> None:
    with App("postgresql://nobody@127.0.0.1:1/nothing", request_timeout=0.2) as app:
        task = app.queue("q").task(_task)
        # Already what the app declares cannot be written: nothing was, and nobody waits longer than was asked for.
        with pytest.raises(penstock.RequestTimeout, match="does not answer") as refused:
            task.enqueue(n=1)
        assert refused.value.outcome == "not written"


# On several shards depths are read beside the calls: one that is under way may not count the call before.
@pytest.mark.parametrize("urls", [1], ids=["one database"], indirect=True)
def test_querator_unkeyed_calls_go_whole_to_the_least_loaded_partition(app: App) -> None:
    task = app.queue("q", partitions=4).task(_task)
    for count in (50, 30, 100):
        task.enqueue_many([{"n": n} for n in range(count)])
    assert [p.queue_length for p in app.stats("q").partitions] == [50, 30, 100, 0]
    for count in (20, 100, 100):
        task.enqueue_many([{"n": n} for n in range(count)])
    assert sorted(p.queue_length for p in app.stats("q").partitions) == [50, 100, 120, 130]
    assert [p.queue_length for p in app.stats("q").partitions] == [50, 130, 100, 120]


def test_querator_a_write_that_fails_is_an_error(app: App, urls: list[str], execute: Execute) -> None:
    task = app.queue("q").task(_task)
    app.migrate()
    execute(
        "create function public.no() returns trigger language plpgsql as"
        " $$ begin raise exception 'the disk is full' using errcode = '53100'; end $$"
    )
    execute("create trigger no before insert on penstock.ready execute function public.no()")
    for rows in (1, 150):
        with pytest.raises(penstock.PenstockError):
            task.options(request_timeout=0.3).enqueue_many([{"n": n} for n in range(rows)])
    assert not read_snapshot(*urls).labels


def test_awa_four_partitions_of_four_shares_are_all_reached_by_keys() -> None:
    cells = {
        (partition_of(key, 4), (h64(b"penstock/another/v1", key) & (2**63 - 1)) % 4)
        for key in (str(n).encode() for n in range(400))
    }
    assert len(cells) == 16


def test_postgrestue_ten_due_jobs_all_run(app: App, working: Working) -> None:
    task = app.queue("q").task(_task)
    past = datetime.now(UTC) - timedelta(hours=1)
    ids = [task.options(delay=0.05).enqueue(n=n) for n in range(10)]
    ids += [task.options(run_at=past).enqueue(n=n) for n in range(10)]
    with working(app):
        eventually(lambda: app.stats("q").total_completed == 20, "all were due and done")
    assert [app.job(job).state for job in ids] == ["succeeded"] * 20


def test_postgrestue_a_parent_with_five_children_frees_them_all(app: App) -> None:
    task = app.queue("q").task(_task)
    parent = task.enqueue(n=0)
    children = [task.options(after=[parent]).enqueue(n=n) for n in range(5)]
    last = task.options(after=children).enqueue(n=9)
    app.work(until_idle=True)
    assert [app.job(job).state for job in [parent, *children, last]] == ["succeeded"] * 7
    late = task.options(after=[parent, *children]).enqueue(n=1)
    app.work(until_idle=True)
    assert app.job(late).state == "succeeded"


def test_postgrestue_a_child_of_a_failed_parent_ends_or_runs_as_it_was_told(app: App) -> None:
    queue = app.queue("q")
    task = queue.task(_task)

    @queue.task(max_attempts=1)
    def fail() -> None:
        raise ValueError("on purpose")

    parent = fail.enqueue()
    cancelled = task.options(after=[parent]).enqueue(n=1)
    grandchild = task.options(after=[cancelled]).enqueue(n=2)
    runs = task.options(after=[parent], on_parent_failure="run").enqueue(n=3)
    app.work(until_idle=True)
    assert [app.job(job).state for job in (parent, cancelled, grandchild, runs)] == [
        "failed",
        "cancelled",
        "cancelled",
        "succeeded",
    ]
    late = task.options(after=[parent]).enqueue(n=4)
    app.work(until_idle=True)
    assert app.job(late).state == "cancelled"


def test_postgrestue_an_enqueue_beside_the_last_completion_is_always_woken(app: App, working: Working) -> None:
    task = app.queue("q").task(_task)
    with working(app, concurrency=2):
        for n in range(100):
            assert app.result(task.enqueue(n=n), timeout=60) == n


def test_codeq_nothing_old_is_deleted_while_it_waits(app: App, execute: Execute) -> None:
    task = app.queue("q").task(_task)
    ids = [task.enqueue(n=1), task.options(delay=3600).enqueue(n=2)]
    execute("update penstock.job set enqueued_at = now() - interval '400 days'")
    execute("update penstock.ready set ready_at = now() - interval '400 days'")
    app.work(until_idle=True)
    assert [app.job(job).state for job in ids] == ["succeeded", "scheduled"]


def _task(n: int) -> int:
    return n


@pytest.mark.parametrize("options", [{"max_length": 100_000}, {"partitions": 4}], ids=["max_length", "partitions"])
def test_producers_without_a_worker_fold_the_tally_that_they_have_to_read(
    app: App, execute: Execute, options: dict[str, Any]
) -> None:
    task = app.queue("q", **options).task(_task)
    task.enqueue(n=1)
    execute("insert into penstock.tally (partition_id) select id from penstock.partition, generate_series(1, 20000)")

    def is_short() -> bool:
        task.enqueue(n=1)
        return all(count < 20_000 for (count,) in execute("select count(*) from penstock.tally"))

    eventually(is_short, "it is folded")
