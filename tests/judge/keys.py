"""G5 and G6: what the runs of a history say about order per key and about limits.

An attempt that lost its lease proves nothing by still running, so one counts only until its job is run again under a
newer lease. An attempt that never returned (its worker was killed), or whose worker was stopped, is not held to have
run on: findings are certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from tests.judge.history import Event

__all__ = ["Attempt", "attempts_of", "batch_findings", "most_at_once", "order_findings", "overlap_findings"]


@dataclass(slots=True)
class Attempt:
    """One run of a handler. `end` is its return, or the start of the next run of its job if that came before."""

    job: int
    lease: int
    actor: str
    start: int
    end: int
    # The jobs that are given to a handler together have the same; 0: it was given one.
    batch: int = 0


class Place(NamedTuple):
    """Where a job stands in the order of its key: when its call began and was answered, which call, and where in it."""

    key: str
    called_at: int
    acknowledged_at: int
    call: tuple[str, int]
    within: int

    def is_before(self, other: Place) -> bool:
        """Whether it certainly was enqueued before the other."""
        if self.call == other.call:
            return self.within < other.within
        return self.acknowledged_at < other.called_at


def attempts_of(history: Sequence[Event]) -> list[Attempt]:
    """Every attempt, by its start."""
    by_job: dict[int, list[Attempt]] = defaultdict(list)
    stops: dict[str, list[int]] = defaultdict(list)
    for event in history:
        if event.act == "stop":
            stops[event.label].append(event.at)
        elif event.act == "run" and event.type == "invoke":
            by_job[event.job].append(Attempt(event.job, event.lease, event.actor, event.at, event.at, event.call))
        elif event.act == "run":
            for attempt in by_job[event.job]:
                if (attempt.actor, attempt.lease) == (event.actor, event.lease):
                    stopped = (at for at in stops[event.actor] if at > attempt.start)
                    attempt.end = max(attempt.end, min(stopped, default=event.at))
    for attempts in by_job.values():
        for earlier, later in pairwise(attempts):
            earlier.end = min(earlier.end, later.start)
    return sorted((attempt for attempts in by_job.values() for attempt in attempts), key=lambda each: each.start)


def places_of(history: Sequence[Event]) -> dict[int, Place]:
    """By job: where it stands in the order of its key."""
    called: dict[str, tuple[int, int, int]] = {}
    enqueued: dict[int, Place] = {}
    for place, event in enumerate(history):
        if event.act != "enqueue" or not event.group:
            continue
        if event.type == "invoke":
            called[event.label] = (event.at, event.call, place)
        elif event.type == "ok":
            at, call, within = called[event.label]
            enqueued[event.job] = Place(event.group, at, event.at, (event.actor, call), within)
    return enqueued


def order_findings(history: Sequence[Event], *, which: Literal["every", "first", "last"] = "every") -> Iterable[str]:
    """Starts of a job after one of its key that was enqueued later, in a later call or behind it in one: among all of
    them, or those that are the first of their job, or the last.
    """
    enqueued = places_of(history)
    begun: set[int] = set()
    # By key: the latest call among the jobs that started so far; and by key and call the last place in it.
    latest: dict[str, tuple[int, int]] = {}
    within_call: dict[tuple[str, tuple[str, int]], tuple[int, int]] = {}
    stale = _started_in_the_dark(history)
    attempts = [each for each in attempts_of(history) if (each.job, each.lease) not in stale]
    last = {each.job: each for each in attempts}
    for attempt in attempts:
        if attempt.job not in enqueued or (which == "last" and last[attempt.job] is not attempt):
            continue
        if which == "first" and attempt.job in begun:
            continue
        begun.add(attempt.job)
        key, called_at, acknowledged_at, call_, within = enqueued[attempt.job]
        last_called, other = latest.get(key, (-1, 0))
        if other != attempt.job and acknowledged_at < last_called:
            yield f"key {key}: {attempt.job} started after {other}, which was enqueued later"
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
        if (most := most_at_once(_merged(attempts))) > per_key:
            yield f"key {key}: {most} at once"


def _merged(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The same, with those of a batch as one; it is held to have run until the first of its jobs was run again."""
    alone: list[Attempt] = []
    batches: dict[tuple[str, int], Attempt] = {}
    for each in attempts:
        known = batches.get((each.actor, each.batch))
        if not each.batch:
            alone.append(each)
        elif known is None:
            batches[each.actor, each.batch] = replace(each)
        else:
            known.start, known.end = min(known.start, each.start), min(known.end, each.end)
    return [*alone, *batches.values()]


def batch_findings(history: Sequence[Event]) -> Iterable[str]:
    """Starts of a job after the end of one of its key that was enqueued later, where the two were in no batch."""
    places = places_of(history)
    runs = attempts_of(history)
    batches: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for attempt in runs:
        if attempt.batch:
            batches[attempt.job].add((attempt.actor, attempt.batch))
    settled: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in history:
        if event.act == "settle" and event.type == "ok" and event.job in places:
            settled[places[event.job].key].append((event.at, event.job))
    for attempt in runs:
        if attempt.job not in places:
            continue
        mine = places[attempt.job]
        for at, other in settled[mine.key]:
            is_over = at < attempt.start and mine.is_before(places[other])
            if is_over and not batches[attempt.job] & batches[other]:
                yield f"key {mine.key}: {attempt.job} started after the end of {other}, which was enqueued later"


def most_at_once(attempts: Iterable[Attempt]) -> int:
    """How many of these ran together at most."""
    lasting = [each for each in attempts if each.end > each.start]
    steps = sorted([(each.start, 1) for each in lasting] + [(each.end, -1) for each in lasting])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def over_the_limit(attempts: Iterable[Attempt], limits: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """How many ran where no more might, and how many might: at the worst start under each limit, by when it came."""
    lasting = [each for each in attempts if each.end > each.start]
    steps = sorted([(each.start, 1) for each in lasting] + [(each.end, -1) for each in lasting])
    running = 0
    worst: dict[int, int] = {}
    for at, step in steps:
        running += step
        number = sum(since <= at for since, _ in limits) - 1
        if step > 0 and running > limits[number][1]:
            worst[number] = max(worst.get(number, 0), running)
    return [(most, limits[number][1]) for number, most in worst.items()]
