"""G5 and G6: what the runs of a history say about order per key and about limits.

An attempt that lost its lease proves nothing by still running, so one counts only until its job is run again under a
newer lease. An attempt that never returned (its worker was killed), or whose worker was stopped, is not held to have
run on: findings are certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.judge.history import Event

__all__ = ["Attempt", "attempts_of", "most_at_once", "order_findings", "overlap_findings"]


@dataclass(slots=True)
class Attempt:
    """One run of a handler. `end` is its return, or the start of the next run of its job if that came before."""

    job: int
    lease: int
    actor: str
    start: int
    end: int


def attempts_of(history: Sequence[Event]) -> list[Attempt]:
    """Every attempt, by its start."""
    by_job: dict[int, list[Attempt]] = defaultdict(list)
    stops: dict[str, list[int]] = defaultdict(list)
    for event in history:
        if event.act == "stop":
            stops[event.label].append(event.at)
        elif event.act == "run" and event.type == "invoke":
            by_job[event.job].append(Attempt(event.job, event.lease, event.actor, event.at, event.at))
        elif event.act == "run":
            for attempt in by_job[event.job]:
                if (attempt.actor, attempt.lease) == (event.actor, event.lease):
                    stopped = (at for at in stops[event.actor] if at > attempt.start)
                    attempt.end = max(attempt.end, min(stopped, default=event.at))
    for attempts in by_job.values():
        for earlier, later in pairwise(attempts):
            earlier.end = min(earlier.end, later.start)
    return sorted((attempt for attempts in by_job.values() for attempt in attempts), key=lambda each: each.start)


def order_findings(history: Sequence[Event]) -> Iterable[str]:
    """Starts of a job after one of its key that was enqueued later, in a later call or behind it in one."""
    called: dict[str, tuple[int, int, int]] = {}
    enqueued: dict[int, tuple[str, int, int, tuple[str, int], int]] = {}
    for place, event in enumerate(history):
        if event.act != "enqueue" or not event.group:
            continue
        if event.type == "invoke":
            called[event.label] = (event.at, event.call, place)
        elif event.type == "ok":
            at, call, within = called[event.label]
            enqueued[event.job] = (event.group, at, event.at, (event.actor, call), within)
    # By key: the latest call among the jobs that started so far; and by key and call the last place in it.
    latest: dict[str, tuple[int, int]] = {}
    within_call: dict[tuple[str, tuple[str, int]], tuple[int, int]] = {}
    stale = _started_in_the_dark(history)
    for attempt in attempts_of(history):
        if attempt.job not in enqueued or (attempt.job, attempt.lease) in stale:
            continue
        key, called_at, acknowledged_at, call_, within = enqueued[attempt.job]
        last_called, last = latest.get(key, (-1, 0))
        if last != attempt.job and acknowledged_at < last_called:
            yield f"key {key}: {attempt.job} started after {last}, which was enqueued later"
        place, before = within_call.get((key, call_), (-1, 0))
        if place > within:
            yield f"key {key}: {attempt.job} started after {before}, which stands behind it in its call"
        if called_at > last_called:
            latest[key] = (called_at, attempt.job)
        if within > place:
            within_call[key, call_] = (within, attempt.job)


def _started_in_the_dark(history: Sequence[Event]) -> set[tuple[int, int]]:
    """Attempts, as job and lease, that had lost their lease when their handler began, and could not know.

    Between a worker's look at its lease and the first line of a handler it may be stopped. When it goes on, its job has
    been run again: by then the attempt counts as little as one that still runs. One for each stop: a worker that begins
    several then does not look.
    """
    stops = [(event.label, event.at) for event in history if event.act == "stop"]
    begun: dict[int, Attempt] = {}
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for attempt in attempts_of(history):
        newer = begun.get(attempt.job)
        if newer is None or attempt.lease > newer.lease:
            begun[attempt.job] = attempt
        elif (
            stop := max((at for who, at in stops if who == attempt.actor and at < newer.start), default=None)
        ) is not None:
            found.setdefault((attempt.actor, stop), (attempt.job, attempt.lease))
    return set(found.values())


def overlap_findings(history: Sequence[Event], per_key: int = 1) -> Iterable[str]:
    """Moments at which more than `per_key` attempts of a key ran."""
    keys = {
        event.job: event.group for event in history if event.act == "enqueue" and event.type == "ok" and event.group
    }
    by_key: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts_of(history):
        if attempt.job in keys:
            by_key[keys[attempt.job]].append(attempt)
    for key, attempts in by_key.items():
        if (most := most_at_once(attempts)) > per_key:
            yield f"key {key}: {most} at once"


def most_at_once(attempts: Iterable[Attempt]) -> int:
    """How many of these ran together at most."""
    lasting = [each for each in attempts if each.end > each.start]
    steps = sorted([(each.start, 1) for each in lasting] + [(each.end, -1) for each in lasting])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most
