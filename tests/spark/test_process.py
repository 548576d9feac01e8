"""`ps.process`: jobs run as Arrow batches on executors, each row ends as its outcome says, and nothing twice."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock import App
from penstock.spark.outcome import Outcome


def judge_by_amount(batch: pa.RecordBatch) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for args, attempt in zip(batch.column("args").to_pylist(), batch.column("attempt").to_pylist(), strict=True):
        amount = json.loads(args)["amount"]
        if amount == 1:
            outcomes.append(ps.Dead("no such customer"))
        elif amount == 2 and attempt == 1:
            outcomes.append(ps.RetryAfter(0, "busy"))
        elif amount == 3:
            outcomes.append(ps.RetryAfter(0, "always busy"))
        elif amount == 4:
            outcomes.append(ps.Ok({1, 2}))
        else:
            outcomes.append(ps.Ok({"seen": amount}))
    return outcomes


def test_each_row_ends_as_its_outcome_says(spark: SparkSession, app: App) -> None:
    @app.queue("payments").task(max_attempts=2)
    def pay(amount: int) -> None: ...

    ids = pay.enqueue_many([{"amount": amount} for amount in range(2_000)])
    done = ps.process(spark, app, "payments", judge_by_amount)
    assert done == (1_997, 2, 3, 0, 0)
    assert app.result(ids[0]) == {"seen": 0}
    assert app.result(ids[1_999]) == {"seen": 1_999}
    dead = {job.args["amount"]: job for job in app.jobs(queue="payments", state="failed")}
    assert sorted(dead) == [1, 3, 4]
    assert dead[1].error == "no such customer"
    assert dead[1].attempt == 1
    assert [failure.error for failure in dead[3].failures] == ["always busy", "always busy"]
    assert "set" in str(dead[4].error)
    again = app.job(ids[2])
    assert (again.state, again.attempt, [failure.error for failure in again.failures]) == ("succeeded", 2, ["busy"])
    assert str(again.worker).startswith("spark/")
    assert app.workers() == []
    stats = app.stats("payments")
    assert (stats.total_completed, stats.dead, stats.queue_length) == (1_997, 3, 0)
