"""Many jobs are changed: those that were ticked, or all that match. First it is counted how many that would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import InvalidInput, NotFound, RequestTimeout
from penstock.model.job_state import State
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.pages.chosen_jobs import ACTS, FILTERS, Act, as_body, chosen_by
from penstock.server.dashboard.view import Given, View

__all__ = ["jobs_change"]

jobs_change = Pages()
MOST_TICKED = 200
# Among so many causes of a queue the one is looked for that was chosen.
MOST_CAUSES = 1_000


@jobs_change.show("/jobs/change")
def show_change(view: View) -> Shown:
    """What would be done, and to how many; nothing is done yet."""
    act, chosen, ids = _read(view.query)
    for id_ in ids:
        view.api.check_may("POST", "jobs", id_, act.name)
    each = [(id_, _find(view, id_)) for id_ in ids]
    count = sum(job is not None and act.takes_job(job) for _, job in each) if ids else _preview(view, act, chosen)
    values = {"act": act, "chosen": chosen, "names": FILTERS, "ids": ids, "each": each, "count": count}
    values["cause"] = None if ids else _find_cause(view, chosen)
    values |= {"many": _many(act, chosen, count), "back": _back(view, chosen, ids)}
    return Shown("jobs_change.html", f"{act.label} jobs", values, is_live=False)


@jobs_change.act("/jobs/change")
def change(view: View) -> Done:
    """Do it, to exactly what was counted: the form is sent to the address that the page had."""
    act, chosen, ids = _read(view.query)
    reason = {"reason": view.form.text("reason")} if act.has_reason else {}
    if ids:
        done = view.api.send("POST", "jobs", act.name, body={"ids": ids} | reason)
        rest = _told_of_rest([each.outcome for each in done.each])
    else:
        done = view.api.send("POST", *_operation(act, chosen), body=as_body(act, chosen) | reason)
        rest = ""
    said = act.did.format(f"{done.jobs:,} {'job was' if done.jobs == 1 else 'jobs were'}")
    return Done(_back(view, chosen, ids), said + rest)


def _told_of_rest(outcomes: Sequence[str]) -> str:
    """Of jobs that were ticked and to which nothing was done: some come into another state meanwhile."""
    away = outcomes.count("unavailable")
    stay = len(outcomes) - outcomes.count("done") - away
    said = f" {stay:,} {'stays' if stay == 1 else 'stay'} as {'it is' if stay == 1 else 'they are'}." if stay else ""
    return said + (f" Of {away:,} nobody knows: the shard does not answer." if away else "")


def _read(given: Given) -> tuple[Act, dict[str, str], list[str]]:
    act = ACTS.get(given.required("act"))
    ids = list(dict.fromkeys(given.texts("id")))
    if given.flag("ticked") and not ids:
        # Never all that match instead.
        raise InvalidInput("id", "no job was ticked; go back and tick those that are meant")
    if act is None:
        raise InvalidInput("act", f"there is none of that name; give {', '.join(ACTS)}")
    if len(ids) > MOST_TICKED:
        raise InvalidInput("id", f"{len(ids)} jobs are too many to tick; choose them by a filter")
    return act, chosen_by(given), ids


def _back(view: View, chosen: Mapping[str, str], ids: Sequence[str]) -> str:
    """Where one goes on: after a whole cause to the others, else to the jobs that were looked at."""
    if "cause" in chosen and not ids:
        return view.url("dead-letters", queue=chosen.get("queue"))
    return view.url("jobs", **chosen)


def _preview(view: View, act: Act, chosen: Mapping[str, str]) -> int | None:
    """How many it would be; None where they could not be counted in time."""
    try:
        answer = view.api.send("POST", *_operation(act, chosen), body=as_body(act, chosen) | {"preview": True})
    except RequestTimeout:
        return None
    count: int = answer.jobs
    return count


def _many(act: Act, chosen: Mapping[str, str], count: int | None) -> str:
    """How many of what, as one says it."""
    is_dead = chosen.get("state") == State.FAILED or (act is ACTS["retry"] and "state" not in chosen)
    what = "dead letter" if is_dead else "job"
    return f"all {what}s that match" if count is None else f"{count:,} {what if count == 1 else f'{what}s'}"


def _operation(act: Act, chosen: Mapping[str, str]) -> Sequence[str]:
    path = act.operation(chosen)
    if path is None or (act.name == "discard" and chosen["state"] not in act.takes):
        raise InvalidInput("queue", "dead letters are discarded of a queue: choose one, and the state failed")
    return path


def _find_cause(view: View, chosen: Mapping[str, str]) -> Any:
    """The cause that was chosen, so that a person can tell it by its error; None where none was, or it is not known."""
    if "cause" not in chosen or view.caller.tenant is not None:
        return None
    found = view.api.get("dead-letters", "causes", queue=chosen.get("queue"), limit=MOST_CAUSES)
    return next((each for each in found.causes if each.id == chosen["cause"]), None)


def _find(view: View, job_id: str) -> Any:
    try:
        return view.api.get("jobs", job_id)
    except NotFound:
        return None
