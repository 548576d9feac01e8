"""Jobs: chosen by any filters together, page by page, with what may be done to those that are ticked, or to all."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput, NotFound
from penstock.model.job_state import State
from penstock.server.dashboard.entry import Pages, Shown
from penstock.server.dashboard.pages.chosen_jobs import ACTS, FILTERS, chosen_by, offered_acts
from penstock.server.dashboard.pages.held_queues import HeldQueues, read_held_queues
from penstock.server.dashboard.view import View

__all__ = ["jobs"]

jobs = Pages()
ON_A_PAGE = 50
# Of the pages before this one so many are kept in its URL, to go back to.
MOST_NEWER = 40
USUAL = ("queue", "state", "task", "key")


@jobs.show("/jobs")
def list_jobs(view: View) -> Shown:
    """A page of jobs, the newest first. What matches little is looked for for about a second, and then by a link."""
    chosen = chosen_by(view.query)
    before = view.query.text("before")
    values: dict[str, Any] = {
        "chosen": chosen,
        "names": FILTERS,
        "usual": USUAL,
        "states": list(State),
        "queues": sorted(view.caller.queues or ()),
        "acts": offered_acts(view, chosen),
        "tick_acts": [act for act in ACTS.values() if act.fits(chosen) and view.may("POST", "jobs", "0", act.name)],
        "page": None,
        "held": HeldQueues(),
        "problem": None,
        "must_choose": len(view.caller.queues or ()) > 1 and "queue" not in chosen,
        "newer": _newer(view) if before else None,
        "older": None,
    }
    if values["must_choose"]:
        return Shown("jobs.html", "Jobs", values | {"acts": [], "tick_acts": []}, is_live=False)
    try:
        page = view.api.get("jobs", **chosen, before=before, limit=ON_A_PAGE)
    except (InvalidInput, NotFound) as error:
        values["problem"] = error
        return Shown("jobs.html", "Jobs", values, 422, is_live=False)
    values |= {"page": page, "is_cut": page.next is not None and len(page.jobs) < ON_A_PAGE}
    if any(job.state is State.READY for job in page.jobs):
        values["held"] = read_held_queues(view)
    if page.next is not None:
        values["older"] = view.here(before=page.next, newer=_with(view, before))
    # A search that took its second is not made again and again.
    return Shown("jobs.html", "Jobs", values, is_live=not values["is_cut"])


def _with(view: View, before: str | None) -> str | None:
    """The pages before the next one, as its URL has them."""
    if before is None:
        return None
    kept = [*(view.query.text("newer") or "").split(","), before]
    return ",".join([each for each in kept if each][-MOST_NEWER:])


def _newer(view: View) -> str:
    """The page before this one."""
    kept = [each for each in (view.query.text("newer") or "").split(",") if each]
    return view.here(before=kept[-1] if kept else None, newer=",".join(kept[:-1]) or None)
