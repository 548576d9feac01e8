"""The history: the page that Spark made of it, in a frame in which nothing runs."""

from __future__ import annotations

from penstock.errors import NotFound
from penstock.server.dashboard.entry import Framed, Pages, Shown
from penstock.server.dashboard.view import View
from penstock.server.problem import ProblemError

__all__ = ["history"]

history = Pages()


@history.show("/history")
def show_history(view: View) -> Shown:
    """The report, when it was made and how it is made anew; without one, how to have one."""
    _check_may(view)
    made_at = None if view.report is None else view.report.made_at
    return Shown("history.html", "History", {"report": view.report, "made_at": made_at}, is_live=False)


@history.show("/history/report")
def show_report(view: View) -> Framed:
    """The report itself."""
    _check_may(view)
    if view.report is None:
        raise NotFound("this server was not told of a report; start it with --report FILE")
    return Framed(view.report.read())


def _check_may(view: View) -> None:
    """It tells of every queue, of keys and of texts of errors."""
    if not view.caller.sees_all:
        raise ProblemError(
            "forbidden", "the report tells of all queues and of what stands in jobs: this token may not see it"
        )
