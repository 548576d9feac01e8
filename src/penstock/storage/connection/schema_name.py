"""Which schema of a database is meant. Its name travels in the URL, `postgresql://host/jobs?schema=staging`, so that
whoever is given a URL is given it too: shards that are found later, Spark's executors, another driver.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.errors import InvalidInput

__all__ = ["SCHEMA", "Target", "checked_schema", "is_schema_alone", "split_schema", "with_schema"]

SCHEMA = "penstock"
# A name leaves room for what is put behind it in the names of channels.
_MOST_CHARACTERS = 40
_STRAY = re.compile(r"[^a-z0-9_]")
# Everybody's, PostgreSQL's own, and the words that SQL takes for something else, in any version of PostgreSQL so far:
# names that would need quotes.
_EVERYBODYS = ("public", "information_schema")
_WORDS = """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast
    char character check coalesce collate collation column concurrently constraint create cross current_catalog
    current_date current_role current_schema current_time current_timestamp current_user dec decimal default deferrable
    desc distinct do else end except exists extract false fetch float for foreign freeze from full grant greatest group
    grouping having ilike in initially inner inout int integer intersect interval into is isnull join json json_array
    json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value
    lateral leading least left like limit localtime localtimestamp merge_action national natural nchar none normalize
    not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position precision
    primary real references returning right row select session_user setof similar smallint some substring symmetric
    system_user table tablesample then time timestamp to trailing treat trim true union unique user using values
    varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """
_IN_URL = re.compile(r"(?<=[?&])schema=([^&]*)&?")
_ALONE = re.compile(r"\?schema=[^&]*")
_IN_WORDS = re.compile(r"(?:^|\s)schema=(\S+)")


class Target(NamedTuple):
    """What the driver connects to, and the schema there."""

    conninfo: str
    schema: str


def checked_schema(name: object) -> str:
    """The name of a schema, or InvalidInput."""
    problem = _problem(name) if isinstance(name, str) else f"text is needed, not {type(name).__name__}"
    if problem or not isinstance(name, str):
        raise InvalidInput("schema", f"{problem}; give a name such as staging")
    return name


def _problem(name: str) -> str | None:
    """The rule that a name of a schema breaks."""
    if not name:
        return "it is empty"
    if len(name) > _MOST_CHARACTERS:
        return f"{len(name)} characters is too long, {_MOST_CHARACTERS} is the most"
    if stray := _STRAY.search(name):
        return f"{name!a} holds {stray[0]!a}, and only lower-case letters, digits and _ need no quotes"
    if name[0].isdigit():
        return f"{name!r} begins with a digit; the first is a lower-case letter or _"
    if name.startswith("pg_"):
        return f"{name!r} begins with pg_, which PostgreSQL keeps for its own schemas"
    if name in _EVERYBODYS:
        return f"{name!r} is a schema that others use too, and Penstock needs one to itself"
    return f"{name!r} is a word of SQL, and would need quotes" if name in _WORDS.split() else None


def split_schema(url: str) -> Target:
    """The URL that the driver can read, and the schema it named."""
    start, mark, options = url.partition("?") if "://" in url or is_schema_alone(url) else ("", "", url)
    found = (_IN_URL if mark else _IN_WORDS).search(mark + options)
    if found is None:
        return Target(url, SCHEMA)
    rest = (mark + options)[: found.start()] + (mark + options)[found.end() :]
    return Target((start + rest.rstrip("?&")).strip(), checked_schema(found[1]))


def is_schema_alone(url: object) -> bool:
    """Whether a URL names nothing but a schema, as `?schema=staging`: where an app is given that, of its own server."""
    return isinstance(url, str) and _ALONE.fullmatch(url) is not None


def with_schema(url: str, schema: str) -> str:
    """The URL that names this schema."""
    conninfo = split_schema(url).conninfo
    if schema == SCHEMA:
        return conninfo
    if "://" not in conninfo:
        return f"{conninfo} schema={schema}"
    return f"{conninfo}{'&' if '?' in conninfo else '?'}schema={schema}"
