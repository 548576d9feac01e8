"""A past to read: jobs that ended in every way, and some that have not, on two queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock import App, Discard

__all__ = ["Past", "live"]


@dataclass
class Past:
    """The ids of jobs that ended, of dead letters among them, and of those that wait."""

    ended: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def live(app: App) -> Past:
    """Let jobs be enqueued and run."""
    mail = app.queue("mail/é=1%")
    orders = app.queue("007", partitions=3)

    @mail.task(max_attempts=2, backoff=0.0)
    def send(to: str, attempts: int = 1) -> dict[str, str]:
        if to == "nobody":
            raise LookupError("nobody of that name\nreally")
        if to == "drop":
            raise Discard("not wanted")
        return {"sent": to}

    @mail.task(max_attempts=3, backoff=0.0)
    def flaky(box: list[int]) -> int:
        failed = app.job(box_ids[0]).failures if box_ids else []
        if not failed:
            raise TimeoutError("the first time fails")
        return len(failed)

    @orders.task(key="customer")
    def ship(customer: str, price: float) -> None: ...

    past = Past()
    box_ids: list[int] = []
    past.ended += send.enqueue_many([{"to": f"a{n}@b.c"} for n in range(40)])
    past.dead += send.enqueue_many([{"to": "nobody"}, {"to": "nobody"}])
    past.ended += send.enqueue_many([{"to": "drop"}])
    box_ids.append(flaky.enqueue(box=[1, 2]))
    past.ended += box_ids
    past.ended += ship.enqueue_many([{"customer": f"c-{n % 7}", "price": n / 4} for n in range(30)])
    past.ended.append(ship.options(key=b"\xff\x00raw").enqueue(customer="x", price=1.0))
    past.ended.append(
        ship.options(tenant="acme", created_by="billing", tags=["t"], priority=2).enqueue(customer="ü", price=0.1)
    )
    past.ended.append(ship.options(idempotency_key="once").enqueue(customer="once", price=0.1))
    cancelled = send.options(delay=3600).enqueue(to="late")
    app.cancel(cancelled)
    past.ended.append(cancelled)
    app.work(until_idle=True)
    past.waiting.append(send.options(run_at=datetime.now(UTC) + timedelta(days=1)).enqueue(to="tomorrow"))
    past.waiting.append(send.options(after=[past.waiting[0]]).enqueue(to="then"))
    past.waiting += ship.enqueue_many([{"customer": "w", "price": float(n)} for n in range(5)])
    past.ended += past.dead
    return past
