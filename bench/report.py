"""Figures: what was measured, against what, which bar it has to pass and whether it did.

A figure has one value a repeat and is stated as their median. A comparison is made repeat by repeat, of two values
taken right after each other, and stated as the median of these ratios: noise that lasts longer than a repeat cancels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "Report"]


@dataclass
class Figure:
    """One line of a table. A bar applies to the ratio where there is one, else to the value."""

    name: str
    unit: str
    values: Sequence[float]
    against: str | None = None
    against_values: Sequence[float] | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def ratio(self) -> float | None:
        if self.against_values is None:
            return None
        return median(mine / other for mine, other in zip(self.values, self.against_values, strict=True))

    @property
    def is_met(self) -> bool | None:
        """None where there is no bar."""
        judged = self.value if self.ratio is None else self.ratio
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or judged >= self.at_least) and (self.at_most is None or judged <= self.at_most)

    @property
    def bar(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    def as_json(self) -> dict[str, object]:
        derived = {"median": self.value, "ratio": self.ratio, "is_met": self.is_met}
        found = {**asdict(self), **derived}
        return {name: _rounded(value) for name, value in found.items() if value is not None}


@dataclass
class Report:
    """What one question's run found."""

    name: str
    question: str
    setting: dict[str, object]
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def print(self, console: Console) -> None:
        table = Table(title=self.question, title_justify="left", title_style="bold", caption_justify="left")
        table.add_column("figure")
        for column in ("median", "lowest to highest"):
            table.add_column(column, justify="right")
        table.add_column("against")
        for column in ("its median", "ratio", "bar", "met"):
            table.add_column(column, justify="right")
        for figure in self.figures:
            table.add_row(
                figure.name,
                f"{_readable(figure.value)} {figure.unit}",
                f"{_readable(min(figure.values))} to {_readable(max(figure.values))}",
                figure.against or "",
                "" if figure.against_values is None else _readable(median(figure.against_values)),
                "" if figure.ratio is None else f"{figure.ratio:.2f}",
                figure.bar,
                {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[figure.is_met],
            )
        console.print()
        console.print(table)
        for note in self.notes:
            console.print(f"  {note}", style="dim", highlight=False)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        found = {
            "question": self.question,
            "setting": self.setting,
            "figures": [figure.as_json() for figure in self.figures],
            "notes": self.notes,
        }
        path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def _readable(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value
