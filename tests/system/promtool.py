"""Prometheus's own judge: its promtool checks what is scraped, and evaluates rules and queries on it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.system.scraped import Scraped

__all__ = ["Query", "check_metrics", "check_rules", "evaluate", "run_promtool", "series_of"]


class Query(NamedTuple):
    """A query and what it must give, each sample by its labels, after so many minutes."""

    expression: str
    samples: Mapping[str, float]
    minutes: int = 45


def run_promtool(*words: str, text: bytes = b"") -> str:
    """What it says; where it finds anything wrong that is an AssertionError."""
    program = shutil.which("promtool")
    assert program is not None, "no promtool: install Prometheus (Debian: apt-get install prometheus)"
    run = subprocess.run([program, *words], input=text, capture_output=True)
    said = (run.stdout + run.stderr).decode()
    assert run.returncode == 0, said
    return said


def check_metrics(text: bytes) -> None:
    """Nothing in a text is such that Prometheus would take it otherwise than meant."""
    assert run_promtool("check", "metrics", text=text) == ""


def check_rules(rules: Path) -> str:
    return run_promtool("check", "rules", str(rules))


def series_of(*told: Scraped, instance: str = "a:1") -> list[dict[str, str]]:
    """The series of what was scraped every minute; the last of several stays, the others stood for ten minutes each."""
    names = {(name, labels) for each in told for name, series in each.samples.items() for labels in series}
    found = []
    for name, labels in sorted(names, key=str):
        values = [each.samples.get(name, {}).get(labels) for each in told]
        steps = [f"{_number(value)}x{240 if n == len(values) - 1 else 9}" for n, value in enumerate(values)]
        given = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted({*labels, ("instance", instance)}))
        found.append({"series": f"{name}{{{given}}}", "values": " ".join(steps)})
    return found


def evaluate(folder: Path, rules: Path, series: Iterable[Mapping[str, str]], queries: Iterable[Query]) -> None:
    """Evaluate rules every minute and ask what came of it. YAML takes JSON."""
    tests: dict[str, Any] = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": list(series),
                "promql_expr_test": [
                    {
                        "expr": query.expression,
                        "eval_time": f"{query.minutes}m",
                        "exp_samples": [{"labels": labels, "value": value} for labels, value in query.samples.items()],
                    }
                    for query in queries
                ],
            }
        ],
    }
    file = folder / "tests.json"
    file.write_text(json.dumps(tests))
    run_promtool("test", "rules", str(file))


def _number(value: float | None) -> str:
    return "_" if value is None else f"{value!r}+0"
