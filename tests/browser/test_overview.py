"""The overview in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.dashboard_world import Looking, check_every_look, looking

from penstock import App
from penstock.model import Attention
from penstock.model.attention import KINDS
from penstock.server.dashboard.pages.overview import MOST_NOTICES

AGO = datetime.now(UTC) - timedelta(hours=50)
# What may be found, the sentence that is made of it, and the act beside it with where it leads. Reasons are told to
# whoever is shown errors only.
NOTICES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"kind": "shard-down", "shard": "2", "detail": {"reason": "no route"}},
        "Shard 2 does not answer: no route.",
        "look /shards",
    ),
    ({"kind": "shard-down", "shard": "3"}, "Shard 3 does not answer.", "look /shards"),
    ({"kind": "shard-read-only", "shard": "2"}, "Shard 2 takes no writes.", "look /shards"),
    (
        {"kind": "no-worker", "queue": "q", "count": 1_200, "since": AGO},
        "No worker serves q: 1,200 jobs wait, the oldest was enqueued 2 d 2 h ago.",
        "workers /workers",
    ),
    (
        {"kind": "no-worker", "queue": "q", "count": 1, "since": AGO},
        "No worker serves q: 1 job waits, the oldest was enqueued 2 d 2 h ago.",
        "workers /workers",
    ),
    (
        {"kind": "unserved-task", "queue": "q", "task": "t", "since": AGO},
        "No worker has the task t of q: its oldest job was enqueued 2 d 2 h ago.",
        "look /jobs?queue=q&task=t&state=ready",
    ),
    (
        {"kind": "failing-duty", "name": "fold", "shard": "1", "since": AGO, "detail": {"error": "no room"}},
        "The housekeeping “fold” on shard 1 fails again and again: no room.",
        "",
    ),
    ({"kind": "failing-duty", "name": "fold"}, "The housekeeping “fold” fails again and again.", ""),
    (
        {"kind": "halted-keys", "queue": "q", "count": 12, "since": AGO},
        "12 keys of q are halted by a dead letter, the first 2 d 2 h ago.",
        "look · release /queues/q/keys",
    ),
    (
        {"kind": "halted-keys", "queue": "q", "count": 1, "since": AGO},
        "1 key of q is halted by a dead letter, the first 2 d 2 h ago.",
        "look · release /queues/q/keys",
    ),
    (
        {"kind": "stuck-jobs", "queue": "q", "task": "t", "count": 2, "since": AGO, "detail": {"jobs": [7, 8]}},
        "2 jobs of t in q run far too long, the first was started 2 d 2 h ago.",
        "look /jobs/7",
    ),
    (
        {"kind": "nearly-full", "queue": "q", "count": 9, "detail": {"partition": "q", "max_length": 10}},
        "q is nearly full: 9 jobs wait, at 10 it refuses more.",
        "look /queues/q",
    ),
    (
        {"kind": "nearly-full", "queue": "q", "count": 1, "detail": {"partition": "q", "max_length": 1}},
        "q is nearly full: 1 job waits, at 1 it refuses more.",
        "look /queues/q",
    ),
    (
        {"kind": "dead-letters", "queue": "q", "count": 3, "detail": {"dead": 1_005, "last_at": AGO}},
        "3 jobs of q became dead letters in the last hour; 1,005 in all.",
        "look · retry /dead-letters?queue=q",
    ),
    (
        {"kind": "failed-cron", "queue": "q", "task": "t", "name": "daily", "since": AGO, "detail": {"job_id": 7}},
        "The last job of the schedule daily is a dead letter.",
        "look /jobs/7",
    ),
    (
        {"kind": "set-aside", "queue": "q", "count": 2, "since": AGO, "detail": {"jobs": [7, 8], "reason": "no"}},
        "2 jobs of q cannot be read and were set aside.",
        "look /jobs/7",
    ),
    (
        {"kind": "long-wait", "queue": "q", "count": 2, "since": AGO},
        "q is behind: its oldest ready job was enqueued 2 d 2 h ago, 2 jobs wait.",
        "look /queues/q",
    ),
    (
        {"kind": "long-wait", "queue": "q", "count": 1, "since": AGO},
        "q is behind: its oldest ready job was enqueued 2 d 2 h ago, 1 job waits.",
        "look /queues/q",
    ),
    (
        {"kind": "growing", "queue": "q", "count": 500, "detail": {"in_per_minute": 1_200.4, "out_per_minute": 0.0}},
        "q grows: 1,200 in, 0 out a minute.",
        "look /queues/q",
    ),
    (
        {"kind": "paused-queue", "queue": "q", "count": 1, "since": AGO},
        "q is paused, and 1 job waits.",
        "resume /queues/q/resume",
    ),
    ({"kind": "paused-load", "queue": "q", "name": "l"}, "The load l is paused.", "resume /loads/l/resume"),
    (
        {"kind": "paused-cron", "queue": "q", "task": "t", "name": "c"},
        "The schedule c is paused.",
        "resume /schedules/c/resume",
    ),
]


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def test_an_empty_system_shows_how_to_begin_and_enqueues_an_example(someone: Looking) -> None:
    page = someone.open("/")
    expect(page.get_by_text("Nothing is here yet")).to_be_visible()
    assert "app.queue" in page.locator("pre").inner_text()
    check_every_look(page)
    plain = someone.open("/", someone.new_context(scripts=False))
    assert plain.locator("main").inner_text() == page.locator("main").inner_text()
    page.get_by_role("button", name="Enqueue an example").click()
    expect(page).to_have_url(re.compile("/jobs/[0-9]+$"))
    (job,) = someone.app.jobs(queue="example")
    assert (job.task, page.url) == ("hello", f"{someone.url}/jobs/{job.id}")


def test_the_overview_shows_every_queue_and_follows_it(someone: Looking) -> None:
    queue = someone.app.queue("orders")

    @queue.task
    def book() -> None: ...

    book.enqueue()
    page = someone.open("/")
    waiting = page.locator("#queue-orders td").nth(1)
    expect(waiting).to_have_text("1")
    book.enqueue_many([{}] * 4)
    expect(waiting).to_have_text("5", timeout=60_000)


def test_the_table_and_the_list_agree_about_new_dead_letters(someone: Looking) -> None:
    queue = someone.app.queue("orders")

    @queue.task(max_attempts=1)
    def book() -> None:
        raise ValueError

    book.enqueue_many([{}] * 5)
    someone.app.work(until_idle=True)
    page = someone.open("/")
    expect(page.locator("#attention")).to_contain_text("5 jobs of orders became dead letters in the last hour")
    expect(page.locator("#queue-orders td").last).to_have_text("5 5 new")
    page.goto(f"{someone.url}/queues/orders")
    expect(page.locator(".tile", has_text="Dead letters")).to_contain_text("jobs died 5 times so far")


def test_each_kind_of_trouble_is_a_sentence_with_an_act_beside_it(
    someone: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    someone.app.set_queue("q")
    found = [Attention(**values) for values, _, _ in NOTICES]
    monkeypatch.setattr(App, "attention", lambda *_: found)
    page = someone.open("/")
    rows = page.locator("#attention li")
    told = [" ".join(text.split()) for text in rows.locator("> span").all_text_contents()]
    assert told == [sentence for _, sentence, _ in NOTICES]
    acts = rows.evaluate_all(
        "(rows, acts) => rows.map(row => { const act = row.querySelector(acts); return act === null ? '' :"
        " `${act.textContent.trim()} ${act.getAttribute('href') ?? act.getAttribute('action')}` })",
        "form, a.button",
    )
    assert acts == [act for _, _, act in NOTICES]
    assert {each.kind for each in found} == set(KINDS)
    expect(page.locator("#attention summary")).to_have_text(f"{len(NOTICES) - MOST_NOTICES} more")
    expect(rows.nth(MOST_NOTICES)).to_be_hidden()
