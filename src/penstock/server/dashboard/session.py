"""Who looks: a token that was signed in with, a user whom a trusted proxy names, or whoever sits at this machine.

The token is kept by the browser alone, in a cookie that no script can read, that goes to this server only, and that is
good for half a day. So several servers need nothing between them, a token that is revoked is signed out within a
second, and what the cookie may do is what the token may do.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import secrets
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from penstock.clock import system
from penstock.errors import InvalidInput
from penstock.model.token import Role
from penstock.server.caller import Caller
from penstock.server.guard import Guard
from penstock.server.problem import ProblemError

__all__ = [
    "CSRF_COOKIE",
    "LOOKING_ROLES",
    "Session",
    "TrustedProxy",
    "cookies_of",
    "csrf_of",
    "keep_csrf",
    "keep_said",
    "said_by",
]

TOKEN_COOKIE = "penstock_token"  # noqa: S105  (a cookie's name)
CSRF_COOKIE = "penstock_csrf"
SAID_COOKIE = "penstock_said"
MOST_SAID = 1_000
# As base64 it fits into a cookie, of which browsers keep 4096 bytes.
MOST_SAID_BYTES = 2_900
SIGNED_IN_SECONDS = 12 * 3_600
_CSRF = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_USER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
# What HTTP calls a token.
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
LOOKING_ROLES = (Role.READ, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class TrustedProxy:
    """A proxy that signs its users in: from which address it comes, which header names the user, what they may."""

    address: str
    role: Role
    header: str = "X-Forwarded-User"

    def __post_init__(self) -> None:
        if _address(self.address) is None:
            raise InvalidInput(
                "trusted_proxy", f"{self.address[:80]!r} is no IP address; give the one that the proxy calls from"
            )
        if self.role not in LOOKING_ROLES:
            raise InvalidInput("proxy_role", f"{str(self.role)[:80]!r} is no role for people; give read or admin")
        if _HEADER.fullmatch(self.header) is None:
            raise InvalidInput(
                "proxy_user_header", f"{self.header[:80]!r} is no name of a header; give one such as X-Forwarded-User"
            )

    def caller(self, scope: Scope, headers: Headers) -> Caller | None:
        """Whom it names; None for what does not come from it."""
        address = scope["client"][0] if scope.get("client") else None
        named = headers.getlist(self.header)
        if address is None or _address(address) != _address(self.address) or not named:
            return None
        if len(named) > 1 or _USER.fullmatch(named[0]) is None:
            # Of two, one may be what somebody sent through the proxy.
            raise ProblemError("forbidden", f"{self.header} names no user: the proxy has to set it, once, and no other")
        return Caller(bearer=None, user=named[0], role=self.role, address=address)


class Session:
    """Finds out who looks, by cookie, proxy or machine."""

    def __init__(self, guard: Guard, proxy: TrustedProxy | None) -> None:
        self._guard = guard
        self._proxy = proxy

    @property
    def is_fresh(self) -> bool:
        """Whether `admit` does not wait for a database."""
        return self._guard.is_fresh

    def admit(self, scope: Scope, headers: Headers) -> Caller:
        """Who looks; refused as `unauthorized` where they have to sign in."""
        address = scope["client"][0] if scope.get("client") else None
        if self._proxy is not None and (caller := self._proxy.caller(scope, headers)) is not None:
            return caller
        kept = cookies_of(headers).get(TOKEN_COOKIE)
        if kept is None:
            return self._guard.admit_without_token(headers, address)
        until, _, secret = kept.partition(".")
        if not until.isdecimal() or len(until) > 12 or int(until) < system.now().timestamp():
            raise ProblemError("unauthorized", "you were signed in for half a day; sign in again")
        return self._guard.bearer_of(secret, address)

    def sign_in(self, secret: str, address: str | None) -> Caller:
        """Who bears that token; refused where it may not look at anything."""
        caller = self._guard.bearer_of(secret, address)
        if caller.role not in LOOKING_ROLES:
            raise ProblemError(
                "forbidden", f"a token with role {caller.role} may not look; sign in with one of role read or admin"
            )
        return caller

    @staticmethod
    def keep(response: Response, secret: str, scope: Scope, headers: Headers) -> None:
        """Put a token into the cookie."""
        until = int(system.now().timestamp()) + SIGNED_IN_SECONDS
        _set(response, TOKEN_COOKIE, f"{until}.{secret}", scope, headers, seconds=SIGNED_IN_SECONDS)

    @staticmethod
    def forget(response: Response, scope: Scope, headers: Headers) -> None:
        """Take the cookie away."""
        _set(response, TOKEN_COOKIE, "", scope, headers, seconds=0)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address, however it is written; one of IPv4 also where a socket for both says it as one of IPv6."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def cookies_of(headers: Headers) -> dict[str, str]:
    """The cookies that a browser sent. Other programs on the same host set some, too, with whatever in them: each is
    read by itself. Of two of a name the first counts, which is of the longer path.
    """
    found: dict[str, str] = {}
    for header in headers.getlist("cookie"):
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            found.setdefault(name, value.strip('"'))
    return found


def csrf_of(headers: Headers) -> tuple[str, bool]:
    """The random word of this browser's forms, and whether it is new."""
    kept = cookies_of(headers).get(CSRF_COOKIE, "")
    return (kept, False) if _CSRF.fullmatch(kept) else (secrets.token_urlsafe(32), True)


def keep_csrf(response: Response, csrf: str, scope: Scope, headers: Headers) -> None:
    """Give the browser its random word."""
    _set(response, CSRF_COOKIE, csrf, scope, headers)


def keep_said(response: Response, said: str, scope: Scope, headers: Headers, *, is_bad: bool = False) -> None:
    """Have the next page say what was done, or why it was not; nothing takes that away."""
    text = f"{'!' if is_bad else '.'}{said[:MOST_SAID]}".encode(errors="replace")[:MOST_SAID_BYTES]
    value = base64.urlsafe_b64encode(text.decode(errors="ignore").encode()).decode() if said else ""
    _set(response, SAID_COOKIE, value, scope, headers, seconds=60 if said else 0)


def said_by(headers: Headers) -> tuple[str, bool] | None:
    """What the act before has to say, and whether that is bad."""
    kept = cookies_of(headers).get(SAID_COOKIE)
    try:
        text = base64.urlsafe_b64decode(kept or "").decode()
    except ValueError:
        return None
    return (text[1:], text[0] == "!") if text else None


def _set(
    response: Response, name: str, value: str, scope: Scope, headers: Headers, *, seconds: int | None = None
) -> None:
    """A cookie that no script can read, and that goes to this server only, by TLS unless that is on this machine. It
    comes with links from other sites, too: those that lead here must work, and only a form changes anything.
    """
    host = headers.get("host", "").rsplit(":", 1)[0]
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=scope.get("root_path", "").rstrip("/") or "/",
        secure=host not in ("localhost", "127.0.0.1", "[::1]"),
        httponly=True,
        samesite="lax",
    )
