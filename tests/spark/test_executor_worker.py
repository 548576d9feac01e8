"""What a slot and a consumer do when things go wrong between them and the database; no Spark is needed to see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType
from tests.judge.rates import RatePeriod, over_the_rate, read_leases, watch_leases
from tests.servers import Backup

import penstock.spark as ps
from penstock import App
from penstock.engine import conversation
from penstock.engine.owner import Owner
from penstock.spark.claiming.known_tasks import KnownTasks
from penstock.spark.processing.executor_worker import ExecutorWorker
from penstock.spark.processing.row_outcome import Outcome
from penstock.spark.processing.work_plan import WorkPlan
from penstock.spark.streaming.consumer import Consumer
from penstock.spark.streaming.stream_offset import StreamOffset
from penstock.spark.streaming.stream_options import StreamOptions
from penstock.spark.streaming.stream_reader import JobStreamReader
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.work import workers
from penstock.storage.work.exchange import ClaimWish, Turn, exchange
from penstock.upkeep import SharedUpkeep, Upkeep


def _slot(
    app: App, queue: str, handler: Callable[[pa.RecordBatch], list[Outcome] | None], **options: Any
) -> ExecutorWorker:
    entry = app.database.run(lambda connection: find_queue(connection, queue))
    driver = app.database.run(
        lambda connection: workers.register(
            connection, name="driver", host="", pid=0, version="", concurrency=0, lease_seconds=60.0, tasks=()
        )
    )
    given: dict[str, Any] = {
        "urls": {1: app.url},
        "drivers": {1: driver},
        "run": "spark/test/",
        "slots": 1,
        "queue_id": entry.id,
        "is_owned": entry.is_owned,
        "handler": handler,
        "tasks": KnownTasks(queue, app.tasks[queue], None),
        "batch_size": 50,
        "lease_seconds": 60.0,
        "until_idle": True,
        "budget_seconds": 60.0,
        **options,
    }
    return ExecutorWorker(WorkPlan(**given))


def _succeed(batch: pa.RecordBatch) -> list[Outcome]:
    return [ps.Ok(job) for job in batch.column("id").to_pylist()]


def test_the_causes_of_a_batch_handlers_error_are_kept(app: App) -> None:
    @app.queue("q").task(max_attempts=1)
    def work(n: int) -> None: ...

    def fail(batch: pa.RecordBatch) -> list[Outcome]:
        try:
            batch.column("amount")
        except KeyError as error:
            raise ExceptionGroup("prices", [ValueError("no amounts")]) from error
        raise AssertionError

    job = work.enqueue(n=1)
    list(_slot(app, "q", fail).run())
    said = [line for line in str(app.job(job).error).splitlines() if not line.startswith("  ")]
    assert said[0] == "ValueError: no amounts"
    assert said[1] == "in ExceptionGroup: prices (1 sub-exception)"
    assert said[2].startswith("caused by KeyError: ")


def _lose_answers(monkeypatch: pytest.MonkeyPatch, every: int) -> list[int]:
    """Let the first of every so many turns be committed and its answer lost; the list says which."""
    lost: list[int] = []
    calls = 0

    def lossy(connection: Any, *arguments: Any, **options: Any) -> Turn:
        nonlocal calls
        calls += 1
        turn = exchange(connection, *arguments, **options)
        if calls % every == 1:
            lost.append(calls)
            connection.close()
            raise psycopg.OperationalError("the answer was lost")
        return turn

    monkeypatch.setattr(conversation, "exchange", lossy)
    return lost


@pytest.mark.parametrize("order", [None, "key"])
def test_g3_answers_that_are_lost_lose_and_repeat_no_job(app: App, monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    @app.queue("updates", partitions=2, order=order).task(key="customer")
    def update(customer: int, number: int) -> None: ...

    ids = update.enqueue_many([{"customer": number % 40, "number": number} for number in range(800)])
    ran: list[int] = []

    def note(batch: pa.RecordBatch) -> list[Outcome]:
        ran.extend(batch.column("id").to_pylist())
        return _succeed(batch)

    lost = _lose_answers(monkeypatch, every=3)
    slot = _slot(app, "updates", note)
    assert slot.run() == "idle"
    assert len(lost) > 3
    assert slot.counts == {"succeeded": 800}
    assert sorted(ran) == sorted(ids)
    assert app.stats("updates").total_completed == 800
    if order is not None:
        place = {job: place for place, job in enumerate(ran)}
        for customer in range(40):
            places = [place[job] for job in ids[customer::40]]
            assert places == sorted(places)


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda _: 7, "it gave int for a batch of 50 rows; return None where all went well, or a list of one ps.Ok"),
        (lambda _: "ok", "it gave str for a batch of 50 rows"),
        (lambda rows: rows, "it gave RecordBatch for a batch of 50 rows"),
        (lambda _: [ps.Ok()], "it gave 1 outcomes for a batch of 50 rows"),
        (lambda rows: [ps.Ok()] * 49 + [None], "it gave NoneType as the outcome of row 49"),
    ],
)
def test_a_handler_that_breaks_its_contract_ends_the_run_and_its_jobs_are_as_they_were(
    app: App, order: Any, give: Callable[[Any], Any], said: str
) -> None:
    @app.queue("updates", order=order).task(key="customer", max_attempts=1)
    def update(customer: int) -> None: ...

    ids = update.enqueue_many([{"customer": number} for number in range(120)])
    calls: list[int] = []

    def handle(batch: pa.RecordBatch) -> Any:
        calls.append(batch.num_rows)
        return give(batch)

    slot = _slot(app, "updates", handle)
    assert slot.run() == "broken"
    assert slot.breach is not None
    assert slot.breach.startswith(said)
    assert calls == [50]
    stats = app.stats("updates")
    assert (stats.queue_length, stats.active_count, stats.total_completed, stats.dead) == (120, 0, 0, 0)
    assert app.workers() == []
    ran: list[int] = []

    def succeed(batch: pa.RecordBatch) -> None:
        assert set(batch.column("attempt").to_pylist()) == {1}
        ran.extend(batch.column("id").to_pylist())

    assert _slot(app, "updates", succeed).run() == "idle"
    assert ran == ids
    assert app.stats("updates").total_completed == 120
    assert app.job(ids[0]).failures == []


def test_g4_a_slot_that_was_declared_dead_settles_nothing_and_ends(app: App) -> None:
    @app.queue("mails").task
    def send(number: int) -> None: ...

    send.enqueue_many([{"number": number} for number in range(100)])

    def lose_the_lease(batch: pa.RecordBatch) -> list[Outcome]:
        with psycopg.connect(app.url, autocommit=True) as connection:
            connection.execute("delete from penstock.worker where name like 'spark/%'")
            connection.execute("select penstock.rescue()")
        return _succeed(batch)

    slot = _slot(app, "mails", lose_the_lease, lease_seconds=0.4)
    assert slot.run() in ("dead", "stopped")
    assert slot.counts == {"lost": 50}
    stats = app.stats("mails")
    assert (stats.total_completed, stats.queue_length, stats.active_count) == (0, 100, 0)


@pytest.mark.parametrize("order", [None, "key"])
def test_g14_a_slot_ends_no_job_with_the_result_of_one_that_had_its_id_and_lease(
    app: App, server_url: str, order: Any
) -> None:
    """Its database is replaced by an older copy, in which what it settled first is leased to it, and runs again."""

    @app.queue("mails", order=order).task(key="number")
    def send(number: int) -> None: ...

    app.migrate()
    settled = send.enqueue(number=1)
    later: dict[str, int] = {}
    ran: list[list[tuple[int, int]]] = []

    def replace(batch: pa.RecordBatch) -> list[Outcome]:
        args = [json.loads(each)["number"] for each in batch.column("args").to_pylist()]
        ran.append(sorted(zip(batch.column("id").to_pylist(), args, strict=True)))
        if len(ran) == 1:
            backups.append(Backup(server_url, app.url))
            later["lost"] = send.enqueue(number=2)
        elif len(ran) == 2:
            with psycopg.connect(app.url) as connection:
                leases.append(connection.execute("select id, worker_id from penstock.lease").fetchall()[0])
            backups[0].restore()
            later["new"] = send.enqueue(number=3)
            (number, worker), entry = leases[0], app.database.run(lambda c: find_queue(c, "mails"))
            with app.database.connect() as connection:
                if order is None:
                    wish = ClaimWish(entry.partition_ids, entry.partition_ids, 1, 0)
                    (lease,) = exchange(connection, worker, "w", [], [], wish).leases
                else:
                    owner = Owner({entry.id: ("send",)})
                    owner.share(connection, worker, 10.0)
                    owner.look(connection, 1, 10.0)
                    choices = owner.choose(1, 0, 0, 10.0)
                    (lease,) = exchange(connection, worker, "w", [], [], None, choices).chosen
            assert lease.id == number
        return [ps.Ok(number) for number in args]

    backups: list[Backup] = []
    leases: list[tuple[int, int]] = []
    slot = _slot(app, "mails", replace, batch_size=1)
    assert slot.run() == "idle"
    assert later["lost"] == later["new"]
    assert ran[:2] == [[(settled, 1)], [(later["lost"], 2)]]
    assert sorted(each for batch in ran[2:] for each in batch) == [(settled, 1), (later["new"], 3)]
    assert slot.counts == {"succeeded": 3, "lost": 1}
    assert (app.result(settled, timeout=60), app.result(later["new"], timeout=60)) == (1, 3)


@pytest.mark.parametrize("order", [None, "key"])
def test_g13_a_row_that_is_missing_costs_a_slot_nothing_but_its_job(app: App, order: Any) -> None:
    @app.queue("q", order=order).task
    def t() -> None: ...

    jobs = [*t.options(key="k").enqueue_many([{}] * 20), t.options(key="k").enqueue(), t.options(key="k").enqueue()]
    lost = [jobs[3], jobs[20]]
    app.database.run(lambda connection: connection.execute("delete from penstock.job where id = any (%s)", [lost]))
    ran: list[int] = []

    def note(batch: pa.RecordBatch) -> list[Outcome]:
        ran.extend(batch.column("id").to_pylist())
        return _succeed(batch)

    assert _slot(app, "q", note).run() == "idle"
    assert sorted(ran) == sorted(set(jobs).difference(lost))
    assert [app.explain(job).reason.split(":")[0] for job in lost] == ["set aside"] * 2


def test_g13_a_stream_reads_on_without_a_row_that_is_missing(app: App) -> None:
    @app.queue("q").task
    def t() -> None: ...

    jobs = t.enqueue_many([{}] * 20)
    app.database.run(lambda connection: connection.execute("delete from penstock.job where id = %s", [jobs[7]]))
    reader = JobStreamReader(StructType(), {"url": app.url, "queue": "q"})
    try:
        offset = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
        (partition,) = reader.partitions(reader.initialOffset(), offset)
        read = [job for batch in reader.read(partition) for job in batch.column("id").to_pylist()]
        assert read == [job for job in jobs if job != jobs[7]]
        reader.commit(offset)
    finally:
        reader.stop()
    assert app.explain(jobs[7]).reason.startswith("set aside: it is in no table of jobs")
    assert {app.job(job).state for job in read} == {"succeeded"}


def test_leases_are_renewed_while_a_handler_runs(app: App) -> None:
    @app.queue("mails").task
    def send(number: int) -> None: ...

    send.enqueue(number=1)

    def outlast_the_lease(batch: pa.RecordBatch) -> list[Outcome]:
        with psycopg.connect(app.url, autocommit=True) as connection:
            while not connection.execute(
                "select from penstock.worker where name like 'spark/%'"
                " and renewed_at > started_at + 2 * make_interval(secs => lease_seconds)"
            ).fetchall():
                connection.execute("select penstock.rescue()")
        return _succeed(batch)

    slot = _slot(app, "mails", outlast_the_lease, lease_seconds=0.4)
    assert slot.run() == "idle"
    assert slot.counts == {"succeeded": 1}


def test_a_slot_is_not_idle_before_what_another_of_its_run_held_was_rescued(app: App) -> None:
    @app.queue("mails").task
    def send(number: int) -> None: ...

    send.enqueue_many([{"number": number} for number in range(10)])

    def die_with_all(connection: Any) -> None:
        queue = find_queue(connection, "mails")
        dead = workers.register(
            connection, name="spark/test/dead", host="", pid=0, version="", concurrency=1, lease_seconds=1.0,
            tasks=[(queue.id, "send")],
        )  # fmt: skip
        wish = ClaimWish(queue.partition_ids, queue.partition_ids, 10, 0)
        assert exchange(connection, dead, "dead", [], [], wish).leases

    app.database.run(die_with_all)
    upkeep = Upkeep(app.database, None)
    upkeep.start()
    slot = _slot(app, "mails", _succeed)
    assert slot.run() == "idle"
    upkeep.stop()
    assert slot.counts == {"succeeded": 10}


@pytest.mark.parametrize("order", [None, "key"])
def test_g6_a_slot_starts_no_more_than_a_total_rate_allows(app: App, order: Any) -> None:
    @app.queue("calls", partitions=2, order=order, total_rate="25/s").task(key="number")
    def call(number: int) -> None: ...

    call.enqueue_many([{"number": number} for number in range(75)])
    watch_leases(app.url)
    upkeep = SharedUpkeep(app.databases)
    upkeep.start()
    slot = _slot(app, "calls", _succeed)
    assert slot.run() == "idle"
    upkeep.stop()
    assert slot.counts == {"succeeded": 75}
    leases = read_leases([app.url], "calls")
    assert sum(lease.jobs for lease in leases) == 75
    assert over_the_rate(leases, [RatePeriod(0.0, inf, 25.0)]) == []


def test_a_slot_ends_with_its_time_and_with_its_driver_and_hands_everything_back(app: App) -> None:
    @app.queue("updates", partitions=2, order="key").task(key="number")
    def update(number: int) -> None: ...

    update.enqueue_many([{"number": number} for number in range(200)])
    assert _slot(app, "updates", _succeed, budget_seconds=1e-9).run() == "budget"
    assert app.stats("updates").queue_length == 200

    def dismiss(batch: pa.RecordBatch) -> list[Outcome]:
        with psycopg.connect(app.url, autocommit=True) as connection:
            connection.execute("delete from penstock.worker where name like 'driver%'")
        return _succeed(batch)

    slot = _slot(app, "updates", dismiss, until_idle=False, lease_seconds=0.4)
    assert slot.run() == "stopped"
    assert slot.counts["succeeded"] > 0
    assert app.workers() == []
    assert [partition.owner for partition in app.stats("updates").partitions] == [None, None]
    assert app.stats("updates").active_count == 0


def test_what_spark_was_told_of_and_never_planned_is_told_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.queue("events").task
    def note(number: int) -> None: ...

    note.enqueue_many([{"number": number} for number in range(300)])
    wanted = StreamOptions(app.url, "events", None, 60.0)
    consumer = Consumer(wanted)
    first = consumer.claim_next(StreamOffset(), 100)
    assert first.jobs == 100
    assert consumer.claim_next(StreamOffset(), 100) == first
    assert StreamOffset.read(first.write()) == first
    second = consumer.claim_next(first, 100)
    assert app.stats("events").total_completed == 100
    assert consumer.claim_next(first, 100) == second
    # The process is gone, and Spark knows of the first only.
    consumer.close()
    again = Consumer(wanted)
    assert sorted(again.claim_next(first, 100).of_shard(1).claimed) == sorted(second.of_shard(1).claimed)
    assert app.stats("events").total_completed == 100
    lost = _lose_answers(monkeypatch, every=2)
    third = again.claim_next(second, 100)
    assert lost
    assert third.jobs == 100
    assert again.claim_next(third, 100) == third
    assert app.stats("events").total_completed == 300
    assert app.stats("events").active_count == 0
    again.close()
