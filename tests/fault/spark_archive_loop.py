"""A Spark driver that archives again and again: `python -m tests.fault.spark_archive_loop LAKE STOP URL...`.

When the file STOP is there it archives once more and says how many jobs the history has, and how many different ones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import penstock.spark as ps
from penstock import App

__all__: list[str] = []


def main() -> None:
    lake, stop, *urls = sys.argv[1:]
    spark = ps.session("local[2]", spark_sql_shuffle_partitions="2")
    place: dict[str, Any] = {"shards": urls} if len(urls) > 1 else {"url": urls[0]}
    with App(**place) as app:
        archives = 0
        while not Path(stop).exists():
            ps.archive(spark, app, lake)
            archives += 1
            print(f"archived {archives}", flush=True)  # noqa: T201
        ps.archive(spark, app, lake)
        # One look: jobs go on ending beside it.
        ids = [row.id for row in ps.history(spark, app, lake, ["id"]).collect()]
        print(f"history {len(ids)} {len(set(ids))}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
