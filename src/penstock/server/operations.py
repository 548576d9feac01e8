"""All operations of the API, as one list."""

from __future__ import annotations

from penstock.server.operation import Operation
from penstock.server.produce import produce

__all__ = ["OPERATIONS"]

OPERATIONS: list[Operation] = [*produce]
