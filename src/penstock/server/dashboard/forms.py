"""Forms that were sent: read, bounded, and taken only from a page of this server.

Another site's page can make a browser send a form here, with its cookies. It cannot make it say that the form comes
from here (`Origin`), and cannot read the random word that a page of ours puts into its forms and into a cookie. Both
are asked for.
"""

from __future__ import annotations

from hmac import compare_digest
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import Receive

from penstock.errors import InvalidInput
from penstock.server.body import read_body
from penstock.server.dashboard.session import CSRF_COOKIE, cookies_of
from penstock.server.dashboard.view import Given
from penstock.server.problem import ProblemError

__all__ = ["CSRF_FIELD", "check_origin", "page_before", "read_form"]

CSRF_FIELD = "csrf"
FORM = "application/x-www-form-urlencoded"
# A job's arguments may have 256 KiB, and percent-encoding makes three bytes of one.
MOST_BYTES = 1024 * 1024
MOST_FIELDS = 5_000


async def read_form(receive: Receive, headers: Headers, csrf: str) -> Given:
    """The fields of a form that a page of this server sent."""
    check_origin(headers)
    if headers.get("content-type", "").split(";")[0].strip().lower() != FORM:
        raise ProblemError("unsupported-media-type", f"a form is sent as {FORM}")
    raw = await read_body(receive, headers, MOST_BYTES)
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except (ValueError, UnicodeDecodeError):
        raise InvalidInput("form", "it is not a form of UTF-8 text; send it from the page") from None
    given = Given([(name, value.replace("\r\n", "\n")) for name, value in pairs])
    if not csrf or not compare_digest((given.text(CSRF_FIELD) or "").encode(), csrf.encode()):
        raise ProblemError(
            "forbidden",
            "the form is not of a page that was opened here; open the page again and send it once more"
            if CSRF_COOKIE in cookies_of(headers)
            else "the browser sent no cookie of this server: it keeps them by HTTPS only, unless the server is on the "
            "same machine; open the page by https://, or allow cookies",
        )
    return given


def check_origin(headers: Headers) -> None:
    """Refuse what a page of another origin sent. The scheme is left out: a proxy may have ended TLS."""
    host = headers.get("host", "").lower()
    if not host or headers.get("origin", "").lower().partition("://")[2] != host:
        raise ProblemError("forbidden", "the form comes from another page than one of this server; send it from here")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise ProblemError("forbidden", "the form comes from another site; send it from here")


def page_before(headers: Headers, root: str) -> str | None:
    """The path and query of the page from which a form was sent, where that is one below `root`."""
    host, _, path = headers.get("referer", "").partition("://")[2].partition("/")
    if not host or host.lower() != headers.get("host", "").lower():
        return None
    # Of several slashes a browser would make another host.
    here = "/" + path.lstrip("/\\")
    return here if f"{here}/".startswith(f"{root}/") else None
