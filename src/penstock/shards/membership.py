"""What a database is among the shards, and which shards its catalogue knows."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import SchemaMismatch
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import InvalidParameterValue

__all__ = [
    "Membership",
    "ShardEntry",
    "end_joining",
    "enter_shard",
    "read_digest",
    "read_membership",
    "read_shards",
    "reserve_shard",
    "take_up_shard",
]


class Membership(NamedTuple):
    """What a database is among the shards: its number, its identity, the system, the version of its catalogue.

    The identity is a random id that never comes again. Where there is none, no app has made the database a shard yet.
    """

    number: int
    identity: str | None
    system: str | None
    version: int


class ShardEntry(NamedTuple):
    """A shard as the catalogue knows it. The address says where it is, not who connects."""

    number: int
    identity: str
    address: str
    state: str


def read_membership(connection: Connection) -> Membership:
    """What a database is among the shards, and the version of its catalogue."""
    row = connection.execute(query("read_identity")).fetchone()
    assert row is not None  # noqa: S101
    return Membership(row[0], None if row[1] is None else str(row[1]), None if row[2] is None else str(row[2]), row[3])


def read_shards(connection: Connection) -> list[ShardEntry]:
    """Every shard the catalogue knows."""
    rows = connection.execute(query("read_shards")).fetchall()
    return [ShardEntry(number, str(identity), address, state) for number, identity, address, state in rows]


def read_digest(connection: Connection) -> tuple[int, str]:
    """The version of a catalogue, and what it says, in short."""
    row = connection.execute(query("read_digest")).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def take_up_shard(connection: Connection, number: int, identity: str, system: str) -> None:
    """Make a database a shard of that number, unless it is one."""
    try:
        connection.execute(query("take_up_shard"), {"number": number, "identity": identity, "system": system})
    except InvalidParameterValue as error:
        raise SchemaMismatch(str(error.diag.message_primary).removeprefix("InvalidInput: url: ")) from error


def enter_shard(connection: Connection, number: int, identity: str, address: str) -> bool:
    """Write a shard into the catalogue; whether that was new."""
    row = connection.execute(
        query("enter_shard"), {"number": number, "identity": identity, "address": address}
    ).fetchone()
    return bool(row and row[0])


def reserve_shard(connection: Connection, identity: str, address: str) -> tuple[int, str]:
    """A number and an identity for a further shard; those it was given before, where that was not ended."""
    row = connection.execute(query("reserve_shard"), {"identity": identity, "address": address}).fetchone()
    assert row is not None  # noqa: S101
    return row[0], str(row[1])


def end_joining(connection: Connection, number: int) -> bool:
    """From here on partitions are placed on a shard that was joining; whether it was."""
    row = connection.execute(query("end_joining"), {"number": number}).fetchone()
    return bool(row and row[0])
