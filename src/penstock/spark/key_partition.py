"""The partition of a key as a Spark expression: built-in functions only, equal to the bit to `penstock.routing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.routing import PARTITION_DOMAIN

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["key_bits", "partition_of"]


def partition_of(key: Column, partitions: int | Column) -> Column:
    """The partition, from 0, of a key given as text, bytes or a whole number; null where the key is null."""
    return f.pmod(key_bits(key), f.lit(partitions) if isinstance(partitions, int) else partitions).cast("int")


def key_bits(key: Column) -> Column:
    """The 63 bits of a key's hash that its partition, whatever their number, is the remainder of."""
    domain = f.lit(bytearray(PARTITION_DOMAIN + b"\0"))
    # Text becomes its UTF-8, a number its decimal text; bytes are unchanged by a cast to text and back.
    raw = key.cast("string").cast("binary")
    digest = f.sha2(f.concat(domain, raw), 256)
    # Sixteen hex digits are 64 bits; without the highest of them they fit a long.
    return f.conv(f.substring(digest, 1, 16), 16, -10).cast("long").bitwiseAND(f.lit(0x7FFF_FFFF_FFFF_FFFF))
