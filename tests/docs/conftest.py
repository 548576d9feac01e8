"""The manual as the tests see it: its pages, and the blocks of code on them.

A `python` block runs unless the line before it says `<!-- not run: why -->`. A block that begins with a file's name in
a comment (`# tasks.py`) is that file; the others of a page run one after another, as one program in a folder of its
own. What they print stands beside them in comments: `print(x)  # → 3`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "PAGES", "ROOT", "Block", "blocks", "list_runnable", "run_page", "uses_spark"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_FENCE = re.compile(r"^```(\S*)\s*$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FILE = re.compile(r"^# ([a-z_]+\.py)$")
_RUN = "import pathlib, sys; exec(compile(pathlib.Path('program').read_text('utf-8'), sys.argv[1], 'exec'))"
_ARROW = "# → "


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


def list_runnable(page: Path) -> list[Block]:
    """The blocks of a page that are run."""
    return [block for block in blocks(page) if block.language == "python" and block.not_run is None]


def uses_spark(page: Path) -> bool:
    """Whether what is run of a page has a Spark session."""
    return any("ps.session(" in block.text for block in list_runnable(page))


def run_page(page: Path, folder: Path, environment: Mapping[str, str], at_end: str = "") -> None:
    """Run the program of a page in a folder, and compare what it prints with what the page says."""
    program: list[str] = []
    said: list[str] = []
    for block in list_runnable(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
            continue
        # The program's lines have the numbers they have on the page, so that a traceback points there.
        program += [""] * (block.line - 1 - len(program)) + block.lines
        said += [line.split(_ARROW, 1)[1] for line in block.lines if _ARROW in line]
    (folder / "program").write_text("\n".join(program) + "\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", *arguments]
        surroundings = {**os.environ, "PYTHONPATH": path, **environment}
        return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=300)

    done = run("-c", _RUN + at_end, page.relative_to(ROOT).as_posix())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == said, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    if list(folder.glob("test_*.py")):
        tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider")
        assert tested.returncode == 0, tested.stdout
