"""Schedules: what is enqueued by the calendar, and what is due when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from penstock.drawing.formatting import instant
from penstock.errors import InvalidInput, NotFound, PenstockError
from penstock.server.dashboard.arguments import read_arguments
from penstock.server.dashboard.confirmation import ask
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.missing import missing
from penstock.server.dashboard.view import View
from penstock.server.problem import problem_of

__all__ = ["schedules"]

schedules = Pages()
MOST_CRONS = 100
FIELDS = ("name", "expression", "timezone", "queue", "task", "args", "key", "key_is_base64")
# What is said of each span; it goes on where the one before it ends.
SPANS = {
    "minute": "within a minute",
    "ten-minutes": "within 10 minutes",
    "hour": "within an hour",
    "six-hours": "within 6 hours",
    "day": "within a day",
    "week": "within a week",
    "later": "later",
}


@schedules.show("/schedules")
def show_schedules(view: View) -> Shown:
    """The entries in order of name, and how many jobs are due when."""
    if view.query.flag("new"):
        view.api.check_may("PUT", "crons", "new")
        return _show_form(view, {"queue": view.query.text("queue") or "", "timezone": "UTC", "args": "{}"}, None)
    found = view.api.get("crons", limit=MOST_CRONS, after=view.query.text("after"))
    due = view.api.get_if_allowed("due")
    values = {
        "crons": found.crons,
        "next": found.next,
        "due": due,
        "names": SPANS,
        "most": max((span.jobs for span in due.spans), default=0) if due else 0,
        "unavailable": found.unavailable,
    }
    return Shown("schedules.html", "Schedules", values)


@schedules.act("/schedules")
def make_schedule(view: View) -> Shown | Done:
    """Make an entry; what does not do is shown again as it was written."""
    name = view.form.text("name")
    if name is not None and _find(view, name) is not None:
        taken = InvalidInput("name", "there is a schedule of this name; open that to change it")
        return _show_form(view, view.form.all(), taken)
    return _put(view, name)


@schedules.act("/schedules/{cron}")
def change_schedule(view: View, cron: str) -> Shown | Done:
    """Change one; it stays paused where it was."""
    return _put(view, cron)


@schedules.show("/schedules/{cron}")
def show_schedule(view: View, cron: str) -> Shown:
    """A form with an entry in it."""
    view.api.check_may("PUT", "crons", cron)
    found = _known(view, cron)
    is_text = found.key is None or isinstance(found.key, str)
    given = {
        "name": found.name,
        "expression": found.expression,
        "timezone": found.timezone,
        "queue": found.queue,
        "task": found.task,
        "args": json.dumps(found.args, indent=2, ensure_ascii=False),
        "key": (found.key or "") if is_text else found.key.base64,
        **({} if is_text else {"key_is_base64": "1"}),
    }
    return _show_form(view, given, None)


@schedules.act("/schedules/{cron}/pause")
def pause_schedule(view: View, cron: str) -> Done:
    """Fire it no more."""
    view.api.send("POST", "crons", cron, "pause")
    return Done(view.url("schedules"), f"{cron} is paused.")


@schedules.act("/schedules/{cron}/resume")
def resume_schedule(view: View, cron: str) -> Done:
    """Fire it again."""
    found = view.api.send("POST", "crons", cron, "resume")
    return Done(view.url("schedules"), f"{cron} goes on; it fires next at {instant(found.next_at)} UTC.")


@schedules.act("/schedules/{cron}/run")
def run_schedule(view: View, cron: str) -> Done:
    """Enqueue its job now."""
    made = view.api.send("POST", "crons", cron, "run")
    return Done(view.url("schedules"), f"{cron} was run out of turn: job {made.id} is enqueued.")


@schedules.show("/schedules/{cron}/remove")
def ask_to_remove(view: View, cron: str) -> Shown:
    """What removing it means."""
    view.api.check_may("DELETE", "crons", cron)
    found = _known(view, cron)
    sentences = [
        f"{found.name} ({found.expression}, {found.timezone}) enqueues {found.task} on {found.queue} no more. "
        "Jobs that it has enqueued stay.",
        "Where a program still declares it in its code, it comes back with that program's next start.",
    ]
    return ask(f"Remove schedule {found.name}?", sentences, "Remove it", view.url("schedules"))


@schedules.act("/schedules/{cron}/remove")
def remove_schedule(view: View, cron: str) -> Done:
    """Delete the entry."""
    view.api.send("DELETE", "crons", cron)
    return Done(view.url("schedules"), f"{cron} is removed.")


def _put(view: View, name: str | None) -> Shown | Done:
    form = view.form
    try:
        if name is None:
            raise InvalidInput("name", "it is missing; fill it in")
        body = {
            "expression": form.required("expression"),
            "queue": form.required("queue"),
            "task": form.required("task"),
            "args": _read_args(form.text("args")),
            "key": {"base64": form.text("key")} if form.flag("key_is_base64") else form.text("key"),
            "timezone": form.text("timezone") or "UTC",
        }
        made = view.api.send("PUT", "crons", name, body=body)
    except (InvalidInput, NotFound) as error:
        return _show_form(view, {**form.all(), **({} if name is None else {"name": name})}, error)
    return Done(view.url("schedules"), f"{name} is written down; it fires next at {instant(made.next_at)} UTC.")


def _show_form(view: View, given: Mapping[str, str], error: PenstockError | None) -> Shown:
    is_new = view.path == "/schedules"
    values = {
        "given": {field: given.get(field, "") for field in FIELDS},
        "problem": None if error is None else problem_of(error),
        "is_new": is_new,
        "zones": _zones(),
    }
    title = "New schedule" if is_new else f"Schedule {given['name']}"
    return Shown("schedule.html", title, values, 200 if error is None else 422, is_live=False)


@cache
def _zones() -> list[str]:
    return sorted(available_timezones())


def _read_args(given: str | None) -> Any:
    try:
        json.loads(given or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput("args", f'they are no JSON: {error}; write an object such as {{"to": "ada"}}') from None
    return read_arguments(given or "{}")


def _known(view: View, name: str) -> Any:
    found, away = _search(view, name)
    if found is None:
        raise missing(f"schedule {name[:80]!r}", "the page of schedules has those there are", away)
    return found


def _find(view: View, name: str) -> Any:
    return _search(view, name)[0]


def _search(view: View, name: str) -> tuple[Any, list[str]]:
    """The entry of that name, and the shards that did not answer."""
    after: str | None = None
    while True:
        page = view.api.get("crons", after=after)
        found = next((cron for cron in page.crons if cron.name == name), None)
        if found is not None or page.next is None:
            return found, page.unavailable
        after = page.next
