"""The overview: what needs attention, then every queue in a line; on an empty system how to begin."""

from __future__ import annotations

from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["overview"]

overview = Pages()
MOST_QUEUES = 200
EXAMPLE = "example"


@overview.show("/")
def show_overview(view: View) -> Shown:
    """What needs attention comes first, then every queue."""
    if view.caller.tenant is not None:
        return Shown("tenant.html", "Overview", is_live=False)
    found = view.api.get("queues", limit=MOST_QUEUES, after=view.query.text("after"))
    return Shown("overview.html", "Overview", {"queues": found.queues, "next": found.next, "example": EXAMPLE})


@overview.act("/example")
def enqueue_example(view: View) -> Done:
    """Enqueue a job to look at, on a queue of its own."""
    view.api.send("PUT", "queues", EXAMPLE, body={})
    made = view.api.send(
        "POST", "queues", EXAMPLE, "jobs", body={"task": "hello", "args": {"to": "world"}, "tags": ["example"]}
    )
    return Done(
        view.url("jobs", made.ids[0]), "An example was enqueued; it waits for a worker that has the task hello."
    )
