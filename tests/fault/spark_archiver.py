"""A Spark driver that archives: `python -m tests.fault.spark_archiver URL LAKE`, and then says how many rows,
jobs and jobs that succeeded history has.

With `--die-at POINT` it dies there. With `--until FILE` it archives again and again until there is such a file, and
says of each time how it went.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

import penstock.spark as ps
from penstock import App, PenstockError
from penstock.spark.lake.parquet_lake import ParquetLake
from penstock.storage.history.archive import Archiving

__all__ = ["POINTS"]

# What it has just done when it dies.
POINTS: dict[str, tuple[type, str]] = {
    "taken": (Archiving, "take"),
    "detached": (Archiving, "set_apart"),
    "begun": (Archiving, "begin_writing"),
    "written": (ParquetLake, "write"),
    "compared": (Archiving, "count"),
    "about to commit": (Archiving, "_drop"),
    "dropped": (Archiving, "let_go"),
    "listed": (ParquetLake, "add_to_manifest"),
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
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("lake")
    parser.add_argument("--die-at", choices=POINTS)
    parser.add_argument("--until", type=Path)
    given = parser.parse_args()
    if given.die_at:
        die_at(given.die_at)
    spark = ps.session("local[2]")
    with App(given.url) as app:
        while given.until is not None and not given.until.exists():
            try:
                print(f"archived {ps.archive(spark, app, given.lake).rows}", flush=True)  # noqa: T201
            except PenstockError as error:
                print(str(error).splitlines()[0], flush=True)  # noqa: T201
        if given.until is None:
            ps.archive(spark, app, given.lake)
            jobs = ps.history(spark, app, given.lake, ["id", "outcome"])
            counted = jobs.selectExpr("count(*)", "count(distinct id)", "count_if(outcome = 'succeeded')").collect()[0]
            print("history", *counted, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
