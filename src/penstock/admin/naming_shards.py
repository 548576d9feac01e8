"""How a person names a shard: by its number or its URL."""

from __future__ import annotations

from penstock.errors import InvalidInput, NotFound
from penstock.shards.databases import Databases
from penstock.shards.membership import ShardEntry, read_shards
from penstock.storage.connection.addresses import plain_address
from penstock.storage.connection.urls import checked_url

__all__ = ["find_shard"]


def find_shard(databases: Databases, shard: int | str) -> ShardEntry:
    """The shard of that number or URL. InvalidInput where there is only one database, NotFound."""
    known = databases.read(read_shards)
    if not known:
        raise InvalidInput("shard", "there is one database only: add another with `penstock shards add` first")
    if isinstance(shard, str) and shard.isdecimal():
        shard = int(shard)
    address = plain_address(checked_url(shard)) if isinstance(shard, str) else None
    for entry in known:
        if not isinstance(shard, bool) and (shard == entry.number or address == entry.address):
            return entry
    named = f"shard at {address}" if address else f"shard {shard!r:.200}"
    names = ", ".join(f"{entry.number} ({entry.address})" for entry in known)
    raise NotFound(f"there is no {named}; there are {names}: add one with `penstock shards add`")
