"""Dead letters by cause in a real browser, and the retry or discard of one group."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.dashboard_world import PHONE, Looking, looking
from tests.browser.mail_shop import HOSTILE, MailShop

from penstock import App

MISSING = "Failed to load resource: the server responded with a status of 404 (Not Found)"


@pytest.fixture
def shop(database_url: str) -> Iterator[MailShop]:
    with App(database_url) as app:
        yield MailShop(app)


@pytest.fixture
def someone(shop: MailShop, browser: Browser) -> Iterator[Looking]:
    with looking(shop.app, browser) as someone:
        yield someone


def group(page: Page, said: str) -> Locator:
    return page.locator("table.causes tbody tr", has_text=said)


def test_dead_letters_are_grouped_by_cause_and_lead_to_their_jobs(shop: MailShop, someone: Looking) -> None:
    numbered = shop.fail("nobody 1", "nobody 22", "nobody 333")
    (named,) = shop.fail("nobody else")
    shop.book.enqueue(customer="c")
    shop.work()
    page = someone.open("/dead-letters")
    expect(page.locator("p.lead")).to_have_text("5 jobs failed for good, of 3 causes.")
    row = group(page, "there is no nobody …")
    expect(row.locator("td").first).to_have_text("3")
    expect(row).to_contain_text("send of mail")
    expect(row.locator(".trend").first).to_have_attribute("aria-label", "6 attempts failed in the last day")
    expect(row.locator(".trend").last).to_have_attribute("aria-label", "6 attempts failed in the last hour")
    # Of jobs that run side by side any may be the last to die.
    expect(row.locator("a.id")).to_have_text(re.compile("|".join(map(str, numbered))))
    row.get_by_role("link", name="Look at the jobs").click()
    expect(page.locator("table.jobs tbody tr")).to_have_count(3)
    assert sorted(int(each) for each in page.locator("table.jobs a.id").all_inner_texts()) == numbered
    page.goto(f"{someone.url}/dead-letters")
    page.get_by_label("Queue", exact=True).fill("orders")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("table.causes tbody tr")).to_have_count(1)
    expect(group(page, "customer c has no address")).to_be_visible()
    group(page, "customer c has no address").locator("a.id").click()
    expect(page.locator("h1")).to_contain_text("failed")
    assert str(named) not in page.url


def test_one_group_is_retried_and_another_discarded_after_a_count(shop: MailShop, someone: Looking) -> None:
    numbered = shop.fail("nobody 1", "nobody 22", "nobody 333")
    (named,) = shop.fail("nobody else")
    page = someone.open("/dead-letters")
    group(page, "nobody …").get_by_role("link", name="Retry…").click()
    expect(page.locator("h1")).to_have_text("Retry 3 dead letters?")
    expect(page.locator("main")).to_contain_text("each for one more attempt")
    # By an id nobody could tell which group it is.
    which = page.locator("section dl.facts")
    expect(which).to_contain_text("nobody …")
    expect(which).to_contain_text("send of mail")
    page.get_by_role("button", name="Retry 3 dead letters").click()
    expect(page.locator(".said")).to_contain_text("3 jobs were retried")
    assert {str(shop.app.job(id_).state) for id_ in numbered} == {"ready"}
    assert shop.app.job(named).state == "failed"
    expect(page).to_have_url(f"{someone.url}/dead-letters?queue=mail")
    expect(page.locator("table.causes tbody tr")).to_have_count(1)
    group(page, "nobody else").get_by_role("link", name="Discard…").click()
    assert shop.app.stats("mail").dead == 1
    page.get_by_role("button", name="Discard 1 dead letter", exact=True).click()
    expect(page.locator(".said")).to_contain_text("1 job was discarded")
    assert shop.app.stats("mail").dead == 0
    page.goto(f"{someone.url}/dead-letters")
    expect(page.get_by_text("There are no dead letters.")).to_be_visible()


def test_groups_come_as_jobs_die(shop: MailShop, someone: Looking) -> None:
    page = someone.open("/dead-letters")
    expect(page.get_by_text("There are no dead letters.")).to_be_visible()
    shop.fail("nobody 1")
    expect(group(page, "there is no nobody")).to_be_visible(timeout=60_000)


def test_without_scripts_a_group_is_retried(shop: MailShop, someone: Looking) -> None:
    (id_,) = shop.fail("nobody 1")
    page = someone.open("/dead-letters", someone.new_context(scripts=False))
    page.get_by_role("link", name="Retry…").click()
    page.get_by_role("button", name="Retry 1 dead letter", exact=True).click()
    assert shop.app.job(id_).state == "ready"


def test_a_queue_that_there_is_not_is_said(someone: Looking) -> None:
    page = someone.open("/dead-letters?queue=nowhere")
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    someone.said.remove(MISSING)


def test_who_looks_is_told_and_offered_what_the_token_is_for(shop: MailShop, someone: Looking) -> None:
    (own,) = shop.fail("nobody 1", tenant="acme")
    shop.fail("nobody secret")
    shop.book.enqueue(customer="c")
    shop.work()
    page = someone.open("/dead-letters", someone.sign_in("read"))
    expect(page.locator("table.causes tbody tr")).to_have_count(3)
    assert page.get_by_role("link", name="Retry…").count() + page.get_by_role("link", name="Discard…").count() == 0
    page = someone.open("/dead-letters", someone.sign_in("admin", queues=["orders"], name="crew"))
    expect(page.locator("table.causes tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="Discard…")).to_be_visible()
    page = someone.open("/dead-letters", someone.sign_in("read", hides_args=True, name="blind"))
    expect(page.get_by_text("This token sees no errors.").first).to_be_visible()
    assert "secret" not in page.content()
    page = someone.open("/dead-letters", someone.sign_in("read", tenant="acme", name="tenant"))
    expect(page).to_have_url(f"{someone.url}/jobs?state=failed")
    assert page.locator("table.jobs a.id").all_inner_texts() == [str(own)]


def test_what_others_wrote_is_only_text(shop: MailShop, someone: Looking) -> None:
    hostile = shop.app.queue(f"q{HOSTILE}")

    @hostile.task(name=f"t{HOSTILE}", max_attempts=1)
    def fail(kind: str) -> None:
        raise ValueError(f"{HOSTILE} {kind}{'long' * 3_000}")

    fail.enqueue_many([{"kind": kind} for kind in "abc"])
    shop.app.work(queues=[hostile], until_idle=True)
    page = someone.open("/dead-letters", someone.new_context(width=PHONE, scheme="dark"))
    expect(page.locator("table.causes")).to_contain_text("<script>alert")
    page.get_by_role("link", name="Retry…").first.click()
    expect(page.locator("h1")).to_contain_text("Retry")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".said")).to_contain_text("retried")
    assert shop.app.stats(hostile).queue_length > 0
