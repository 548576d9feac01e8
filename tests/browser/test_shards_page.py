"""Shards in a real browser: whether each answers, and one that is drained."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import PHONE, SCREEN, check_page, looking

from penstock import App


@pytest.mark.parametrize(("width", "scheme"), [(SCREEN, "light"), (PHONE, "dark")])
def test_a_shard_is_drained_after_a_question_and_tells_how_far_it_is(
    shard_urls: list[str], browser: Browser, width: int, scheme: str
) -> None:
    with App(shards=shard_urls) as app:
        queue = app.queue("q", partitions=2)

        @queue.task
        def t() -> None: ...

        app.migrate()
        t.options(delay=86_400).enqueue_many([{}] * 30)
        with looking(app, browser) as someone:
            page = someone.open("/shards", someone.new_context(width=width, scheme=scheme))
            row = page.locator("#shard-2")
            expect(row.locator("td").nth(2)).to_have_text("up")
            check_page(page)
            row.get_by_role("link", name="Drain…").click()
            expect(
                page.get_by_text("1 partition with 0 ready jobs and 0 running jobs move to the other shard")
            ).to_be_visible()
            check_page(page)
            assert [shard.state for shard in app.shards] == ["active", "active"]
            page.get_by_role("button", name="Drain shard 2").click()
            expect(row.locator("td").nth(3)).to_have_text(re.compile("draining|drained"))
            assert app.shards[1].state in ("draining", "drained")
            # Workers go on with it by themselves; where none runs somebody does.
            while app.shards[1].state == "draining":
                expect(page.locator("#drain-2")).to_be_visible()
                check_page(page)
                row.get_by_role("button", name="Go on now").click()
                expect(page.get_by_role("status").filter(has_text="Shard 2 is")).to_be_visible()
            expect(row.locator("td").nth(3)).to_have_text("drained")
            expect(row.get_by_role("button")).to_have_count(0)
            assert app.stats("q").scheduled == 30
            reader = someone.open("/shards", someone.sign_in("read"))
            expect(reader.locator("#shard-1")).to_contain_text("up")
            expect(reader.locator("main").get_by_role("link")).to_have_count(0)
            someone.said.clear()  # The page that was open asks for a token by now.


def test_one_database_is_not_drained(database_url: str, browser: Browser) -> None:
    with App(database_url) as app:
        app.migrate()
        with looking(app, browser) as someone:
            page = someone.open("/shards")
            expect(page.locator("#shard-1")).to_contain_text("active")
            expect(page.locator("main").get_by_role("link")).to_have_count(0)
            assert all(shard.url not in page.content() for shard in app.shards)
