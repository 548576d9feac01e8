"""What was found of something that Penstock rests on, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check", "checked"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `advice` is empty where all is well, `shard` where it is about all of them."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    shard: str = ""


def checked(name: str, ok: bool, found: str, advice: str) -> Check:
    """A check whose advice is only given where it is wrong."""
    return Check(name, ok, found, "" if ok else advice)
