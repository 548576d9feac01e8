"""Where the app declares tasks of a queue, each row is checked by what its task takes, as `enqueue` checks it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.server.loading.bodies import ARROW, CSV, arrow, load, ndjson, staged, stored

from penstock import App, InvalidInput


@dataclass
class Line:
    sku: str


@pytest.fixture
def seen(app: App) -> list[Any]:
    queue = app.queue("orders")
    ran: list[Any] = []

    @queue.task(key="customer")
    def ship(
        customer: str, amount: float, at: dt.datetime | None = None, id: UUID | None = None,  # noqa: A002
        line: Line | None = None, express: bool = False, count: int | None = 1,
    ) -> None:  # fmt: skip
        ran.append((customer, amount, at, id, line, express, count))

    @queue.task
    def bill(n: int) -> None:
        ran.append(n)

    app.migrate()
    return ran


def refused(app: App, rows: list[dict[str, Any]], task: str | None = "ship") -> str:
    with pytest.raises(InvalidInput) as caught:
        load(app, ndjson(rows), task=task, queue="orders")
    assert (app.stats("orders").total_enqueued, staged(app)) == (0, 0)
    return str(caught.value)


def test_each_row_of_ndjson_is_checked_as_enqueue_checks_it(app: App, seen: list[Any]) -> None:
    good = {"customer": "a", "amount": 1.5}
    said = refused(app, [good, {"customer": "a"}])
    assert "ship needs argument 'amount'" in said
    assert "(row 1: customer='a')" in said
    assert "has no argument 'more'" in refused(app, [good, {**good, "more": 1}])
    assert "wants float, and str '1' does not fit" in refused(app, [good, {**good, "amount": "1"}])
    assert "wants datetime.datetime | None" in refused(app, [{**good, "at": "soon"}])
    assert "Line" in refused(app, [good, {**good, "line": {"sku": 7}}])
    assert "there is no column 'customer'" in refused(app, [good, {"amount": 1}])
    assert "'customer', and no column is; there are amount: give key=" in refused(app, [{"amount": 1.0}])
    assert "declares no task 'shpi'" in refused(app, [{"task": "shpi", "n": 1}], None)
    assert "the key of task 'ship'" in refused(app, [{"task": "bill", "n": 1}, {"task": "ship", "n": 1}], None)
    assert "wants int" in refused(app, [{"task": "bill", "args": {"n": "1"}}], None)
    fine = {"at": "2026-11-15T10:00:00Z", "id": str(UUID(int=7)), "line": {"sku": "x"}, "express": True}
    load(app, ndjson([good, {**good, **fine}]), task="ship", queue="orders", name="ship")
    load(
        app,
        ndjson([{"task": "bill", "n": 3, "key": "k"}, {"task": "ship", "key": "a", **good}]),
        queue="orders",
        name="two",
    )
    app.work(until_idle=True)
    at = dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)
    assert sorted(seen, key=str) == sorted(
        [
            ("a", 1.5, None, None, None, False, 1),
            ("a", 1.5, at, UUID(int=7), Line("x"), True, 1),
            3,
            ("a", 1.5, None, None, None, False, 1),
        ],
        key=str,
    )
    # The argument that the task was declared with is the key.
    assert [row[3] for row in stored(app, "ship")] == [b"a", b"a"]


def test_columns_that_do_not_fit_are_refused_before_their_rows(app: App, seen: list[Any]) -> None:
    number = pa.record_batch({"customer": ["a"], "amount": ["1"]})
    with pytest.raises(InvalidInput, match="the column is string, and task 'ship' wants float; cast it"):
        load(app, arrow(number), ARROW, task="ship", queue="orders")
    missing = pa.record_batch({"customer": ["a"], "amount": pa.array([None], pa.float64())})
    with pytest.raises(InvalidInput, match=r"wants float, and NoneType None does not fit.*row 0"):
        load(app, arrow(missing), ARROW, task="ship", queue="orders")
    assert (app.stats("orders").total_enqueued, staged(app), seen) == (0, 0, [])


def test_annotations_say_what_a_csv_holds(app: App, seen: list[Any]) -> None:
    body = b"customer,amount,at,express,count\n007,1,2026-11-15T10:00:00Z,true,\n008,2.5,,false,3\n"
    load(app, body, CSV, task="ship", queue="orders")
    assert [row[3:5] for row in stored(app, "l")] == [
        (b"007", '{"customer":"007","amount":1.0,"at":"2026-11-15T10:00:00Z","express":true,"count":null}'),
        (b"008", '{"customer":"008","amount":2.5,"at":null,"express":false,"count":3}'),
    ]
    app.work(until_idle=True)
    assert len(seen) == 2
    with pytest.raises(InvalidInput, match=r"row 0 has 'much', which is no number\. Nothing was enqueued; mend it$"):
        load(app, b"customer,amount\na,much\n", CSV, task="ship", queue="orders", name="bad")
