"""Access tokens over HTTP: to make, list and revoke them. Only who may do everything, of all queues, may do that."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from penstock.model import Role, Token
from penstock.server.call import Call
from penstock.server.operation import Operations
from penstock.server.problem import ProblemError
from penstock.server.values import Instant

__all__ = ["tokens"]

tokens = Operations()


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be: who bears it, what it lets its bearer do, of which queues, or of which tenant's jobs.

    It `expires` after so many seconds, or at a time. With `hides_args` its bearer sees no arguments or results of jobs.
    """

    name: str
    role: Role
    queues: list[str] | None = None
    tenant: str | None = None
    expires: float | Instant | None = None
    hides_args: bool = False


class NewToken(Struct, frozen=True, kw_only=True):
    """A token that was made. `token` is its secret, which nobody can be told again."""

    name: str
    role: Role
    token: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """Every token there ever was, the newest first, without secrets."""

    tokens: list[Token]
    unavailable: list[str]


@tokens.add("GET", "/tokens", may="admin")
def list_tokens(call: Call) -> Tokens:
    """Every token there ever was, the newest first; also those that expired or were revoked."""
    return Tokens(call.app.tokens(), call.unavailable())


@tokens.add("POST", "/tokens", may="admin", status=201)
def create_token(call: Call, body: TokenRequest) -> NewToken:
    """Make a token. Its secret is told in this answer only.

    Until the first is made, none is needed from the server's own machine; from then on each call needs one.
    """
    if call.caller.hides_args and not body.hides_args:
        raise ProblemError("forbidden", "a token that hides arguments makes such tokens only: give hides_args")
    secret = call.app.create_token(
        body.name,
        role=body.role.value,
        queues=body.queues,
        tenant=body.tenant,
        expires=body.expires,
        hides_args=body.hides_args,
    )
    call.services.guard.reread()
    return NewToken(name=body.name, role=body.role, token=secret)


@tokens.add("DELETE", "/tokens/{name}", may="admin", status=204)
def revoke_token(call: Call, name: str) -> None:
    """Let nobody in any more by a token, within a second; one that is revoked stays so."""
    call.app.revoke_token(name)
    call.services.guard.reread()
