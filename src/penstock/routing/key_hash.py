"""The hash that takes a key to its partition, the same to the bit in every language.

    h64(domain, key) = the first 8 bytes of SHA-256(domain, one zero byte, key), read as a signed big-endian integer
    partition        = (h64 with its sign bit cleared) mod the number of partitions
    home             = of the queue's homes the one at (h64 with its sign bit cleared) mod 1,024 mod their number

An idempotency key has its home on a shard, whatever partitions there are: it is found there by whoever repeats it.

SHA-256 is built into Python, PostgreSQL, Spark and nearly everything else, so no one has to carry an extension. The
domain keeps one use of the hash apart from every other: were a key reduced twice by the same hash (to a partition,
then to a lane of a worker), all keys of a partition would meet in the same few lanes. `vectors.json` beside this
file holds examples to check another implementation against. Keys in the databases of users were placed by this: it
can never change, only gain another domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

__all__ = ["IDEMPOTENCY_DOMAIN", "PARTITION_DOMAIN", "h64", "home_of", "partition_of", "shard_of"]

PARTITION_DOMAIN = b"penstock/partition/v1"
IDEMPOTENCY_DOMAIN = b"penstock/idempotency/v1"
SLOTS = 1024


def h64(domain: bytes, key: bytes) -> int:
    """The signed 64-bit hash of a key within a domain."""
    return int.from_bytes(sha256(domain + b"\0" + key).digest()[:8], "big", signed=True)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition, from 0, that holds every job of this key."""
    return (h64(PARTITION_DOMAIN, key) & 0x7FFF_FFFF_FFFF_FFFF) % partitions


def home_of(idempotency_key: str, homes: Sequence[int]) -> int:
    """The shard, of those that a queue's idempotency keys are spread over, on which this one is remembered."""
    slot = (h64(IDEMPOTENCY_DOMAIN, idempotency_key.encode()) & 0x7FFF_FFFF_FFFF_FFFF) % SLOTS
    return homes[slot % len(homes)]


def shard_of(job_id: int) -> int:
    """The number of the shard on which a job was written."""
    return (job_id >> 10) & 1023
