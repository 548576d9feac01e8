"""Every example of the manual runs, and prints what the page says it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.conftest import PAGES, ROOT, Block, blocks

_RUN = "import sys; exec(compile(open(sys.argv[1], encoding='utf-8').read(), sys.argv[2], 'exec'))"
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

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _RUN, "program", page.relative_to(ROOT).as_posix()],
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_URL": database_url, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == said, run.stderr
    assert "Traceback" not in run.stderr, run.stderr


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


def test_the_examples_read_like_the_code() -> None:
    """Python blocks are formatted as the code is: what a reader copies passes the same checks."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                compile(block.text, f"{page.name}:{block.line}", "exec", flags=0x2000)  # top-level await is allowed
