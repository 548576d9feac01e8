"""What a long run did, as a table, and its place in the manual."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from tests.fault.ledger import ROOT, Ledger
from tests.fault.tally import FAULTS, SOMETIMES

__all__ = ["sometimes_missing", "table", "timings", "write_into_manual"]

PAGE = ROOT / "docs" / "explanation" / "guarantees.md"
BEGIN, END = "<!-- the long run writes from here -->", "<!-- to here -->"


def table(ledger: Ledger, commit: str, processes: int) -> str:
    """The run in Markdown: every fault with its count and what was found, failures and what is missing too."""
    at = datetime.fromtimestamp(ledger.first_at, UTC)
    failed = [each for each in ledger.rounds if each.found]
    counts = ledger.counts()
    lines = [
        f"The last long run: {at:%-d %B %Y}, commit `{commit}`, seed {ledger.seed}, {len(ledger.rounds):,} rounds in "
        f"{ledger.seconds / 60:.0f} minutes, {processes} processes at a time.",
        "",
        "| fault | times | rounds | what was found |",
        "| --- | ---: | ---: | --- |",
    ]
    for fault, asked in FAULTS.items():
        rounds = [each for each in ledger.rounds if each.faults.get(fault)]
        times = f"{counts[fault]:,}" + (f" of {asked:,}" if counts[fault] < asked else "")
        broken = [each for each in rounds if each.found]
        found = "nothing" if not broken else f"{len(broken)} {'rounds' if len(broken) > 1 else 'round'} failed"
        lines.append(f"| {fault} | {times} | {len(rounds):,} | {found if rounds else 'not brought about'} |")
    sometimes = ledger.sometimes()
    came_to = [f"{name} {sometimes[name]:,} times" for name in SOMETIMES if sometimes[name]]
    lines += ["", f"What the rounds came to: {'; '.join(came_to) or 'nothing'}."]
    if missing := sometimes_missing(ledger):
        lines += ["", f"It never came to: {'; '.join(missing)}."]
    if failed:
        lines += ["", "Rounds that failed:", ""]
        lines += [f"- `{_name(each.test)}`, seed {each.seed}: {_plain(each.found)}" for each in failed]
    return "\n".join(lines)


def sometimes_missing(ledger: Ledger) -> list[str]:
    """What never happened: a run without it proves nothing."""
    sometimes = ledger.sometimes()
    return [name for name in SOMETIMES if not sometimes[name]]


def timings(ledger: Ledger) -> str:
    """How long each test's rounds took, and what that makes for each fault."""
    seconds: dict[str, float] = defaultdict(float)
    lines = []
    for test, rounds in ledger.by_test().items():
        took = sum(each.seconds for each in rounds)
        brought = sum(sum(each.faults.values()) for each in rounds)
        lines.append(f"{took:8.1f} s {len(rounds):4} rounds {brought:5} faults  {_name(test)}")
        for fault in {fault for each in rounds for fault in each.faults}:
            seconds[fault] += took
    counts = ledger.counts()
    lines += [f"{seconds[fault] / counts[fault]:8.2f} s a fault ({counts[fault]})  {fault}" for fault in counts]
    return "\n".join(lines)


def write_into_manual(text: str, page: Path = PAGE) -> None:
    """Put the table where the last one stands."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{page} has no place for the table: {BEGIN}"
    assert end, f"{page} has no end of the place for the table: {END}"
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _name(test: str) -> str:
    return test.rpartition("/")[2]


def _plain(text: str) -> str:
    """On one line, with nothing that Markdown would take for its own."""
    return re.sub(r"[|<>`*_\[\]]", " ", text)[:300]
