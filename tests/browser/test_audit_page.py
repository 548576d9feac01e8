"""The audit in a real browser: newest first, by filters, page after page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import PHONE, Looking, looking
from tests.browser.test_report_page import HOSTILE

from penstock import App
from penstock.acting import Actor, acting_as
from penstock.server.dashboard.pages.audit import MOST_ENTRIES


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.queue("mail")
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def test_it_tells_who_did_what_and_what_came_of_it(someone: Looking) -> None:
    with acting_as(Actor("ann", "http", "10.1.2.3")):
        someone.app.limit("mail", limit=5)
    page = someone.open("/audit")
    first = page.locator("#entries tbody tr").first
    expect(first.locator("td").nth(1)).to_have_text("ann")
    assert [text.strip() for text in first.locator("td").all_inner_texts()][2:7] == [
        "http\n10.1.2.3", "limit", "mail", "", "done",
    ]  # fmt: skip
    first.get_by_text("1 value").click()
    expect(first.locator("pre")).to_contain_text('"limit": 5')
    # What happens comes to the top, and what was opened stays open.
    with acting_as(Actor("ben", "cli")):
        someone.app.pause("mail")
    expect(page.locator("#entries tbody tr").first.locator("td").nth(1)).to_have_text("ben")
    expect(page.locator("#entries pre").first).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_filters_are_in_the_address_and_pages_go_on(someone: Looking, scripts: bool) -> None:
    for _ in range(MOST_ENTRIES // 2 + 5):
        with acting_as(Actor("ann", "http")):
            someone.app.pause("mail")
        with acting_as(Actor("ben", "http")):
            someone.app.resume("mail")
    context = someone.new_context(scripts=scripts)
    page = someone.open("/audit", context)
    rows = page.locator("#entries tbody tr")
    expect(rows).to_have_count(MOST_ENTRIES)
    page.get_by_role("link", name="Older ones").click()
    every = someone.app.audit(limit=1_000)
    expect(rows).to_have_count(len(every) - MOST_ENTRIES)
    expect(page.get_by_role("link", name="Older ones")).to_have_count(0)
    page.get_by_role("link", name="The newest").click()
    page.get_by_label("Who").fill("ann")
    page.get_by_label("Act").fill("pause")
    page.get_by_label("On what").fill("mail")
    page.get_by_label("Since").select_option("the last hour")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(MOST_ENTRIES // 2 + 5)
    assert "actor=ann&act=pause&target=mail&since=1h" in page.url
    expect(page.get_by_label("Who")).to_have_value("ann")
    expect(page.get_by_label("Since")).to_have_value("1h")
    page.goto(f"{someone.url}/audit?since=2100-01-01T00:00:00Z")
    expect(page.get_by_text("Nothing like that was done")).to_be_visible()
    expect(page.get_by_label("Since")).to_have_value("2100-01-01T00:00:00Z")
    page.get_by_role("link", name="All", exact=True).click()
    expect(rows).to_have_count(MOST_ENTRIES)


def test_what_stands_there_is_only_text(someone: Looking) -> None:
    hostile = HOSTILE.replace("\x00", "\x1b")
    someone.app.set_cron(hostile, "@daily", "mail", "send")
    with acting_as(Actor(hostile, "http", "::1")):
        someone.app.pause("mail")
        someone.app.set_cron("x" * 200, "@daily", "mail", hostile)
    page = someone.open("/audit", someone.new_context(width=PHONE, scheme="dark"))
    expect(page.get_by_text("<script>").first).to_be_visible()
    page.locator("#entries tbody tr").nth(1).get_by_role("link").first.click()
    expect(page.locator("#entries tbody tr")).to_have_count(2)
    expect(page.get_by_label("Who")).to_have_value(hostile)


def test_whoever_reads_only_some_queues_is_not_told(someone: Looking) -> None:
    narrow = someone.sign_in("read", queues=["mail"])
    page = someone.open("/", narrow)
    expect(page.get_by_role("navigation").get_by_role("link", name="Audit")).to_have_count(0)
    page.goto(f"{someone.url}/audit")
    expect(page.get_by_role("alert")).to_contain_text("a token for some queues may not do this")
    someone.said.clear()  # The browser says that the page was refused.
