"""A queue whose keys are halted, held and free, for pages that show it."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from penstock import App, Retry

__all__ = ["HALTED", "HOSTILE", "Noted", "Shop", "fill_minutes", "forget_minutes"]

HALTED = ("c-halted", "c-too")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\u202egnp\x00\x1b[31m"


class Shop:
    """A queue, ordered by key, in two partitions: two keys are halted with three jobs behind each, and a job is due."""

    def __init__(self, app: App, name: str = "orders") -> None:
        self.app = app
        self.queue = app.queue(name, partitions=2, order="key", on_dead="halt")
        self.dead: dict[bytes, int] = {}

        @self.queue.task(key="customer", max_attempts=1)
        def book(customer: str, step: int) -> None:
            if step == 0:
                raise ValueError(f"there is no customer {customer}")

        @self.queue.task(key="customer")
        def ask(customer: str) -> None:
            raise Retry(after=600)

        self.ask: Any = ask
        self.book: Any = book
        self.halt(*(key.encode() for key in HALTED))
        book.enqueue_many([{"customer": key, "step": 1} for key in HALTED * 3])
        book.options(delay=3_600).enqueue(customer="later", step=1)

    def halt(self, *keys: bytes) -> None:
        """Halt these keys, each by a job that dies."""
        jobs = [self.book.options(key=key).job(customer="?", step=0) for key in keys]
        self.dead |= dict(zip(keys, self.app.enqueue_many(jobs), strict=True))
        self.app.work(until_idle=True)


class Noted(NamedTuple):
    """What came in and waited at the end of the last minute."""

    came: int
    waiting: int


def forget_minutes(app: App) -> None:
    """As if no worker had noted any."""
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("delete from penstock.minute")


def fill_minutes(app: App, queue: str, minutes: int = 90) -> Noted:
    """Note so many minutes up to now, as workers would have."""
    forget_minutes(app)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute(
            "insert into penstock.minute (minute, partition_id, noted_at, previous, waiting, running, scheduled,"
            " blocked, dead, enqueued, completed, failed, cancelled, discarded, expired)"
            " select at, p.id, at + interval '1 second', at - interval '1 minute', 20, 3, 1, 0, 2, 60 * n, 55 * n, n,"
            " 0, 0, 0 from penstock.partition as p join penstock.queue as q on q.id = p.queue_id"
            " cross join generate_series(0, %(minutes)s) as n"
            " cross join lateral (select date_trunc('minute', now()) - make_interval(mins => %(minutes)s - n)) as m(at)"
            " where q.name = %(queue)s",
            {"minutes": minutes, "queue": queue},
        )
        connection.execute(
            "insert into penstock.minute_histogram (minute, queue_id, waits, runs, is_folded)"
            " select date_trunc('minute', now()) - make_interval(mins => n), q.id, array_fill(0, array[30]) || 10,"
            " array_fill(0, array[40]) || 10, true"
            " from generate_series(0, %s) as n cross join penstock.queue as q where q.name = %s",
            [minutes, queue],
        )
        (partitions,) = connection.execute(
            "select count(*) from penstock.partition as p join penstock.queue as q on q.id = p.queue_id"
            " where q.name = %s",
            [queue],
        ).fetchone() or (0,)
    return Noted(came=60 * partitions, waiting=20 * partitions)
