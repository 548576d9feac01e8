"""Loads in a real browser: how far they are, and what is done to them as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import PHONE, Looking, check_page, looking
from tests.browser.test_report_page import HOSTILE

from penstock import App

ROWS = 20


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        mail = app.queue("mail")

        @mail.task(max_attempts=1)
        def send(n: int) -> None:
            if n % 4 == 0:
                raise ValueError("no such mailbox")

        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def load(someone: Looking, name: str, rows: int = ROWS) -> None:
    body = "\n".join(json.dumps({"n": n}) for n in range(rows))
    answer = httpx.put(
        f"{someone.url}/api/v1/queues/mail/loads/{quote(name, safe='')}?task=send",
        content=body,
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.status_code == 201, answer.text


def row(page: Page, name: str) -> list[str]:
    return [text.strip() for text in page.locator("#loads tr", has_text=name).locator("td").all_inner_texts()]


def test_a_load_of_a_paused_queue_says_that_it_is(someone: Looking) -> None:
    load(someone, "backfill")
    page = someone.open("/loads")
    expect(page.locator("#load-backfill")).to_contain_text("running")
    expect(page.locator("main")).not_to_contain_text("its queue is paused")
    someone.app.pause(someone.app.loads()[0].queue)
    for path in ("/loads", "/loads/backfill"):
        page.goto(f"{someone.url}{path}")
        expect(page.locator("main")).to_contain_text("its queue is paused")


def test_a_list_and_a_page_say_how_far_a_load_is(someone: Looking) -> None:
    page = someone.open("/loads")
    expect(page.get_by_text("Nothing was loaded yet")).to_be_visible()
    check_page(page)
    load(someone, "backfill")
    # The page is drawn again by itself.
    expect(page.get_by_role("link", name="backfill")).to_be_visible()
    assert row(page, "backfill")[4:8] == ["0 of 20", "0", "20", "0"]
    someone.app.work(until_idle=True)
    expect(page.locator("#loads td").nth(4)).to_have_text("20 of 20")
    expect(page.locator("#loads .state")).to_have_text("done")
    assert page.locator("#loads .pieces i").evaluate_all("pieces => pieces.map(each => each.className)") == [
        "good",
        "bad",
    ]
    expect(page.get_by_role("img", name="20 of 20 ended, 5 of them as dead letters, 0 run")).to_be_visible()
    # What is over is neither paused nor cancelled.
    expect(page.locator("#loads td").last.locator("button, a")).to_have_count(0)
    page.get_by_role("link", name="backfill").click()
    expect(page.locator(".tile", has_text="Dead letters")).to_contain_text("5")
    jobs = page.get_by_role("link", name="Look at them").get_attribute("href")
    failed = page.locator(".tile", has_text="Dead letters").get_by_role("link").get_attribute("href")
    assert (jobs, failed) == ("/jobs?load=backfill", "/jobs?load=backfill&state=failed")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_load_is_paused_resumed_and_cancelled_with_the_count_before(someone: Looking, scripts: bool) -> None:
    load(someone, "spring/letters")
    page = someone.open("/loads", someone.new_context(scripts=scripts))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status").filter(has_text="is paused")).to_be_visible()
    assert someone.app.loads()[0].state == "paused"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("goes on, behind what is ready by now")).to_be_visible()
    assert someone.app.loads()[0].state == "running"
    page.get_by_role("link", name="Cancel…").click()
    expect(page.get_by_text("20 jobs that wait will be cancelled")).to_be_visible()
    assert someone.app.loads()[0].waiting == ROWS
    page.get_by_label("Why").fill("the wrong customers")
    page.get_by_role("button", name="Cancel the load").click()
    expect(page).to_have_url(f"{someone.url}/loads/spring%2Fletters")
    expect(page.get_by_text("is cancelled: 20 jobs ended")).to_be_visible()
    assert {(job.state, job.error) for job in someone.app.jobs(load="spring/letters")} == {
        ("cancelled", "the wrong customers")
    }


def test_whoever_only_reads_is_offered_nothing(someone: Looking) -> None:
    load(someone, "backfill")
    reader = someone.sign_in("read")
    for path in ("/loads", "/loads/backfill"):
        page = someone.open(path, reader)
        expect(page.get_by_text("running").first).to_be_visible()
        for kind in ("button", "link"):
            expect(page.locator("main").get_by_role(kind, name=re.compile("Pause|Cancel"))).to_have_count(0)


def test_names_are_only_text(someone: Looking) -> None:
    name = HOSTILE.replace("\x00", "\x1b")
    load(someone, name, 3)
    load(someone, "x" * 200, 3)
    someone.app.pause_load(name)
    context = someone.new_context(width=PHONE, scheme="dark")
    page = someone.open("/loads", context)
    expect(page.get_by_text("<script>").first).to_be_visible()
    page.locator("#loads tr", has_text="<script>").get_by_role("link").first.click()
    expect(page.locator("h1")).to_contain_text("<script>")
    page.get_by_role("link", name="Cancel…").click()
    expect(page.locator("h1")).to_contain_text("<script>")
    page.get_by_role("button", name="Cancel the load").click()
    expect(page.locator(".said")).to_contain_text("<script>")
    assert next(each for each in someone.app.loads() if each.name == name).state == "cancelled"
