"""The databases by their URLs, for processes that are told where they are: executors of Spark, say.

It begins with a text of one URL or several. Shards that it does not name are found by the catalogue, with the
credentials of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PartitionUnavailable
from penstock.shards import joining
from penstock.shards.databases import Databases
from penstock.shards.membership import read_membership
from penstock.storage import Database
from penstock.storage.connection.urls import checked_urls

__all__ = ["ShardUrls", "find_shards", "join_urls", "open_one", "share_out"]


@dataclass(frozen=True, slots=True)
class ShardUrls:
    """Where each shard is, by number, and which one leads; it may travel. Those in `silent` did not answer."""

    urls: Mapping[int, str] = field(repr=False)
    lead: int
    silent: frozenset[int] = frozenset()

    def open_all(self, open_database: Callable[[int], Database]) -> Databases:
        """The databases, each opened by its number, which the caller closes."""
        opened = Databases([open_database(number) for number in self.urls])
        opened.note_drained([number for number in self.urls if number < self.lead])
        return opened

    @contextmanager
    def open(self) -> Iterator[Databases]:
        """The databases, for the length of a block."""
        opened = self.open_all(self.open_database)
        try:
            yield opened
        finally:
            opened.close()

    def open_database(self, number: int, pool_size: int = 2) -> Database:
        """One of them, which the caller closes."""
        return open_one(self.urls, number, pool_size=pool_size)


def find_shards(option: object) -> ShardUrls:
    """The databases that a text of URLs leads to."""
    databases = [Database(url, pool_size=1) for url in checked_urls(option)]
    further: list[Database] = []
    try:
        silent = list(joining.meet(databases, _greet))
        joined = joining.join(databases, silent)
        for database in joining.further_shards(joined, lambda url: Database(url, pool_size=1)):
            further.append(database)
            joined.add(database)
            if not _does_answer(database):
                silent.append(database)
        return ShardUrls(
            {database.shard: database.url for database in joined},
            joined.lead.shard,
            frozenset(database.shard for database in silent),
        )
    finally:
        for database in (*databases, *further):
            database.close()


def join_urls(databases: Databases) -> str:
    """The databases of an app as one text."""
    return "\n".join(database.url for database in databases)


def open_one(urls: Mapping[int, str], number: int, **options: Any) -> Database:
    """One of these databases, by its number; messages tell it from the others, where there are any."""
    return Database(urls[number], shard=number, is_alone=len(urls) == 1, **options)


def share_out(numbers: Sequence[int], slot: int, slots: int, *, is_exclusive: bool) -> list[int]:
    """The shards that one of so many slots serves: all of them, each slot beginning with another. Where it is to be as
    exclusive as can be, they are shared out.
    """
    if not is_exclusive:
        start = slot % len(numbers)
        return [*numbers[start:], *numbers[:start]]
    indexes = range(slot % slots, max(slots, len(numbers)), slots)
    return list(dict.fromkeys(numbers[index % len(numbers)] for index in indexes))


def _greet(database: Database, timeout: float | None, _: bool) -> None:
    database.run(read_membership, timeout=timeout)


def _does_answer(database: Database) -> bool:
    try:
        database.run(read_membership, timeout=joining.FIRST_CONTACT_SECONDS)
    except PartitionUnavailable:
        return False
    return True
