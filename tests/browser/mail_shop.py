"""An app whose jobs end in every way, and names and texts that somebody may have chosen to do harm."""

from __future__ import annotations

from threading import Event
from typing import Any

from penstock import App, Context

__all__ = ["HOSTILE", "MailShop"]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\u202egnp\x7f\x1b[31m\u05e9\u05dc\u05d5\u05dd"


class MailShop:
    """Mail that fails for whom is told so, orders that stand behind each other, and work that waits for an event."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.goes_on = Event()
        mail, orders, slow = app.queue("mail"), app.queue("orders", order="key", on_dead="halt"), app.queue("slow")

        @mail.task(max_attempts=2, backoff=0)
        def send(to: str, text: str = "") -> dict[str, str]:
            if to.startswith("nobody"):
                raise ValueError(f"there is no {to}\n{text}" if text else f"there is no {to}")
            return {"sent": to}

        @orders.task(key="customer", max_attempts=1)
        def book(customer: str, step: int = 0) -> None:
            if step == 0:
                raise LookupError(f"customer {customer} has no address")

        @slow.task
        def export(context: Context, table: str) -> str:
            context.progress(0.25, f"row 3 of 12 of {table}")
            self.goes_on.wait()
            return table

        self.send, self.book, self.export = send, book, export

    def fail(self, *whom: str, **options: Any) -> list[int]:
        """Dead letters: mail to each of these, whose names begin with nobody."""
        ids = self.send.options(**options).enqueue_many([{"to": to} for to in whom])
        self.work()
        return list(ids)

    def work(self) -> None:
        """Whatever can end does."""
        self.app.work(queues=["mail", "orders"], until_idle=True)
