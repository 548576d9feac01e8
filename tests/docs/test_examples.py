"""Every example of the manual runs, and prints what the page says it prints."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.conftest import PAGES, ROOT, Block, blocks

_RUN = "import pathlib, sys; exec(compile(pathlib.Path('program').read_text('utf-8'), sys.argv[1], 'exec'))"
_ARROW = "# → "


def _runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" and block.not_run is None]


PAGES_THAT_RUN = [page for page in PAGES if _runnable(page)]


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_and_print_what_it_says(page: Path, database_url: str, tmp_path: Path) -> None:
    program: list[str] = []
    said: list[str] = []
    for block in _runnable(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            continue
        # The program's lines have the numbers they have on the page, so that a traceback points there.
        program += [""] * (block.line - 1 - len(program)) + block.lines
        said += [line.split(_ARROW, 1)[1] for line in block.lines if _ARROW in line]
    (tmp_path / "program").write_text("\n".join(program) + "\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PENSTOCK_URL": database_url, "PYTHONPATH": path}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    done = run("-c", _RUN, page.relative_to(ROOT).as_posix())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == said, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    if list(tmp_path.glob("test_*.py")):
        tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider")
        assert tested.returncode == 0, tested.stdout


def test_an_example_that_is_not_run_says_why() -> None:
    unexplained = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.not_run is not None and len(block.not_run.split()) < 3
    ]
    assert unexplained == []


def test_every_block_names_its_language() -> None:
    unnamed = [f"{page.relative_to(ROOT)}:{b.line}" for page in PAGES for b in blocks(page) if not b.language]
    assert unnamed == []


def test_every_python_block_is_python() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                ast.parse(block.text, f"{page.relative_to(ROOT)}:{block.line}")
