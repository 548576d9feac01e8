"""A page: what may fill the screen. It is a title, lines about what needs attention, and a table with a row selected.

A row is selected by its name, so that it stays selected while others pass it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from penstock.app import App
from penstock.cli.live.attention import Concern, Weight
from penstock.cli.live.rows import QueueRow
from penstock.cli.terminal import GAP, STYLES, Column, fit, pad
from penstock.visible import visible

__all__ = ["MOST_ROWS", "Page", "Row", "Seen", "View", "line", "weight_style"]

# So many of what may be very many are read.
MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its name, its cells, how some of them look, and what it is about."""

    name: str
    cells: Sequence[str]
    styles: Mapping[str, str] = field(default_factory=dict)
    about: Any = None


class Seen(NamedTuple):
    """What there is to be shown of the whole system: the queues that are wanted, in their order, and what is wrong."""

    rows: Sequence[QueueRow]
    concerns: Sequence[Concern]
    order: str


class View(NamedTuple):
    """What a page shows now; `notes` is what needs attention. Of one that `folds` no line is cut."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str
    notes: Sequence[Concern] = ()
    sorted_by: str = ""
    folds: bool = False


class Page:
    """One page. `hints` are the keys that do something here, `queue` is the one that acts are about."""

    hints: ClassVar[tuple[str, ...]] = ()

    def __init__(self, queue: str | None = None) -> None:
        self.queue = queue
        self.selected: str | None = None
        self.data: Any = None
        self.trouble: str | None = None
        self._first = 0
        self._rows: Sequence[Row] = ()
        self._room = 1

    def read(self, app: App) -> Any:
        """What the page needs beside the look at the whole; in the reader's thread."""
        return None

    def hint_line(self, columns: int) -> str:
        """The keys, as many as there is room for; how to get help, and away, is always said."""
        last = ["? help", "q quit"]
        shown = list(self.hints)
        while shown and len("  ".join([*shown, *last])) > columns:
            shown.pop()
        return "  ".join([*shown, *last])

    def view(self, seen: Seen) -> View:
        """What there is to show."""
        raise NotImplementedError

    @property
    def row(self) -> Row | None:
        """The one that is selected."""
        return next((row for row in self._rows if row.name == self.selected), None)

    def move(self, key: str) -> None:
        """Select another row."""
        if not self._rows:
            return
        names = [row.name for row in self._rows]
        at = names.index(self.selected) if self.selected in names else 0
        step = {"up": -1, "down": 1, "page up": -self._room, "page down": self._room}.get(key, 0)
        at = 0 if key == "home" else len(names) - 1 if key == "end" else at + step
        self.selected = names[max(0, min(at, len(names) - 1))]

    def draw(self, view: View, columns: int, lines: int) -> list[Text]:
        """The table, as much of it as there is room for, around the selected row."""
        self._rows = rows = _fold(view.rows, columns - GAP) if view.folds else view.rows
        if not rows:
            return [line(self.trouble or view.empty, "yellow" if self.trouble else "dim")]
        titles = [_title(column, view.sorted_by) for column in view.columns]
        cells = [[visible(cell) for cell in row.cells] for row in rows]
        widths = [max(cell_len(each) for each in column) for column in zip(titles, *cells, strict=True)]
        widths = fit(view.columns, widths, columns - GAP)
        head = [_draw_row("  ", titles, widths, view.columns, ["bold"] * len(titles))] if any(titles) else []
        self._room = max(lines - len(head), 1)
        at = self._keep_in_sight()
        drawn = [*head]
        for number in range(self._first, min(self._first + self._room, len(cells))):
            row = rows[number]
            styles = [
                row.styles.get(column.title, STYLES.get(cell, ""))
                for column, cell in zip(view.columns, cells[number], strict=True)
            ]
            text = _draw_row("> " if number == at else "  ", cells[number], widths, view.columns, styles)
            if number == at:
                text.stylize("reverse")
                text.pad_right(columns - text.cell_len)
            drawn.append(text)
        return drawn

    def _keep_in_sight(self) -> int:
        names = [row.name for row in self._rows]
        if self.selected not in names:
            # It is gone: the row that has its place now.
            self.selected = names[min(self._first, len(names) - 1)]
        at = names.index(self.selected)
        self._first = max(min(self._first, at, len(names) - self._room), at - self._room + 1, 0)
        return at


def line(text: str, style: str = "") -> Text:
    """One line, whatever is in the text."""
    return Text(visible(text), style=style, no_wrap=True, end="")


def weight_style(weight: Weight) -> str:
    """How something so bad looks."""
    return "bold red" if weight in (Weight.STANDS, Weight.FAILS) else "yellow"


def _fold(rows: Sequence[Row], width: int) -> list[Row]:
    """Rows of one cell, in as many lines as each takes; further ones of a line begin as far to the right."""
    folded: list[Row] = []
    for row in rows:
        text = visible(row.cells[0])
        indent = " " * min(len(text) - len(text.lstrip()), width // 2)
        pieces = chop_cells(text[len(indent) :], max(width - len(indent), 1)) or [""]
        folded += [Row(f"{row.name}.{number}", [indent + piece]) for number, piece in enumerate(pieces)]
    return folded


def _title(column: Column, sorted_by: str) -> str:
    return f"{column.title}*" if column.title and column.title == sorted_by else column.title


def _draw_row(
    mark: str, cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column], styles: Sequence[str]
) -> Text:
    text = Text(mark, no_wrap=True, end="")
    for cell, width, column, style in zip(cells, widths, columns, styles, strict=True):
        if width:
            text.append(pad(cell, width, column), style)
            text.append(" " * GAP)
    text.rstrip()
    return text
