"""Access tokens as an administrator handles them: made, listed, revoked.

A token's secret is 256 random bits behind a prefix by which scanners of repositories and logs can know it. It is given
to whoever makes the token, once; kept is its digest.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256

from penstock.acting import current_actor
from penstock.admin.answers import ask_everywhere, refuse_missing
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable
from penstock.model.checks import checked_flag, checked_name, checked_run_at, checked_seconds, shown, storable_text
from penstock.model.token import TENANT_ROLES, Role, Token
from penstock.shards.access_tokens import level_tokens, put_together
from penstock.shards.databases import Databases
from penstock.storage.catalogue import access_tokens
from penstock.storage.catalogue.access_tokens import NewToken

__all__ = ["SECRET_PREFIX", "check_token", "create_token", "digest_of", "revoke_token", "tokens"]

SECRET_PREFIX = "penstock_"  # noqa: S105  (what all of them begin with)
SECRET_BYTES = 32
MOST_QUEUES = 1_000


def digest_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return sha256(secret.encode(errors="surrogatepass")).digest()


def check_token(
    name: object, role: object, queues: object, tenant: object, expires: object, hides_args: object
) -> NewToken:
    """A token to be, without its secret, or the error that names what cannot be."""
    checked_name("name", name)
    if not isinstance(role, str) or role not in list(Role):
        raise InvalidInput("role", f"{shown(role)} is no role of a token; give {', '.join(Role)}")
    if tenant is not None:
        checked_name("tenant", tenant)
        if role not in TENANT_ROLES:
            raise InvalidInput(
                "tenant",
                f"a token with the role {role!r} acts on jobs of all tenants and cannot be kept to one; "
                f"give the role {' or '.join(TENANT_ROLES)}, or leave the tenant out",
            )
    if checked_flag("hides_args", hides_args) and role == Role.WORK:
        raise InvalidInput(
            "hides_args", "whoever runs a job is given its arguments; give another role, or leave hides_args out"
        )
    at = checked_run_at(expires, "expires") if isinstance(expires, datetime) else None
    seconds = None if expires is None or at is not None else checked_seconds("expires", expires)
    return NewToken(
        b"",
        str(name),
        Role(role),
        _checked_queues(queues),
        None if tenant is None else str(tenant),
        bool(hides_args),
        storable_text(current_actor().name),
        at,
        seconds,
    )


def create_token(databases: Databases, new: NewToken) -> str:
    """Make a token; its secret, which nobody can be told again."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    entry = new._replace(digest=digest_of(secret))
    databases.change(lambda connection: access_tokens.create(connection, entry))
    # It is good from here on, for whoever can ask the shard that leads; upkeep tells a shard that is away just now.
    with suppress(PartitionUnavailable):
        level_tokens(databases)
    return secret


def tokens(databases: Databases) -> list[Token]:
    """Every token there ever was, the newest first; those that expired or were revoked among them."""
    known = put_together(ask_everywhere(databases, access_tokens.read))
    return sorted((stored.token for stored in known.values()), key=lambda token: token.created_at, reverse=True)


def revoke_token(databases: Databases, name: str) -> None:
    """Let nobody in any more by a token; one that is revoked stays so."""
    checked_name("name", name)
    answers = databases.each(lambda connection: access_tokens.revoke(connection, name))
    if not any(answers) and not answers.missing:
        raise NotFound(f"there is no token {name!r}: see app.tokens() or `penstock token list`")
    refuse_missing(answers, f"revoked token {name!r}")


def _checked_queues(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput("queues", f"a list of names is needed, not {shown(value)}; write queues=['emails']")
    names = tuple(dict.fromkeys(checked_name("queues", each) for each in value))
    if not 1 <= len(names) <= MOST_QUEUES:
        raise InvalidInput("queues", f"{len(names)} are named; give 1 to {MOST_QUEUES}, or leave it out for all")
    return names
