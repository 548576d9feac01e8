"""Which partition a job goes to: by its key where it has one, else where the fewest jobs wait."""

from penstock.routing.key_hash import PARTITION_DOMAIN, h64, partition_of
from penstock.routing.placement import Placement, least_loaded

__all__ = ["PARTITION_DOMAIN", "Placement", "h64", "least_loaded", "partition_of"]
