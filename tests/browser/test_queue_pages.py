"""The pages of a queue in a real browser: what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import Looking, looking
from tests.browser.queue_world import Shop, fill_minutes, forget_minutes

from penstock import App


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


def test_the_figures_of_a_queue_are_shown_and_followed(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders")
    expect(tile(page, "Waiting")).to_have_text("6")
    expect(tile(page, "Dead letters")).to_have_text("2")
    rows = page.locator("#partition-0, #partition-1")
    expect(rows).to_have_count(2)
    shop.book.enqueue_many([{"customer": f"c-{number}", "step": 1} for number in range(5)])
    expect(tile(page, "Waiting")).to_have_text("11", timeout=60_000)


def test_what_happened_is_drawn_over_an_hour_or_a_day(someone: Looking, shop: Shop) -> None:
    forget_minutes(someone.app)
    page = someone.open("/queues/orders")
    flow = page.get_by_role("img", name=re.compile("comes in and goes out"))
    expect(flow).to_have_attribute("aria-label", re.compile("no worker ran"))
    noted = fill_minutes(someone.app, "orders")
    expect(page.locator(".tile", has_text="Done")).to_contain_text(
        re.compile(f"in {noted.came}, out [0-9]+ a minute"), timeout=60_000
    )
    page.get_by_role("link", name="24 h").click()
    expect(page).to_have_url(re.compile("minutes=1440"))
    expect(flow).to_have_attribute("aria-label", re.compile(f"in {noted.came} a minute"))
    assert flow.locator("path.flow-in").count() == 1
    expect(page.get_by_role("img", name=re.compile("How many jobs were waiting"))).to_have_attribute(
        "aria-label", re.compile(f"{noted.waiting} waiting")
    )
    expect(page.get_by_role("link", name="24 h")).to_have_attribute("aria-current", "true")
    assert page.locator("main[data-live]").count() == 0
    page.get_by_role("link", name="6 h").click()
    expect(page).to_have_url(re.compile("minutes=360"))
    assert page.locator("main[data-live]").count() == 1


def test_how_long_jobs_waited_and_ran_is_drawn_where_any_did(someone: Looking, shop: Shop) -> None:
    fill_minutes(someone.app, "orders")
    page = someone.open("/queues/orders")
    for name in ("How long jobs waited", "How long jobs ran"):
        picture = page.get_by_role("img", name=name)
        expect(picture).to_be_visible()
        assert picture.locator("path.line").count() >= 3
    someone.app.set_queue("quiet")
    page = someone.open("/queues/quiet")
    expect(page.get_by_role("img", name="comes in and goes out")).to_be_visible()
    assert page.get_by_role("img", name="How long").count() == 0
    assert page.get_by_role("heading", name="Why attempts failed").count() == 0


def test_why_attempts_failed_is_told_and_leads_to_their_dead_letters(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders")
    expect(page.get_by_role("img", name="How many attempts failed, by cause: 2 in all")).to_be_visible()
    row = page.get_by_role("row", name="there is no customer")
    expect(row.locator("td").nth(1)).to_have_text("book")
    expect(row.locator("td").nth(2)).to_have_text("2")
    row.get_by_role("link").click()
    for job in shop.dead.values():
        expect(page.get_by_role("link", name=str(job), exact=True)).to_be_visible()


def test_the_hottest_keys_are_told_with_how_they_stand(someone: Looking, shop: Shop) -> None:
    shop.book.enqueue_many([{"customer": "c-hot", "step": 1}] * 14)
    page = someone.open("/queues/orders/keys")
    first = page.locator("#hot-0 td")
    expect(first.nth(0)).to_have_text("c-hot")
    expect(first.nth(1)).to_have_text("14")
    expect(first.nth(2)).to_contain_text("70")
    expect(first.nth(5)).to_have_text("goes on")
    expect(page.locator("#hot-1 td").nth(5)).to_have_text("halted")


def test_a_held_key_is_told_with_when_it_goes_on(someone: Looking, shop: Shop) -> None:
    job = shop.ask.enqueue(customer="c-held")
    someone.app.work(until_idle=True)
    shop.book.enqueue(customer="c-held", step=1)
    page = someone.open("/queues/orders/keys")
    told = page.locator(f"#held-{job} td")
    expect(told.nth(0)).to_have_text("c-held")
    expect(told.nth(2)).to_contain_text("in 9 min")
    expect(told.nth(3)).to_have_text("1")
    told.nth(4).get_by_role("link").click()
    expect(page).to_have_url(f"{someone.url}/jobs/{job}")


def test_a_resize_is_followed_until_nothing_is_left_elsewhere(someone: Looking) -> None:
    wide = someone.app.queue("wide", order="key")

    @wide.task(key="customer")
    def book(customer: str) -> None: ...

    book.enqueue_many([{"customer": f"c-{number}"} for number in range(40)])
    someone.app.resize("wide", partitions=3)
    page = someone.open("/queues/wide/partitions")
    going_on = page.get_by_role("heading", name="A resize or a move goes on")
    expect(going_on).to_be_visible()
    expect(page.locator("#drains-0 td").nth(1)).to_have_text("40")
    someone.app.work(until_idle=True)
    expect(going_on).to_have_count(0, timeout=60_000)
    assert someone.app.resize("wide", partitions=3).is_through
