"""Access tokens, for administrators: who has which, to make one and to revoke one.

The secret is told to whoever makes a token, once, in the page that answers: so it stands in no address and no cookie.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput
from penstock.server.dashboard.confirmation import ask
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.missing import missing
from penstock.server.dashboard.view import View
from penstock.server.problem import problem_of

__all__ = ["tokens"]

tokens = Pages()
ROLES = (
    ("read", "looks at queues, jobs and figures"),
    ("produce", "enqueues and loads"),
    ("work", "is a worker"),
    ("admin", "does everything"),
)
# How long a token is good, in days, and how that is chosen.
TERMS = (
    ("1", "a day"),
    ("7", "a week"),
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "a year"),
    ("", "until it is revoked"),
)
USUAL_TERM = "90"
DAY_SECONDS = 86_400


@tokens.show("/tokens")
def show_tokens(view: View) -> Shown:
    """All of them, without their secrets, and a form for a new one."""
    return _show(view, {})


@tokens.act("/tokens")
def create_token(view: View) -> Shown:
    """Make one, and show its secret this once."""
    form = view.form
    queues = [name for line in (form.text("queues") or "").split("\n") if (name := line.strip())]
    try:
        days = form.number("days")
        body: dict[str, Any] = {
            "name": form.required("name"),
            "role": form.required("role"),
            "queues": queues or None,
            "tenant": form.text("tenant"),
            "expires": None if days is None else days * DAY_SECONDS,
            "hides_args": form.flag("hides_args"),
        }
        made = view.api.send("POST", "tokens", body={name: value for name, value in body.items() if value is not None})
    except InvalidInput as error:
        return _show(view, {"problem": problem_of(error)}, status=422)
    return Shown("token_made.html", f"Token {made.name}", {"made": made, "role": body["role"]}, is_live=False)


@tokens.show("/tokens/{token}/revoke")
def ask_to_revoke(view: View, token: str) -> Shown:
    """What revoking it means."""
    known = view.api.get("tokens")
    found: Any = next((each for each in known.tokens if each.name == token), None)
    if found is None:
        raise missing(f"token {token[:80]!r}", "the page of tokens has those there are", known.unavailable)
    sentences = [
        f"Its role is {found.role}. Within a second nobody comes in by it any more, at any server; what its bearer has "
        "open ends.",
        "This cannot be undone: make another token, and bring it to its program first.",
    ]
    if view.caller.bearer == token:
        sentences.append("It is the one that you are signed in by.")
    return ask(f"Revoke token {token}?", sentences, "Revoke it", view.url("tokens"))


@tokens.act("/tokens/{token}/revoke")
def revoke_token(view: View, token: str) -> Done:
    """Let nobody in by it any more."""
    view.api.send("DELETE", "tokens", token)
    return Done(view.url("tokens"), f"{token} is revoked.")


def _show(view: View, more: dict[str, Any], status: int = 200) -> Shown:
    found = view.api.get("tokens")
    values = {
        "tokens": found.tokens,
        "unavailable": found.unavailable,
        "roles": ROLES,
        "terms": TERMS,
        "usual_term": USUAL_TERM,
        "problem": None,
    }
    return Shown("tokens.html", "Tokens", values | more, status, is_live=False)
