"""A load from Spark: 1,000,000 rows from Parquet to jobs that a worker could claim, through `local[2]`, against two
plain psycopg COPY streams of the same rows from the same files into a table like that of jobs, with nothing checked and
nothing made ready. Beside it: Spark's own JDBC writer into such a table, where a driver is at hand (the jar that
$PENSTOCK_JDBC_JAR names, or Debian's); how long publishing takes; and a load that is shuffled and sorted.
"""

from __future__ import annotations

import os
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import penstock.spark as ps
from bench import raw_copy
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE, TASK, declare
from penstock.spark.loading.load_writer import LoadWriter

QUESTION = "How fast does Spark load jobs, against plain COPY of the same rows?"

CORES = 2
PARTITIONS = 4
_JARS = (os.environ.get("PENSTOCK_JDBC_JAR", ""), "/usr/share/java/postgresql.jar")
JDBC_JAR = next((jar for jar in _JARS if jar and Path(jar).exists()), None)


def measure(run: Run) -> None:
    rows = run.size(1_000_000, 50_000)
    settings = {} if JDBC_JAR is None else {"spark_driver_extraClassPath": JDBC_JAR}
    spark = ps.session(f"local[{CORES}]", **settings)
    ps.register(spark)
    found: dict[str, list[float]] = {name: [] for name in ("load", "ordered", "copy", "jdbc", "publish")}
    with tempfile.TemporaryDirectory() as folder:
        _write_events(spark, rows, folder)
        _load(run.server, spark, folder, rows, None)  # starts Spark's Python processes
        for _ in run.repeats():
            found["load"].append(_load(run.server, spark, folder, rows, None))
            found["copy"].append(_copy(run.server, folder, rows))
            found["ordered"].append(_load(run.server, spark, folder, rows, "reference"))
            if JDBC_JAR is not None:
                found["jdbc"].append(_jdbc(run.server, spark, folder, rows))
            found["publish"].append(_publish(run.server, folder, rows))
    run.compare("load", "rows/s", found["load"], f"{CORES} COPY streams", found["copy"], at_least=0.5)
    run.compare("load, shuffled and sorted", "rows/s", found["ordered"], f"{CORES} COPY streams", found["copy"])
    if JDBC_JAR is not None:
        run.compare("load", "rows/s", found["load"], "Spark's JDBC writer", found["jdbc"], at_least=1.0)
    else:
        run.note("no JDBC driver is at hand: Spark's own writer was not measured")
    run.state("publish, from commit to claimable", "s", found["publish"], at_most=1.0)
    run.note(
        f"{rows:,} rows of 5 columns in {CORES * 2} Parquet files, {PARTITIONS} partitions, by key; local[{CORES}]"
    )
    spark.stop()


def _write_events(spark: Any, rows: int, folder: str) -> None:
    """The workload's arguments as Parquet."""
    spark.range(0, rows, 1, CORES * 2).selectExpr(
        "format_string('customer-%06d', id % 10000) as customer_id",
        "round((id % 10000) * 1.37D, 2) as amount",
        "'EUR' as currency",
        "format_string('2026-%06d', id % 10000) as reference",
        "id % 3 = 0 as is_express",
    ).write.mode("overwrite").parquet(folder)


def _load(server: Server, spark: Any, folder: str, rows: int, order_by: str | None) -> float:
    with server.database() as url, connect(url) as connection:
        app, _ = declare(url, key="customer_id", partitions=PARTITIONS)
        with app:
            app.migrate()
            began = time.perf_counter()
            ps.load(spark.read.parquet(folder), app, QUEUE, TASK, key="customer_id", order_by=order_by)
            seconds = time.perf_counter() - began
        _check(connection, rows)
        return rows / seconds


def _check(connection: Any, rows: int) -> None:
    ready = connection.execute("select sum(high - low) from penstock.ready").fetchone()[0]
    if ready != rows:
        raise RuntimeError(f"{ready} of {rows} jobs can be claimed")


def _files(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.parquet"))


def _copy(server: Server, folder: str, rows: int) -> float:
    """Two processes, each with half of the files, from when both are ready."""
    with server.database() as url, connect(url) as connection:
        raw_copy.create_table(connection)
        context = get_context("spawn")
        barrier = context.Barrier(CORES + 1)
        files = _files(folder)
        processes = [
            context.Process(target=_copy_files, args=(url, files[number::CORES], number, barrier))
            for number in range(CORES)
        ]
        for process in processes:
            process.start()
        barrier.wait()
        began = time.perf_counter()
        for process in processes:
            process.join()
        seconds = time.perf_counter() - began
        written = connection.execute("select count(*) from raw_job").fetchone()[0]
        if written != rows:
            raise RuntimeError(f"{written} of {rows} rows were copied")
        return rows / seconds


def _copy_files(url: str, files: list[str], number: int, barrier: Any) -> None:
    with connect(url) as connection:
        barrier.wait()
        call = number * 1_000_000
        with connection.transaction(), connection.cursor().copy(raw_copy.COPY) as copy:
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(1_000):
                    copy.write(raw_copy.lines_of(call, batch.to_pylist()))
                    call += 1


def _jdbc(server: Server, spark: Any, folder: str, rows: int) -> float:
    """The columns of a job by Spark's own functions, in batches, by the driver's fastest way."""
    with server.database() as url, connect(url) as connection:
        raw_copy.create_table(connection)
        rest = url.partition("://")[2]
        user, _, place = rest.rpartition("@")
        name, _, password = user.partition(":")
        began = time.perf_counter()
        spark.read.parquet(folder).selectExpr(
            "monotonically_increasing_id() as id",
            "current_timestamp() as enqueued_at",
            "1 as partition_id",
            "cast(5 as smallint) as priority",
            f"'{TASK}' as task",
            "cast(customer_id as binary) as key",
            "to_json(struct(*)) as args",
        ).write.format("jdbc").options(
            url=f"jdbc:postgresql://{place}?reWriteBatchedInserts=true&stringtype=unspecified",
            user=name,
            password=password,
            dbtable="raw_job",
            driver="org.postgresql.Driver",
            batchsize="10000",
        ).mode("append").save()
        seconds = time.perf_counter() - began
        written = connection.execute("select count(*) from raw_job").fetchone()[0]
        if written != rows:
            raise RuntimeError(f"{written} of {rows} rows were written")
        return rows / seconds


def _publish(server: Server, folder: str, rows: int) -> float:
    """Seconds that the commit of a load takes, with everything staged before."""
    from pyspark.sql.types import BooleanType, DoubleType, StringType, StructType

    schema = StructType()
    for name in ("customer_id", "amount", "currency", "reference", "is_express"):
        kind = {"amount": DoubleType(), "is_express": BooleanType()}.get(name, StringType())
        schema = schema.add(name, kind)
    with server.database() as url, connect(url) as connection:
        app, _ = declare(url, key="customer_id", partitions=PARTITIONS)
        with app:
            app.migrate()
        options = {"url": url, "queue": QUEUE, "task": TASK, "key": "customer_id"}
        writer = LoadWriter(schema, False, options)
        staged = [writer.write(pq.ParquetFile(file).iter_batches(10_000)) for file in _files(folder)]
        began = time.perf_counter()
        writer.commit(list(staged))
        seconds = time.perf_counter() - began
        _check(connection, rows)
        return seconds
