"""The partition of 1,000,000 keys by Spark's built-in functions and by Python: the same numbers, and how fast."""

from __future__ import annotations

import time

import penstock.spark as ps
from bench.run import Run
from penstock.routing import partition_of

QUESTION = "How fast are keys routed by Spark's own functions, against Python, and to the same partitions?"

PARTITIONS = 64


def measure(run: Run) -> None:
    keys = run.size(1_000_000, 20_000)
    spark = ps.session("local[2]")
    frame = spark.range(keys).selectExpr("concat('customer-', hex(id * 7919)) as key").cache()
    texts = frame.toArrow().column("key").to_pylist()
    routed = frame.select(ps.partition_of(frame.key, PARTITIONS).alias("partition"))
    routed.agg({"partition": "sum"}).collect()
    native, python, wrong = [], [], []
    for _ in run.repeats():
        began = time.perf_counter()
        routed.agg({"partition": "sum"}).collect()
        native.append(keys / (time.perf_counter() - began))
        began = time.perf_counter()
        expected = [partition_of(text.encode(), PARTITIONS) for text in texts]
        python.append(keys / (time.perf_counter() - began))
        found = routed.toArrow().column("partition").to_pylist()
        wrong.append(float(sum(a != b for a, b in zip(found, expected, strict=True))))
    run.compare("Spark's functions, 2 cores", "keys/s", native, "Python, 1 core", python)
    run.state("keys sent elsewhere than by Python", "keys", wrong, at_most=0)
    run.note(f"{keys:,} keys, {PARTITIONS} partitions")
    spark.stop()
