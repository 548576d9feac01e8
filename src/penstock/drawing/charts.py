"""Plots that need no script and no network: columns and bars are boxes, curves are SVG, and every word is HTML.

A curve's drawing is stretched to the width there is, and its lines keep their thickness; the words beside it are not
part of the drawing, so that they are as large on a phone as on a screen. Colours come from the style sheet by class.
What is under the pointer tells its figures by `data-tip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.drawing.axis import logarithmic, logarithmic_place, marks, round_top
from penstock.drawing.formatting import count, duration, plain

__all__ = ["Stack", "bar", "columns", "curve", "fan", "legend", "sparkline", "spread", "strip"]


@dataclass(frozen=True, slots=True)
class Stack:
    """A column: its label on the axis, what it tells, and its pieces from the bottom up as (class, size)."""

    label: str
    tip: str
    pieces: Sequence[tuple[str, float]]

    @property
    def height(self) -> float:
        return sum(size for _, size in self.pieces)


def legend(*entries: tuple[str, str], unit: str = "") -> str:
    """What each colour means: (class, name), and what is counted."""
    return (
        '<ul class="legend">'
        + "".join(f'<li><i class="{kind}"></i>{plain(name, 70)}</li>' for kind, name in entries)
        + (f'<li class="unit">{plain(unit)}</li>' if unit else "")
        + "</ul>"
    )


def columns(stacks: Sequence[Stack], says: str, *, is_dense: bool = True) -> str:
    """Stacked columns over a common axis; dense ones stand for time, and only some have a label."""
    top = round_top(max((stack.height for stack in stacks), default=0.0))
    drawn = "".join(
        f'<div class="column{_side(number, len(stacks))}" data-tip="{_tip(stack.tip)}">'
        + "".join(
            f'<i class="{kind}" style="height:{_share(size, top)}"></i>'
            for kind, size in reversed(stack.pieces)
            if size
        )
        + "</div>"
        for number, stack in enumerate(stacks)
    )
    labels = _time_labels([stack.label for stack in stacks]) if is_dense else _each_label(stacks)
    kind = "dense" if is_dense else "sparse"
    return _frame(f'<div class="columns {kind}">{drawn}</div>', [(m / top, count(m)) for m in marks(top)], labels, says)


def fan(moments: Sequence[tuple[str, str, Sequence[float | None]]], says: str) -> str:
    """Percentiles over time on a logarithmic axis of seconds: (label, tip, [lowest, middle, highest]) each."""
    known = [value for _, _, values in moments for value in values if value is not None]
    axis = logarithmic(min(known), max(known))
    levels = len(moments[0][2])

    def point(number: int, value: float) -> tuple[float, float]:
        return (number + 0.5) / len(moments) * 1_000, 1_000 - logarithmic_place(value, axis) * 1_000

    drawn: list[str] = []
    for run in _find_runs(moments):
        lines = [[point(number, moments[number][2][level] or 0.0) for number in run] for level in range(levels)]
        drawn += [
            f'<path class="band band{level}" d="{_path(lines[level] + lines[level + 1][::-1])}z"/>'
            for level in range(levels - 1)
        ]
        drawn += [_line(f"line{level}", line) for level, line in enumerate(lines)]
    hovers = "".join(
        f'<div class="column{_side(number, len(moments))}" data-tip="{_tip(tip)}"></div>'
        for number, (_, tip, _) in enumerate(moments)
    )
    marks = [(logarithmic_place(mark, axis), duration(mark)) for mark in axis]
    body = f'{_svg("".join(drawn))}<div class="columns dense">{hovers}</div>'
    return _frame(body, marks, _time_labels([label for label, _, _ in moments]), says)


def curve(
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    marks: Sequence[tuple[float, str]],
    labels: Sequence[tuple[float, str]],
    says: str,
    *,
    kind: str = "",
    hovers: Sequence[tuple[float, float, str]] = (),
) -> str:
    """Lines of points from (0, 0) bottom left to (1, 1) top right, each of its class; hovers are (left, width, tip)."""
    drawn = "".join(_line(name, [(x * 1_000, 1_000 - y * 1_000) for x, y in points]) for name, points in lines)
    places = "".join(
        f'<div class="hover{" late" if left > 0.6 else ""}" style="left:{left:.3%};width:{width:.3%}" '
        f'data-tip="{_tip(tip)}"></div>'
        for left, width, tip in hovers
    )
    axis = "".join(f'<span style="left:{place:.2%}">{plain(text)}</span>' for place, text in labels)
    return _frame(_svg(drawn) + places, marks, f'<div class="x few">{axis}</div>', says, kind)


def spread(values: Sequence[float | None], axis: tuple[float, ...], kind: str, tip: str) -> str:
    """One row of percentiles on a shared logarithmic axis: a bar from the first to the last, a dot on each."""
    known = [logarithmic_place(value, axis) for value in values if value is not None]
    if not known:
        return '<div class="spread"></div>'
    dots = "".join(f'<b class="dot{level}" style="left:{place:.2%}"></b>' for level, place in enumerate(known))
    width = known[-1] - known[0]
    return (
        f'<div class="spread {kind}" data-tip="{_tip(tip)}">'
        f'<i style="left:{known[0]:.2%};width:{width:.2%}"></i>{dots}</div>'
    )


def bar(share: float, kind: str = "") -> str:
    """A bar as long as its share of the room."""
    return f'<div class="bar"><i class="{kind}" style="width:{min(1.0, max(0.0, share)):.2%}"></i></div>'


def strip(counts: Sequence[int], highest: int, tips: Sequence[str]) -> str:
    """A row of cells, the darker the more."""
    cells = "".join(
        f'<i class="{_side(number, len(counts)).strip()}" data-tip="{_tip(tip)}"'
        + (f' style="--heat:{0.18 + 0.82 * size / max(1, highest):.2f}"' if size else "")
        + "></i>"
        for number, (size, tip) in enumerate(zip(counts, tips, strict=True))
    )
    return f'<div class="strip">{cells}</div>'


def sparkline(lines: Sequence[tuple[str, Sequence[float]]], says: str) -> str:
    """Lines as small as a word, on one axis from 0 to the highest of all: (class, values) each."""
    top = max((value for _, values in lines for value in values), default=0.0) or 1.0

    def path(values: Sequence[float]) -> str:
        step = 100 / max(1, len(values) - 1)
        return _path([(number * step, 24 - value / top * 22) for number, value in enumerate(values)])

    drawn = "".join(f'<path class="{kind}" d="{path(values)}"/>' for kind, values in lines if values)
    return (
        f'<svg class="spark" viewBox="0 0 100 26" preserveAspectRatio="none" role="img" '
        f'aria-label="{plain(says, 200)}">{drawn}</svg>'
    )


def _frame(body: str, marks: Sequence[tuple[float, str]], labels: str, says: str, kind: str = "") -> str:
    """A plot with its lines across, what they stand for, and the labels below."""
    lines = "".join(
        f'<div class="mark" style="bottom:{place:.2%}"><span>{plain(text)}</span></div>' for place, text in marks
    )
    area = f'<div class="area">{lines}{body}</div>'
    return f'<div class="plot {kind}" role="img" aria-label="{plain(says, 400)}">{area}{labels}</div>'


def _svg(drawn: str) -> str:
    return f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


def _tip(text: str) -> str:
    return "&#10;".join(plain(line, 100) for line in text.split("\n"))


def _line(name: str, points: Sequence[tuple[float, float]]) -> str:
    # One that is a point would be as small as the line is thin.
    kind = f"line {name} point" if len(points) == 1 else f"line {name}"
    return f'<path class="{kind}" d="{_path(points)}"/>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    # A line that is one point is drawn as a dot: its round ends are all there is of it.
    ends = "h0.01" if len(points) == 1 else ""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ends


def _find_runs(moments: Sequence[tuple[str, str, Sequence[float | None]]]) -> list[list[int]]:
    """The runs of moments in which there is something to draw."""
    runs: list[list[int]] = [[]]
    for number, (_, _, values) in enumerate(moments):
        if any(value is None for value in values):
            runs.append([])
        else:
            runs[-1].append(number)
    return [run for run in runs if run]


def _time_labels(labels: Sequence[str]) -> str:
    """The labels there are, under the columns they belong to; a phone shows every other."""
    shown = "".join(
        f'<span style="left:{(number + 0.5) / len(labels):.2%}">{plain(label)}</span>'
        for number, label in enumerate(labels)
        if label
    )
    return f'<div class="x">{shown}</div>'


def _each_label(stacks: Sequence[Stack]) -> str:
    return '<div class="x each">' + "".join(f"<span>{plain(stack.label)}</span>" for stack in stacks) + "</div>"


def _share(size: float, top: float) -> str:
    # Never nothing: one failure among a million is still one to see.
    return f"max(2px,{size / top:.3%})"


def _side(number: int, of: int) -> str:
    """Tips of the right half open to the left, where there is room."""
    return " late" if number > of * 0.6 else ""
