"""What a batch task is declared with, and its jobs are enqueued as, is checked at once."""

from __future__ import annotations

import pytest
from tests.system.orders import Order

from penstock import App, InvalidInput


def test_what_a_batch_is_declared_with_is_checked(app: App) -> None:
    queue = app.queue("q")

    def take(items: list[Order]) -> None: ...
    def take_two(items: list[Order], more: int) -> None: ...
    def take_one(item: Order) -> None: ...
    def take_numbers(items: list[int]) -> None: ...

    for options in (
        {"batch": 0},
        {"batch": 1001},
        {"batch": "many"},
        {"batch": 2, "batch_wait": 11},
        {"batch_wait": 1},
    ):
        with pytest.raises(InvalidInput, match=r"batch"):
            queue.task(**options)(take)
    for handler in (take_two, take_one, take_numbers):
        with pytest.raises(InvalidInput, match=r"list\[Order\]"):
            queue.task(batch=2)(handler)
    with pytest.raises(InvalidInput, match="'custmer'"):
        queue.task(batch=2, key="custmer")(take)


def test_items_are_checked_where_they_are_enqueued(app: App) -> None:
    @app.queue("q").task(batch=2)
    def book(orders: list[Order]) -> None: ...

    with pytest.raises(InvalidInput, match="wants int"):
        book.enqueue(customer="a", n="many")
    with pytest.raises(InvalidInput, match="no argument 'm'"):
        book.enqueue({"customer": "a", "n": 1, "m": 2})
    with pytest.raises(InvalidInput, match=r"in row 1: .*Order"):
        book.enqueue_many([Order("a", 1), "b"])
    with pytest.raises(InvalidInput, match="one item"):
        book.enqueue(Order("a", 1), Order("b", 2))
    with app.testing() as tests:
        ids = book.enqueue_many([Order("a", n) for n in range(3)])
        assert tests.drain() == 3
        assert [str(tests.job(job).state) for job in ids] == ["succeeded"] * 3
