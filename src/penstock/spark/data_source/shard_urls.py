"""The shards as Spark reaches them: from the option `url`, and in processes that Spark starts, by what a plan says.

The option holds one URL or several. Shards that it does not name are found by the catalogue, with the credentials of
the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PartitionUnavailable
from penstock.shards import joining
from penstock.shards.databases import Shards
from penstock.shards.identity import read_identity
from penstock.storage import Database
from penstock.storage.database import checked_urls

__all__ = ["ShardUrls", "find_shards", "join_urls"]

# One of several shards that does not answer within this counts as silent, and the others go on.
FIRST_CONTACT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ShardUrls:
    """Where each shard is, by number, and which one leads; sent to the executors. Those in `silent` did not answer."""

    urls: Mapping[int, str] = field(repr=False)
    lead: int
    silent: frozenset[int] = frozenset()

    @contextmanager
    def open(self) -> Iterator[Shards]:
        """The databases, for the length of a block."""
        opened = Shards([self.open_database(number) for number in self.urls])
        opened.note_drained([number for number in self.urls if number < self.lead])
        try:
            yield opened
        finally:
            opened.close()

    def open_database(self, number: int, pool_size: int = 2) -> Database:
        """One of them, which the caller closes."""
        return Database(self.urls[number], pool_size=pool_size, shard=number, is_alone=len(self.urls) == 1)


def find_shards(option: object) -> ShardUrls:
    """The shards that the option `url` leads to."""
    databases = [Database(url, pool_size=1) for url in checked_urls(option)]
    further: list[Database] = []
    try:
        silent = [database for database in databases if len(databases) > 1 and not _answers(database)]
        shards = joining.join(databases, silent)
        for database in joining.further_shards(shards, lambda url: Database(url, pool_size=1)):
            further.append(database)
            shards.add(database)
            if not _answers(database):
                silent.append(database)
        return ShardUrls(
            {database.shard: database.url for database in shards},
            shards.lead.shard,
            frozenset(database.shard for database in silent),
        )
    finally:
        for database in (*databases, *further):
            database.close()


def join_urls(app: Any) -> str:
    """The databases of an app as the option `url`."""
    return "\n".join(database.url for database in app.databases)


def _answers(database: Database) -> bool:
    try:
        database.run(read_identity, timeout=FIRST_CONTACT_SECONDS)
    except PartitionUnavailable:
        return False
    return True
