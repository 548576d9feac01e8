"""Upkeep: what any worker does for all, every few seconds, safely in many at once."""

from penstock.upkeep.upkeep import Upkeep

__all__ = ["Upkeep"]
