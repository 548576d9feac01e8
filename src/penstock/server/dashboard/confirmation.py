"""A page before something that is not undone: what it means, with figures, and a button that does it.

The button sends a form to the page's own path.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.server.dashboard.entry import Shown

__all__ = ["ask"]


def ask(title: str, sentences: Sequence[str], label: str, back: str, *, asks_reason: bool = False) -> Shown:
    """The page: `label` is on the button, `back` leads away."""
    values = {"sentences": sentences, "label": label, "back": back, "asks_reason": asks_reason}
    return Shown("confirm.html", title, values, is_live=False)
