"""The SQL of the program, by name.

Each `.sql` file beside code, in whichever package, holds the queries of one subject; what makes a database's schema
lies apart. A query begins with `-- name:` and lasts until the next; what follows the name, up to the first line that is
no comment, explains it: what it does, the locks it takes, the index it uses. A name is there once, and only modules of
the query's own package and of those above it send it.

`@schema@` stands for the name of the schema. A text as `query` gives it is of the schema `penstock`; a connection to
another one sends what `texts_in` has in its place.

Values are sent beside a text, as `%(name)s`. What PostgreSQL takes only within it stands there in braces and is put in
by `fill`: names of tables and channels; bounds that the planner must know, to leave out table partitions; and whatever
is read by COPY, which has no parameters. So no text of SQL is written in Python, but for what is asked of one column
when Spark reads in bulk (penstock.storage.history.conditions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import LiteralString

from psycopg import sql

from penstock.storage.connection.schema_name import SCHEMA

__all__ = ["PLACEHOLDER", "QUERIES", "fill", "query", "texts_in"]

PLACEHOLDER = "@schema@"

# Folders of what makes a schema, which is no query.
_OF_THE_SCHEMA = ("tables", "functions", "around")
_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _files(folder: Traversable) -> Iterator[Traversable]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.name.endswith(".sql"):
            yield each
        elif "." not in each.name and each.name not in _OF_THE_SCHEMA:
            yield from _files(each)


def _load() -> dict[str, LiteralString]:
    found: dict[str, LiteralString] = {}
    for file in _files(files("penstock")):
        _, *parts = _HEADING.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"two queries are named {name!r}, one of them in {file.name}")
            lines = [line for line in text.splitlines() if not line.startswith("--")]
            found[name] = "\n".join(lines).strip()
    return found


_QUERIES = _load()


@cache
def _fill_schema(schema: str) -> dict[str, LiteralString]:
    return {name: text.replace(PLACEHOLDER, schema) for name, text in _QUERIES.items()}


QUERIES = _fill_schema(SCHEMA)


def query(name: str, schema: str = SCHEMA) -> LiteralString:
    """The text of a query. An unknown name is a programming error and shows when the module is imported."""
    return QUERIES[name] if schema == SCHEMA else _fill_schema(schema)[name]


def fill(name: str, schema: str = SCHEMA, /, **parts: object) -> sql.Composed:
    """A query with what stands in its braces: a `Composable` as it is, anything else as a literal."""
    return sql.SQL(query(name, schema)).format(**parts)


@cache
def texts_in(schema: str) -> Mapping[str, LiteralString]:
    """By the text of each query, what it is in another schema."""
    return {text: query(name, schema) for name, text in QUERIES.items()}
