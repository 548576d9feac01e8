"""The archive: finished jobs into a lake, counted and checked against the database before they are dropped, beside
Spark reading the same rows and writing the same files with no checks, and dropping nothing.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import penstock.spark as ps
from bench.past import make_past
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE
from penstock import App
from penstock.spark.lake.parquet_lake import FOLDERS, LAKE_COLUMNS

QUESTION = "What do the checks of an archive cost?"

CORES = 2
# Those that the archive sets for itself: both sides write alike.
SETTINGS = {
    "spark_sql_maxConcurrentOutputFileWriters": "64",
    "spark_sql_parquet_outputTimestampType": "TIMESTAMP_MICROS",
}


def measure(run: Run) -> None:
    jobs = run.size(1_000_000, 50_000)
    spark = ps.session(f"local[{CORES}]", **SETTINGS)
    ps.register(spark)
    archived: list[float] = []
    unchecked: list[float] = []
    sizes: list[float] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        # The first writes start Spark's Python processes and load its classes.
        _both(run.server, spark, 10_000, f"{folder}/first")
        for number in run.repeats():
            checked, plain, size = _both(run.server, spark, jobs, f"{folder}/{number}")
            archived.append(jobs / checked)
            unchecked.append(jobs / plain)
            sizes.append(size / jobs)
    run.compare("ps.archive", "jobs/s", archived, "Spark reads and writes, unchecked", unchecked, at_least=0.5)
    run.state("a job in the lake", "bytes", sizes)
    run.note(f"{jobs:,} jobs with about 110 bytes of arguments, local[{CORES}], zstd, on the machine of the database")
    spark.stop()


def _both(server: Server, spark: Any, jobs: int, folder: str) -> tuple[float, float, int]:
    """Seconds of the archive, seconds without checks, and the bytes of the lake."""
    with server.database() as url:
        with connect(url) as connection:
            make_past(connection, QUEUE, jobs)
            connection.execute("analyze")
        began = time.perf_counter()
        rows = spark.read.format("penstock").options(url=url, table="finished", columns=",".join(LAKE_COLUMNS)).load()
        rows.write.partitionBy(*FOLDERS).option("compression", "zstd").parquet(f"{folder}/plain")
        plain = time.perf_counter() - began
        with App(url) as app:
            began = time.perf_counter()
            done = ps.archive(spark, app, Path(folder) / "lake")
            checked = time.perf_counter() - began
        if done.rows != jobs:
            raise RuntimeError(f"{done.rows} of {jobs} jobs were archived")
        return checked, plain, done.bytes
