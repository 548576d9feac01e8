"""Loads: how far each is, and to pause, resume or cancel one as a whole."""

from __future__ import annotations

from typing import Any

from penstock.drawing.formatting import count
from penstock.server.dashboard.confirmation import ask
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["loads"]

loads = Pages()
MOST_LOADS = 30


@loads.show("/loads")
def show_loads(view: View) -> Shown:
    """The newest loads, each with how far it is."""
    found = view.api.get("loads", limit=MOST_LOADS)
    return Shown("loads.html", "Loads", {"loads": found.loads, "unavailable": found.unavailable, "most": MOST_LOADS})


@loads.show("/loads/{load}")
def show_load(view: View, load: str) -> Shown:
    """One load."""
    found = view.api.get("loads", load)
    return Shown("load.html", f"Load {load}", {"load": found})


@loads.act("/loads/{load}/pause")
def pause_load(view: View, load: str) -> Done:
    """Start nothing more of it."""
    view.api.send("POST", "loads", load, "pause")
    return Done(view.url("loads", load), f"{load} is paused: what waits of it does not start, what runs goes on.")


@loads.act("/loads/{load}/resume")
def resume_load(view: View, load: str) -> Done:
    """Let it go on."""
    view.api.send("POST", "loads", load, "resume")
    return Done(view.url("loads", load), f"{load} goes on, behind what is ready by now.")


@loads.show("/loads/{load}/cancel")
def ask_to_cancel(view: View, load: str) -> Shown:
    """What a cancel would end."""
    view.api.check_may("POST", "loads", load, "cancel")
    found = view.api.get("loads", load)
    sentences = [
        f"{_jobs(found.waiting)} that {'wait' if found.waiting != 1 else 'waits'} will be cancelled and not run, and "
        f"{_jobs(found.running)} that {'run' if found.running != 1 else 'runs'} will be asked to stop.",
        f"What has ended stays as it is: {_jobs(found.done)} of {count(found.rows - found.duplicates)}. "
        "This cannot be undone.",
    ]
    return ask(f"Cancel load {load}?", sentences, "Cancel the load", view.url("loads", load), asks_reason=True)


@loads.act("/loads/{load}/cancel")
def cancel_load(view: View, load: str) -> Done:
    """End what has not started of it."""
    reason = view.form.text("reason")
    body: dict[str, Any] = {} if reason is None else {"reason": reason}
    done = view.api.send("POST", "loads", load, "cancel", body=body)
    return Done(view.url("loads", load), f"{load} is cancelled: {_jobs(done.jobs)} ended, and none starts any more.")


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{count(number)} jobs"
