"""The data pipeline on Spark: load, process, archive, analyse, replay.

    import penstock.spark as ps

    ps.register(spark)                     # df.write.format("penstock"), spark.read…, both as streams too
    ps.load(df, app, "orders", "ship", key="customer_id", order_by="event_time", load="backfill-2026-11")
    ps.process(spark, app, "orders", handler)
    ps.archive(spark, app, "lake/")
    ps.report(spark, app, "lake/", "report.html")

data_source/     the format `penstock`: its class, options, errors
sessions/        a Spark session on this machine
loading/         rows become jobs: `ps.load`, `df.write`, `df.writeStream`
claiming/        what processing and streaming share
processing/      jobs run on executors: `ps.process`
streaming/       a queue as a stream: `spark.readStream`
tables/          tables of jobs as DataFrames: `spark.read`
lake/            `ps.archive`, `ps.history`, `ps.replay`
reporting/       `ps.report`
advising/        `ps.advise`
key_partition    the partition of a key as a Spark expression

No sub-package has the name of a public function (`ps.load`, `ps.process` …): once imported, it would take its place.
Executors import this package too: each part is loaded when it is first used, and none of them loads a worker.
"""

from __future__ import annotations

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING

from penstock.model.wrong_calls import explain_wrong_calls

if TYPE_CHECKING:
    from penstock.spark.advising.advise import advise
    from penstock.spark.data_source.penstock_source import register
    from penstock.spark.key_partition import partition_of
    from penstock.spark.lake.archive import archive
    from penstock.spark.lake.history import history
    from penstock.spark.lake.replay import replay
    from penstock.spark.loading.load import load
    from penstock.spark.processing.process import process
    from penstock.spark.processing.row_outcome import Dead, Ok, RetryAfter
    from penstock.spark.reporting.report import report
    from penstock.spark.sessions.start import session

_HOMES = {
    "Dead": "processing.row_outcome",
    "Ok": "processing.row_outcome",
    "RetryAfter": "processing.row_outcome",
    "advise": "advising.advise",
    "archive": "lake.archive",
    "history": "lake.history",
    "load": "loading.load",
    "partition_of": "key_partition",
    "process": "processing.process",
    "register": "data_source.penstock_source",
    "replay": "lake.replay",
    "report": "reporting.report",
    "session": "sessions.start",
}

__all__ = [
    "Dead",
    "Ok",
    "RetryAfter",
    "advise",
    "archive",
    "history",
    "load",
    "partition_of",
    "process",
    "register",
    "replay",
    "report",
    "session",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if isfunction(value):
        value = explain_wrong_calls(value, f"ps.{name}")
    globals()[name] = value
    return value
