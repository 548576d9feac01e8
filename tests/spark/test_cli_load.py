"""`penstock load`, and the commands about loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.system.cli_runs import Run

from penstock import App


@pytest.fixture
def queue(app: App) -> App:
    app.queue("orders", partitions=2, order="key")
    app.migrate()
    return app


def test_files_of_every_kind_are_loaded_once_each(
    penstock: Callable[..., Run], queue: App, spark: SparkSession, tmp_path: Path
) -> None:
    words = ("--queue", "orders", "--task", "ship", "--key", "customer")
    frame = spark.range(50).selectExpr("concat('c-', id % 5) as customer", "id as n")
    frame.write.parquet(str(tmp_path / "events.parquet"))
    run = penstock("load", "events.parquet", *words, "--name", "one", "--order-by", "n")
    assert (run.code, run.out) == (0, "loaded 50 rows into queue 'orders' as 'one'\n")
    run = penstock("load", "events.parquet", *words, "--name", "one")
    assert run.out.startswith("load 'one' was loaded ")
    assert run.out.endswith(" (50 rows): nothing was loaded again\n")
    (tmp_path / "events.csv").write_text("customer,zip\n7,00123\n8,\n")
    run = penstock("load", "events.csv", *words, "--schema", "customer string, zip string", "--json")
    assert (run.code, run.json["rows"], run.json["is_new"]) == (0, 2, True)
    assert {job.args["zip"] for job in queue.jobs(load=run.json["name"])} == {"00123", None}
    (tmp_path / "more.jsonl").write_text('{"customer": "a", "n": 1}\n{"customer": null, "n": 2}\n')
    run = penstock("load", "more.jsonl", *words)
    assert (run.code, run.out) == (1, "")
    assert run.err.startswith("error: customer: the key is null; give every row one (row 1 of Spark partition 0")
    run = penstock("load", "more.jsonl", *words, "--bad-rows", "bad", "--name", "some")
    assert run.out == "loaded 1 rows into queue 'orders' as 'some'; 1 bad rows are in bad\n"
    frame.createOrReplaceTempView("orders_of_today")
    assert penstock("load", "orders_of_today", *words, "--format", "table").code == 0
    assert queue.stats("orders").queue_length == 50 + 2 + 1 + 50


def test_loads_are_listed_paused_resumed_and_cancelled(
    penstock: Callable[..., Run], queue: App, spark: SparkSession, tmp_path: Path
) -> None:
    assert penstock("loads").out == "there are no loads\n"
    spark.range(10).selectExpr("id as n").write.json(str(tmp_path / "n.json"))
    penstock("load", "n.json", "--queue", "orders", "--task", "t", "--name", "l")
    assert penstock("pause-load", "l").out == "load 'l' is paused\n"
    head, line = penstock("loads").out.splitlines()
    assert head.split()[:6] == ["load", "queue", "state", "rows", "done", "waiting"]
    assert line.split()[:6] == ["l", "orders", "paused", "10", "0", "10"]
    assert penstock("resume-load", "l", "--json").json == {"load": "l"}
    assert penstock("cancel-load", "l", "--preview").out == "would cancel 10 jobs of load 'l'\n"
    assert penstock("cancel-load", "l", "--preview", "--json").json == {"load": "l", "jobs": 10, "preview": True}
    assert penstock("cancel-load", "l").out == "cancelled 10 jobs of load 'l'\n"
    (told,) = penstock("loads", "--json").json["loads"]
    assert (told["name"], told["state"], told["rows"], told["done"]) == ("l", "cancelled", 10, 10)


def test_what_cannot_be_read_is_refused_in_one_line(penstock: Callable[..., Run], queue: App, tmp_path: Path) -> None:
    words = ("--queue", "orders", "--task", "t")
    (tmp_path / "x.csv").write_text("a\n1\n")
    for arguments, said in (
        (("nothing.parquet", *words), "error: 'nothing.parquet' cannot be read: "),
        (("what.is.this", *words), "error: FILE: 'what.is.this' does not tell what it is; give --format"),
        (("x.csv", *words, "--schema", "a no such type"), "error: --schema: 'a no such type' cannot be read; write"),
        (("x.csv", "--queue", "nowhere", "--task", "t"), "error: queue 'nowhere' does not exist"),
        (("x.csv", *words, "--connections", "0"), "error: connections: 0 is out of bounds; give 1 to 100"),
    ):
        run = penstock("load", *arguments)
        assert (run.code, run.out) == (1, "")
        assert run.err.startswith(said)
    assert penstock("pause-load", "nothing").err.startswith("error: load 'nothing' does not exist")


def test_what_the_app_does_not_take_is_refused(penstock: Callable[..., Run], queue: App, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        f"from penstock import App\n\napp = App({queue.url!r})\n\n\n"
        "@app.queue('orders', partitions=2, order='key').task(key='customer')\n"
        "def ship(customer: str, amount: float) -> None: ...\n"
    )
    (tmp_path / "x.csv").write_text("customer,amount,zip\nc-1,1.5,00123\n")
    words = ("--queue", "orders", "--app", "shop:app")
    run = penstock("load", "x.csv", *words, "--task", "ship")
    assert (run.code, run.err.split(";")[0]) == (1, "error: zip: ship has no argument 'zip'")
    run = penstock("load", "x.csv", *words, "--task", "shpi")
    assert run.err.startswith("error: the app declares no task 'shpi' of queue 'orders'; it has ship")
    run = penstock("load", "x.csv", *words, "--task", "ship", "--url", queue.url)
    assert run.code == 2
    assert "the app that --app names has its own database; leave --url or --app out" in run.err
    (tmp_path / "y.csv").write_text("customer,amount\nc-1,1.5\n")
    assert penstock("load", "y.csv", *words, "--task", "ship", "--name", "y").code == 0
    assert [(job.key, job.args) for job in queue.jobs(load="y")] == [("c-1", {"customer": "c-1", "amount": 1.5})]
