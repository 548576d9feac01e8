"""Every page in a real browser, with much wrong at once and harmful names: on a screen and on a phone, light and dark,
to screen readers, without scripts; and what needs attention is mended from the overview, by clicks or by keyboard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.dashboard_world import Looking, check_every_look, looking
from tests.browser.example import figures
from tests.browser.troubled_world import DUTY, NAMES, TroubledWorld, troubled_world
from tests.servers import created_database

from penstock.server import ReportFile
from penstock.spark.reporting.page import build_page

REFUSED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
MOST_TABS = 150
# What is wrong in this world, as the overview says it, the most urgent first; a name that may do harm is cut off.
TROUBLES = [
    "No worker serves full: 9 jobs wait, the oldest was enqueued",
    "No worker serves orders",
    "No worker serves mail: 2 jobs wait",
    "No worker has the task nobody-has-it of slow",
    f"The housekeeping “{DUTY}” on shard",
    "2 keys of orders",
    "full is nearly full: 9 jobs wait, at 10 it refuses more.",
    "2 jobs of orders",
    "1 job of mail became a dead letter in the last hour.",
    "The last job of the schedule failed",
    "2 jobs of mail cannot be read and were set aside.",
    "slow grows: ",
    "paused is paused, and 3 jobs wait.",
    "The load load",
    "The schedule paused",
]


class Visit:
    """The world, and who looks at it: an administrator, somebody of a tenant, somebody who has not signed in."""

    def __init__(self, world: TroubledWorld, someone: Looking) -> None:
        self.world = world
        self.someone = someone
        self.app = world.app
        (worker,) = self.app.workers()
        self._words = {name: quote(text, safe="") for name, text in NAMES.items()}
        self._words |= {name: str(id_) for name, id_ in world.ids.items()} | {"worker": str(worker.id)}
        self._signed_in = {
            "root": someone.sign_in("admin", name="root"),
            "reader": someone.sign_in("read", name="reader"),
            "careful": someone.sign_in("read", name="careful", hides_args=True),
            "of a team": someone.sign_in("read", name="of a team", tenant=NAMES["team"]),
            "nobody": someone.new_context(),
        }
        self.app.create_token(NAMES["token"], role="produce", tenant=NAMES["team"], queues=["mail"])
        self._pages: dict[tuple[str, bool], Page] = {}

    def path(self, pattern: str) -> str:
        return pattern.format(**self._words)

    def open(self, path: str, who: str = "root", *, scripts: bool = True) -> Page:
        """A page, in a tab that is kept for such."""
        if (who, scripts) in self._pages:
            page = self._pages[who, scripts]
            page.goto(f"{self.someone.url}{self.path(path)}")
            return page
        context = self.someone.new_context(scripts=scripts)
        context.add_cookies(self._signed_in[who].cookies())  # type: ignore[arg-type]
        page = self._pages[who, scripts] = self.someone.open(self.path(path), context)
        return page


def make_token(visit: Visit, page: Page) -> None:
    page.get_by_label("Name, of").fill(f"{len(visit.app.tokens())} {NAMES['token']}")
    page.get_by_role("button", name="Make the token").click()


def sign_in_wrongly(visit: Visit, page: Page) -> None:
    page.get_by_label("Access token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()


class Shown(NamedTuple):
    """A page: its path, what stands there whoever looks, who does, and what is done first."""

    path: str
    shows: str
    who: str = "root"
    first: Callable[[Visit, Page], None] | None = None


EVIL = "<script>alert(1)</script>"
# Without acts a table may have nothing in it that takes the focus.
READ = {"schedules": EVIL, "shards": "active"}
PAGES: dict[str, Shown] = {
    "overview": Shown("/", "Needs attention"),
    "search": Shown("/search?q={key}", EVIL),
    "queue": Shown("/queues/{orders}", "Over time"),
    "partitions": Shown("/queues/{orders}/partitions", "Resize"),
    "keys": Shown("/queues/{orders}/keys", "2 keys are halted"),
    "rules": Shown("/queues/{orders}/rules", "Change the limits"),
    "purge": Shown("/queues/{orders}/purge", "Count all that wait…"),
    "purge of dead letters": Shown("/queues/{orders}/purge?state=failed", "Clear 2 dead letters"),
    "delete": Shown("/queues/{orders}/delete", "2 dead letters"),
    "enqueue": Shown("/queues/{orders}/enqueue", "Arguments, as JSON"),
    "new queue": Shown("/new-queue", "Make the queue"),
    "jobs": Shown("/jobs", "nobody-has-it"),
    "jobs by filters": Shown("/jobs?queue={orders}&key={key}&tag={tag}", EVIL),
    "change of all that match": Shown("/jobs/change?act=retry&queue={orders}&state=failed", "Retry 2 dead letters"),
    "change of those ticked": Shown("/jobs/change?act=cancel&id={dead}&id={behind}", "Of 2 that were ticked, 1 can be"),
    "dead letter": Shown("/jobs/{dead}", "has no address"),
    "job that runs": Shown("/jobs/{running}", "row 3 of 12"),
    "job behind a halted key": Shown("/jobs/{behind}", "Release the key"),
    "job with parents": Shown("/jobs/{child}", "blocked"),
    "arguments": Shown("/jobs/{dead}/arguments", "Retry with these"),
    "missing job": Shown("/jobs/4711", "There is no job 4711"),
    "job set aside": Shown("/jobs/{aside}", "repair and retry it"),
    "job of which nothing is left": Shown("/jobs/{lost}", "was set aside"),
    "dead letters": Shown("/dead-letters", "3 jobs failed for good, of 3 causes"),
    "schedules": Shown("/schedules", EVIL),
    "new schedule": Shown("/schedules?new=1", "Make it"),
    "schedule": Shown("/schedules/{paused}", "Change it"),
    "removal of a schedule": Shown("/schedules/{paused}/remove", "Remove it"),
    "workers": Shown("/workers", "export"),
    "worker": Shown("/workers/{worker}", "What it knows"),
    "stop of a worker": Shown("/workers/{worker}/stop", "Stop it gently"),
    "loads": Shown("/loads", EVIL),
    "load": Shown("/loads/{load}", EVIL),
    "cancel of a load": Shown("/loads/{load}/cancel", "Cancel the load"),
    "shards": Shown("/shards", "active"),
    "drain": Shown("/shards/2/drain", "Drain shard 2"),
    "tokens": Shown("/tokens", EVIL),
    "made token": Shown("/tokens", "nobody can be told it again", first=make_token),
    "revocation": Shown("/tokens/{token}/revoke", "Revoke it"),
    "audit": Shown("/audit", EVIL),
    "history": Shown("/history", "Made"),
    **{f"{path} of a reader": Shown(f"/{path}", text, "reader") for path, text in READ.items()},
    "overview of who is shown no errors": Shown("/", DUTY, "careful"),
    "sign-in": Shown("/sign-in", "Access token", "nobody"),
    "sign-in refused": Shown("/sign-in", "token", "nobody", sign_in_wrongly),
    "page that there is not": Shown("/nothing", "there is no such page"),
    "overview of a tenant": Shown("/", "Your jobs", "of a team"),
    "jobs of a tenant": Shown("/jobs", EVIL, "of a team"),
}


@pytest.fixture(scope="module")
def visit(
    server_url: str, template_database: str, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Visit]:
    """One world for all tests of this module."""
    report = tmp_path_factory.mktemp("report") / "report.html"
    report.write_text(build_page(figures()), encoding="utf-8")
    with (
        created_database(server_url, template_database) as one,
        created_database(server_url, template_database) as other,
        troubled_world([one, other]) as world,
        looking(world.app, browser, report=ReportFile(report)) as someone,
    ):
        world.load(someone.url)
        yield Visit(world, someone)


def open_overview(visit: Visit, *, scripts: bool = True) -> Page:
    page = visit.open("/", scripts=scripts)
    # All of them, where not all are shown.
    for summary in page.locator("#attention summary").all():
        summary.click()
    return page


# The first test of all: a queue is told to grow for some minutes only.
def test_the_overview_tells_all_that_is_wrong_the_most_urgent_first(visit: Visit) -> None:
    page = open_overview(visit)
    told = [" ".join(each.split()) for each in page.locator("#attention li > span").all_inner_texts()]
    assert len(told) == len(TROUBLES), told
    assert [said[: len(text)] for said, text in zip(told, TROUBLES, strict=True)] == TROUBLES


def check(visit: Visit, shown: Shown) -> None:
    """With scripts it is seen in every way; without them as much is there."""
    told = []
    for scripts in (True, False):
        page = visit.open(shown.path, shown.who, scripts=scripts)
        if shown.first is not None:
            shown.first(visit, page)
        main = page.locator("main")
        expect(main).to_contain_text(shown.shows)
        assert page.locator("script:not([src]), img[src=x]").count() == 0
        told.append((main.locator("h2, h3, th, dt").all_inner_texts(), main.locator("tr, li, input").count()))
        if scripts:
            check_every_look(page)
    assert told[0] == told[1]
    # A browser says so where it was refused a page.
    visit.someone.said[:] = [each for each in visit.someone.said if not REFUSED.match(each)]
    visit.someone.check()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_seen_and_read_by_anybody(visit: Visit, name: str) -> None:
    check(visit, PAGES[name])


def test_what_was_paused_is_resumed_from_the_overview(visit: Visit) -> None:
    def resume(words: str, *, scripts: bool) -> None:
        page = open_overview(visit, scripts=scripts)
        page.locator("#attention li", has_text=words).get_by_role("button", name="resume").click()
        expect(
            page.get_by_role("status").filter(has_text="goes on").or_(page.get_by_text("is resumed"))
        ).to_be_visible()

    assert visit.app.stats("paused").paused
    resume("paused is paused, and", scripts=True)
    assert not visit.app.stats("paused").paused
    resume("The load", scripts=True)
    assert [load.state for load in visit.app.loads()] == ["running"]
    resume("The schedule paused", scripts=False)
    assert {each.name: each.is_paused for each in visit.app.crons()}[NAMES["paused"]] is False


def press_on(page: Page, what: Locator) -> None:
    """Come there by Tab alone, and press Enter."""
    expect(what).to_be_visible()
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if what.evaluate("element => element === document.activeElement"):
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"no Tab leads to {what}")


def test_by_keyboard_alone_from_the_overview_to_the_release_of_a_halted_key(visit: Visit) -> None:
    page = visit.open("/")
    press_on(page, page.locator("#attention li", has_text="halted").get_by_role("link", name="look · release"))
    press_on(page, page.locator("tr[id^=halted]", has_text="c-2").get_by_role("button", name="Release"))
    expect(page.locator(".said")).to_contain_text("Key c-2 goes on")
    assert [each.key for each in visit.app.blocked_keys(NAMES["orders"], kind="halted")] == [NAMES["key"]]


def test_by_keyboard_alone_from_the_overview_to_the_retry_of_one_group(visit: Visit) -> None:
    page = visit.open("/")
    press_on(page, page.locator("#attention li", has_text="1 job of mail").get_by_role("link", name="look · retry"))
    press_on(page, page.locator("table.causes tr", has_text="there is no nobody").get_by_role("link", name="Retry…"))
    press_on(page, page.get_by_role("button", name="Retry 1 dead letter"))
    expect(page.locator(".said")).to_contain_text("1 job was retried")
    assert (visit.app.stats("mail").dead, visit.app.stats(NAMES["orders"]).dead) == (0, 2)


def test_a_job_that_was_set_aside_is_let_back_and_one_that_is_lost_is_cancelled(visit: Visit) -> None:
    ids = visit.world.ids
    page = visit.open("/jobs/{aside}")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".said")).to_contain_text(f"Job {ids['aside']} was retried")
    assert "set aside" not in visit.app.explain(ids["aside"]).reason
    page = visit.open("/jobs/{lost}")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("alert")).to_contain_text("bring its row back")
    assert "set aside" in visit.app.explain(ids["lost"]).reason
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator(".said")).to_contain_text(f"Job {ids['lost']} is cancelled")
    assert [each for each in visit.app.attention() if each.kind == "set-aside"] == []


def test_a_drain_tells_how_far_it_is(visit: Visit) -> None:
    # That of the worker: what it runs stays there to its end.
    shard = visit.app.stats("slow").partitions[0].shard
    assert visit.app.drain_shard(shard).state == "draining"
    check(visit, Shown("/shards", f"Shard {shard} is being drained"))


def test_a_shard_that_is_away_is_told_on_every_page_about_it(visit: Visit) -> None:
    visit.world.second.go_down()
    check(visit, Shown("/shards", "does not answer"))
    check(visit, Shown("/", "Shard 2 does not answer"))
