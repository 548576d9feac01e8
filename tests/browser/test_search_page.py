"""The search box in a real browser: what is one thing leads there, what may be several is listed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import PHONE, Looking, check_page, looking
from tests.browser.mail_shop import HOSTILE, MailShop

from penstock import App


@pytest.fixture
def shop(database_url: str) -> Iterator[MailShop]:
    with App(database_url) as app:
        yield MailShop(app)


@pytest.fixture
def someone(shop: MailShop, browser: Browser) -> Iterator[Looking]:
    with looking(shop.app, browser) as someone:
        yield someone


def look_for(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    page.keyboard.press("Enter")


def test_the_id_of_a_job_and_the_name_of_a_queue_lead_there(shop: MailShop, someone: Looking) -> None:
    id_ = shop.send.enqueue(to="ada")
    page = someone.open("/")
    look_for(page, f" {id_} ")
    expect(page).to_have_url(f"{someone.url}/jobs/{id_}")
    answer = someone.context.request.get(f"{someone.url}/search?q=mail", max_redirects=0)
    assert (answer.status, answer.headers["location"]) == (303, "/queues/mail")


def test_what_may_be_several_is_listed_with_where_it_leads(shop: MailShop, someone: Looking) -> None:
    id_ = shop.book.options(tags=["march"]).enqueue(customer="c-4711", step=1)
    once = shop.send.options(idempotency_key="once").enqueue(to="ada")
    page = someone.open("/")
    for text, kind, leads_to in [
        ("ord", "Queue", "/queues/orders"),
        ("sen", "Task", "/jobs?queue=mail&task=send"),
        ("c-4711", "Key", "/jobs?queue=orders&key=c-4711"),
        ("march", "Tag", "/jobs?tag=march"),
        ("once", "Idempotency key", f"/jobs/{once}"),
    ]:
        look_for(page, text)
        row = page.locator("main tbody tr", has=page.get_by_role("cell", name=kind, exact=True)).first
        expect(row.locator("td.name a").first).to_have_attribute("href", leads_to)
    look_for(page, "c-4711")
    page.locator("main tbody td.name a").first.click()
    expect(page.locator("table.jobs a.id")).to_have_text([str(id_)])


def test_a_number_that_is_a_job_and_a_key_is_listed_as_both(shop: MailShop, someone: Looking) -> None:
    id_ = shop.send.enqueue(to="ada")
    shop.book.enqueue(customer=str(id_), step=1)
    page = someone.open(f"/search?q={id_}")
    expect(page.locator("main tbody tr")).to_have_count(2)


def test_nothing_that_is_typed_does_harm(shop: MailShop, someone: Looking) -> None:
    page = someone.open("/search", someone.new_context(width=PHONE, scheme="dark"))
    expect(page.get_by_text("Type a job's id")).to_be_visible()
    look_for(page, "nothing of that name")
    expect(page.get_by_text("Nothing was found.")).to_be_visible()
    look_for(page, HOSTILE)
    expect(page.locator("h1")).to_contain_text("<script>alert(1)</script>")
    page.get_by_role("link", name="Look for jobs with this key").click()
    expect(page.locator("#filter-key")).to_have_value(HOSTILE)
    look_for(page, "x" * 1_000)
    expect(page.get_by_role("alert")).to_be_visible()
    someone.said[:] = [each for each in someone.said if "422" not in each]
    check_page(page)


def test_who_is_kept_to_a_queue_finds_what_is_there(shop: MailShop, someone: Looking) -> None:
    mail, order = shop.send.enqueue(to="ada"), shop.book.enqueue(customer="c", step=1)
    crew = someone.sign_in("read", queues=["orders"])
    expect(someone.open(f"/search?q={order}", crew)).to_have_url(re.compile(f"/jobs/{order}$"))
    page = someone.open(f"/search?q={mail}", crew)
    expect(page.get_by_text("Nothing was found.")).to_be_visible()
