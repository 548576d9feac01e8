"""A job: why it is not running, where it is in its life, its attempts, its family; and what may be done to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.errors import InvalidInput, NotFound
from penstock.model.job_state import FINAL, State
from penstock.server.dashboard.drawn import drawn
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.pages.chosen_jobs import ACTS, is_dead_letter
from penstock.server.dashboard.pictures.attempts import attempts_of, draw_attempts
from penstock.server.dashboard.pictures.family import MOST_DRAWN, draw_family
from penstock.server.dashboard.pictures.life import life_of
from penstock.server.dashboard.view import View

__all__ = ["job"]

job = Pages()
# So many ids in a sentence lead to their jobs, and so many parents or children are listed.
MOST_LINKED = 20
MOST_LISTED = 200
# An instant in the reason is written as everywhere else on the page.
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?\+00:00")
WAITING = (State.SCHEDULED, State.BLOCKED, State.READY)


@job.show("/jobs/{job_id}")
def show_job(view: View, job_id: str) -> Shown:
    """All that is known of a job; why it does not run comes first."""
    try:
        found = view.api.get("jobs", job_id)
    except (InvalidInput, NotFound) as error:
        return _show_missing(view, job_id, error)
    told = view.api.get("jobs", job_id, "explain")
    attempts = attempts_of(found)
    # A job that was set aside waits for a person: it says so itself.
    can_run = ACTS["retry"].takes_job(found) or "why" in told.detail
    values = {
        "job": found,
        "why": _with_links(told, told.reason if found.state in FINAL else _INSTANT.sub(r"\1 UTC", told.reason)),
        "life": life_of(found),
        "attempts": attempts,
        "attempts_line": drawn(draw_attempts(found, attempts, view.now)) if attempts else None,
        "earlier": len(found.failures) - sum(each.outcome == "failed" for each in attempts),
        "family": _family(view, found, told.detail) if found.after or found.children else None,
        "family_marks": bool(told.detail.get("parents") or told.detail.get("dead")),
        "most_drawn": MOST_DRAWN,
        "most_listed": MOST_LISTED,
        "trace_id": found.traceparent.split("-")[1] if found.traceparent else None,
        "can_cancel": found.state not in FINAL and view.may("POST", "jobs", job_id, "cancel"),
        "was_cleared": found.state is State.FAILED and not is_dead_letter(found),
        "can_retry": can_run and view.may("POST", "jobs", job_id, "retry"),
        "behind": told.detail.get("jobs_behind"),
        "may_be_more": told.detail.get("may_be_more"),
        "others": _others_of_its_cause(view, found),
        "can_edit": is_dead_letter(found) and not view.caller.hides_args,
        "can_reschedule": found.state in WAITING and view.may("POST", "jobs", job_id, "reschedule"),
        "can_release": bool(told.detail.get("halted")) and view.may("POST", "queues", found.queue, "release"),
    }
    return Shown("job.html", f"Job {found.id}", values)


@job.act("/jobs/{job_id}/cancel")
def cancel_job(view: View, job_id: str) -> Done:
    """End it, or ask it to stop."""
    done = view.api.send("POST", "jobs", job_id, "cancel", body={"reason": view.form.text("reason")})
    said = {State.CANCELLED: "is cancelled", State.RUNNING: "was asked to stop, and runs until its handler does"}
    return Done(view.url("jobs", job_id), f"Job {job_id} {said.get(done.state, f'has ended already: {done.state}')}.")


@job.act("/jobs/{job_id}/retry")
def retry_job(view: View, job_id: str) -> Done:
    """Run a dead letter again, or now what waits for a time."""
    done = view.api.send("POST", "jobs", job_id, "retry", body={})
    # It may run, and have ended again, before this is read.
    said = f"Job {job_id} was retried."
    if done.state in FINAL:
        said = f"Job {job_id} stays {done.state}: only dead letters and jobs that wait for a time can be retried."
    return Done(view.url("jobs", job_id), said)


@job.act("/jobs/{job_id}/reschedule")
def reschedule_job(view: View, job_id: str) -> Done:
    """Move it to another time."""
    run_at = _read_instant(view.form.required("run_at"), view.form.text("zone") or "UTC")
    done = view.api.send("POST", "jobs", job_id, "reschedule", body={"run_at": run_at.isoformat()})
    if done.state not in WAITING:
        return Done(view.url("jobs", job_id), f"Job {job_id} does not wait any more, and stays {done.state}.")
    return Done(view.url("jobs", job_id), f"Job {job_id} is to run at {run_at:%Y-%m-%d %H:%M:%S %Z}.")


@job.act("/jobs/{job_id}/release")
def release_key(view: View, job_id: str) -> Done:
    """Let the halted key go on that it stands behind."""
    found = view.api.get("jobs", job_id)
    key = found.key if isinstance(found.key, str) or found.key is None else {"base64": found.key.base64}
    view.api.send("POST", "queues", found.queue, "release", body={"key": key})
    return Done(view.url("jobs", job_id), "The key is released: its jobs go on, and its dead letter stays.")


def _show_missing(view: View, job_id: str, error: InvalidInput | NotFound) -> Shown:
    """Of one that was set aside is told why, and it may be let back; of any other it is only told that it is not."""
    aside = None
    if isinstance(error, NotFound):
        try:
            aside = view.api.get("jobs", job_id, "explain").reason
        except NotFound:
            aside = None
    values = {
        "job_id": job_id,
        "problem": error.problem if isinstance(error, InvalidInput) else str(error),
        "aside": aside,
        "can_retry": aside is not None and view.may("POST", "jobs", job_id, "retry"),
        "can_cancel": aside is not None and view.may("POST", "jobs", job_id, "cancel"),
    }
    return Shown("job_missing.html", "No such job", values, status=404, is_live=False)


def _others_of_its_cause(view: View, found: Any) -> str | None:
    """Where a dead letter is discarded, which is done to all that match; None where it cannot be."""
    if not is_dead_letter(found) or not view.may("POST", "queues", found.queue, "purge"):
        return None
    key = found.key if isinstance(found.key, str) else None
    return view.url("jobs", queue=found.queue, state=State.FAILED, key=key, cause=found.cause)


def _with_links(told: Any, reason: str) -> list[tuple[str, str | None]]:
    """The reason in pieces, those that are ids of jobs with the id."""
    ids = _ids_of(told.detail)[:MOST_LINKED]
    if not ids:
        return [(reason, None)]
    pieces = re.split(rf"(?<!\d)({'|'.join(ids)})(?!\d)", reason)
    return [(piece, piece if piece in ids else None) for piece in pieces if piece]


def _ids_of(detail: Mapping[str, Any]) -> list[str]:
    """The jobs that an explanation names."""
    lists = [value for value in detail.values() if isinstance(value, list)]
    named = [str(detail["head"])] if detail.get("head") is not None else []
    return named + [each for value in lists for each in value if isinstance(each, str) and each.isdecimal()]


def _family(view: View, found: Any, detail: Mapping[str, Any]) -> Any:
    return drawn(
        draw_family(
            found.id,
            found.after,
            found.children,
            lambda each: view.url("jobs", each),
            awaited=detail.get("parents", ()),
            dead=detail.get("dead", ()),
        )
    )


def _read_instant(text: str, zone: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput("run_at", f"{text[:40]!r} is no time; write it as 2026-11-30 14:00") from None
    if given.tzinfo is not None:
        return given
    try:
        return given.replace(tzinfo=ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput("zone", f"there is no time zone {zone[:40]!r}; give one such as Europe/Berlin") from None
