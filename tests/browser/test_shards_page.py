"""Shards in a real browser: whether each answers, and one that is drained."""

from __future__ import annotations

from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import looking

from penstock import App


def test_a_shard_is_drained_after_a_question_and_tells_how_far_it_is(shard_urls: list[str], browser: Browser) -> None:
    with App(shards=shard_urls) as app:
        queue = app.queue("q", partitions=2)

        @queue.task
        def t() -> None: ...

        app.migrate()
        t.options(delay=86_400).enqueue_many([{}] * 30)
        while not (ready := [job.id for job in app.jobs(state="ready", partition=1, queue="q")]):
            t.enqueue()
        # A job that was set aside stays where it is until a person does something about it, and so does the drain.
        app.databases.of(2).run(lambda c: c.execute("select penstock.set_aside(%s, %s)", [ready, ["no sense"]]))
        with looking(app, browser) as someone:
            page = someone.open("/shards")
            row = page.locator("#shard-2")
            expect(row.locator("td").nth(2)).to_have_text("up")
            row.get_by_role("link", name="Drain…").click()
            expect(page.get_by_text("1 partition with 1 ready job and 0 running jobs move")).to_be_visible()
            assert [shard.state for shard in app.shards] == ["active", "active"]
            page.get_by_role("button", name="Drain shard 2").click()
            expect(row.locator("td").nth(3)).to_have_text("draining")
            expect(page.locator("#drain-2")).to_contain_text("they stay until a person retries or cancels them")
            assert app.shards[1].state == "draining"
            # Workers go on with it by themselves; where none runs somebody does.
            for state, said in (("draining", "is being drained"), ("drained", "is drained: its database")):
                row.get_by_role("button", name="Go on now").click()
                expect(page.get_by_role("status").filter(has_text=f"Shard 2 {said}")).to_be_visible()
                assert app.shards[1].state == state
                app.cancel(ready[0])
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
