"""The owner of partitions: whoever runs jobs by rules about keys decides here what starts next."""

from penstock.owner.owner import OwnedPartition, Owner

__all__ = ["OwnedPartition", "Owner"]
