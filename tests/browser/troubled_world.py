"""A system of two shards in which every page has something to show, all of it by names that may do harm, and in which
much is wrong at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
from tests.browser.mail_shop import HOSTILE
from tests.browser.queue_world import fill_minutes
from tests.fault.proxy import Proxy
from tests.system.facts import eventually

from penstock import App, Context, Retry
from penstock.storage import Connection
from penstock.storage.upkeep import sweep

__all__ = ["DUTY", "NAMES", "TroubledWorld", "troubled_world"]

# What somebody named, by what it is.
NAMES = {
    each: f"{each} {HOSTILE}" for each in ("orders", "book", "key", "load", "paused", "failed", "token", "tag", "team")
}
DUTY = "fold the laundry"
ROWS = 5


class TroubledWorld:
    """An app on two shards, the second of which can be made to vanish; a worker serves the queue `slow` alone."""

    def __init__(self, app: App, second: Proxy) -> None:
        self.app = app
        self.second = second
        self.goes_on = threading.Event()
        self.ids: dict[str, int] = {}
        orders = app.queue(NAMES["orders"], partitions=2, order="key", on_dead="halt")
        slow, mail = app.queue("slow"), app.queue("mail")
        full, paused = app.queue("full", max_length=10), app.queue("paused")

        @orders.task(name=NAMES["book"], key="customer", max_attempts=1)
        def book(customer: str, step: int) -> None:
            if step == 0:
                raise LookupError(f"{customer} has no address\n{'long' * 3_000}")

        @orders.task(key="customer")
        def ask(customer: str) -> None:
            raise Retry(after=3_600)

        @slow.task
        def export(context: Context, table: str) -> None:
            context.progress(0.25, f"row 3 of 12 of {table}")
            self.goes_on.wait()

        @mail.task(max_attempts=1)
        def send(to: str) -> None:
            raise ConnectionError(f"there is no {to} {HOSTILE}")

        @full.task
        def fill() -> None: ...

        @paused.task
        def wait() -> None: ...

        self.book, self.ask, self.export, self.send = book, ask, export, send
        app.migrate()
        fill_minutes(app, orders.name)
        self._fill(mail.name, orders.name)
        app.enqueue_many([fill.job()] * 9 + [wait.job()] * 3)
        app.pause("paused")

    def _fill(self, mail: str, orders: str) -> None:
        """Dead letters, halted and held keys, a family, schedules, a job that was set aside."""
        app, key = self.app, NAMES["key"]
        labels: dict[str, Any] = {"tags": [NAMES["tag"]], "tenant": NAMES["team"], "created_by": NAMES["team"]}
        halting = [self.book.options(**labels).job(customer=each, step=0) for each in (key, "c-2")]
        self.ids["dead"], _ = app.enqueue_many(halting)
        self.ask.enqueue(customer="c-held")
        app.set_cron(NAMES["failed"], "@daily", mail, "send", args={"to": "nobody"})
        app.run_cron(NAMES["failed"])
        app.work(queues=[orders, mail], until_idle=True)
        self.ids["behind"], *_ = self.book.enqueue_many([{"customer": key, "step": 1}] * 3)
        self.book.enqueue(customer="k" * 500, step=1)
        app.set_cron(NAMES["paused"], "*/5 * * * *", mail, "send", args={"to": HOSTILE})
        app.pause_cron(NAMES["paused"])
        parents = self.send.options(delay=7_200).enqueue_many([{"to": f"p{number}"} for number in range(3)])
        self.ids["child"] = self.send.options(after=parents).enqueue(to="child")
        self.ids["aside"], self.ids["lost"] = self.send.enqueue_many([{"to": "ada"}, {"to": "bob"}])

        def set_aside(connection: Connection) -> None:
            ids = [self.ids["aside"], self.ids["lost"]]
            connection.execute("select penstock.set_aside(%s, %s)", [ids, [HOSTILE] * 2])
            connection.execute("delete from penstock.job where id = %s", [self.ids["lost"]])

        self.run_at("mail", set_aside)

    def run_at(self, queue: str, act: Any) -> Any:
        """Do something where the first partition of a queue is."""
        shard = int(self.app.stats(queue).partitions[0].shard)
        return self.app.databases.of(shard).run(act)

    def load(self, url: str) -> None:
        """Load something over HTTP, and pause that."""
        answer = httpx.put(
            f"{url}/api/v1/queues/mail/loads/{quote(NAMES['load'], safe='')}?task=send",
            content="\n".join(json.dumps({"to": f"ada {row}"}) for row in range(ROWS)),
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert answer.status_code == 201, answer.text
        self.app.pause_load(NAMES["load"])

    def get_worse(self) -> None:
        """More comes to `slow` than goes, and a task of it that nobody has; a duty fails."""

        def pass_minutes(connection: Connection) -> None:
            connection.execute("update penstock.minute set minute = minute - interval '2 minutes'")
            connection.execute(
                "update penstock.minute set noted_at = noted_at - interval '2 minutes',"
                " previous = previous - interval '2 minutes'"
            )
            connection.execute(
                # It is not over as soon as nobody notes it again.
                "insert into penstock.trouble (duty, error, since, noted_at) values (%s, %s, now(), 'infinity')",
                [DUTY, HOSTILE],
            )

        self.run_at("slow", sweep.note_minute)
        self.run_at("slow", pass_minutes)
        self.export.enqueue_many([{"table": "t"}] * 300)
        self.run_at("slow", lambda c: c.execute("select penstock.enqueue('slow', 'nobody-has-it', '{}')"))
        self.run_at("slow", sweep.park)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A worker runs one job all the while."""
        self.ids["running"] = self.export.enqueue(table=HOSTILE)
        thread = threading.Thread(target=lambda: self.app.work(queues=["slow"], concurrency=1))
        thread.start()
        try:
            eventually(lambda: self.app.job(self.ids["running"]).progress, "the job runs")
            yield
        finally:
            self.second.come_up()
            self.goes_on.set()
            self.app.stop()
            thread.join()


@contextmanager
def troubled_world(urls: Sequence[str]) -> Iterator[TroubledWorld]:
    """The world, on two databases."""
    second = Proxy(urls[1])
    try:
        with App(shards=[urls[0], second.url]) as app:
            world = TroubledWorld(app, second)
            with world.working():
                world.get_worse()
                yield world
    finally:
        second.close()
