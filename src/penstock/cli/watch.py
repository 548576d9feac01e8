"""`penstock watch`: one job or one load, until it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
import typer

from penstock.app import App
from penstock.cli.app_target import open_answering_app
from penstock.cli.completers import complete_loads
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import InPlace, show_json_line
from penstock.cli.times import clock_text, length, parse_wait
from penstock.clock import system
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable
from penstock.model import Explanation, Job, Load, State
from penstock.model.checks import checked_seconds
from penstock.model.job_state import FINAL
from penstock.model.records import record

__all__ = ["watch"]

LEAST_SECONDS = 0.1
FAILED_STATUS = 1
# What timeout(1) ends with.
TIMEOUT_STATUS = 124
INTERRUPTED_STATUS = 130


@dataclass(frozen=True, slots=True)
class Step:
    """What was seen: in words, in what `stage` of its life, how far (0 to 1), as a record; how it ended, if it has."""

    stage: str
    words: str
    style: str
    record: dict[str, Any]
    part: float | None = None
    status: int | None = None


class Watched(Protocol):
    """What is watched."""

    def look(self, app: App) -> Step:
        """How it stands now."""
        ...


def watch(
    what: Annotated[
        str, typer.Argument(metavar="JOB|LOAD", help="A job's id, or a load's name.", autocompletion=complete_loads)
    ],
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often it looks.")] = 0.5,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="WAIT", help="No longer than this: 90s, 15m; then exit code 124.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Follow a job or a load to its end: exit 0 if it went well, else 1."""
    if checked_seconds("every", every) < LEAST_SECONDS:
        raise InvalidInput("every", f"{every:g} seconds is too often; give at least {LEAST_SECONDS:g}")
    patience = None if timeout is None else checked_seconds("timeout", parse_wait("timeout", timeout))
    with open_answering_app(url) as app:
        status = _follow(app, _find(app, what), every, patience, as_json)
    raise typer.Exit(status)


def _follow(app: App, watched: Watched, every: float, patience: float | None, as_json: bool) -> int:
    began_at = system.monotonic()
    shown: Step | None = None
    with InPlace() as place:
        try:
            for step in _steps(app, watched):
                if as_json and (shown is None or step.record != shown.record):
                    show_json_line(step.record)
                elif not as_json and step != shown:
                    is_new = shown is not None and step.stage != shown.stage
                    place.show(step.words, step.style, step.part, is_new=is_new, is_whole=step.status is not None)
                shown = step
                if step.status is not None:
                    return step.status
                left = every if patience is None else began_at + patience - system.monotonic()
                if left <= 0:
                    return TIMEOUT_STATUS
                system.sleep(min(every, left))
        except KeyboardInterrupt:
            return INTERRUPTED_STATUS
    raise AssertionError("a watch ends with what is watched")


def _steps(app: App, watched: Watched) -> Iterator[Step]:
    while True:
        try:
            yield watched.look(app)
        except PartitionUnavailable as error:
            yield Step("away", f"no answer: {error}", "red", {"unavailable": str(error)})


def _find(app: App, what: str) -> Watched:
    """The job of that id; else the load of that name."""
    if what.isascii() and what.isdigit():
        try:
            return WatchedJob(app.job(what).id)
        except NotFound:
            if not app.loads(names=[what]):
                raise
    elif not app.loads(names=[what]):
        raise NotFound(f"load {what!r} does not exist, and a job is given by its id; see penstock loads")
    return WatchedLoad(what)


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """One job."""

    job_id: int

    def look(self, app: App) -> Step:
        """Its state, and why it does not run."""
        job, explanation = self._read(app)
        reason = explanation.reason if explanation is not None else None
        value, note = _progress(job)
        part = value if value is not None and 0 <= value <= 1 else None
        words = [f"job {job.id} ({job.queue}/{job.task}): {job.state}"]
        if job.attempt > 1 or (job.attempt and job.state is not State.SUCCEEDED):
            words.append(f"attempt {job.attempt}")
        if job.state is State.RUNNING:
            words += [f"{value:.0%}" if part is not None else f"{value:g}"] if value is not None else []
            words += [note] if note else []
        elif job.state in FINAL:
            words += _end(job)
        elif reason:
            words.append(reason)
        told = {
            "job_id": str(job.id),
            "state": job.state.value,
            "attempt": job.attempt,
            "progress": job.progress,
            "reason": reason,
        }
        if job.state in FINAL:
            told |= {"result": job.result, "error": job.error, "finished_at": job.finished_at}
        return Step(
            f"{job.state} {job.attempt}",
            ", ".join(words),
            _STYLES.get(job.state, ""),
            told,
            part if job.state is State.RUNNING else None,
            None if job.state not in FINAL else 0 if job.state is State.SUCCEEDED else FAILED_STATUS,
        )

    def _read(self, app: App) -> tuple[Job, Explanation | None]:
        """The job, and why it waits if it does; what was read at two moments is put together only if it fits."""
        while True:
            job = app.job(self.job_id)
            if job.state in FINAL or job.state is State.RUNNING:
                return job, None
            explanation = app.explain(self.job_id)
            if explanation.state == job.state:
                return job, explanation


@dataclass(frozen=True, slots=True)
class WatchedLoad:
    """One load."""

    name: str

    def look(self, app: App) -> Step:
        """How far its jobs are."""
        found = app.loads(names=[self.name])
        if not found:
            raise NotFound(f"load {self.name!r} does not exist any more; see penstock loads")
        load = found[0]
        rows = load.rows - load.duplicates
        words = [f"load {load.name}: {load.state}", f"{load.done:,} of {rows:,} done"]
        words += [f"{load.failed:,} failed"] if load.failed else []
        words += ["its queue is paused"] if load.is_queue_paused and load.state == "running" else []
        if load.state == "running":
            words += [f"{load.running:,} running"] if load.running else []
            words += [f"{load.rate:,.0f} jobs/s"] if load.rate else []
            words += [f"{clock_text(load.eta_seconds)} left"] if load.eta_seconds is not None else []
        made = record(load)
        status = _load_status(load)
        style = "" if status is None else "green" if status == 0 else "red"
        told = {name: getattr(made, name) for name in made.__struct_fields__}
        return Step(
            load.state, ", ".join(words), style, told, load.done / rows if rows and status is None else None, status
        )


_STYLES = {State.SUCCEEDED: "green", State.FAILED: "red", State.CANCELLED: "red", State.DISCARDED: "red"}
_STYLES |= {State.EXPIRED: "red", State.RUNNING: "cyan"}


def _load_status(load: Load) -> int | None:
    """How it has ended; None: it has not."""
    if load.waiting or load.running or load.state not in ("done", "cancelled"):
        return None
    return 0 if load.state == "done" and not load.failed else FAILED_STATUS


def _progress(job: Job) -> tuple[float | None, str | None]:
    given = job.progress if isinstance(job.progress, dict) else {}
    return given.get("value"), given.get("note")


def _end(job: Job) -> list[str]:
    words = []
    if job.started_at is not None and job.finished_at is not None:
        words.append(f"after {length((job.finished_at - job.started_at).total_seconds())}")
    if job.error:
        words.append(job.error.strip().splitlines()[0])
    elif job.result is not None:
        words.append(f"result {msgspec.json.encode(job.result).decode()}")
    return words
