"""What is checked before Spark is asked: a lake's path, and the options of the data source.

An option that the source does not know is refused, because a typo would be obeyed in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from os import PathLike, fspath

from penstock.errors import InvalidInput
from penstock.model.checks import shown

__all__ = ["checked_lake", "refuse_unknown"]

# Options that Spark itself adds.
_SPARK_OPTIONS = frozenset({"path", "checkpointlocation", "queryname"})


def checked_lake(value: object) -> str:
    """The path of a lake, or the name of its table."""
    path = fspath(value) if isinstance(value, PathLike) else value
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise InvalidInput("lake", f"the path of a folder is needed, such as 's3a://bucket/lake', not {shown(path)}")
    return path


def refuse_unknown(options: Iterable[str], known: Collection[str], what: str) -> None:
    """InvalidInput for the first option that is not known."""
    for name in options:
        if name.lower() not in known and name.lower() not in _SPARK_OPTIONS:
            raise InvalidInput(name, f"{what} has no such option; it has {', '.join(sorted(known))}")
