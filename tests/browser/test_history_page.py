"""The report of the history in the dashboard: it is shown, and nothing in it runs, loads or leaves its frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import check_page, looking
from tests.browser.example import figures

from penstock import App, InvalidInput
from penstock.server import ReportFile
from penstock.server.dashboard import report_file
from penstock.spark.reporting.page import build_page


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("mail")
        app.migrate()
        yield app


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_the_report_is_shown_with_when_it_was_made(app: App, browser: Browser, path: Path) -> None:
    with looking(app, browser, report=ReportFile(path)) as someone:
        page = someone.open("/history")
        expect(page.get_by_text("The report was not made yet")).to_be_visible()
        expect(page.locator("pre")).to_have_text(f"penstock report lake/ --out {path}")
        check_page(page)
        path.write_text(build_page(figures()), encoding="utf-8")
        page.reload()
        frame = page.frame_locator("iframe")
        expect(frame.locator("h1")).to_contain_text("jobs ended")
        expect(frame.locator("#keys")).to_contain_text("9,876")
        # It has its colours: its style is let through.
        assert frame.locator("#keys").evaluate("section => getComputedStyle(section).borderRadius") != "0px"
        expect(page.locator(".lead")).to_contain_text("Made")
        # In a page that is sandboxed as a whole the driver of the browser would wait for ever.
        alone = page.get_by_role("link", name="Open the report alone").get_attribute("href")
        assert "jobs ended" in httpx.get(f"{someone.url}{alone}").text


def test_nothing_runs_in_it_and_nothing_comes_out_of_it(app: App, browser: Browser, path: Path) -> None:
    path.write_text(
        '<h1>evil</h1><script>parent.document.title="evil";alert(1)</script><img src=x onerror=alert(2)>'
        '<a href="/sign-out" target="_top">go</a><form action="/example" method="post"><button>send</button></form>'
        '<meta http-equiv="refresh" content="0;url=/overview"><iframe src="/"></iframe>',
        encoding="utf-8",
    )
    with looking(app, browser, report=ReportFile(path)) as someone:
        page = someone.open("/history")
        frame = page.frame_locator("iframe").first
        expect(frame.locator("h1")).to_have_text("evil")
        frame.get_by_role("button").click()
        frame.get_by_role("link").click()
        expect(page).to_have_title("History · Penstock")
        assert page.url == f"{someone.url}/history"
        assert app.queues(["example"]) == []
        # The browser says what it did not do, and asks for no more than the page and what stands in its frame.
        assert any("Blocked script execution" in said or "Content Security Policy" in said for said in someone.said)
        assert not any(said in ("1", "2") for said in someone.said)
        someone.said.clear()
        told = httpx.get(f"{someone.url}/history/report").headers
        assert "sandbox" in told["content-security-policy"]
        assert "script-src" not in told["content-security-policy"]
        assert told["x-frame-options"] == "SAMEORIGIN"


def test_without_a_report_the_page_says_how_to_have_one(app: App, browser: Browser) -> None:
    with looking(app, browser) as someone:
        page = someone.open("/history")
        expect(page.get_by_text("penstock serve --report report.html")).to_be_visible()
        check_page(page)
        assert httpx.get(f"{someone.url}/history/report", headers={"Accept": "text/html"}).status_code == 404


def test_only_who_may_see_everything_sees_it(app: App, browser: Browser, path: Path) -> None:
    path.write_text("<h1>all of it</h1>", encoding="utf-8")
    with looking(app, browser, report=ReportFile(path)) as someone:
        narrow: dict[str, dict[str, Any]] = {
            "queues": {"queues": ["mail"]}, "tenant": {"tenant": "acme"}, "careful": {"hides_args": True},
        }  # fmt: skip
        for name, narrowed in narrow.items():
            context = someone.sign_in("read", name=name, **narrowed)
            page = someone.open("/", context)
            expect(page.get_by_role("navigation").get_by_role("link", name="History")).to_have_count(0)
            for address in ("/history", "/history/report"):
                page.goto(f"{someone.url}{address}")
                expect(page.get_by_role("alert")).to_contain_text("this token may not see it")
        someone.said.clear()  # The browser says that the pages were refused.
        page = someone.open("/", someone.sign_in("read", name="whole"))
        page.get_by_role("navigation").get_by_role("link", name="History").click()
        expect(page.frame_locator("iframe").locator("h1")).to_have_text("all of it")


def test_what_cannot_be_a_report_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (tmp_path, tmp_path / "none" / "report.html"):
        with pytest.raises(InvalidInput, match="report:"):
            ReportFile(given)
    path.write_bytes(b"\xff<h1>")
    assert ReportFile(path).read() == "\N{REPLACEMENT CHARACTER}<h1>"
    monkeypatch.setattr(report_file, "MOST_BYTES", 4)
    with pytest.raises(Exception, match="so it is no report"):
        ReportFile(path).read()
    path.unlink()
    with pytest.raises(Exception, match="make it with penstock report"):
        ReportFile(path).read()
