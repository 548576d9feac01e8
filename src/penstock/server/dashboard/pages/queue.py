"""A queue: how it stands, what happened in it, its partitions; to pause it and to let it go on."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.pages.overview import BAD
from penstock.server.dashboard.pictures.over_time import (
    ENDS,
    SPANS,
    cause_class,
    draw_depth,
    draw_failures,
    draw_flow,
    draw_times,
    moments_of,
)
from penstock.server.dashboard.view import View

__all__ = ["queue"]

queue = Pages()
# So many partitions are told here; all of them on a page of their own.
MOST_PARTITIONS = 12


@queue.show("/queues/{queue}")
def show_queue(view: View, queue: str) -> Shown:
    """Its figures now, and over an hour, six or a day."""
    span = view.query.number("minutes") or min(SPANS)
    if span not in SPANS:
        raise InvalidInput("minutes", f"{span} is not offered here; give {', '.join(map(str, SPANS))}")
    stats = view.api.get("queues", queue, "stats")
    history = view.api.get("queues", queue, "history", minutes=span)
    failures = view.api.get("queues", queue, "failures", minutes=span)
    moments = moments_of(history.minutes, span, view.now)
    charts = [
        ("In and out", "a minute", draw_flow(moments)),
        ("Waiting", "jobs that are ready", draw_depth(moments, "waiting", "curve-wait")),
        ("Running", "jobs", draw_depth(moments, "running", "curve-run")),
        ("How long jobs waited", "half, 95 and 99 of 100", draw_times(moments, "wait_seconds", "How long jobs waited")),
        ("How long jobs ran", "half, 95 and 99 of 100", draw_times(moments, "run_seconds", "How long jobs ran")),
    ]
    return Shown(
        "queue.html",
        stats.queue,
        {
            "stats": stats,
            "span": span,
            "spans": SPANS,
            "charts": charts,
            "failures": failures,
            "failures_chart": draw_failures(failures),
            "cause_class": cause_class,
            "minute": _last_minute(history.minutes),
            "attention": _attention(view, stats.queue),
            "is_bad": BAD.__contains__,
            "shown": list(enumerate(stats.partitions))[:MOST_PARTITIONS],
        },
        # A day is much to read and changes slowly.
        is_live=span < max(SPANS),
    )


@queue.act("/queues/{queue}/pause")
def pause(view: View, queue: str) -> Done:
    """Give out none of its jobs."""
    view.api.send("POST", "queues", queue, "pause")
    return Done(view.url("queues", queue), f"{queue} is paused: what runs goes on, nothing else starts.")


@queue.act("/queues/{queue}/resume")
def resume(view: View, queue: str) -> Done:
    """Give them out again."""
    view.api.send("POST", "queues", queue, "resume")
    return Done(view.url("queues", queue), f"{queue} goes on.")


def _last_minute(minutes: list[Any]) -> dict[str, int] | None:
    """What came in and went out a minute when that was noted last."""
    if not minutes or not minutes[-1].seconds:
        return None
    last = minutes[-1]
    went = sum(getattr(last, name) or 0 for name in ENDS)
    return {"in": round((last.enqueued or 0) * 60 / last.seconds), "out": round(went * 60 / last.seconds)}


def _attention(view: View, queue: str) -> list[Any]:
    return [each for each in view.api.get("attention").attention if each.queue == queue]
