"""A real Chromium, and a page that must not complain, fetch or run anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

# No first-run pages, no calls home; a sandbox of its own does not work for root in a container.
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
# The first is the same browser without its windows, and takes half of the time for a page.
NAMES = ("chromium-headless-shell", "chromium", "google-chrome")

Open = Callable[..., Page]


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """For as long as a block lasts."""
    named = os.environ.get("PENSTOCK_CHROMIUM")
    found = named or next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.fail(
            "no Chromium: install it (Debian: apt-get install chromium-headless-shell), or name it in PENSTOCK_CHROMIUM"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, or the one $PENSTOCK_CHROMIUM names.

    Not for the whole run: while it is there an event loop runs in this thread, and no other test could run its own.
    """
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a page given as text. After the test it must have been silent and have asked for nothing but itself."""
    said: list[str] = []
    asked: list[str] = []
    pages: list[Page] = []

    def open_it(text: str, *, width: int = 1240, scheme: str = "light") -> Page:
        place = tmp_path / f"{len(pages)}.html"
        place.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(place.as_uri())
        pages.append(page)
        return page

    yield open_it
    assert said == []
    assert len(asked) == len(pages)
    for page in pages:
        page.close()
