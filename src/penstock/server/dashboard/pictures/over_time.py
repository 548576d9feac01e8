"""What happened in a queue over time, drawn: the minutes that were noted, joined to 72 moments at most.

A moment of several minutes shows a rate as their mean, a depth as it stood at the last of them, and of percentiles the
longest of any minute: percentiles cannot be added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup

from penstock.drawing.axis import MOST_MOMENTS, find_labelled, moment_start, round_top
from penstock.drawing.axis import marks as axis_marks
from penstock.drawing.charts import Stack, columns, curve, fan
from penstock.drawing.formatting import count, duration, moment_label
from penstock.server.dashboard.drawn import drawn

__all__ = ["SPANS", "Moment", "cause_class", "draw_depth", "draw_failures", "draw_flow", "draw_times", "moments_of"]

# By how many minutes are shown: how it is said, and how many minutes a moment has.
SPANS = {60: ("1 h", 1), 360: ("6 h", 5), 1_440: ("24 h", 20)}
# What goes out of a queue, however it ended.
ENDS = ("completed", "failed", "cancelled", "discarded", "expired")
# Failures are counted in periods of so long.
PERIOD_SECONDS = 300.0
# The shortest time that a logarithmic axis shows.
SHORTEST_SECONDS = 0.000_01
Value = Callable[["Moment"], float | None]


@dataclass(slots=True)
class Moment:
    """Minutes of the history that are shown as one; there are none where no worker ran."""

    began_at: datetime
    label: str
    minutes: list[Any] = field(default_factory=list)

    def rate(self, *names: str) -> float | None:
        """How many of these happened in a minute."""
        known = [minute for minute in self.minutes if minute.seconds]
        seconds = sum(minute.seconds for minute in known)
        return sum(getattr(minute, name) or 0 for minute in known for name in names) / seconds * 60 if known else None

    def last(self, name: str) -> float | None:
        """What stood there at its end."""
        return getattr(self.minutes[-1], name) if self.minutes else None

    def percentiles(self, name: str) -> list[float | None]:
        """How long half, 95 and 99 of 100 took, where it was longest."""
        known = [found for minute in self.minutes if (found := getattr(minute, name, None)) is not None]
        return [
            max((max(getattr(found, level), SHORTEST_SECONDS) for found in known), default=None)
            for level in ("p50", "p95", "p99")
        ]


def moments_of(minutes: Sequence[Any], span: int, now: datetime) -> list[Moment]:
    """The moments of so many minutes up to now, each with what was noted in it."""
    latest = max(now, minutes[-1].minute) if minutes else now
    _, each = SPANS[span]
    many, step = span // each, timedelta(minutes=each)
    began_at = moment_start(latest, step.total_seconds()) - step * (many - 1)
    moments = _moments([began_at + step * number for number in range(many)])
    for minute in minutes:
        place = (minute.minute - began_at) // step
        if 0 <= place < many:
            moments[place].minutes.append(minute)
    return moments


def draw_flow(moments: Sequence[Moment]) -> Markup:
    """What comes in and goes out in a minute."""
    lines = [("flow-in", lambda moment: moment.rate("enqueued")), ("flow-out", lambda moment: moment.rate(*ENDS))]

    def tip(moment: Moment) -> str:
        came, went = moment.rate("enqueued"), moment.rate(*ENDS)
        return "" if came is None or went is None else f"in {_rate(came)} a minute\nout {_rate(went)} a minute"

    return _draw_lines(moments, lines, tip, "What comes in and goes out in a minute")


def draw_depth(moments: Sequence[Moment], name: str, kind: str) -> Markup:
    """How many were waiting, or running."""

    def tip(moment: Moment) -> str:
        found = moment.last(name)
        return "" if found is None else f"{count(found)} {name}"

    return _draw_lines(moments, [(kind, lambda moment: moment.last(name))], tip, f"How many jobs were {name}")


def draw_times(moments: Sequence[Moment], name: str, says: str) -> Markup | None:
    """Percentiles of how long jobs waited, or ran; None where nothing was noted."""
    found = [(moment, moment.percentiles(name)) for moment in moments]
    if not any(values[0] for _, values in found):
        return None

    def tip(moment: Moment, values: Sequence[float | None]) -> str:
        half, most, longest = values
        said = f"half within {duration(half)}\n95 of 100 within {duration(most)}\n99 of 100 within {duration(longest)}"
        return f"{_time(moment)}\n{said}" if half is not None else f"{_time(moment)}\nnothing ended"

    return drawn(fan([(moment.label, tip(moment, values), values) for moment, values in found], says))


def draw_failures(failures: Any) -> Markup | None:
    """How many attempts failed, by cause; None where none did."""
    series = [*(each.failed for each in failures.causes), failures.others]
    total = sum(map(sum, series))
    if not total:
        return None
    step = PERIOD_SECONDS * -(-len(failures.began_at) // MOST_MOMENTS)
    counted: dict[datetime, list[int]] = {}
    for period, at in enumerate(failures.began_at):
        sizes = counted.setdefault(moment_start(at, step), [0] * len(series))
        for number, failed in enumerate(series):
            sizes[number] += failed[period]
    names = [*(f"{each.task}: {each.shape or 'an error'}" for each in failures.causes), "other causes"]
    stacks = [
        Stack(
            moment.label,
            "\n".join([_time(moment), *(f"{size:,} {names[number]}" for number, size in enumerate(sizes) if size)]),
            [(cause_class(number, len(series)), size) for number, size in enumerate(sizes)],
        )
        for moment, sizes in zip(_moments(list(counted)), counted.values(), strict=True)
    ]
    return drawn(columns(stacks, f"How many attempts failed, by cause: {count(total)} in all"))


def cause_class(number: int, of: int) -> str:
    """The colour of one of the causes; the last are all others."""
    return "cause5" if number == of - 1 else f"cause{number % 5}"


def _moments(times: Sequence[datetime]) -> list[Moment]:
    """Moments that begin at these times, each as long as the next; some have a label."""
    step = (times[1] - times[0]).total_seconds() if len(times) > 1 else PERIOD_SECONDS
    labelled = set(find_labelled(times[0], step, len(times)))
    return [Moment(at, moment_label(at, step, 0) if number in labelled else "") for number, at in enumerate(times)]


def _draw_lines(
    moments: Sequence[Moment], lines: Sequence[tuple[str, Value]], tip: Callable[[Moment], str], says: str
) -> Markup:
    values = [(kind, [value(moment) for moment in moments]) for kind, value in lines]
    known = [value for _, found in values for value in found if value is not None]
    top = max(1.0, round_top(max(known, default=0.0)))
    many = len(moments)
    runs = [
        (kind, [((place + 0.5) / many, value / top) for place, value in run])
        for kind, found in values
        for run in _runs(found)
    ]
    hovers = [
        (number / many, 1 / many, f"{_time(moment)}\n{tip(moment) or 'no worker ran'}")
        for number, moment in enumerate(moments)
    ]
    labels = [((number + 0.5) / many, moment.label) for number, moment in enumerate(moments) if moment.label]
    lately = next((told for moment in reversed(moments) if (told := tip(moment))), "no worker ran")
    said = f"{says}; lately: {lately}".replace("\n", ", ")
    return drawn(curve(runs, [(mark / top, count(mark)) for mark in axis_marks(top)], labels, said, hovers=hovers))


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """What is known, without the holes between."""
    runs: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place, value))
    return [run for run in runs if run]


def _time(moment: Moment) -> str:
    return f"{moment.began_at:%H:%M} UTC"


def _rate(value: float) -> str:
    return count(value) if value >= 10 or value == round(value) else f"{value:.1f}"
