"""Who looks at a queue: with a token that may only look, without a script, by keyboard, at several shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import PHONE, Looking, check_page, looking
from tests.browser.queue_world import HALTED, Shop

from penstock import App

LOOKED_AT = ("", "/partitions", "/keys", "/rules")
FORMS = ("/purge", "/delete", "/enqueue")


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def test_who_may_only_look_is_offered_no_act(someone: Looking) -> None:
    Shop(someone.app)
    context = someone.sign_in("read", queues=["orders"])
    for path in LOOKED_AT:
        page = someone.open(f"/queues/orders{path}", context)
        expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
        assert page.locator("main form, main button, main input, main textarea").count() == 0
        assert page.get_by_role("link", name="Enqueue a job").count() == 0
        assert page.get_by_role("link", name="…").count() == 0
        check_page(page)
    expect(page.locator(".facts").last).to_contain_text("Total limit")
    for path in (*(f"/queues/orders{form}" for form in FORMS), "/new-queue"):
        assert context.request.get(f"{someone.url}{path}").status == 403


def test_a_queue_of_others_is_refused(someone: Looking) -> None:
    Shop(someone.app)
    someone.app.set_queue("others")
    context = someone.sign_in("read", queues=["orders"])
    for path in LOOKED_AT:
        answer = context.request.get(f"{someone.url}/queues/others{path}")
        assert answer.status == 403


def test_all_of_it_works_without_a_script(someone: Looking) -> None:
    Shop(someone.app)
    context = someone.new_context(scripts=False, width=PHONE)
    page = someone.open("/queues/orders", context)
    expect(page.locator(".tile", has_text="Waiting").locator("dd").first).to_have_text("6")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".said")).to_contain_text("orders is paused")
    page.get_by_role("link", name="Keys").click()
    page.locator("tbody tr", has_text=HALTED[0]).get_by_role("button", name="Release").click()
    expect(page.locator(".said")).to_contain_text(f"Key {HALTED[0]} goes on")
    page.get_by_role("link", name="Rules").click()
    page.get_by_label("Limit", exact=True).fill("3")
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text("limit 3 now")
    assert someone.app.stats("orders").paused
    assert someone.app.stats("orders").rules.limit == 3


def test_a_keyboard_is_enough(someone: Looking) -> None:
    Shop(someone.app)
    page = someone.open("/queues/orders/rules")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "limit":
            break
    page.keyboard.type("6")
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_contain_text("limit 6 now")
    assert someone.app.stats("orders").rules.limit == 6


def test_what_is_typed_stays_while_the_page_is_drawn_again(someone: Looking) -> None:
    shop = Shop(someone.app)
    page = someone.open("/queues/orders/keys")
    typed = page.get_by_label("Another key, as text")
    typed.fill("c-to")
    shop.halt(b"c-new")
    expect(page.locator("tbody tr", has_text="c-new")).to_be_visible(timeout=60_000)
    expect(typed).to_have_value("c-to")
    # A button that has just come does what it says.
    page.locator("tbody tr", has_text="c-new").get_by_role("button", name="Release").click()
    expect(page.locator(".said")).to_contain_text("Key c-new goes on")


def test_a_partition_moves_to_another_shard(shard_urls: list[str], browser: Browser) -> None:
    with App(shards=shard_urls) as app:
        app.queue("wide", partitions=2, order="key")
        app.migrate()
        before = [each.shard for each in app.stats("wide").partitions]
        with looking(app, browser) as someone:
            page = someone.open("/queues/wide/partitions")
            other = "2" if before[0] == "1" else "1"
            page.get_by_label("Shard for partition 0").select_option(other)
            page.locator("#partition-0").get_by_role("button", name="Move").click()
            expect(page.locator(".said")).to_contain_text(f"lives on shard {other}")
            check_page(page)
        assert [each.shard for each in app.stats("wide").partitions] == [other, before[1]]
