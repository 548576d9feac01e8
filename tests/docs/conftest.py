"""The manual as the tests see it: its pages, and the blocks of code on them.

A `python` block runs unless the line before it says `<!-- not run: why -->`. A block that begins with a file's name in
a comment (`# tasks.py`) is that file; the others of a page run one after another, as one program in a folder of its
own. What they print stands beside them in comments: `print(x)  # → 3`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "PAGES", "ROOT", "Block", "blocks"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_FENCE = re.compile(r"^```(\S*)\s*$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FILE = re.compile(r"^# ([a-z_]+\.py)$")


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is the first line of its text; `not_run` says why it is not run, where it is not."""

    language: str
    line: int
    lines: list[str]
    not_run: str | None

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it is one."""
        named = _FILE.match(self.lines[0]) if self.lines else None
        return named[1] if named else None


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    found: list[Block] = []
    inside: Block | None = None
    before = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            skipped = _NOT_RUN.search(before)
            inside = Block(fence[1], number + 1, [], skipped[1] if skipped else None)
        elif inside is not None and line == "```":
            found.append(inside)
            inside = None
        elif inside is not None:
            inside.lines.append(line)
        if line:
            before = line
    assert inside is None, f"{page} ends inside a block"
    return found
