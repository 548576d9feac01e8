"""Calls as a user writes them, for type checkers to read: those that they must refuse say so, the others must pass.

`test_typed_enqueue.py` has them checked without the comments for mypy, by which this file is one of all the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock import App, BatchContext, Context, PendingJob, Task

app = App("postgresql://nowhere/x")
queue = app.queue("q")


@dataclass
class Order:
    number: int


@queue.task
def send(to: str, copies: int = 1) -> str:
    return to * copies


@queue.task(max_attempts=3, key="to")
async def send_later(context: Context, to: str, order: Order) -> dict[str, Any]:
    return {"job": context.job_id, "to": to, "number": order.number}


@queue.task
def keep(context: Context, name: str, payload: dict[str, Any]) -> None: ...


@queue.task
def take(payload: object, order_id: UUID) -> None: ...


@queue.task
def note(text: str, context: Context | None = None) -> None: ...


@queue.task
def sweep() -> None: ...


@queue.task
def sort(*, by: str) -> None: ...


@queue.task
def collect(**figures: float) -> None: ...


@queue.task(batch=100, batch_wait=0.05, key="number")
def book(orders: list[Order]) -> list[int]:
    return [order.number for order in orders]


@queue.task(batch=100)
async def book_later(context: BatchContext, orders: list[Order]) -> None:
    context.progress(0.5)


def enqueue_items() -> None:
    first: int = book.enqueue(Order(1))
    book.enqueue(number=first)
    book.enqueue_many([Order(1), {"number": 2}])
    book_later.options(priority=1).enqueue(Order(2))
    numbers: list[int] = book([Order(1)])
    assert numbers

    queue.task(batch="many")  # type: ignore[call-overload]  # refused: not a number
    queue.task(batch_wait=0.05)  # type: ignore[call-overload]  # refused: it needs `batch`


def enqueue_one() -> None:
    number: int = send.enqueue("a@b.c")
    number = send.enqueue(to="a@b.c", copies=2)
    number = send_later.enqueue("a@b.c", Order(1))
    number = send_later.enqueue(to="a@b.c", order=Order(number))
    keep.enqueue(name="n", payload={"any": 1})
    take.enqueue(payload=1, order_id=UUID(int=1))
    note.enqueue(text="t")
    sweep.enqueue()
    sort.enqueue(by="name")
    collect.enqueue(a=1.0, b=2)

    send.enqueue()  # type: ignore[call-arg]  # refused: it needs `to`
    send.enqueue(too="a@b.c")  # type: ignore[call-arg]  # refused: no such name
    send.enqueue(to=1)  # type: ignore[arg-type]  # refused: not text
    send.enqueue("a@b.c", 2, 3)  # type: ignore[call-arg]  # refused: too many
    send_later.enqueue(to="a@b.c")  # type: ignore[call-arg]  # refused: it needs `order`
    send_later.enqueue(to="a@b.c", order="1")  # type: ignore[arg-type]  # refused: no Order
    keep.enqueue(name=1, payload={})  # type: ignore[arg-type]  # refused: not text
    keep.enqueue(name="n")  # type: ignore[call-arg]  # refused: it needs `payload`
    take.enqueue(order_id=UUID(int=1))  # type: ignore[call-arg]  # refused: it needs `payload`
    take.enqueue(payload=1, order_id="1")  # type: ignore[arg-type]  # refused: no UUID
    note.enqueue()  # type: ignore[call-arg]  # refused: it needs `text`
    sweep.enqueue(1)  # type: ignore[call-arg]  # refused: it takes nothing
    sort.enqueue("name")  # type: ignore[call-arg]  # refused: only by name
    collect.enqueue(a="many")  # type: ignore[arg-type]  # refused: not a number


def enqueue_with_options() -> None:
    send.options(priority=1, tags=["x"]).enqueue(to="a@b.c")
    send_later.options(delay=60).enqueue(to="a@b.c", order=Order(1))

    send.options(priority=1).enqueue(too="a@b.c")  # type: ignore[call-arg]  # refused: no such name
    send_later.options(delay=60).enqueue(to=1, order=Order(1))  # type: ignore[arg-type]  # refused: not text
    send_later.options(delay=60).enqueue(to="a@b.c")  # type: ignore[call-arg]  # refused: it needs `order`
    send.options(priorty=1).enqueue(to="a@b.c")  # type: ignore[call-arg]  # refused: no such option
    send.options(priority="high").enqueue(to="a@b.c")  # type: ignore[arg-type]  # refused: not a number


def enqueue_many() -> None:
    jobs: list[PendingJob] = [send.job(to="a@b.c"), send_later.options(priority=1).job("a@b.c", Order(1))]
    app.enqueue_many(jobs, request_timeout=5.0)

    send.job(to=None)  # type: ignore[arg-type]  # refused: not text
    send_later.options(priority=1).job("a@b.c")  # type: ignore[call-arg]  # refused: it needs `order`
    app.enqueue_many(jobs, timeout=5.0)  # type: ignore[call-arg]  # refused: no such option


async def enqueue_in_coroutine() -> None:
    number: int = await send.aenqueue(to="a@b.c")
    number = await send_later.options(priority=1).aenqueue(to="a@b.c", order=Order(number))

    await send.aenqueue(to=1)  # type: ignore[arg-type]  # refused: not text
    await send_later.aenqueue(to="a@b.c")  # type: ignore[call-arg]  # refused: it needs `order`
    await send_later.options(priority=1).aenqueue(too="a@b.c", order=Order(1))  # type: ignore[call-arg]  # refused: no such name


async def call(context: Context) -> None:
    text: str = send("a@b.c")
    answer: dict[str, Any] = await send_later(context, to=text, order=Order(1))
    assert answer

    send(1)  # type: ignore[arg-type]  # refused: not text
    await send_later(to=text, order=Order(1))  # type: ignore[call-arg]  # refused: it needs a context


def pass_on(first: Task[[str, int], str], any_task: Task[..., Any]) -> None:
    first.enqueue("a@b.c", 1)
    any_task.enqueue(whatever=1)
    app.cron("nightly", "0 3 * * *", sweep)
    app.cron("nightly", "0 3 * * *", send_later, args={"to": "a@b.c", "order": {"number": 1}})

    first.enqueue(1, 1)  # type: ignore[arg-type]  # refused: not text
