"""Where a database is, apart from who connects to it and how: what programs may tell each other."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from psycopg import conninfo

from penstock.storage.connection.schema_name import split_schema, with_schema

__all__ = ["at_address", "plain_address", "url_of"]


def plain_address(url: str) -> str:
    """Where a database is, without who connects to it and how."""
    parts: dict[str, Any] = conninfo.conninfo_to_dict(split_schema(url).conninfo)
    return conninfo.make_conninfo(**{name: parts[name] for name in ("host", "port", "dbname") if parts.get(name)})


def url_of(host: str, port: int, database: str, user: str = "") -> str:
    """The URL of a database, without a password. A host that is a folder is that of a socket."""
    who = f"{quote(user, safe='')}@" if user else ""
    if host.startswith(("/", "@")):
        return f"postgresql://{who}/{quote(database, safe='')}?host={quote(host, safe='/')}&port={port}"
    return f"postgresql://{who}{f'[{host}]' if ':' in host else host}:{port}/{quote(database, safe='')}"


def at_address(address: str, url: str) -> str:
    """The URL of a database by its address, with the credentials and options of a URL that was given."""
    place: dict[str, Any] = conninfo.conninfo_to_dict(address)
    given = split_schema(url)
    return with_schema(conninfo.make_conninfo(given.conninfo, **place), given.schema)
