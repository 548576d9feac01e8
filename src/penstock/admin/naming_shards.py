"""How a person names a shard: by its number or its URL."""

from __future__ import annotations

from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import shown
from penstock.shards.databases import Databases
from penstock.shards.membership import ShardEntry, read_shards
from penstock.storage.connection.addresses import plain_address
from penstock.storage.connection.urls import checked_url

__all__ = ["find_shard"]


def find_shard(databases: Databases, shard: int | str) -> ShardEntry:
    """The shard of that number or URL. InvalidInput where there is only one database, NotFound."""
    known = databases.read(read_shards)
    if not known:
        raise InvalidInput(
            "shard", "there is one database only; add another first, with app.add_shard(url) or `penstock shards add`"
        )
    names = ", ".join(f"{entry.number} ({entry.address})" for entry in known)
    if isinstance(shard, str) and shard.isdecimal():
        shard = int(shard)
    address = _address(shard, names) if isinstance(shard, str) else None
    if address is None and (isinstance(shard, bool) or not isinstance(shard, int)):
        raise InvalidInput(
            "shard", f"a number or a URL is needed, not {type(shard).__name__} {shown(shard)}; there are {names}"
        )
    for entry in known:
        if shard == entry.number or address == entry.address:
            return entry
    named = f"shard at {address}" if address else f"shard {shard}"
    raise NotFound(f"there is no {named}; there are {names}: app.add_shard(url) or `penstock shards add` adds one")


def _address(url: str, names: str) -> str:
    try:
        return plain_address(checked_url(url))
    except InvalidInput as error:
        raise InvalidInput("shard", f"it is neither a number nor a URL ({error.problem}); there are {names}") from None
