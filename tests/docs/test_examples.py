"""Every example of the manual runs, and prints what the page says it prints."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.docs.conftest import PAGES, ROOT, blocks, list_runnable, run_page, uses_spark

# They begin with a look, which is refused before something has made a database, or hand the URL on to other drivers.
# Each of them makes a server, which takes seconds.
IN_AN_EMPTY_FOLDER = [
    ROOT / "docs" / name
    for name in ("tutorial.md", "how-to/cron.md", "how-to/enqueue-in-your-transaction.md", "how-to/two-environments.md")
]
OTHERS = [page for page in PAGES if list_runnable(page) and not uses_spark(page) and page not in IN_AN_EMPTY_FOLDER]


@pytest.mark.parametrize("page", IN_AN_EMPTY_FOLDER, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_without_a_url_as_its_reader_tries_them(page: Path, folder: Path) -> None:
    run_page(page, folder, {})


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_and_print_what_it_says(page: Path, database_url: str, tmp_path: Path) -> None:
    run_page(page, tmp_path, {"PENSTOCK_URL": database_url})


def test_the_examples_of_the_readme_run_and_print_what_it_says(database_url: str, tmp_path: Path) -> None:
    # With a JVM of its own, as its reader runs it; a URL, for of its apps without one the second wants other servers.
    run_page(ROOT / "README.md", tmp_path, {"PENSTOCK_URL": database_url})


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
