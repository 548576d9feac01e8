"""The data pipeline on Spark: load, process, archive, analyse, replay.

    import penstock.spark as ps

    ps.register(spark)                     # df.write.format("penstock"), spark.read…, both as streams too
    ps.load(df, app, "orders", "ship", key="customer_id", order_by="event_time", load="backfill-2026-11")
    ps.process(spark, app, "orders", handler)
    ps.archive(spark, app, "lake/")
    ps.report(spark, app, "lake/", "report.html")

Executors import this package too: each part is loaded when it is first used, and none of them loads a worker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.advising import advise
    from penstock.spark.archiving import archive
    from penstock.spark.loading import load
    from penstock.spark.one_history import history
    from penstock.spark.outcome import Dead, Ok, RetryAfter
    from penstock.spark.processing import process
    from penstock.spark.replaying import replay
    from penstock.spark.reporting import report
    from penstock.spark.routing import partition_of
    from penstock.spark.source import register
    from penstock.spark.starting import session

_HOMES = {
    "Dead": "outcome",
    "Ok": "outcome",
    "RetryAfter": "outcome",
    "advise": "advising",
    "archive": "archiving",
    "history": "one_history",
    "load": "loading",
    "partition_of": "routing",
    "process": "processing",
    "register": "source",
    "replay": "replaying",
    "report": "reporting",
    "session": "starting",
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
    globals()[name] = value
    return value
