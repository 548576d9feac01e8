"""The URLs of databases: whether the driver can read them, and what Penstock adds to what they say."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, urlencode

import psycopg

from penstock.errors import InvalidInput
from penstock.model.wrong_calls import meant_by
from penstock.storage.connection.schema_name import split_schema

__all__ = [
    "ENCODING",
    "checked_url",
    "checked_urls",
    "plain_url",
    "pooled_by_environment",
    "utf8_conninfo",
    "writable_conninfo",
]

_FORM = "postgresql://user:password@host:5432/database"
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_UNKNOWN_OPTION = re.compile(r'(?:query parameter|connection option)[: ]+"(\w{1,40})"')
_SCHEME_AND_DRIVER = re.compile(r"(?:postgres|postgresql)(\+\w{1,20})://")
# Whatever a role or the environment says: arguments are UTF-8 on the wire.
ENCODING = "UTF8"


def checked_url(url: object) -> str:
    """A URL the driver can read, or InvalidInput; what is quoted of it never holds a password."""
    if not isinstance(url, str) or ("://" not in url and "=" not in url):
        raise InvalidInput("url", "a PostgreSQL URL is needed, such as postgresql://localhost/jobs")
    if url.count("://") > 1:
        raise InvalidInput("url", "it holds several URLs; write App(shards=[url, url]), or PENSTOCK_URL='url url'")
    try:
        parts = psycopg.conninfo.conninfo_to_dict(split_schema(url).conninfo)
    except psycopg.Error as error:
        parts = None
        _refuse_driver(url)
        _refuse_unknown_option(url, str(error))
    # An @ or / of a password that is not written as %40 or %2F ends up in the name of the host or the database.
    named = "" if parts is None else f"{parts.get('host') or ''}{parts.get('dbname') or ''}"
    if parts is None or "@" in named:
        raise InvalidInput("url", f"it cannot be read; write {_FORM}, special characters as %XX")
    ports = str(parts.get("port") or "5432").split(",")
    if not all(port == "" or (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536) for port in ports):
        # What stands there may be a password whose @host was forgotten.
        raise InvalidInput("url", f"its port is no number from 1 to 65535; write {_FORM}")
    if (mode := parts.get("sslmode")) not in (None, *_SSL_MODES):
        raise InvalidInput("url", f"sslmode {mode!a:.60} is none of {', '.join(_SSL_MODES)}; give one of them")
    return url


def _refuse_driver(url: str) -> None:
    """Raise InvalidInput where the URL is SQLAlchemy's: it names the driver as well."""
    found = _SCHEME_AND_DRIVER.match(url)
    if found is not None:
        raise InvalidInput("url", f"{found[1]!r} names a driver, as only SQLAlchemy does; leave it out: write {_FORM}")


def _refuse_unknown_option(url: str, error: str) -> None:
    """Raise InvalidInput where the driver does not know an option of the URL. It is named where it is nearly one that
    there is: so it is no part of a password.
    """
    found = _UNKNOWN_OPTION.search(error)
    if found is None or "@" in url.partition("?")[2]:
        return
    known = [each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()]
    meant = meant_by(found[1], [*known, "schema"], nearness=0.8)
    named = f"the option {found[1]!r}{meant}" if meant else "one of its options"
    raise InvalidInput("url", f"PostgreSQL does not know {named}; mend it, or leave it out")


def checked_urls(text: object) -> list[str]:
    """The URLs of shards from one text, a line each, or with spaces or commas between them."""
    # A comma also stands between several hosts of one URL: only one before a further URL parts them.
    urls = re.split(r"\s*\n\s*|[\s,]+(?=\w+://)", text.strip()) if isinstance(text, str) else [text]
    if len(set(urls)) < len(urls):
        raise InvalidInput("shards", "the same URL is given twice; each shard is a database of its own")
    return [checked_url(each) for each in urls]


def writable_conninfo(url: str) -> str:
    """The URL with which that one of several hosts is found that takes writes, unless the user says otherwise."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    hosts = str(parts.get("host") or parts.get("hostaddr") or "")
    if "," not in hosts or "target_session_attrs" in parts or "PGTARGETSESSIONATTRS" in os.environ:
        return url
    return psycopg.conninfo.make_conninfo(url, target_session_attrs="read-write")


def plain_url(url: str) -> str:
    """The same database without `schema`, which only Penstock knows, and `require_auth`, which only libpq does."""
    conninfo = split_schema(url).conninfo
    if "://" not in conninfo:
        parts = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(conninfo).items()}
        return "postgresql://?" + urlencode(
            {name: value for name, value in parts.items() if name != "require_auth"}, quote_via=quote
        )
    place, _, options = conninfo.partition("?")
    kept = [each for each in options.split("&") if each and not each.startswith("require_auth=")]
    return f"{place}?{'&'.join(kept)}" if kept else place


def utf8_conninfo(url: str) -> str:
    """The same database for another driver, in sessions that speak UTF-8."""
    return psycopg.conninfo.make_conninfo(split_schema(url).conninfo, client_encoding=ENCODING)


def pooled_by_environment() -> bool | None:
    """Whether $PENSTOCK_POOLED says that databases are behind a transaction pooler; None where it says nothing."""
    said = os.environ.get("PENSTOCK_POOLED", "").strip()
    if said not in ("", "0", "1"):
        raise InvalidInput("PENSTOCK_POOLED", "must be 1 (behind a transaction pooler) or 0 (direct), or not be set")
    return None if not said else said == "1"
