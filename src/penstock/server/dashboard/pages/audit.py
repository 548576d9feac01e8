"""The audit: who did what, newest first, and what came of it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from penstock.errors import InvalidInput
from penstock.server.dashboard.entry import Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["audit"]

audit = Pages()
MOST_ENTRIES = 50
# What somebody may say for how far back, and how it is chosen in the form.
SPANS = (
    ("", "ever"),
    ("1h", "the last hour"),
    ("1d", "the last day"),
    ("7d", "the last week"),
    ("30d", "the last month"),
)
_SPAN = re.compile(r"([0-9]{1,4})([hd])", re.ASCII)


@audit.show("/audit")
def show_audit(view: View) -> Shown:
    """A page of entries, by whatever filters there are."""
    given = view.query
    found = view.api.get(
        "audit",
        actor=given.text("actor"),
        act=given.text("act"),
        target=given.text("target"),
        since=_since(given.text("since"), view.now),
        before=given.text("before"),
        limit=MOST_ENTRIES,
    )
    further = found.entries[-1].id if len(found.entries) == MOST_ENTRIES else None
    values = {"entries": found.entries, "unavailable": found.unavailable, "further": further, "spans": SPANS}
    return Shown("audit.html", "Audit", values)


def _since(given: str | None, now: datetime) -> str | None:
    """So long ago, as an instant; anything else is the API's to read."""
    if given is None or (span := _SPAN.fullmatch(given)) is None:
        return given
    try:
        return (now - timedelta(hours=int(span[1]) * (24 if span[2] == "d" else 1))).isoformat()
    except OverflowError:
        raise InvalidInput("since", f"{given} ago is too early; give 30d, or a time") from None
