"""`python -m bench compare COMMIT [name …]`: what is here beside an earlier commit, in one run.

Each side is a commit in a worktree of its own and is measured by its own `bench`, so that a question may read tables
that the other side does not have. Sides take turns in the order A B B A, so that what drifts over minutes meets both;
neighbours of one side (A A and B B) are compared too, and tell what the machine does to two measurements of the same.

A ratio above 1 means better than the earlier commit, whatever the unit. It is stated as the median over the pairs, with
the interval that holds the true median in 95 of 100 cases, whatever the noise looks like. Worse is what lies below 0.95
with its whole interval; with fewer than 7 pairs, or with --quick, nothing is judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.commits import commit_of, git, in_worktree, run_in

__all__ = ["Ratio", "main"]

QUESTIONS = ("cycle", "ordered", "bulk_enqueue", "single_enqueue", "pickup", "spark_load")
FEWEST_PAIRS = 7
WORSE_BELOW = 0.95
CONFIDENCE = 0.95
RESULTS = Path(__file__).parent / "results"
MORE_IS_BETTER = "/s"
LESS_IS_BETTER = ("s", "ms", "µs/job", "bytes", "bytes/job", "MB", "MiB")

Values = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Ratio:
    """How much better one side is: one number a pair."""

    pairs: Sequence[float]

    @property
    def middle(self) -> float:
        return median(self.pairs)

    @property
    def interval(self) -> tuple[float, float]:
        """Two of the pairs, between which the median lies with the confidence stated; the outermost if none do."""
        ordered = sorted(self.pairs)
        outside = 0.0
        inwards = 0
        for rank in range((len(ordered) - 1) // 2):
            outside += 2 * comb(len(ordered), rank) / 2 ** len(ordered)
            if outside > 1 - CONFIDENCE:
                break
            inwards = rank
        return ordered[inwards], ordered[-1 - inwards]

    @property
    def is_worse(self) -> bool:
        return len(self.pairs) >= FEWEST_PAIRS and self.interval[1] < WORSE_BELOW

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.middle:.2f} ({low:.2f} to {high:.2f})"


@dataclass(frozen=True)
class Finding:
    """One figure of both sides."""

    question: str
    figure: str
    unit: str
    before: Sequence[float]
    now: Sequence[float]

    @property
    def ratio(self) -> Ratio:
        return Ratio([self._better(now, before) for before, now in zip(self.before, self.now, strict=True)])

    @property
    def same(self) -> Ratio | None:
        """Neighbours of one side; none where there was one pair only."""
        found = []
        for number in range(len(self.before) - 1):
            side = self.now if number % 2 == 0 else self.before
            found.append(self._better(side[number + 1], side[number]))
        return Ratio(found) if found else None

    def _better(self, one: float, other: float) -> float:
        return one / other if self.unit.endswith(MORE_IS_BETTER) else other / one

    def as_json(self) -> dict[str, object]:
        return {
            "question": self.question,
            "figure": self.figure,
            "unit": self.unit,
            "before": list(self.before),
            "now": list(self.now),
            "ratio": self.ratio.middle,
            "interval": self.ratio.interval,
            "same_side": None if self.same is None else self.same.interval,
            "is_worse": self.ratio.is_worse,
        }


def main(arguments: Sequence[str], repository: Path = Path(__file__).parents[1]) -> int:
    """Measure, print and write; 1 where something is worse."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    before, now = commit_of(repository, options.commit), _here(repository)
    _warn(console, repository, before, now)
    found: list[Finding] = []
    with in_worktree(repository, before) as old, in_worktree(repository, now) as new:
        for name in options.names or QUESTIONS:
            found += _measure(console, name, old, new, options)
    _print(console, found, before, now)
    is_judged = options.pairs >= FEWEST_PAIRS and not options.quick
    _write(options.output or RESULTS, before, now, options.pairs, found, is_judged=is_judged)
    if not is_judged:
        console.print(f"  nothing is judged by --quick or by fewer than {FEWEST_PAIRS} pairs", style="dim")
        return 0
    worse = [f"{each.question}: {each.figure}" for each in found if each.ratio.is_worse]
    console.print(f"\n{len(worse)} of {len(found)} figures are worse", style="bold")
    for line in worse:
        console.print(f"  worse: {line}", style="red", highlight=False)
    return 1 if worse else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench compare", description="What is here, beside a commit.")
    parser.add_argument("commit", help="the earlier side: anything that git takes for a commit")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which questions; without: {', '.join(QUESTIONS)}")
    parser.add_argument("--pairs", type=int, default=FEWEST_PAIRS, help=f"how many of A and B ({FEWEST_PAIRS})")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works: nothing is judged")
    parser.add_argument("--output", type=Path, help="where compare.json goes (bench/results)")
    options = parser.parse_args(arguments)
    if options.pairs < 1:
        parser.error("--pairs: at least 1")
    return options


def _measure(console: Console, name: str, old: Path, new: Path, options: argparse.Namespace) -> list[Finding]:
    before: list[Values] = []
    now: list[Values] = []
    for pair in range(options.pairs):
        sides = [(old, before), (new, now)]
        for worktree, values in sides if pair % 2 == 0 else reversed(sides):
            side = "before" if worktree is old else "now"
            console.print(f"{name}: pair {pair + 1} of {options.pairs}, {side}", style="dim", highlight=False)
            values.append(_run(worktree, name, quick=options.quick))
    shared = [figure for figure in before[0] if figure in now[0]]
    for figure, _ in before[0].keys() ^ now[0].keys():
        console.print(f"  {name}: {figure!r} is measured by one side only", style="yellow", highlight=False)
    return [
        Finding(name, figure, unit, [each[figure, unit] for each in before], [each[figure, unit] for each in now])
        for figure, unit in shared
    ]


def _run(worktree: Path, name: str, *, quick: bool) -> Values:
    """One repeat of a question by the bench of a worktree, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-compare-") as folder:
        command = [sys.executable, "-m", "bench", name, "--repeats", "1", "--output", folder]
        command = [*command, "--quick"] if quick else command
        run_in(f"bench {name}", command, worktree, [worktree / "src", worktree])
        report: dict[str, Any] = json.loads((Path(folder) / f"{name}.json").read_text(encoding="utf-8"))
    return {
        (figure["name"], figure["unit"]): median(figure["values"])
        for figure in report["figures"]
        if figure["unit"].endswith(MORE_IS_BETTER) or figure["unit"] in LESS_IS_BETTER
    }


def _here(repository: Path) -> str:
    """What is here as a commit, with changes that were not committed; files that git does not know are left out."""
    return git(repository, "stash", "create") or commit_of(repository, "HEAD")


def _warn(console: Console, repository: Path, before: str, now: str) -> None:
    if now != commit_of(repository, "HEAD"):
        console.print("changes that are not committed are measured too", style="yellow")
    if git(repository, "diff", "--name-only", before, now, "--", "requirements"):
        console.print("both sides are measured with the packages installed here, not with those locked then")


def _print(console: Console, found: Sequence[Finding], before: str, now: str) -> None:
    table = Table(title=f"{now[:7]} beside {before[:7]}: above 1 is better", title_justify="left", title_style="bold")
    for column in ("question", "figure"):
        table.add_column(column)
    for column in ("before", "now", "ratio, interval", "of the same", "worse"):
        table.add_column(column, justify="right")
    for each in found:
        table.add_row(
            each.question,
            f"{each.figure}, {each.unit}",
            f"{median(each.before):,.4g}",
            f"{median(each.now):,.4g}",
            str(each.ratio),
            "" if each.same is None else str(each.same),
            "[red]yes[/]" if each.ratio.is_worse else "",
        )
    console.print()
    console.print(table)


def _write(folder: Path, before: str, now: str, pairs: int, found: Sequence[Finding], *, is_judged: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    report: Mapping[str, object] = {
        "before": before,
        "now": now,
        "pairs": pairs,
        "is_judged": is_judged,
        "figures": [each.as_json() for each in found],
    }
    (folder / "compare.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
