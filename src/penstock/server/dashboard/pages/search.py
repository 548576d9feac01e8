"""Search over everything: what was typed is looked for among jobs and names; where it is one of them, that is shown."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput
from penstock.server.dashboard.entry import Elsewhere, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["search"]

search = Pages()
MOST_HITS = 50
# What a hit of each kind is called.
KINDS = {
    "job": "Job",
    "key": "Key",
    "idempotency-key": "Idempotency key",
    "queue": "Queue",
    "task": "Task",
    "cron": "Schedule",
    "load": "Load",
    "worker": "Worker",
    "tag": "Tag",
}


@search.show("/search")
def find(view: View) -> Shown | Elsewhere:
    """What was found, exact hits first. The id of a job, and the name of a queue, lead there at once."""
    text = (view.query.text("q") or "").strip()
    values: dict[str, Any] = {"text": text, "hits": [], "unavailable": [], "problem": None, "kinds": KINDS}
    if not text:
        return Shown("search.html", "Search", values, is_live=False)
    try:
        found = view.api.get("search", q=text, limit=MOST_HITS)
    except InvalidInput as error:
        return Shown("search.html", "Search", values | {"problem": error}, 422, is_live=False)
    exact = [hit for hit in found.hits if text in (hit.id if hit.kind == "job" else hit.name, hit.name)]
    if len(exact) == 1 and exact[0].kind in ("job", "queue"):
        return Elsewhere(_url(view, exact[0]))
    values |= {"hits": [(hit, _url(view, hit)) for hit in found.hits], "unavailable": found.unavailable}
    return Shown("search.html", "Search", values, is_live=False)


def _url(view: View, hit: Any) -> str:
    """The page of what was found, or the jobs that have it."""
    if hit.kind == "tag":
        return view.url("jobs", tag=hit.name)
    if hit.kind in ("key", "task"):
        return view.url("jobs", queue=hit.queue, **{hit.kind: hit.name})
    if hit.kind == "cron":
        return view.url("schedules")
    name = hit.name if hit.kind in ("queue", "load") else hit.id
    place = {"queue": "queues", "load": "loads", "worker": "workers"}.get(hit.kind, "jobs")
    return view.url(place, name)
