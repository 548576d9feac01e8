"""A queue is made by a form: its name, what it keeps for its life, and the limits that can be changed later."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput, NotFound
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.pages.queue_rules import LIVE_RULES, read_rules
from penstock.server.dashboard.view import Given, View

__all__ = ["new_queue"]

new_queue = Pages()
NUMBERS = ("partitions", "per_key")
CHOICES = ("order", "fair_by", "on_retry", "on_dead")


@new_queue.show("/new-queue")
def show_form(view: View) -> Shown:
    """The form, empty."""
    view.api.check_may("PUT", "queues", "new")
    return _form(view, None)


@new_queue.act("/new-queue")
def make_queue(view: View) -> Done | Shown:
    """Make it; where that is refused, the form comes again with what was typed."""
    try:
        name = view.form.required("name")
        _refuse_known(view, name)
        view.api.send("PUT", "queues", name, body=_rules(view.form))
    except InvalidInput as error:
        return _form(view, error)
    return Done(view.url("queues", name), f"{name} is made.")


def _form(view: View, error: InvalidInput | None) -> Shown:
    names = ("name", *NUMBERS, *CHOICES, *(rule.name for rule in LIVE_RULES))
    typed = {name: view.form.text(name) or "" for name in names}
    values = {"typed": typed, "live_rules": LIVE_RULES, "error": error}
    return Shown("new_queue.html", "Make a queue", values, 200 if error is None else 422, is_live=False)


def _rules(form: Given) -> dict[str, Any]:
    given: dict[str, Any] = {name: form.number(name) for name in NUMBERS}
    given |= {name: form.text(name) for name in CHOICES}
    given |= read_rules(form, {rule.name for rule in LIVE_RULES})
    return {name: value for name, value in given.items() if value is not None}


def _refuse_known(view: View, name: str) -> None:
    """The API would change a queue that there is."""
    try:
        view.api.get("queues", name, "stats")
    except NotFound:
        return
    raise InvalidInput("name", f"there is a queue {name!r} already; choose another name, or change its rules")
