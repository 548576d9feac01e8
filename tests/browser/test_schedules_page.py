"""Schedules in a real browser: what is enqueued by the calendar, what is due when, and each act on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import PHONE, Looking, check_page, looking
from tests.browser.test_report_page import HOSTILE

from penstock import App, Cron

NAME = HOSTILE.replace("\x00", "\x1b")


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        mail = app.queue("mail")

        @mail.task(max_attempts=1)
        def send(to: Any) -> None:
            if to == "nobody":
                raise ValueError("no such mailbox")

        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def cron(someone: Looking, name: str) -> Cron | None:
    return next((each for each in someone.app.crons() if each.name == name), None)


@pytest.mark.parametrize("scripts", [True, False])
def test_a_schedule_is_made_changed_and_removed(someone: Looking, scripts: bool) -> None:
    page = someone.open("/schedules", someone.new_context(scripts=scripts))
    expect(page.get_by_text("Nothing is enqueued by the calendar")).to_be_visible()
    page.get_by_role("link", name="New schedule").click()
    page.get_by_label("Name").fill("night/ly")
    page.get_by_label("When:").fill("0 3 * * *")
    page.get_by_label("In the time zone").fill("Europe/Berlin")
    page.get_by_label("Queue", exact=True).fill("mail")
    page.get_by_label("Task", exact=True).fill("send")
    page.get_by_label("Arguments").fill('{\n  "to": "ada"\n}')
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("status").filter(has_text="it fires next at")).to_be_visible()
    made = cron(someone, "night/ly")
    assert made is not None
    assert (made.expression, made.timezone, made.queue, made.task, made.args) == (
        "0 3 * * *", "Europe/Berlin", "mail", "send", {"to": "ada"},
    )  # fmt: skip
    page.get_by_role("link", name="night/ly").click()
    expect(page.get_by_label("Arguments")).to_have_value('{\n  "to": "ada"\n}')
    page.get_by_label("When:").fill("@hourly")
    page.get_by_role("button", name="Change it").click()
    expect(page.locator("#crons code")).to_have_text("@hourly")
    changed = cron(someone, "night/ly")
    assert changed is not None
    assert (changed.expression, changed.args) == ("@hourly", {"to": "ada"})
    page.get_by_role("link", name="Remove…").click()
    expect(page.get_by_text("enqueues send on mail no more")).to_be_visible()
    assert cron(someone, "night/ly") is not None
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("night/ly is removed")).to_be_visible()
    assert cron(someone, "night/ly") is None


def test_a_schedule_is_paused_resumed_and_run_and_tells_its_last_job(someone: Looking) -> None:
    someone.app.set_cron("nightly", "0 3 * * *", "mail", "send", args={"to": "nobody"})
    page = someone.open("/schedules")
    row = page.locator("#crons tbody tr")
    row.get_by_text("then").click()
    expect(row.locator("details div")).to_have_count(4)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("nightly is paused")).to_be_visible()
    assert [each.is_paused for each in someone.app.crons()] == [True]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("nightly goes on")).to_be_visible()
    assert [each.is_paused for each in someone.app.crons()] == [False]
    expect(row).to_contain_text("none yet")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("was run out of turn")).to_be_visible()
    (job,) = someone.app.jobs(queue="mail")
    assert job.args == {"to": "nobody"}
    someone.app.work(until_idle=True)
    # The page follows the job to its end.
    expect(row.get_by_role("link", name="failed")).to_have_attribute("href", f"/jobs/{job.id}")


def test_what_is_due_stands_in_its_span(someone: Looking) -> None:
    @someone.app.queue("mail").task
    def remind() -> None: ...

    page = someone.open("/schedules")
    expect(page.get_by_text("No job waits for its time")).to_be_visible()
    check_page(page)
    for delay, count in ((30, 1), (300, 2), (1_800, 3), (7_200, 4), (50_000, 5), (300_000, 6), (9_000_000, 7)):
        remind.options(delay=delay).enqueue_many([{}] * count)
    expect(page.locator("#due td.n")).to_have_text(["1", "2", "3", "4", "5", "6", "7"])
    widths = page.locator("#due .pieces i").evaluate_all("pieces => pieces.map(each => each.offsetWidth)")
    assert widths == sorted(widths)
    assert len(set(widths)) == 7
    check_page(page)


def test_what_does_not_do_is_said_and_what_was_typed_stays(someone: Looking) -> None:
    someone.app.set_cron("taken", "@daily", "mail", "send", args={"to": 1})
    page = someone.open("/schedules?new=1")
    typed = {"Name": "x", "When:": "every day", "Queue": "mail", "Task": "send", "Arguments": '{"to": "a",\n}'}

    def send(**changed: str) -> str:
        for label, value in {**typed, **changed}.items():
            page.get_by_label(label, exact=label in ("Queue", "Task")).fill(value)
        page.get_by_role("button", name="Make it").click()
        said = page.get_by_role("alert").inner_text()
        for label, value in {**typed, **changed}.items():
            expect(page.get_by_label(label, exact=label in ("Queue", "Task"))).to_have_value(value)
        return said

    assert "they are no JSON" in send()
    assert "expression" in send(Arguments='{"to": 1}')
    assert "nowhere" in send(**{"When:": "@daily", "Arguments": '{"to": 1}', "Queue": "nowhere"})
    assert "there is a schedule of this name" in send(**{"When:": "@daily", "Arguments": '{"to": 1}', "Name": "taken"})
    assert [each.name for each in someone.app.crons()] == ["taken"]
    someone.said.clear()  # The browser says that the forms were refused.


def test_names_are_only_text_and_come_back_as_they_were(someone: Looking) -> None:
    hostile = {"to": f"{HOSTILE}\n\t\u2028</textarea>", "n": "x" * 100_000}
    someone.app.set_cron(NAME, "*/5 * * * *", "mail", NAME, args=hostile, key=b"\xff\x00")
    someone.app.set_cron("x" * 200, "@daily", "mail", "y" * 200)
    page = someone.open("/schedules", someone.new_context(width=PHONE, scheme="dark"))
    expect(page.locator("#crons")).to_contain_text("<script>")
    page.locator("#crons tr", has_text="<script>").get_by_role("link").first.click()
    page.get_by_label("When:").fill("@weekly")
    page.get_by_role("button", name="Change it").click()
    expect(page.locator(".said")).to_contain_text("<script>")
    changed = cron(someone, NAME)
    assert changed is not None
    assert (changed.expression, changed.task, changed.args, changed.key) == ("@weekly", NAME, hostile, b"\xff\x00")
    page.locator("#crons tr", has_text="<script>").get_by_role("button", name="Pause").click()
    expect(page.locator(".said")).to_contain_text("is paused")
    paused = cron(someone, NAME)
    assert paused is not None
    assert paused.is_paused


def test_whoever_only_reads_is_offered_nothing(someone: Looking) -> None:
    someone.app.set_cron("nightly", "@daily", "mail", "send", args={"to": "secret one"})
    page = someone.open("/schedules", someone.sign_in("read"))
    expect(page.locator("#crons")).to_contain_text("nightly")
    acts = re.compile("Run|Pause|Resume|Remove|New schedule|nightly")
    for kind in ("button", "link"):
        expect(page.locator("main").get_by_role(kind, name=acts)).to_have_count(0)
    careful = someone.sign_in("admin", name="careful", hides_args=True)
    page = someone.open("/schedules/nightly", careful)
    expect(page.get_by_text("is not shown arguments")).to_be_visible()
    assert "secret one" not in page.content()
