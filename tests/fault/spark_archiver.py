"""A Spark driver that archives: `python -m tests.fault.spark_archiver URL LAKE [POINT]`, which dies at that point."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

import penstock.spark as ps
from penstock import App
from penstock.spark.lake import Lake
from penstock.spark.lake_files import Files
from penstock.storage.archive import Archiving

__all__ = ["POINTS"]

# What it has just done when it dies.
POINTS: dict[str, tuple[type, str]] = {
    "taken": (Archiving, "take"),
    "detached": (Archiving, "set_apart"),
    "counted": (Archiving, "count"),
    "written": (Lake, "read"),
    "listed": (Files, "commit"),
    "dropped": (Archiving, "let_go"),
}


def die_at(point: str) -> None:
    owner, name = POINTS[point]
    real = getattr(owner, name)

    def dying(*arguments: Any) -> NoReturn:
        real(*arguments)
        # With the JVM, which is this process's child: nothing gets a chance to clear up.
        os.killpg(os.getpgid(0), signal.SIGKILL)
        raise AssertionError

    setattr(owner, name, dying)


def main() -> None:
    url, lake, *points = sys.argv[1:]
    for point in points:
        die_at(point)
    spark = ps.session("local[2]")
    with App(url) as app:
        ps.archive(spark, app, lake)
        ids = ps.history(spark, app, lake, ["id"])
        print(f"history {ids.count()} {ids.distinct().count()}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
