"""`python -m bench [name …] [--quick] [--repeats N] [--output FOLDER]`: measure, print tables, write JSON.

`python -m bench compare COMMIT [name …]`: the same beside an earlier commit (see `compare`).
"""

from __future__ import annotations

import argparse
import signal
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console

from bench import compare
from bench.report import Figure
from bench.run import Run
from bench.server import started_server

QUESTIONS = (
    "cycle",
    "bulk_enqueue",
    "single_enqueue",
    "meeting_calls",
    "copy_or_insert",
    "backlog",
    "many_partitions",
    "held_transaction",
    "producers",
    "pickup",
    "worker_cost",
    "middleware",
    "batches",
    "metrics",
    "memory",
    "storage_json",
    "history_form",
    "ordered",
    "deep_key",
    "hot_key",
    "held_key",
    "limit_slots",
    "total_limit",
    "total_rate",
    "fairness",
    "resizing",
    "spark_load",
    "body_load",
    "key_routing",
    "spark_process",
    "archive",
    "history_filter",
    "shard_commits",
    "shard_spread",
    "shard_routing",
    "shard_killed",
    "once_under_kills",
    "http_calls",
    "http_reads",
    "http_misses",
    "dashboard",
    "remote_worker",
)
ONLY_WHEN_NAMED = ("peers",)
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    # Ended from outside, everything that was started is still cleared away.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if sys.argv[1:2] == ["compare"]:
        sys.exit(compare.main(sys.argv[2:]))
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 160)
    found: list[tuple[str, Figure]] = []
    for name in options.names or QUESTIONS:
        question = import_module(f"bench.{name}")
        repeats = options.repeats or (1 if options.quick else 3)
        with started_server() as server:
            run = Run(name, question.QUESTION, server, console, quick=options.quick, repeats=repeats)
            question.measure(run)
        run.report.print(console)
        console.print(
            f"  {run.report.write(options.output or RESULTS / ('quick' if options.quick else ''))}", style="dim"
        )
        found += [(name, figure) for figure in run.report.figures]
    _sum_up(console, found, quick=options.quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Penstock's figures, beside what they face.")
    known = (*QUESTIONS, *ONLY_WHEN_NAMED)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"any of: {', '.join(known)}; without: all but {ONLY_WHEN_NAMED[0]}"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works: no figures to quote")
    parser.add_argument("--repeats", type=int, help="how often each is measured (3; with --quick 1)")
    parser.add_argument("--output", type=Path, help="where the JSON goes (bench/results)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no question is named {unknown[0]!r}; there are: {', '.join(known)}")
    return options


def _sum_up(console: Console, found: list[tuple[str, Figure]], *, quick: bool) -> None:
    judged = [(name, figure) for name, figure in found if figure.is_met is not None]
    missed = [f"{name}: {figure.name}" for name, figure in judged if not figure.is_met]
    console.print(f"\n{len(judged) - len(missed)} of {len(judged)} bars met", style="bold")
    for line in missed:
        console.print(f"  missed: {line}", style="red", highlight=False)
    if quick:
        console.print("  --quick shows that everything runs; its figures are too short to judge by", style="dim")


if __name__ == "__main__":
    main()
