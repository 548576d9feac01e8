"""`make screenshots`: the pictures of the dashboard in the manual, of a shop that has been busy for a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.browser.conftest import opened_browser
from tests.browser.dashboard_world import PHONE, Looking, looking
from tests.browser.shop import STUCK, Shop, open_shop
from tests.servers import started_server

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MINUTES = 45
WIDTH, HEIGHT = 1_240, 860


def main() -> None:
    """Make them all."""
    with ExitStack() as opened:
        shop = opened.enter_context(_shop())
        opened.enter_context(_worker(shop))
        browser = opened.enter_context(opened_browser())
        someone = opened.enter_context(looking(shop.app, browser))
        pages = _pages(shop)
        for name, path in pages.items():
            _take(someone, path, name)
        _take(someone, "/", "dashboard-dark", scheme="dark")
        _take(someone, "/", "dashboard-phone", width=PHONE, height=720)
        _tell_stories(someone)


def _pages(shop: Shop) -> dict[str, str]:
    (dead,) = shop.app.jobs(queue="orders", state="failed", limit=1)
    return {
        "dashboard": "/",
        "dashboard-queue": "/queues/payments",
        "dashboard-jobs": "/jobs?queue=payments&state=failed",
        "dashboard-job": f"/jobs/{dead.id}",
        "dashboard-schedules": "/schedules",
        "dashboard-workers": "/workers",
    }


def _tell_stories(someone: Looking) -> None:
    """Each step of the two stories in the manual."""
    context = someone.new_context(width=WIDTH, height=520)
    page = someone.open("/", context)
    _snap(page, "story-key-1")
    page.locator("#attention li", has_text="halted").get_by_role("link", name="look · release").click()
    row = page.locator("tr[id^=halted]", has_text=STUCK)
    expect(row).to_be_visible()
    _snap(page, "story-key-2")
    row.locator("a.id").first.click()
    expect(page.locator("main")).to_contain_text("billing address")
    _snap(page, "story-key-3")
    page.go_back()
    page.locator("tr[id^=halted]", has_text=STUCK).get_by_role("button", name="Release").click()
    expect(page.locator(".said")).to_be_visible()
    _snap(page, "story-key-4")
    page = someone.open("/", context)
    _snap(page, "story-spike-1")
    page.locator("#attention li", has_text="dead letters").filter(has_text="payments").get_by_role("link").last.click()
    expect(page.locator("main")).to_contain_text("gateway")
    _snap(page, "story-spike-2")
    page.get_by_role("link", name="Retry").first.click()
    _snap(page, "story-spike-3")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".said")).to_be_visible()
    _snap(page, "story-spike-4")


def _take(
    someone: Looking, path: str, name: str, *, width: int = WIDTH, height: int = HEIGHT, scheme: str = "light"
) -> None:
    page = someone.open(path, someone.new_context(width=width, height=height, scheme=scheme))
    expect(page.locator("[data-live-state].on")).to_be_visible()
    _snap(page, name)
    page.close()


def _snap(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png")
    sys.stderr.write(f"{name}\n")


@contextmanager
def _shop() -> Iterator[Shop]:
    """On a PostgreSQL of its own."""
    with started_server() as server, open_shop(server.url, MINUTES) as shop:
        yield shop


@contextmanager
def _worker(shop: Shop) -> Iterator[None]:
    """Somebody works on all but exports, and does business."""
    over = threading.Event()
    working = threading.Thread(
        target=shop.app.work, kwargs={"queues": ["emails", "orders", "payments", "search-index"], "concurrency": 8}
    )

    def buy() -> None:
        while not over.wait(0.5):
            shop.do_business(0.3)

    buying = threading.Thread(target=buy)
    working.start()
    buying.start()
    try:
        yield
    finally:
        over.set()
        buying.join()
        shop.app.stop()
        working.join()


if __name__ == "__main__":
    main()
