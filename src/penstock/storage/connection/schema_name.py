"""Which schema of a database is meant. Its name travels in the URL, `postgresql://host/jobs?schema=staging`, so that
whoever is given a URL is given it too: shards that are found later, Spark's executors, another driver.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.errors import InvalidInput

__all__ = ["SCHEMA", "Target", "checked_schema", "split_schema", "with_schema"]

SCHEMA = "penstock"
# Names that need no quotes, and leave room for what is put behind them in the names of channels.
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_IN_URL = re.compile(r"(?<=[?&])schema=([^&]*)&?")
_IN_WORDS = re.compile(r"(?:^|\s)schema=(\S+)")


class Target(NamedTuple):
    """What the driver connects to, and the schema there."""

    conninfo: str
    schema: str


def checked_schema(name: object) -> str:
    """The name of a schema, or InvalidInput."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("pg_") or name == "public":
        raise InvalidInput(
            "schema",
            f"{name!r} cannot be one: a name of its own is needed, of lower-case letters, digits and _, 40 at most",
        )
    return name


def split_schema(url: str) -> Target:
    """The URL that the driver can read, and the schema it named."""
    start, mark, options = url.partition("?") if "://" in url else ("", "", url)
    found = (_IN_URL if mark else _IN_WORDS).search(mark + options)
    if found is None:
        return Target(url, SCHEMA)
    rest = (mark + options)[: found.start()] + (mark + options)[found.end() :]
    return Target((start + rest.rstrip("?&")).strip(), checked_schema(found[1]))


def with_schema(url: str, schema: str) -> str:
    """The URL that names this schema."""
    conninfo = split_schema(url).conninfo
    if schema == SCHEMA:
        return conninfo
    if "://" not in conninfo:
        return f"{conninfo} schema={schema}"
    return f"{conninfo}{'&' if '?' in conninfo else '?'}schema={schema}"
