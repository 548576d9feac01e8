"""The page of a job in a real browser: what it tells, and what its buttons do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import PHONE, Looking, check_page, looking
from tests.browser.mail_shop import HOSTILE, MailShop
from tests.system.facts import eventually

from penstock import App

NOT_FOUND = "Failed to load resource: the server responded with a status of 404 (Not Found)"
REFUSED = "Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"


@pytest.fixture
def shop(database_url: str) -> Iterator[MailShop]:
    with App(database_url) as app:
        yield MailShop(app)


@pytest.fixture
def someone(shop: MailShop, browser: Browser) -> Iterator[Looking]:
    with looking(shop.app, browser) as someone:
        yield someone


def said(page: Page) -> str:
    return page.locator(".said").inner_text()


def test_a_dead_letter_tells_why_and_each_attempt_and_is_retried(shop: MailShop, someone: Looking) -> None:
    (id_,) = shop.fail("nobody 1")
    page = someone.open(f"/jobs/{id_}")
    expect(page.locator("section.why")).to_contain_text("ValueError: there is no nobody 1; retry or purge it")
    assert page.locator(".life li b").all_inner_texts() == ["enqueued", "ready", "running", "failed"]
    expect(page.locator('.life [aria-current="step"]')).to_contain_text("failed")
    attempts = page.locator("ol.attempts li")
    expect(attempts).to_have_count(2)
    expect(attempts.first).to_contain_text("Attempt 2")
    calls = attempts.first.locator("pre")
    expect(calls).to_be_hidden()
    attempts.first.locator("summary").click()
    expect(calls).to_contain_text("in send")
    assert page.locator(".attempts-line i.failed").count() == 2
    assert page.get_by_role("link", name="the dead letters of its cause").get_attribute("href") == (
        f"/jobs?queue=mail&state=failed&cause={shop.app.job(id_).cause}"
    )
    page.get_by_role("button", name="Retry", exact=True).click()
    assert "was retried" in said(page)
    assert shop.app.job(id_).state == "ready"


def test_arguments_that_do_not_fit_are_shown_again_and_those_that_do_are_retried_with(
    shop: MailShop, someone: Looking
) -> None:
    (id_,) = shop.fail("nobody 1")
    page = someone.open(f"/jobs/{id_}")
    page.get_by_role("link", name="Retry with other arguments").click()
    expect(page.locator("p.lead")).to_contain_text("This job of send")
    typed = page.get_by_label("Arguments, a JSON object")
    assert json.loads(typed.input_value()) == {"to": "nobody 1"}
    for text, problem in [
        ('{"to": ', "it is no JSON"),
        ("[1]", "arguments have names"),
        ('{"whom": "ada"}', "whom"),
        ('{"to": NaN}', "NaN"),
    ]:
        typed.fill(text)
        page.get_by_role("button", name="Retry with these").click()
        expect(page.get_by_role("alert")).to_contain_text(problem)
        assert typed.input_value() == text
        someone.said.remove(REFUSED)
    check_page(page)
    typed.fill('{"to": "ada"}')
    page.get_by_role("button", name="Retry with these").click()
    expect(page).to_have_url(f"{someone.url}/jobs/{id_}")
    job = shop.app.job(id_)
    assert (job.state, job.args, [edit.args for edit in job.edits]) == ("ready", {"to": "ada"}, [{"to": "nobody 1"}])
    expect(page.get_by_text("changed by")).to_be_visible()


def test_a_job_that_waits_for_a_time_is_moved_run_at_once_and_cancelled(shop: MailShop, someone: Looking) -> None:
    first, second = shop.send.options(delay=3_600).enqueue_many([{"to": "ada"}, {"to": "bob"}])
    page = someone.open(f"/jobs/{first}")
    expect(page.locator('.life [aria-current="step"]')).to_contain_text("scheduled")
    page.locator("#reschedule summary").click()
    page.get_by_label("To run at").fill("2031-07-01T14:30")
    page.get_by_label("Time zone").fill("Nowhere/Land")
    page.get_by_role("button", name="Reschedule it").click()
    expect(page.locator(".said.bad")).to_contain_text("there is no time zone")
    page.locator("#reschedule summary").click()
    page.get_by_label("To run at").fill("2031-07-01T14:30")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Reschedule it").click()
    assert "2031-07-01 14:30:00 CEST" in said(page)
    assert shop.app.job(first).run_at == datetime(2031, 7, 1, 12, 30, tzinfo=UTC)
    page.get_by_role("button", name="Run it now").click()
    assert "was retried" in said(page)
    assert shop.app.job(first).state == "ready"
    page.goto(f"{someone.url}/jobs/{second}")
    page.locator("#cancel summary").click()
    page.get_by_label("Reason, kept as its error").fill("ordered twice")
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator("h1")).to_contain_text("cancelled")
    job = shop.app.job(second)
    assert (job.state, job.error) == ("cancelled", "ordered twice")
    assert page.get_by_role("button", name="Cancel it").count() == 0


def test_parents_and_children_are_a_graph_that_leads_to_them(shop: MailShop, someone: Looking) -> None:
    parents = shop.send.options(delay=3_600).enqueue_many([{"to": f"p{number}"} for number in range(30)])
    id_ = shop.send.options(after=parents).enqueue(to="child")
    children = [shop.send.options(after=[id_]).enqueue(to=f"c{number}") for number in range(2)]
    page = someone.open(f"/jobs/{id_}")
    expect(page.locator("section.why a").first).to_be_visible()
    expect(page.locator('.life [aria-current="step"]')).to_contain_text("blocked")
    drawn = page.locator("svg.family a")
    expect(drawn).to_have_count(20 + 2)
    assert page.locator("ul.ids a").count() == 30 + 2
    drawn.last.click()
    expect(page).to_have_url(re.compile(f"/jobs/({'|'.join(map(str, children))})$"))


def test_a_job_behind_a_halted_key_leads_to_the_dead_letter_and_releases_the_key(
    shop: MailShop, someone: Looking
) -> None:
    dead, behind = shop.book.enqueue_many([{"customer": "c-1"}, {"customer": "c-1", "step": 1}])
    shop.work()
    page = someone.open(f"/jobs/{behind}")
    why = page.locator("section.why")
    expect(why).to_contain_text("halted")
    expect(why.get_by_role("link", name=str(dead))).to_have_attribute("href", f"/jobs/{dead}")
    why.get_by_role("button", name="Release the key").click()
    assert "released" in said(page)
    assert shop.app.blocked_keys("orders") == []
    expect(page.get_by_role("button", name="Release the key")).to_have_count(0)


def test_a_dead_letter_that_halts_its_key_says_so_with_what_waits_and_releases_it(
    shop: MailShop, someone: Looking
) -> None:
    dead, *_ = shop.book.enqueue_many([{"customer": "c-1"}, *[{"customer": "c-1", "step": 1}] * 2])
    shop.work()
    page = someone.open(f"/jobs/{dead}")
    why = page.locator("section.why")
    expect(why).to_contain_text("it halts its key: retry it, or release the key")
    expect(why).to_contain_text("2 jobs of its key wait behind it.")
    why.get_by_role("button", name="Release the key").click()
    assert "released" in said(page)
    expect(why).to_contain_text("retry or purge it")
    assert shop.app.blocked_keys("orders") == []


def test_a_job_that_runs_shows_its_progress_and_ends_before_the_eyes_of_who_looks(
    shop: MailShop, someone: Looking
) -> None:
    id_ = shop.export.enqueue(table="invoices")
    worker = threading.Thread(target=lambda: shop.app.work(queues=["slow"]))
    worker.start()
    try:
        eventually(lambda: shop.app.job(id_).progress, "it tells how far it is")
        page = someone.open(f"/jobs/{id_}")
        expect(page.locator("progress")).to_have_attribute("value", "0.25")
        expect(page.get_by_text("row 3 of 12 of invoices")).to_be_visible()
        page.locator("#cancel summary").click()
        page.get_by_role("button", name="Ask it to stop").click()
        assert "asked to stop" in said(page)
        expect(page.locator("section.why")).to_contain_text("asked to stop")
        shop.goes_on.set()
        expect(page.locator("h1 .state")).not_to_have_text("running", timeout=60_000)
    finally:
        shop.goes_on.set()
        shop.app.stop()
        worker.join()


def test_what_others_wrote_is_only_text(shop: MailShop, someone: Looking) -> None:
    hostile = shop.app.queue(f"q{HOSTILE}", order="key")

    @hostile.task(name=f"t{HOSTILE}", key="to", max_attempts=1)
    def fail(to: str, text: str) -> None:
        raise ValueError(f"{HOSTILE}\n{text}")

    args = {"to": f"k{HOSTILE}", "text": HOSTILE + "long " * 20_000 + "\u2028\ufeff\r\n\t"}
    id_ = fail.options(tags=[f"g{HOSTILE}"], tenant=f"a{HOSTILE}", created_by=f"b{HOSTILE}").enqueue(**args)
    shop.app.work(queues=[hostile], until_idle=True)
    page = someone.open(f"/jobs/{id_}", someone.new_context(width=PHONE, scheme="dark"))
    expect(page.locator("section.why")).to_contain_text("<script>alert(1)</script>")
    page.locator("ol.attempts summary").first.click()
    page.get_by_role("link", name="Retry with other arguments").click()
    page.get_by_role("button", name="Retry with these").click()
    expect(page).to_have_url(f"{someone.url}/jobs/{id_}")
    job = shop.app.job(id_)
    assert (job.state, job.args) == ("ready", args)


def test_a_job_that_is_not_there_is_said_to_be_missing(someone: Looking) -> None:
    for id_ in ("4711", "abc", "9" * 40):
        page = someone.open(f"/jobs/{id_}")
        expect(page.locator("h1")).to_have_text(f"There is no job {id_}")
        someone.said.remove(NOT_FOUND)


def test_without_scripts_a_page_is_read_and_its_buttons_work(shop: MailShop, someone: Looking) -> None:
    (id_,) = shop.fail("nobody 1")
    page = someone.open(f"/jobs/{id_}", someone.new_context(scripts=False))
    expect(page.locator("section.why")).to_contain_text("there is no nobody 1")
    page.get_by_role("button", name="Retry", exact=True).click()
    assert shop.app.job(id_).state == "ready"


def test_by_keyboard_alone_a_job_is_cancelled(shop: MailShop, someone: Looking) -> None:
    id_ = shop.send.enqueue(to="ada")
    page = someone.open(f"/jobs/{id_}")
    page.locator("#cancel summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("by hand")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("cancelled")
    assert shop.app.job(id_).error == "by hand"


def test_who_may_only_read_is_offered_no_act(shop: MailShop, someone: Looking) -> None:
    (id_,) = shop.fail("nobody 1")
    dead, behind = shop.book.enqueue_many([{"customer": "c-1"}, {"customer": "c-1", "step": 1}])
    shop.work()
    reader = someone.sign_in("read")
    for each in (id_, dead, behind):
        page = someone.open(f"/jobs/{each}", reader)
        expect(page.locator("section.why")).to_be_visible()
        assert page.locator("main").get_by_role("button").count() == 0
        assert page.locator("main form").count() == 0


def test_a_narrow_token_sees_what_it_is_for(shop: MailShop, someone: Looking) -> None:
    (own,) = shop.fail("nobody 1", tenant="acme")
    (other,) = shop.fail("nobody secret")
    tenant = someone.sign_in("read", tenant="acme", name="tenant")
    expect(someone.open(f"/jobs/{own}", tenant).locator("ol.attempts li")).to_have_count(2)
    expect(someone.open(f"/jobs/{other}", tenant).locator("h1")).to_contain_text("There is no job")
    someone.said.remove(NOT_FOUND)
    page = someone.open(f"/jobs/{other}", someone.sign_in("read", hides_args=True, name="blind"))
    expect(page.get_by_text("This token sees no arguments")).to_be_visible()
    expect(page.locator("ol.attempts li")).to_have_count(2)
    assert "secret" not in page.content()
