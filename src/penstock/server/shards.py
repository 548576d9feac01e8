"""Shards over HTTP, each without its URL, which holds a password; and to drain one."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import Drain, Shard
from penstock.server.call import Call
from penstock.server.operation import Operations
from penstock.server.queue_acts import shard_number

__all__ = ["shards"]

shards = Operations()


@dataclass(frozen=True, slots=True)
class Shards:
    """The databases of the system, by number."""

    shards: list[Shard]


@shards.add("GET", "/shards", may="read")
def list_shards(call: Call) -> Shards:
    """The databases of the system, whether they answer, and how much is on them."""
    return Shards(call.app.shards)


@shards.add("GET", "/shards/{shard}/drain", may="read")
def read_drain(call: Call, shard: str) -> Drain:
    """How far the draining of a shard is: what is left there, and what that waits for. It changes nothing."""
    return call.app.drain_progress(shard_number(shard))


@shards.add("POST", "/shards/{shard}/drain", may="admin")
def drain_shard(call: Call, shard: str) -> Drain:
    """Take everything off a shard while all of it is used; again to see how far it is."""
    return call.app.drain_shard(shard_number(shard))
