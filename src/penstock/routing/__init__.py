"""Which partition a job goes to: by its key where it has one, else where the fewest jobs wait."""

from penstock.routing.key_hash import IDEMPOTENCY_DOMAIN, PARTITION_DOMAIN, h64, home_of, partition_of, shard_of
from penstock.routing.placement import Depth, Placement, least_loaded

__all__ = [
    "IDEMPOTENCY_DOMAIN",
    "PARTITION_DOMAIN",
    "Depth",
    "Placement",
    "h64",
    "home_of",
    "least_loaded",
    "partition_of",
    "shard_of",
]
