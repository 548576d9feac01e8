"""The overview: what needs attention, then every queue in a line; on an empty system how to begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from penstock.drawing.charts import sparkline
from penstock.drawing.formatting import count
from penstock.server.dashboard.drawn import drawn
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["overview"]

overview = Pages()
MOST_QUEUES = 200
MOST_NOTICES = 12
MINUTES = 30
EXAMPLE = "example"
BAD = frozenset(
    {"shard-down", "shard-read-only", "no-worker", "unserved-task", "failing-duty", "halted-keys", "stuck-jobs"}
)


@dataclass(frozen=True, slots=True)
class Line:
    """A queue, and what came and went in the last minutes."""

    stats: Any
    came: int
    went: int
    # Of the last hour, as the list of what needs attention has it.
    new_dead: int
    picture: Markup


@overview.show("/")
def show_overview(view: View) -> Shown:
    """What needs attention comes first, then every queue."""
    if view.caller.tenant is not None:
        return Shown("tenant.html", "Overview", is_live=False)
    after = view.query.text("after")
    found = view.api.get("queues", limit=MOST_QUEUES, after=after)
    # By name only where not all are shown: a list of them would make a long question.
    names = [stats.queue for stats in found.queues] if after or found.next else None
    noted = {each.queue: each.minutes for each in view.api.get("history", minutes=MINUTES, queue=names).histories}
    told = view.api.get("attention")
    new_dead = {each.queue: each.count for each in told.attention if each.kind == "dead-letters"}
    return Shown(
        "overview.html",
        "Overview",
        {
            "lines": [_line(stats, noted.get(stats.queue, ()), new_dead.get(stats.queue, 0)) for stats in found.queues],
            "next": found.next,
            "attention": told.attention,
            "shown": MOST_NOTICES,
            "is_bad": BAD.__contains__,
            "unavailable": told.unavailable,
            "minutes": MINUTES,
            "example": EXAMPLE,
        },
    )


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


def _line(stats: Any, minutes: Sequence[Any], new_dead: int) -> Line:
    came = [minute.enqueued or 0 for minute in minutes]
    went = [_ended(minute) for minute in minutes]
    says = f"{count(sum(came))} came and {count(sum(went))} went in the last {MINUTES} minutes"
    # As rates: what was noted is seldom a whole minute, and the latest may be a part of one.
    rates = [
        [each * 60 / (minute.seconds or 60) for each, minute in zip(counts, minutes, strict=True)]
        for counts in (came, went)
    ]
    picture = sparkline(list(zip(("in", "out"), rates, strict=True)), says) if sum(came) + sum(went) else ""
    return Line(stats, sum(came), sum(went), new_dead, drawn(picture))


def _ended(minute: Any) -> int:
    counts = (minute.completed, minute.failed, minute.cancelled, minute.discarded, minute.expired)
    return sum(each or 0 for each in counts)
