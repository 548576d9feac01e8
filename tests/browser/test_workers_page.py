"""Workers in a real browser: what each runs, and one that is stopped gently."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import Looking, check_page, looking
from tests.browser.test_report_page import HOSTILE
from tests.system.facts import eventually

from penstock import App

TASK = HOSTILE.replace("\x00", "\x1b")


class Hall:
    """An app whose jobs run until they are let go."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.goes = threading.Event()
        mail = app.queue("mail")

        @mail.task(name=TASK)
        def wait() -> None:
            self.goes.wait()

        self.wait = wait
        app.migrate()

    @contextmanager
    def working(self) -> Iterator[threading.Thread]:
        """A worker with two slots, one of which is used."""
        self.wait.enqueue()
        thread = threading.Thread(target=lambda: self.app.work(concurrency=2))
        thread.start()
        try:
            eventually(lambda: [each.running for each in self.app.workers()] == [1], "the job runs")
            yield thread
        finally:
            self.goes.set()
            self.app.stop()
            thread.join()


@pytest.fixture
def hall(database_url: str) -> Iterator[Hall]:
    with App(database_url) as app:
        yield Hall(app)


@pytest.fixture
def someone(hall: Hall, browser: Browser) -> Iterator[Looking]:
    with looking(hall.app, browser) as someone:
        yield someone


def test_a_worker_is_shown_with_what_it_runs_and_is_stopped_gently(hall: Hall, someone: Looking) -> None:
    page = someone.open("/workers")
    expect(page.get_by_text("No worker runs")).to_be_visible()
    check_page(page)
    with hall.working() as thread:
        (worker,) = hall.app.workers()
        (job,) = hall.app.jobs(state="running")
        row = page.locator(f"#worker-{worker.id}")
        expect(row).to_contain_text(worker.name)
        expect(row.get_by_role("img", name="1 of 2 slots are used")).to_be_visible()
        expect(row.get_by_role("link", name="<script>")).to_have_attribute("href", f"/jobs/{job.id}")
        row.get_by_role("link", name=worker.name).click()
        expect(page.locator(f"#job-{job.id}")).to_contain_text("<script>")
        expect(page.locator("#tasks")).to_contain_text("<script>")
        page.get_by_role("link", name="Stop…").click()
        expect(page.get_by_text("runs 1 job now. It takes no more")).to_be_visible()
        assert not hall.app.worker(worker.id).is_stopping
        page.get_by_role("button", name="Stop it gently").click()
        expect(page.get_by_role("status").filter(has_text="was told to stop")).to_be_visible()
        assert hall.app.worker(worker.id).is_stopping
        expect(row.locator(".state")).to_have_text("stopping")
        expect(row.get_by_role("link", name="Stop…")).to_have_count(0)
        hall.goes.set()
        # It ends by itself.
        thread.join()
    expect(page.get_by_text("No worker runs")).to_be_visible()
    assert hall.app.job(job.id).state == "succeeded"


def test_whoever_only_reads_is_offered_nothing(hall: Hall, someone: Looking) -> None:
    with hall.working():
        (worker,) = hall.app.workers()
        reader = someone.sign_in("read")
        for path in ("/workers", f"/workers/{worker.id}"):
            page = someone.open(path, reader)
            expect(page.locator("main")).to_contain_text(worker.name)
            expect(page.locator("main").get_by_role("link", name=re.compile("Stop"))).to_have_count(0)
