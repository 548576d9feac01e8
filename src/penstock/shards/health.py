"""What a shard can tell of itself and of the catalogue: the facts behind `penstock shards` and `doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.shards.identity import read_digest, read_identity, read_shards
from penstock.storage.database import Connection
from penstock.storage.queries import query

__all__ = ["CatalogueFacts", "ShardFacts", "catalogue_facts", "shard_facts"]


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """Whether a database takes writes, how many partitions queues use there, and the jobs ready and under a lease."""

    is_read_only: bool
    partitions: int
    queued: int
    running: int


@dataclass(frozen=True, slots=True)
class CatalogueFacts:
    """What a database is among the shards, the version of its catalogue and what that says in short.

    `shards` are those the catalogue knows, each with its identity and state.
    """

    number: int
    identity: str | None
    system: str | None
    version: int
    digest: str
    shards: list[tuple[int, str, str]]


def catalogue_facts(connection: Connection) -> CatalogueFacts:
    """What a database says of the catalogue."""
    known = [(entry.number, entry.identity, entry.state) for entry in read_shards(connection)]
    identity = read_identity(connection)
    return CatalogueFacts(*identity[:3], *read_digest(connection), known)


def shard_facts(connection: Connection) -> ShardFacts:
    """How a shard is."""
    row = connection.execute(query("shard_facts")).fetchone()
    assert row is not None  # noqa: S101
    return ShardFacts(*row)
