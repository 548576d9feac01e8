"""Access tokens are the same on every shard, and one that is revoked on any of them is revoked.

Rows are only added and revoked, so what shards have can be put together in any order: all tokens that any of them
knows, each revoked if any says so. A shard that was away when one was revoked is overruled by the others when it is
back, and told by `level_tokens`, which needs no shard that leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.shards.databases import Databases
from penstock.storage.catalogue import access_tokens
from penstock.storage.catalogue.access_tokens import StoredToken

__all__ = ["level_tokens", "put_together"]

ASK_SECONDS = 3.0


def put_together(told: Iterable[Iterable[StoredToken]]) -> dict[bytes, StoredToken]:
    """By their digests, all tokens that several shards know; one that is revoked anywhere is revoked."""
    known: dict[bytes, StoredToken] = {}
    for each in told:
        for stored in each:
            other = known.setdefault(stored.digest, stored)
            revoked = [at for at in (stored.token.revoked_at, other.token.revoked_at) if at is not None]
            if revoked and other.token.revoked_at != min(revoked):
                known[stored.digest] = other._replace(token=replace(other.token, revoked_at=min(revoked)))
    return known


def level_tokens(databases: Databases) -> int:
    """Bring to every shard that answers what it lacks of the tokens; to how many shards."""
    told = databases.each(access_tokens.read, timeout=ASK_SECONDS, writes=False)
    known = put_together(told)
    count = 0
    for number, here in told.given.items():
        has = {stored.digest: stored.token for stored in here}
        lacks = [stored for digest, stored in known.items() if has.get(digest) != stored.token]
        if lacks:
            databases.of(number).ask(lambda connection: access_tokens.take(connection, lacks), timeout=ASK_SECONDS)  # noqa: B023
            count += 1
    return count
