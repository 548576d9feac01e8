"""A question under way: its server, how large and how often to measure, and what was found so far."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Console

from bench.report import Figure, Report
from bench.server import DURABILITY, Server

__all__ = ["Run"]


class Run:
    """What each question's `measure` is given."""

    def __init__(self, name: str, question: str, server: Server, console: Console, *, quick: bool, repeats: int):
        self.server = server
        self.is_quick = quick
        self._repeats = repeats
        self._console = console
        settings = server.settings()
        if unsafe := [setting for setting in DURABILITY if settings[setting] != "on"]:
            raise SystemExit(f"{', '.join(unsafe)} must be on: figures without durability are not compared here")
        setting: dict[str, object] = {
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "is_quick": quick,
            "cores": os.cpu_count(),
            "machine": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "postgresql": settings,
        }
        self.report = Report(name, question, setting)

    def size(self, full: int, quick: int) -> int:
        """How much of something to measure."""
        return quick if self.is_quick else full

    def repeats(self, most: int | None = None) -> Iterator[int]:
        """Once for each repeat; says where it is."""
        total = self._repeats if most is None else min(self._repeats, most)
        for number in range(1, total + 1):
            self.say(f"{self.report.name}: repeat {number} of {total}")
            yield number

    def say(self, text: str) -> None:
        """What is going on, for whoever waits."""
        self._console.print(text, style="dim", highlight=False)

    def state(
        self,
        name: str,
        unit: str,
        values: Sequence[float],
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Note a figure of its own."""
        self.report.figures.append(Figure(name, unit, list(values), at_least=at_least, at_most=at_most))

    def compare(
        self,
        name: str,
        unit: str,
        values: Sequence[float],
        against: str,
        against_values: Sequence[float],
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Note a figure beside what it is compared to, repeat by repeat."""
        self.report.figures.append(
            Figure(name, unit, list(values), against, list(against_values), at_least=at_least, at_most=at_most)
        )

    def note(self, text: str) -> None:
        """What a reader of the figures must know."""
        self.report.notes.append(text)
