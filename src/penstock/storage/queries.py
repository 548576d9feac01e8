"""The SQL of the storage, by name.

Each file of `sql/` holds the queries of one subject. A query begins with `-- name:` and lasts until the next; what
follows the name, up to the first line that is no comment, explains it: what it does, the locks it takes, the index it
uses. No SQL is built from strings anywhere else.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import LiteralString

__all__ = ["QUERIES", "query"]

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _load() -> dict[str, LiteralString]:
    found: dict[str, LiteralString] = {}
    for file in sorted(files(__package__).joinpath("sql").iterdir(), key=lambda file: file.name):
        _, *parts = _HEADING.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"two queries are named {name!r}")
            lines = [line for line in text.splitlines() if not line.startswith("--")]
            found[name] = "\n".join(lines).strip()
    return found


QUERIES = _load()


def query(name: str) -> LiteralString:
    """The text of a query. An unknown name is a programming error and shows when the module is imported."""
    return QUERIES[name]
