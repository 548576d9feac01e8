"""The report and the advice on jobs that really ran: from the database, from the lake, and from both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.system.cli_runs import Run

import penstock.spark as ps
from penstock import App, InvalidInput, NotFound, PenstockError
from penstock.model import Job
from penstock.routing import partition_of
from penstock.spark.reporting.figures import Figures
from penstock.spark.reporting.page import build_page

KEYS = [f"c-{number * number // 7}" for number in range(60)]


@pytest.fixture
def jobs(app: App) -> list[Job]:
    """Jobs of two queues that ended, as the app tells of them; and three that wait."""
    orders = app.queue("orders", partitions=3, order="key")
    mails = app.queue("mails")

    @orders.task(key="customer", max_attempts=2, backoff=0)
    def ship(customer: str, number: int) -> None:
        if number % 10 == 0:
            raise ValueError(f"order {number} has no address")

    @mails.task(max_attempts=2, backoff=0)
    def send(to: str) -> None: ...

    ids = ship.enqueue_many([{"customer": key, "number": number} for number, key in enumerate(KEYS)])
    ids += send.enqueue_many([{"to": "a"}, {"to": "b"}])
    app.work(until_idle=True)
    send.options(delay=3_600).enqueue_many([{"to": "c"}] * 3)
    return [app.job(job_id) for job_id in ids]


def check(figures: Figures, jobs: list[Job]) -> None:
    assert figures.outcomes == Counter(job.state.value for job in jobs) == {"succeeded": 56, "failed": 6}
    assert (figures.retried, figures.extra_attempts) == (6, 6)
    assert {(task.queue, task.task): task.jobs for task in figures.tasks} == Counter((j.queue, j.task) for j in jobs)
    assert {part.partition: part.jobs for part in figures.partitions} == Counter(job.partition for job in jobs)
    assert figures.start == min(job.finished_at for job in jobs if job.finished_at)
    assert figures.end == max(job.finished_at for job in jobs if job.finished_at)
    assert [(skew.queue, skew.jobs, skew.keys) for skew in figures.keys] == [("orders", 60, len(set(KEYS)))]
    assert figures.keys[0].hottest[0].jobs == Counter(KEYS).most_common(1)[0][1]
    assert [(cause.text, cause.count, cause.tasks) for cause in figures.causes] == [
        ("ValueError: order … has no address", 6, ["ship"])
    ]
    assert [(cause.text, cause.count) for cause in figures.attempt_causes] == [(figures.causes[0].text, 12)]
    assert figures.waiting.states == {"scheduled": 3}
    assert {worker.worker for worker in figures.workers} == {job.worker for job in jobs}


def test_the_report_is_the_same_before_and_after_the_archive(
    spark: SparkSession, app: App, jobs: list[Job], tmp_path: Path
) -> None:
    lake, steps = tmp_path / "lake", list[str]()
    hot = ps.report(spark, app, None, tmp_path / "hot.html", on_progress=steps.append)
    check(hot.figures, jobs)
    assert hot.path.read_text(encoding="utf-8") == build_page(hot.figures)
    assert len(steps) > 3
    assert ps.archive(spark, app, lake).rows == 56  # dead letters are work, and stay
    cold = ps.report(spark, app, lake, tmp_path / "cold.html")
    check(cold.figures, jobs)
    since = datetime.now(UTC) - timedelta(days=1)
    assert ps.report(spark, app, lake, tmp_path / "mails.html", since=since, queue="mails").figures.ended == 2

    found = ps.advise(spark, app, "orders", lake, tmp_path / "advice.html")
    assert (found.jobs, found.keys, found.partitions) == (60, len(set(KEYS)), 3)
    for choice in found.choices:
        routed = Counter(partition_of(key.encode(), choice.partitions) for key in KEYS)
        assert choice.fullest_jobs == max(routed.values())
        assert choice.speed_up == pytest.approx(60 / max(routed.values()))
    assert found.sentence.startswith("Give queue 'orders' as many partitions as it will have workers (3 now)")
    assert found.sentence in (tmp_path / "advice.html").read_text(encoding="utf-8").replace("&#x27;", "'")
    assert "has no keys" in ps.advise(spark, app, "mails").sentence


def test_a_key_that_bounds_a_queue_is_named_with_what_runs_would_make_of_it(
    spark: SparkSession, app: App, penstock: Callable[..., Run], tmp_path: Path
) -> None:
    orders = app.queue("orders", partitions=2, order="key")

    @orders.task(key="customer")
    def ship(customer: str, number: int) -> None: ...

    ship.enqueue_many([{"customer": "hot", "number": number} for number in range(200)])
    app.work(until_idle=True)
    found = ps.advise(spark, app, "orders")
    assert found.slowest_key is not None
    assert (found.slowest_key.key, found.slowest_key.jobs, found.run) == ("hot", 200, 100)
    assert found.slowest_key.time is not None
    assert found.slowest_key.time.is_turn_measured
    assert found.least_seconds == found.slowest_key.time.seconds
    assert "key 'hot' needs " in found.sentence
    assert "app.limit('orders', run=100)" in found.sentence
    report = ps.report(spark, app, None, tmp_path / "report.html", queue="orders")
    assert report.figures.keys[0].advised_run == 100
    assert "run=100" in report.path.read_text(encoding="utf-8")
    assert penstock("advise", "orders", "--json").json["slowest_key"]["time"]["jobs"] == 200
    run = penstock("advise", "orders")
    assert run.out.splitlines()[0].split() == ["partitions", "speed-up", "run=100", "balance", "fullest"]
    app.limit("orders", run=50)
    assert ps.advise(spark, app, "orders").run is None


def test_what_cannot_be_reported_is_refused(spark: SparkSession, app: App, tmp_path: Path) -> None:
    app.queue("orders")
    with pytest.raises(NotFound, match="nope"):
        ps.report(spark, app, None, tmp_path / "r.html", queue="nope")
    with pytest.raises(NotFound, match="nope"):
        ps.advise(spark, app, "nope")
    with pytest.raises(InvalidInput, match="since: it has no time zone"):
        ps.report(spark, app, None, tmp_path / "r.html", since=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="since: a datetime"):
        ps.report(spark, app, None, tmp_path / "r.html", since="yesterday")  # type: ignore[arg-type]
    with pytest.raises(PenstockError, match="cannot be written"):
        ps.report(spark, app, None, tmp_path / "no" / "folder" / "r.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("jobs")
def test_the_commands_say_what_the_functions_say(penstock: Callable[..., Run], tmp_path: Path) -> None:
    run = penstock("report", "--json", "--since", "1h")
    assert (run.code, run.json["outcomes"]) == (0, {"succeeded": 56, "failed": 6})
    assert run.json["path"] == str(tmp_path / "report.html")
    assert "62 jobs ended" in (tmp_path / "report.html").read_text(encoding="utf-8")
    run = penstock("report", "nowhere", "--queue", "mails", "--out", "mails.html")
    assert run.out.splitlines()[0] == "ended: 2 (100 % succeeded)"
    assert run.out.splitlines()[-1] == f"the page is {tmp_path / 'mails.html'}"
    run = penstock("advise", "orders", "--out", "advice.html")
    lines = run.out.splitlines()
    assert lines[0].split() == ["partitions", "speed-up", "balance", "fullest"]
    assert any(line.split()[0] == "3" and line.endswith("now") for line in lines[1:-3])
    assert lines[-2].startswith("Give queue 'orders' as many partitions as it will have workers (3 now)")
    assert (tmp_path / "advice.html").exists()


def test_a_lake_that_is_no_folder_is_refused_before_spark_is_started(
    spark: SparkSession, app: App, jobs: list[Job], penstock: Callable[..., Run], tmp_path: Path
) -> None:
    assert jobs
    ps.archive(spark, app, tmp_path / "lake")
    for words in (("report", "report.html"), ("advise", "orders", "--lake", "report.html")):
        # Were Spark started, it would say that this is no master.
        run = penstock(*words, "--master", "nonsense")
        assert (run.code, run.out) == (1, "")
        assert re.fullmatch("error: 56 jobs of this database, .* and report.html is another one: .+\n", run.err)


def test_the_commands_refuse_in_one_line(penstock: Callable[..., Run]) -> None:
    for words in (("report", "--queue", "nope"), ("advise", "nope"), ("report", "--since", "yesterday")):
        run = penstock(*words)
        assert (run.code, run.out) == (1, "")
        assert re.fullmatch("error: .+\n", run.err)
