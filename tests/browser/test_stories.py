"""Two tasks of somebody who never saw the dashboard, in at most five clicks each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect
from tests.browser.dashboard_world import Looking, looking
from tests.browser.shop import SPIKE, STUCK, Shop, open_shop
from tests.system.facts import eventually

MOST_CLICKS = 5


class Clicks:
    """Clicks that are counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, what: Locator) -> None:
        what.click()
        self.count += 1


@pytest.fixture
def shop(database_url: str) -> Iterator[Shop]:
    with open_shop(database_url) as shop:
        yield shop


@pytest.fixture
def someone(shop: Shop, browser: Browser) -> Iterator[Looking]:
    with looking(shop.app, browser) as someone:
        yield someone


def test_from_the_overview_to_the_cause_of_a_stuck_key_and_its_release(shop: Shop, someone: Looking) -> None:
    click = Clicks()
    page = someone.open("/")
    notice = page.locator("#attention li", has_text="halted")
    expect(notice).to_contain_text("1 key of orders is halted")
    click(notice.get_by_role("link", name="look · release"))
    row = page.locator("tr[id^=halted]", has_text=STUCK)
    click(row.locator("a.id").first)
    expect(page.locator("main")).to_contain_text(f"customer {STUCK} has no billing address")
    page.go_back()
    click(page.locator("tr[id^=halted]", has_text=STUCK).get_by_role("button", name="Release"))
    expect(page.locator(".said")).to_be_visible()
    assert click.count <= MOST_CLICKS
    eventually(lambda: not shop.app.blocked_keys("orders"), "the key is released")
    shop.app.work(queues=["orders"], until_idle=True)
    assert shop.app.stats("orders").queue_length == 0


def test_from_a_spike_of_failures_to_the_retry_of_one_group(shop: Shop, someone: Looking) -> None:
    click = Clicks()
    page = someone.open("/")
    notice = page.locator("#attention li", has_text="dead letters").filter(has_text="payments")
    expect(notice).to_contain_text(f"{SPIKE} jobs of payments")
    click(notice.get_by_role("link", name="look · retry"))
    group = page.locator("main").get_by_text("gateway did not answer").first
    expect(group).to_be_visible()
    click(page.get_by_role("link", name="Retry").or_(page.get_by_role("button", name="Retry")).first)
    expect(page.locator("main")).to_contain_text(str(SPIKE))
    click(page.get_by_role("button", name="Retry"))
    expect(page.locator(".said")).to_contain_text(str(SPIKE))
    assert click.count <= MOST_CLICKS
    stats = shop.app.stats("payments")
    assert (stats.dead, stats.queue_length) == (0, SPIKE)
    shop.app.work(queues=["payments"], until_idle=True)
    assert shop.app.stats("payments").dead == 0
