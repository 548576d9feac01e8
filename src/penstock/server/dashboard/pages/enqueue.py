"""A job is enqueued by a form: a task of that name, its arguments as JSON, its key, when, and how urgent."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput
from penstock.server.dashboard.arguments import read_arguments
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import Given, View

__all__ = ["enqueue"]

enqueue = Pages()
FIELDS = ("task", "args", "key", "delay", "priority", "tenant")
# So many of the newest jobs are looked at for the names of tasks.
MOST_LOOKED_AT = 50


@enqueue.show("/queues/{queue}/enqueue")
def show_form(view: View, queue: str) -> Shown:
    """The form, with what the address says of it."""
    view.api.check_may("POST", "queues", queue, "jobs")
    return _form(view, queue, view.query, None)


@enqueue.act("/queues/{queue}/enqueue")
def enqueue_job(view: View, queue: str) -> Done | Shown:
    """Enqueue it; where that is refused, the form comes again with what was typed."""
    try:
        made = view.api.send("POST", "queues", queue, "jobs", body=_job(view.form))
    except InvalidInput as error:
        return _form(view, queue, view.form, error)
    return Done(view.url("jobs", made.ids[0]), f"Job {made.ids[0]} was enqueued on {queue}.")


def _form(view: View, queue: str, given: Given, error: InvalidInput | None) -> Shown:
    stats = view.api.get("queues", queue, "stats")
    newest = view.api.get_if_allowed("jobs", queue=queue, limit=MOST_LOOKED_AT)
    return Shown(
        "enqueue.html",
        f"Enqueue a job on {stats.queue}",
        {
            "stats": stats,
            "tasks": [] if newest is None else sorted({job.task for job in newest.jobs}),
            "typed": {name: given.text(name) or "" for name in FIELDS},
            "error": error,
        },
        200 if error is None else 422,
        is_live=False,
    )


def _job(form: Given) -> dict[str, Any]:
    job: dict[str, Any] = {"task": form.required("task"), "args": read_arguments(form.text("args") or "{}")}
    for name in ("key", "tenant"):
        if form.text(name) is not None:
            job[name] = form.text(name)
    if form.text("priority") is not None:
        job["priority"] = form.number("priority")
    if form.text("delay") is not None:
        job["delay"] = form.seconds("delay")
    return job
