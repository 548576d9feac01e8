"""The table of access tokens, on one database: rows are added and revoked, and nothing else.

A token is known by the SHA-256 digest of its secret. A slow hash is for what people choose and others can guess; a
secret of 256 random bits cannot be found by trying, however fast that goes, and whoever reads the digest can do nothing
with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from psycopg import errors

from penstock.errors import InvalidInput
from penstock.model.token import Role, Token
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["NewToken", "StoredToken", "create", "read", "revoke", "take"]


class NewToken(NamedTuple):
    """A token that is to be; it expires at a time, or after so many seconds, or never."""

    digest: bytes
    name: str
    role: Role
    queues: Sequence[str] | None
    tenant: str | None
    hides_args: bool
    created_by: str
    expires_at: datetime | None
    seconds: float | None


class StoredToken(NamedTuple):
    """A token as it stands in the table; `seconds_left` are None where it never expires."""

    digest: bytes
    token: Token
    seconds_left: float | None


def create(connection: Connection, new: NewToken) -> None:
    """Enter a token; the same again changes nothing."""
    values = {**new._asdict(), "queues": None if new.queues is None else list(new.queues)}
    try:
        connection.execute(query("create_access_token"), values)
    except errors.InvalidParameterValue as error:
        _, field, text = str(error.diag.message_primary).split(": ", 2)
        raise InvalidInput(field, text) from None


def read(connection: Connection) -> list[StoredToken]:
    """Every token there ever was."""
    return [
        StoredToken(
            bytes(digest),
            Token(
                name=name,
                role=Role(role),
                queues=None if queues is None else tuple(queues),
                tenant=tenant,
                hides_args=hides_args,
                created_at=created_at,
                created_by=created_by,
                expires_at=expires_at,
                revoked_at=revoked_at,
            ),
            seconds_left,
        )
        for (
            *(digest, name, role, queues, tenant, hides_args, created_at, created_by, expires_at, revoked_at),
            seconds_left,
        ) in connection.execute(query("read_access_tokens")).fetchall()
    ]


def revoke(connection: Connection, name: str) -> int:
    """Revoke the tokens of a name; how many there are, with those that were revoked before."""
    return len(connection.execute(query("revoke_access_token"), {"name": name}).fetchall())


def take(connection: Connection, tokens: Iterable[StoredToken]) -> None:
    """Take over what other databases have of these."""
    rows = [
        {
            "digest": f"\\x{stored.digest.hex()}",
            "name": stored.token.name,
            "role": stored.token.role,
            "queues": stored.token.queues,
            "tenant": stored.token.tenant,
            "hides_args": stored.token.hides_args,
            "created_at": stored.token.created_at.isoformat(),
            "created_by": stored.token.created_by,
            "expires_at": _instant(stored.token.expires_at),
            "revoked_at": _instant(stored.token.revoked_at),
        }
        for stored in tokens
    ]
    connection.execute(query("take_access_tokens"), {"tokens": json.dumps(rows)})


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
