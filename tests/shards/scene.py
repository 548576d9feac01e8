"""A system of several shards as its producers see it, and what is really stored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from penstock import App, Task
from penstock.routing import partition_of
from penstock.storage.catalogue.queues import QueueEntry, find_queue

__all__ = ["becomes", "entry_of", "execute", "key_on", "stored", "task_on", "where"]


def task_on(app: App, name: str = "q", **options: Any) -> Task[..., Any]:
    """A task of a queue."""
    queue = app.queue(name, **options)

    @queue.task(name="t")
    def t(n: int) -> None: ...

    return t


def entry_of(app: App, name: str = "q") -> QueueEntry:
    return app.databases.read(lambda connection: find_queue(connection, name))


def key_on(app: App, shard: int, name: str = "q", but: Sequence[str] = ()) -> str:
    """A key that lives on a shard."""
    entry = entry_of(app, name)
    keys = (f"k{n}" for n in range(10_000))
    return next(
        key
        for key in keys
        if entry.partition_shards[partition_of(key.encode(), entry.partition_count)] == shard and key not in but
    )


def stored(urls: Sequence[str]) -> Counter[int]:
    """How often each argument is stored, over all shards."""
    return Counter(n for each in where(urls).values() for n in each.values())


def where(urls: Sequence[str]) -> dict[int, dict[int, int]]:
    """The jobs of each shard: their ids and arguments."""
    found = {}
    for number, url in enumerate(urls, 1):
        with psycopg.connect(url) as connection:
            rows = connection.execute("select id, args ->> 'n' from penstock.job where task = 't'").fetchall()
            found[number] = {row[0]: int(row[1]) for row in rows}
    return found


def execute(url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def set_map_state(state: str, queue: str | None = None) -> str:
    """A statement that says of the newest maps of queues what no step leads to: as a copy of a catalogue may."""
    return (
        f"update penstock.queue_map as m set state = '{state}'"
        " from penstock.queue as q cross join (select set_config('penstock.copies', 'on', true)) as c"
        " where q.id = m.queue_id and q.epoch = m.epoch"
        f"{'' if queue is None else f' and q.name = {queue!r}'} returning 1"
    )


def becomes(what: Callable[[], object]) -> None:
    while not what():
        time.sleep(0.02)
