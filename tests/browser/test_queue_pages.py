"""The pages of a queue in a real browser: what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import PHONE, SCREEN, Looking, check_page, looking
from tests.browser.queue_world import HOSTILE, Shop, fill_minutes

from penstock import App

PAGES = ("", "/partitions", "/keys", "/rules", "/purge", "/purge?state=failed", "/delete", "/enqueue")


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


@pytest.fixture
def shop(someone: Looking) -> Shop:
    return Shop(someone.app)


def tile(page: Page, title: str) -> Any:
    return page.locator(".tile", has_text=title).locator("dd").first


@pytest.mark.parametrize(("width", "scheme"), [(SCREEN, "light"), (PHONE, "dark")])
def test_every_page_of_a_queue_fits_any_screen(someone: Looking, shop: Shop, width: int, scheme: str) -> None:
    fill_minutes(someone.app, "orders")
    context = someone.new_context(width=width, scheme=scheme)
    for path in PAGES:
        page = someone.open(f"/queues/orders{path}", context)
        expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
        check_page(page)
        page.close()
    page = someone.open("/new-queue", context)
    check_page(page)


def test_the_figures_of_a_queue_are_shown_and_followed(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders")
    expect(tile(page, "Waiting")).to_have_text("6")
    expect(tile(page, "Dead letters")).to_have_text("2")
    rows = page.locator("#partition-0, #partition-1")
    expect(rows).to_have_count(2)
    shop.book.enqueue_many([{"customer": f"c-{number}", "step": 1} for number in range(5)])
    expect(tile(page, "Waiting")).to_have_text("11", timeout=60_000)


def test_what_happened_is_drawn_over_an_hour_or_a_day(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders")
    flow = page.get_by_role("img", name=re.compile("comes in and goes out"))
    expect(flow).to_have_attribute("aria-label", re.compile("no worker ran"))
    noted = fill_minutes(someone.app, "orders")
    page.get_by_role("link", name="24 h").click()
    expect(page).to_have_url(re.compile("minutes=1440"))
    expect(flow).to_have_attribute("aria-label", re.compile(f"in {noted.came} a minute"))
    assert flow.locator("path.flow-in").count() == 1
    expect(page.get_by_role("img", name=re.compile("How many jobs were waiting"))).to_have_attribute(
        "aria-label", re.compile(f"{noted.waiting} waiting")
    )
    expect(page.get_by_role("link", name="24 h")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="6 h").click()
    expect(page).to_have_url(re.compile("minutes=360"))


def test_names_keys_and_errors_are_only_text(someone: Looking) -> None:
    name = HOSTILE.replace("\0", "")
    shop = Shop(someone.app, name)
    shop.halt(name.encode(), b"k" * 500)
    for path in PAGES:
        page = someone.open(f"/queues/{quote(name, safe='')}{path}", someone.new_context(width=PHONE))
        expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>")
        assert page.locator("script:not([src]), img[src=x]").count() == 0
        check_page(page)
        page.context.close()
