"""A token: who may use the HTTP API, and for what."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Role"]

Role: TypeAlias = Literal["read", "produce", "work", "admin"]
