"""Which partition a job goes to.

router      by its key and its idempotency key: the one place that decides it
key_hash    the hash by which it does; the same to the bit in every language
placement   without either: where the fewest jobs wait
"""

from penstock.routing.key_hash import IDEMPOTENCY_DOMAIN, PARTITION_DOMAIN, h64, home_of, partition_of, shard_of
from penstock.routing.placement import Depth, Placement, least_loaded
from penstock.routing.router import ANYWHERE, KeyMap, Route, route, route_keys

__all__ = [
    "ANYWHERE",
    "IDEMPOTENCY_DOMAIN",
    "PARTITION_DOMAIN",
    "Depth",
    "KeyMap",
    "Placement",
    "Route",
    "h64",
    "home_of",
    "least_loaded",
    "partition_of",
    "route",
    "route_keys",
    "shard_of",
]
