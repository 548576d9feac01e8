"""What the jobs of the tests of batches are about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Order:
    customer: str
    n: int
