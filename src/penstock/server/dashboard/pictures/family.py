"""A job between those it comes after and those that come after it, as a graph whose boxes lead to them.

Only so many of each are drawn; the page lists more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from penstock.drawing.formatting import plain

__all__ = ["MOST_DRAWN", "draw_family"]

MOST_DRAWN = 20
WIDTH, HEIGHT, ROW, BETWEEN = 178, 26, 36, 92


def draw_family(
    job_id: str,
    parents: Sequence[str],
    children: Sequence[str],
    url_of: Callable[[str], str],
    *,
    awaited: Collection[str] = (),
    dead: Collection[str] = (),
) -> str:
    """An SVG. Of the parents `awaited` have not ended, and `dead` are dead letters."""
    columns = [list(parents[:MOST_DRAWN]), [job_id], list(children[:MOST_DRAWN])]
    columns = [each for each in columns if each]
    rows = max(map(len, columns))
    places = {
        each: (number * (WIDTH + BETWEEN), (rows - len(column)) * ROW / 2 + row * ROW + (ROW - HEIGHT) / 2)
        for number, column in enumerate(columns)
        for row, each in enumerate(column)
    }
    here = places[job_id]
    lines = "".join(_line(places[each], here, "dead" if each in dead else "") for each in columns[0] if each != job_id)
    lines += "".join(_line(here, places[each]) for each in columns[-1] if each != job_id)
    boxes = "".join(
        _box(each, place, None if each == job_id else url_of(each), _kind(each, job_id, awaited, dead))
        for each, place in places.items()
    )
    width, height = len(columns) * (WIDTH + BETWEEN) - BETWEEN, rows * ROW
    says = f"{len(parents)} jobs come before this one, and {len(children)} wait for it"
    size = f'viewBox="-1 0 {width + 2} {height}" width="{width}" height="{height}"'
    return f'<div class="scroll"><svg class="family" {size} role="group" aria-label="{says}">{lines}{boxes}</svg></div>'


def _kind(each: str, job_id: str, awaited: Collection[str], dead: Collection[str]) -> str:
    if each == job_id:
        return "self"
    return "dead" if each in dead else "awaited" if each in awaited else ""


def _line(start: tuple[float, float], end: tuple[float, float], kind: str = "") -> str:
    left, right = start[0] + WIDTH, end[0]
    from_, to, middle = start[1] + HEIGHT / 2, end[1] + HEIGHT / 2, (left + right) / 2
    return f'<path class="{kind}" d="M{left} {from_:.0f}C{middle} {from_:.0f} {middle} {to:.0f} {right} {to:.0f}"/>'


def _box(job_id: str, place: tuple[float, float], url: str | None, kind: str) -> str:
    x, y = place
    drawn = (
        f'<rect class="{kind}" x="{x}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>'
        f'<text x="{x + WIDTH / 2:.0f}" y="{y + HEIGHT / 2 + 4:.0f}">{plain(job_id)}</text>'
    )
    told = {"dead": ", a dead letter", "awaited": ", not ended yet"}.get(kind, "")
    return drawn if url is None else f'<a href="{plain(url, 400)}" aria-label="Job {plain(job_id)}{told}">{drawn}</a>'
