"""What is printed: tables and facts for a person at a terminal, plain lines for a pipe, JSON for a program.

A table fits the terminal it is shown in: columns that can be spared go first, then the one that may be cut is cut.
Without a terminal nothing is cut and nothing is coloured. Nothing that is printed is read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.visible import as_json_text, visible

__all__ = [
    "GAP",
    "STYLES",
    "Column",
    "can_be_drawn_on",
    "complain",
    "fit",
    "is_terminal",
    "make_console",
    "pad",
    "say",
    "show_facts",
]
__all__ += ["show_json", "show_json_line", "show_table", "warn"]

STYLES = {
    "scheduled": "yellow",
    "blocked": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
    "discarded": "dim",
    "expired": "magenta",
    "paused": "yellow",
}
GAP = 2
LEAST_WIDTH = 12
BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column. One that is spared goes when there is no room, the last of them first; one that is cut gives way, but
    has up to `before_spared` of its width before any that is spared has a place.
    """

    title: str
    align: Literal["left", "right"] = "left"
    is_spared: bool = False
    is_cut: bool = False
    before_spared: int = LEAST_WIDTH


def is_terminal() -> bool:
    """Whether a person sees what is printed."""
    return make_console().is_terminal


def can_be_drawn_on() -> bool:
    """Whether what a person sees can be drawn anew in place."""
    console = make_console()
    return console.is_terminal and not console.is_dumb_terminal and not console.legacy_windows


def say(text: str = "", style: str = "") -> None:
    """One line, however long."""
    make_console().print(Text(visible(text), style=style), soft_wrap=True)


def complain(text: str) -> None:
    """One line of refusal, where the output does not go."""
    _tell("error: ", "bold red", text)


def warn(text: str) -> None:
    """One line about what is missing from the answer, where the output does not go."""
    _tell("warning: ", "bold yellow", text)


def show_json(value: Any) -> None:
    """A value as JSON."""
    raw = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(as_json_text(raw) + "\n")


def show_json_line(value: Any) -> None:
    """A value as one line of JSON, at once: somebody may read it as it comes."""
    sys.stdout.write(as_json_text(msgspec.json.encode(value)) + "\n")
    sys.stdout.flush()


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Rows under their titles."""
    cells = [[visible("" if cell is None else str(cell)) for cell in row] for row in rows]
    lines = [[column.title for column in columns], *cells]
    widths = [max(cell_len(line[index]) for line in lines) for index in range(len(columns))]
    console = make_console()
    if console.is_terminal:
        widths = fit(columns, widths, console.width)
    for number, line in enumerate(lines):
        text = Text(style="" if number else "bold")
        for cell, width, column in zip(line, widths, columns, strict=True):
            if width:
                text.append(pad(cell, width, column), STYLES.get(cell))
                text.append(" " * GAP)
        text.rstrip()
        console.print(text, soft_wrap=True)


class InPlace:
    """A line that is written over while it changes: at a terminal. In a pipe each change is a line."""

    def __init__(self) -> None:
        self._is_drawn = can_be_drawn_on()
        self._is_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn and self._is_begun:
            sys.stdout.write("\n")
            sys.stdout.flush()

    def show(
        self, text: str, style: str = "", part: float | None = None, *, is_new: bool = False, is_whole: bool = False
    ) -> None:
        """Show this instead of what was there, or, where it `is_new`, below; with a bar of how far it is. Only the last
        may be longer than a line.
        """
        if not self._is_drawn:
            sys.stdout.write(visible(text) + "\n")
            sys.stdout.flush()
            return
        console = make_console()
        said = visible(text)
        bar = "" if part is None else "  " + _bar(part, BAR_WIDTH)
        room = console.width - 1 - len(bar)
        if cell_len(said) > room and not is_whole:
            said = set_cell_size(said, max(room - 1, 0)) + "…"
        sys.stdout.write("\n" if is_new else "\r\x1b[K" if self._is_begun else "")
        self._is_begun = True
        console.print(Text.assemble((said, style), bar), end="", soft_wrap=True)
        sys.stdout.flush()


def show_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one beside the other; what there is nothing to say about is left out."""
    known = {name: str(value) for name, value in facts.items() if value is not None and value != ""}
    console = make_console()
    if not console.is_terminal:
        for name, value in known.items():
            sys.stdout.write(f"{name}: {_indent(visible(value, keeps_lines=True))}\n")
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in known.items():
        table.add_row(name, Text(visible(value, keeps_lines=True), style=STYLES.get(value, "")))
    console.print(table)


def _bar(part: float, width: int) -> str:
    done = round(min(max(part, 0.0), 1.0) * width)
    return f"[{'#' * done}{'-' * (width - done)}]"


def _tell(what: str, style: str, text: str) -> None:
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    console.print(Text.assemble((what, style), visible(text.replace("\n", " "))), soft_wrap=True)


def make_console() -> Console:
    """What prints to standard output."""
    # Made anew each time: it looks at the stream and the size of the terminal as they are now.
    return Console(markup=False, emoji=False, highlight=False)


def fit(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The widths there is room for; 0 for a column that goes."""
    fitted = [
        min(width, column.before_spared) if column.is_cut else width
        for column, width in zip(columns, widths, strict=True)
    ]

    def left() -> int:
        return room - sum(width + GAP for width in fitted if width) + GAP

    for index in reversed(range(len(columns))):
        if left() < 0 and columns[index].is_spared:
            fitted[index] = 0
    for index, column in enumerate(columns):
        if column.is_cut and fitted[index] and left() < 0:
            fitted[index] = max(fitted[index] + left(), min(fitted[index], LEAST_WIDTH))
    for index, width in enumerate(widths):
        if fitted[index]:
            fitted[index] += max(0, min(width - fitted[index], left()))
    return fitted


def pad(cell: str, width: int, column: Column) -> str:
    """A cell as wide as its column."""
    if cell_len(cell) > width:
        return set_cell_size(cell, width - 1) + "…"
    space = " " * (width - cell_len(cell))
    return space + cell if column.align == "right" else cell + space


def _indent(text: str) -> str:
    """Text of several lines, so that each further one cannot pass for a fact of its own."""
    return text.replace("\n", "\n  ")
