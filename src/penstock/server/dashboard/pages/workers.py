"""Workers: who is alive, what each runs and for how long, and to stop one gently."""

from __future__ import annotations

from penstock.server.dashboard.confirmation import ask
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["workers"]

workers = Pages()
MOST_WORKERS = 100
# Of what each runs the list tells so many, which run for longest.
MOST_JOBS = 3


@workers.show("/workers")
def show_workers(view: View) -> Shown:
    """All that have not been declared dead."""
    found = view.api.get("workers", limit=MOST_WORKERS, jobs=MOST_JOBS)
    values = {"workers": found.workers, "count": found.count, "unavailable": found.unavailable}
    return Shown("workers.html", "Workers", values)


@workers.show("/workers/{worker}")
def show_worker(view: View, worker: str) -> Shown:
    """One worker with the jobs that it runs."""
    found = view.api.get("workers", worker)
    return Shown("worker.html", f"Worker {found.name}", {"worker": found})


@workers.show("/workers/{worker}/stop")
def ask_to_stop(view: View, worker: str) -> Shown:
    """What stopping it means."""
    view.api.check_may("POST", "workers", worker, "stop")
    found = view.api.get("workers", worker)
    runs = "nothing now" if not found.running else f"{found.running:,} job{'s' if found.running > 1 else ''} now"
    sentences = [
        f"{found.name} runs {runs}. It takes no more, finishes what it runs, hands its partitions over and ends.",
        "What waits is taken by other workers. Whatever keeps its program alive, such as systemd, may start it again.",
    ]
    return ask(f"Stop worker {found.name}?", sentences, "Stop it gently", view.url("workers", worker))


@workers.act("/workers/{worker}/stop")
def stop_worker(view: View, worker: str) -> Done:
    """Have it finish what it runs and end."""
    found = view.api.send("POST", "workers", worker, "stop")
    return Done(view.url("workers"), f"{found.name} was told to stop: it finishes what it runs, and ends.")
