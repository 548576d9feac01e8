"""A shop whose queues are busy, and in which some things went wrong: for stories, and for pictures in the manual."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import App

__all__ = ["SPIKE", "STUCK", "Shop", "open_shop"]

STUCK = "c-4711"  # A customer whose key is halted.
SPIKE = 42  # So many payments failed for one reason.
# Everything that was noted is a minute older; by a detour, since no two rows may ever be of one minute.
_OLDER = (
    *(
        f"update penstock.minute set minute = minute {by}, noted_at = noted_at {by}, previous = previous {by}"
        for by in ("- interval '1000 days 1 minute'", "+ interval '1000 days'")
    ),
    "update penstock.minute_histogram set minute = minute - interval '1 minute'",
)


class Shop:
    """Its app, with queues and tasks."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.gateway_is_up = True
        self._chance = random.Random(7)
        emails = app.queue("emails")
        orders = app.queue("orders", partitions=4, order="key", on_dead="halt")
        payments = app.queue("payments", limit=8)
        exports = app.queue("exports", total_limit=4, fair_by="tenant")
        search = app.queue("search-index", partitions=2, rate="500/s")

        @emails.task(max_attempts=3, backoff=0)
        def send(to: str, template: str) -> dict[str, str]:
            self._take(0.002)
            if self._chance.random() < 0.01:
                raise ConnectionError(f"mail server refused {to}: mailbox full")
            return {"message": f"<{self._chance.randrange(10**9)}@shop.example>"}

        @orders.task(key="customer", max_attempts=1)
        def book(customer: str, order: int) -> None:
            self._take(0.003)
            if customer == STUCK and order == 1:
                raise LookupError(f"customer {customer} has no billing address")

        @payments.task(max_attempts=2, backoff=0, name="charge")
        def charge(order: int, cents: int) -> str:
            self._take(0.004)
            if not self.gateway_is_up:
                raise TimeoutError(f"gateway did not answer for order {order} within 30 s")
            if order % 211 == 0:
                raise ValueError(f"card of order {order} was declined")
            return f"charged {cents} cents"

        @exports.task
        def export(table: str) -> None:
            self._take(0.01)

        @search.task
        def index(product: int) -> None:
            self._take(0.001)

        self.send, self.book, self.charge, self.export, self.index = send, book, charge, export, index
        app.migrate()
        app.cron("nightly-export", "30 3 * * *", export, args={"table": "orders"}, timezone="Europe/Berlin")
        app.cron("weekly-letter", "0 8 * * 1", send, args={"to": "all@shop.example", "template": "letter"})

    def pass_minutes(self, count: int) -> None:
        """Work for so many minutes, each of which takes a moment."""
        for minute in range(count):
            wave = 1 + 0.6 * math.sin(minute / 7) + self._chance.random() * 0.3
            self.do_business(wave)
            self.app.work(queues=["emails", "orders", "payments", "search-index"], until_idle=True)
            with self.app.database.connect() as connection:
                connection.execute("select penstock.note_minute()")
                for statement in _OLDER:
                    connection.execute(statement.encode())

    def do_business(self, wave: float = 1.0) -> None:
        """Enqueue what comes in a minute."""
        addresses = [f"user{self._chance.randrange(5_000)}@example.org" for _ in range(int(90 * wave))]
        self.send.enqueue_many([{"to": to, "template": "receipt"} for to in addresses])
        self.book.enqueue_many(
            [{"customer": f"c-{self._chance.randrange(900)}", "order": 2} for _ in range(int(70 * wave))]
        )
        self.charge.enqueue_many(
            [{"order": self._chance.randrange(10**5), "cents": 1_999} for _ in range(int(60 * wave))]
        )
        self.index.enqueue_many([{"product": self._chance.randrange(10**5)} for _ in range(int(200 * wave))])

    def get_into_trouble(self) -> None:
        """A key is halted, payments fail for one reason, and exports wait that nobody runs."""
        self.book.enqueue(customer=STUCK, order=1)
        self.book.enqueue_many([{"customer": STUCK, "order": number} for number in range(2, 14)])
        self.gateway_is_up = False
        self.charge.enqueue_many([{"order": 1_000_001 + number, "cents": 4_990} for number in range(SPIKE)])
        self.app.work(queues=["orders", "payments"], until_idle=True)
        self.gateway_is_up = True
        for tenant, tables in (("acme", 30), ("globex", 12)):
            self.export.options(tenant=tenant).enqueue_many([{"table": f"table {n}"} for n in range(tables)])
        self.send.options(delay=3_600, tags=["reminder"]).enqueue(to="ada@example.org", template="reminder")
        parent = self.export.options(delay=7_200).enqueue(table="invoices")
        self.send.options(after=[parent]).enqueue(to="books@example.org", template="invoices are ready")

    @staticmethod
    def _take(seconds: float) -> None:
        time.sleep(seconds)


@contextmanager
def open_shop(url: str, minutes: int = 0) -> Iterator[Shop]:
    """A shop with so many minutes behind it, in trouble."""
    with App(url) as app:
        shop = Shop(app)
        shop.pass_minutes(minutes)
        shop.get_into_trouble()
        yield shop
