"""A key chooses the same rows in the database and in the lake, whatever it holds; wrong filters are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock import App, InvalidInput

# The last is how the one before it is shown.
KEYS: list[Any] = ["a", "a\\b", "a\\\\b", "%_", "'; --", b"\xff\x01", "\\xff01"]


def test_a_key_finds_the_same_rows_hot_and_cold(spark: SparkSession, app: App, tmp_path: Path) -> None:
    queue = app.queue("q")

    @queue.task
    def t(n: int) -> None: ...

    for n, key in enumerate(KEYS):
        t.options(key=key).enqueue(n=n)
    app.work(until_idle=True)

    def found() -> list[list[str]]:
        lake = tmp_path / "lake"
        return [
            [row["args"] for row in ps.history(spark, app, lake, ["args"], key=key).collect()] for key in (*KEYS, b"a")
        ]

    expected = [[f'{{"n":{n}}}'] for n in (*range(len(KEYS)), 0)]
    assert found() == expected
    ps.archive(spark, app, tmp_path / "lake")
    assert app.jobs(queue="q") == []
    assert found() == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", 5),
        ("task", b"t"),
        ("outcome", ["failed"]),
        ("outcome", "dead"),
        ("key", 1.5),
        ("columns", 5),
        ("columns", [1]),
        ("view", "no name"),
    ],
)
def test_a_wrong_filter_is_refused_by_its_name(spark: SparkSession, app: App, field: str, value: Any) -> None:
    app.migrate()
    with pytest.raises(InvalidInput, match=rf"^{field}: "):
        ps.history(spark, app, **{field: value})


def test_a_condition_that_is_no_text_is_refused(spark: SparkSession, app: App) -> None:
    app.migrate()
    with pytest.raises(InvalidInput, match=r"^where: "):
        ps.replay(spark, app, None, 5, "again")  # type: ignore[arg-type]
