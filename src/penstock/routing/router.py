"""Where a job goes: the one place that decides it.

    idempotency key, and no key or a queue without an owner    the shard that remembers the idempotency key;
                                                               with a key, of the partitions there the key's
    key                                                        the key's partition
    neither                                                    anywhere: to the partition with the fewest jobs

On a queue with an owner an idempotency key is unique for each key, and so lives with that. `routes.json` beside this
file holds examples, to which `enqueue` in SQL is held too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.routing.key_hash import home_of, partition_of

__all__ = ["ANYWHERE", "KeyMap", "Route", "route", "route_keys"]


class KeyMap(NamedTuple):
    """A map of a queue's keys: the shard of each partition, by number; the shards that remember idempotency keys."""

    shards: Sequence[int]
    homes: Sequence[int]
    is_owned: bool

    def numbers_on(self, shard: int) -> list[int]:
        """The partitions on one shard, in order."""
        return [number for number, each in enumerate(self.shards) if each == shard]


class Route(NamedTuple):
    """One partition; or any on a shard; or, with neither, any at all."""

    partition: int | None = None
    shard: int | None = None


ANYWHERE = Route()


def route(key_map: KeyMap, key: bytes | None, idempotency_key: str | None = None) -> Route:
    """Where a job with this key and idempotency key goes.

    A shard that remembers idempotency keys and has no partition yet is being moved to: it is named without a partition.
    """
    if idempotency_key is not None and (key is None or not key_map.is_owned):
        home = home_of(idempotency_key, key_map.homes)
        there = key_map.numbers_on(home) if key is not None else []
        return Route(there[partition_of(key, len(there))] if key is not None and there else None, home)
    if key is None:
        return ANYWHERE
    number = partition_of(key, len(key_map.shards))
    return Route(number, key_map.shards[number])


def route_keys(key_map: KeyMap, keys: Sequence[bytes]) -> list[int]:
    """The partitions of many jobs that have keys, and no idempotency keys."""
    count = len(key_map.shards)
    return [partition_of(key, count) for key in keys]
