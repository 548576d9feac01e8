"""The overview in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import PHONE, SCREEN, Looking, check_page, looking

from penstock import App


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def test_an_empty_system_shows_how_to_begin_and_enqueues_an_example(someone: Looking) -> None:
    page = someone.open("/")
    expect(page.get_by_text("Nothing is here yet")).to_be_visible()
    assert "app.queue" in page.locator("pre").inner_text()
    page.get_by_role("button", name="Enqueue an example").click()
    expect(page).to_have_url(re.compile("/jobs/[0-9]+$"))
    (job,) = someone.app.jobs(queue="example")
    assert (job.task, page.url) == ("hello", f"{someone.url}/jobs/{job.id}")


@pytest.mark.parametrize(("width", "scheme"), [(SCREEN, "light"), (PHONE, "dark")])
def test_the_overview_shows_every_queue_and_follows_it(someone: Looking, width: int, scheme: str) -> None:
    queue = someone.app.queue("orders")

    @queue.task
    def book() -> None: ...

    book.enqueue()
    page = someone.open("/", someone.new_context(width=width, scheme=scheme))
    waiting = page.locator("#queue-orders td").nth(1)
    expect(waiting).to_have_text("1")
    check_page(page)
    book.enqueue_many([{}] * 4)
    expect(waiting).to_have_text("5", timeout=60_000)
