"""The options of the data source: those it does not know are refused, because a typo would be obeyed in silence."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.errors import InvalidJob

__all__ = ["refuse_unknown"]

# What Spark itself puts beside ours.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname"})


def refuse_unknown(options: Iterable[str], known: Collection[str], what: str) -> None:
    """InvalidJob for the first option that is not known."""
    for name in options:
        if name.lower() not in known and name.lower() not in _OF_SPARK:
            raise InvalidJob(name, f"{what} has no such option; it has {', '.join(sorted(known))}")
