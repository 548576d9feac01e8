"""The trace of a load: of an app that traces by itself, of a writer by its options; kept once, and linked to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.trace import SpanKind
from pyspark.sql import SparkSession
from tests.security.trace_contexts import SAMPLED
from tests.system.spans import spans_of_this_process, within

import penstock.spark as ps
from penstock import App


def traces_of(app: App) -> dict[str, Any]:
    """What is kept of each load, by name."""
    with app.database.connection() as connection:
        rows = connection.execute("select name, trace::text from penstock.load").fetchall()
    return {name: None if trace is None else json.loads(trace) for name, trace in rows}


def test_a_load_is_in_the_trace_of_its_driver_and_its_jobs_link_to_it(spark: SparkSession, database_url: str) -> None:
    spans = spans_of_this_process
    spans.clear()
    with App(database_url, tracing=True) as app:

        @app.queue("q", partitions=2).task
        def handle(n: int) -> None: ...

        with spans.request() as request:
            ps.load(spark.range(0, 20).withColumnRenamed("id", "n"), app, "q", "handle", load="traced")
        load = spans.only("load q")
        assert within(load, request)
        assert load.kind == SpanKind.PRODUCER
        context = load.get_span_context()
        assert context is not None
        kept = traces_of(app)["traced"]
        assert kept["traceparent"][3:-3] == f"{context.trace_id:032x}-{context.span_id:016x}"
        assert [job.traceparent for job in app.jobs()] == [None] * 20
        app.work(until_idle=True)
        runs = spans.named("process q")
        assert len(runs) == 20
        assert {run.parent for run in runs} == {None}
        assert {link.context.span_id for run in runs for link in run.links} == {context.span_id}
    spans.clear()


def test_a_writer_takes_a_trace_context_as_options(spark: SparkSession, app: App) -> None:
    app.queue("q")
    app.migrate()
    rows = spark.range(0, 3)

    def write(load: str, **options: str) -> None:
        given = {"url": app.url, "queue": "q", "task": "t", "load": load, **options}
        rows.write.format("penstock").options(**given).mode("append").save()

    write("plain")
    write("traced", traceparent=SAMPLED, tracestate="a=1")
    write("unsampled", traceparent=f"{SAMPLED[:-1]}0")
    assert traces_of(app) == {
        "plain": None, "traced": {"traceparent": SAMPLED, "tracestate": "a=1"}, "unsampled": None,
    }  # fmt: skip
    for wrong in ({"traceparent": "x"}, {"tracestate": "a=1"}):
        with pytest.raises(Exception, match="traceparent"):
            write("wrong", **wrong)
