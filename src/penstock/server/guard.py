"""The guard: no request goes on before it is known who calls.

A token is asked for, but of whoever sits at this machine, until the first token is made: then the server is bound to
loopback, the request comes from there and names this machine as its host, no page of another origin sent it, and no
proxy passed it on. A web page that a person on this machine looks at can make the browser send requests; it cannot make
it leave `Origin` or `Sec-Fetch-Site` out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import Scope

from penstock.admin.token_book import TokenBook
from penstock.app import App
from penstock.model.token import Role
from penstock.server.caller import Caller
from penstock.server.problem import ProblemError

__all__ = ["Guard"]

# Read strictly: what a lenient reader would make a local name of, such as evil.example@localhost, is none.
LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
# Of which a request has one at most: of two, each reader may believe another.
SINGLE = ("host", "origin", "sec-fetch-site")
LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
OF_PROXIES = ("forwarded", "via", "x-real-ip")
BEARER = "bearer "


class Guard:
    """`is_local`: the server is bound to loopback, and may go without tokens until there is one; `machine_token` is
    that of `penstock.server.machine_token`.
    """

    def __init__(self, app: App, *, is_local: bool, machine_token: str | None = None) -> None:
        self._app = app
        self._book: TokenBook | None = None
        self._is_local = is_local
        self._machine_token = None if machine_token is None else machine_token.encode()

    @property
    def is_fresh(self) -> bool:
        """Whether `admit` does not wait for a database."""
        return self._book is not None and self._book.is_fresh

    def reread(self) -> None:
        """Go by a token that was made or revoked here from the next request on; other servers do within a second."""
        self._tokens.reread()

    @property
    def _tokens(self) -> TokenBook:
        if self._book is None:
            self._book = TokenBook(self._app.databases)
        return self._book

    def admit(self, scope: Scope, headers: Headers) -> Caller:
        """Who calls; it may ask the database. Refused where nobody knows."""
        address = scope["client"][0] if scope.get("client") else None
        given = headers.get("authorization")
        if given is None:
            return self.admit_without_token(headers, address)
        if given[: len(BEARER)].lower() != BEARER:
            raise _unauthorized("write Authorization: Bearer TOKEN")
        return self.bearer_of(given[len(BEARER) :].strip(), address)

    def admit_without_token(self, headers: Headers, address: str | None) -> Caller:
        """Whoever sits at this machine, as long as there is no token."""
        if not self._is_local:
            raise _unauthorized("send Authorization: Bearer TOKEN; `penstock token create` makes one")
        for refusal in _REFUSALS:
            if (said := refusal(headers, address)) is not None:
                raise ProblemError("forbidden", said)
        if self._tokens.has_any:
            raise _unauthorized("there are tokens by now, so each call needs one: send Authorization: Bearer TOKEN")
        return Caller(bearer=None, role=Role.ADMIN, address=address)

    def bearer_of(self, secret: str, address: str | None) -> Caller:
        """Who bears that token."""
        if self._machine_token is not None and compare_digest(secret.encode(), self._machine_token):
            return Caller(bearer="of this machine", role=Role.ADMIN, address=address)
        token = self._tokens.find(secret)
        if token is None:
            # The same for one that is unknown, expired or revoked.
            raise _unauthorized("the token is unknown, expired or revoked; `penstock token list` shows those there are")
        return Caller(
            bearer=token.name,
            role=token.role,
            queues=None if token.queues is None else frozenset(token.queues),
            tenant=token.tenant,
            hides_args=token.hides_args,
            address=address,
        )


def _unauthorized(detail: str) -> ProblemError:
    return ProblemError("unauthorized", detail)


def _from_elsewhere(_: Headers, address: str | None) -> str | None:
    return None if address in LOOPBACK else "without a token this server answers to this machine only"


def _by_another_name(headers: Headers, _: str | None) -> str | None:
    is_local = LOCAL_HOST.fullmatch(headers.get("host", "")) is not None
    return None if is_local else "without a token the Host must be localhost, 127.0.0.1 or [::1]"


def _given_twice(headers: Headers, _: str | None) -> str | None:
    found = next((name for name in SINGLE if len(headers.getlist(name)) > 1), None)
    return None if found is None else f"without a token a request has one {found} at most"


def _by_a_proxy(headers: Headers, _: str | None) -> str | None:
    found = next((name for name in headers if name in OF_PROXIES or name.startswith("x-forwarded-")), None)
    return None if found is None else f"without a token no proxy may pass requests on, and {found} says that one did"


def _from_a_page(headers: Headers, _: str | None) -> str | None:
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and origin != f"http://{host}":
        return "without a token no page of another origin may send requests"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "without a token no page of another site may send requests"
    return None


_REFUSALS: tuple[Callable[[Headers, str | None], str | None], ...] = (
    _from_elsewhere,
    _given_twice,
    _by_another_name,
    _by_a_proxy,
    _from_a_page,
)
