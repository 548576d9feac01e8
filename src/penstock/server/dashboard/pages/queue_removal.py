"""To purge a queue, or to delete it: what would be ended is counted first, and done by a second button."""

from __future__ import annotations

from penstock.errors import InvalidInput
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["queue_removal"]

queue_removal = Pages()
WAITING, DEAD = "waiting", "failed"
# By what can be purged: how it is said, and its figures.
PURGES = {
    WAITING: ("All that wait", ("queue_length", "scheduled", "blocked")),
    "ready": ("Ready jobs", ("queue_length",)),
    "scheduled": ("Scheduled jobs", ("scheduled",)),
    "blocked": ("Jobs that wait for other jobs", ("blocked",)),
    DEAD: ("Dead letters", ("dead",)),
}


@queue_removal.show("/queues/{queue}/purge")
def ask_purge(view: View, queue: str) -> Shown:
    """What can be purged; or, of one of these, how many jobs are meant, with the button."""
    view.api.check_may("POST", "queues", queue, "purge")
    stats = view.api.get("queues", queue, "stats")
    state = view.query.text("state")
    found = None if state is None else _purge(view, queue, state, is_preview=True)
    choices = [
        (name, title, sum(getattr(stats, figure) for figure in figures)) for name, (title, figures) in PURGES.items()
    ]
    titles = {name: title for name, (title, _) in PURGES.items()}
    values = {"stats": stats, "state": state, "found": found, "choices": choices, "dead": DEAD, "titles": titles}
    return Shown("queue_purge.html", f"Purge {stats.queue}", values, is_live=False)


@queue_removal.act("/queues/{queue}/purge")
def purge(view: View, queue: str) -> Done:
    """Purge what was counted, and what has come since."""
    state = view.form.required("state")
    jobs = _purge(view, queue, state, is_preview=False)
    many = f"{jobs:,} {'dead letter' if state == DEAD else 'job'}{'' if jobs == 1 else 's'}"
    was = "was" if jobs == 1 else "were"
    return Done(view.url("queues", queue), f"{many} of {queue} {was} {'cleared' if state == DEAD else 'cancelled'}.")


@queue_removal.show("/queues/{queue}/delete")
def ask_delete(view: View, queue: str) -> Shown:
    """What is in it, and the button."""
    view.api.check_may("DELETE", "queues", queue)
    stats = view.api.get("queues", queue, "stats")
    crons = view.api.get_if_allowed("crons")
    held = [
        ("ready", stats.queue_length),
        ("running", stats.active_count),
        ("scheduled", stats.scheduled),
        ("blocked", stats.blocked),
        ("dead letters", stats.dead),
    ]
    held = [(name, count) for name, count in held if count]
    named = [] if crons is None else [each.name for each in crons.crons if each.queue == stats.queue]
    return Shown(
        "queue_delete.html",
        f"Delete {stats.queue}",
        {"stats": stats, "held": held, "crons": named, "is_used": bool(held or named or stats.unavailable)},
        is_live=False,
    )


@queue_removal.act("/queues/{queue}/delete")
def delete(view: View, queue: str) -> Done:
    """Delete it; with what is in it, if that was ticked."""
    done = view.api.send("DELETE", "queues", queue, force=view.form.flag("force"))
    ended = f" {done.jobs:,} of its jobs ended by that, or were asked to stop." if done.jobs else ""
    return Done(view.url(""), f"{queue} is deleted.{ended}")


def _purge(view: View, queue: str, state: str, *, is_preview: bool) -> int:
    if state not in PURGES:
        raise InvalidInput("state", f"{state[:40]!r} cannot be purged; choose {', '.join(PURGES)}")
    body = {"preview": is_preview} | ({} if state == WAITING else {"state": state})
    reason = view.form.text("reason")
    if reason is not None and state != DEAD:
        body["reason"] = reason
    jobs: int = view.api.send("POST", "queues", queue, "purge", body=body).jobs
    return jobs
