"""What is done to a queue by the buttons and forms of its pages, and that it is done in the database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import Looking, looking
from tests.browser.queue_world import HALTED, HOSTILE, Shop

from penstock import App
from penstock.server.inner_api import InnerApi


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


@pytest.fixture
def shop(someone: Looking) -> Shop:
    return Shop(someone.app)


def refused(someone: Looking, page: Page, said: str) -> None:
    """The form is there again, and says why; a browser notes that it was refused."""
    expect(page.get_by_role("alert")).to_contain_text(said)
    told = "the server responded with a status of 422"
    someone.said[:] = [each for each in someone.said if told not in each]


def test_a_queue_is_paused_and_resumed(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".said")).to_contain_text("orders is paused")
    assert someone.app.stats("orders").paused
    page.locator(".head").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not someone.app.stats("orders").paused


def test_a_halted_key_is_released_by_its_button_and_another_by_its_text(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders/keys")
    expect(page.get_by_text("2 keys are halted")).to_be_visible()
    row = page.locator("#halted tbody tr, tbody tr", has_text=HALTED[0])
    expect(row.locator("td").nth(2)).to_have_text("3")
    expect(row.get_by_role("link", name=str(shop.dead[HALTED[0].encode()]))).to_be_visible()
    row.get_by_role("button", name="Release").click()
    expect(page.locator(".said")).to_contain_text(f"Key {HALTED[0]} goes on")
    assert [each.key for each in someone.app.blocked_keys("orders")] == [HALTED[1]]
    page.get_by_label("Another key, as text").fill("nobody")
    page.get_by_role("button", name="Release it").click()
    expect(page.get_by_role("alert")).to_contain_text("is not halted")
    page.get_by_label("Another key, as text").fill(HALTED[1])
    page.get_by_role("button", name="Release it").click()
    expect(page.get_by_text("No key is halted.")).to_be_visible()
    assert someone.app.blocked_keys("orders") == []


def test_a_key_that_is_no_text_is_released(someone: Looking, shop: Shop) -> None:
    keys = b"\xff\x00\x01", HOSTILE.encode()
    shop.halt(*keys)
    for left, key in zip((3, 2), keys, strict=True):
        page = someone.open("/queues/orders/keys")
        page.locator(f"#halted-{shop.dead[key]}").get_by_role("button", name="Release").click()
        expect(page.locator(".said")).to_contain_text("goes on")
        assert len(someone.app.blocked_keys("orders")) == left


def test_waiting_jobs_are_purged_after_they_were_counted(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders")
    page.get_by_role("link", name="Purge…").click()
    page.get_by_role("link", name="Count all that wait…").click()
    expect(page.get_by_role("heading", level=2)).to_have_text("All that wait: 7")
    assert someone.app.stats("orders").queue_length == 6
    page.get_by_label("Why (kept with each job)").fill("a mistake")
    page.get_by_role("button", name="Cancel 7 jobs").click()
    expect(page.locator(".said")).to_contain_text("7 jobs of orders were cancelled")
    stats = someone.app.stats("orders")
    assert (stats.queue_length, stats.scheduled, stats.dead) == (0, 0, 2)
    assert {job.error for job in someone.app.jobs(queue="orders", state="cancelled")} == {"a mistake"}


def test_dead_letters_are_cleared_after_they_were_counted(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders/purge?state=failed")
    page.get_by_role("button", name="Clear 2 dead letters").click()
    expect(page.locator(".said")).to_contain_text("2 dead letters of orders were cleared")
    stats = someone.app.stats("orders")
    assert (stats.queue_length, stats.dead) == (6, 0)


def test_a_queue_that_is_used_is_deleted_only_with_all_that_is_in_it(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders/delete")
    expect(page.get_by_text("6 ready, 1 scheduled, 2 dead letters")).to_be_visible()
    page.get_by_role("button", name="Delete the queue").click()
    assert "orders" in someone.app.queue_names()
    page.get_by_label("Delete it with all that is in it").check()
    page.get_by_role("button", name="Delete the queue").click()
    expect(page).to_have_url(f"{someone.url}/")
    assert "orders" not in someone.app.queue_names()


def test_an_empty_queue_is_deleted(someone: Looking, shop: Shop) -> None:
    someone.app.set_queue("empty")
    page = someone.open("/queues/empty/delete")
    expect(page.get_by_role("checkbox")).to_have_count(0)
    page.get_by_role("button", name="Delete the queue").click()
    expect(page).to_have_url(f"{someone.url}/")
    assert "empty" not in someone.app.queue_names()


def test_limits_are_changed_given_and_taken_away_by_a_form(someone: Looking, shop: Shop) -> None:
    someone.app.limit("orders", limit=7, max_wait=1.5)
    page = someone.open("/queues/orders/rules")
    expect(page.get_by_label("Limit", exact=True)).to_have_value("7")
    page.get_by_label("Limit", exact=True).fill("5")
    page.get_by_label("Total rate").fill("100/s")
    page.get_by_label("Most waiting").fill("5000")
    page.get_by_label("Longest wait").fill("")
    # What somebody else changes meanwhile, and this form does not, stays.
    someone.app.limit("orders", total_limit=9)
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text(
        "orders has limit 5, total rate 100/s, most waiting 5000, longest wait none"
    )
    rules = someone.app.stats("orders").rules
    assert (rules.limit, rules.total_rate, rules.max_length, rules.max_wait) == (5, "100/s", 5000, None)
    assert rules.total_limit == 9
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text("Nothing was changed")
    page.get_by_label("Longest wait").fill("2h")
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text("longest wait 2h")
    assert someone.app.stats("orders").rules.max_wait == 7_200


def test_only_limits_that_a_queue_can_have_are_offered(someone: Looking, shop: Shop) -> None:
    someone.app.set_queue("plain")
    someone.app.set_queue("fair", fair_by="tenant")
    for queue, offered in [
        ("orders", ["Rate of a key", "Run"]),
        ("plain", []),
        ("fair", ["Weights"]),
    ]:
        page = someone.open(f"/queues/{queue}/rules")
        titles = page.locator(".field label").all_inner_texts()
        assert "Rate" in titles
        assert [title for title in titles if title in ("Rate of a key", "Run", "Weights")] == offered
        # It can be changed: it is none of what is kept.
        expect(page.get_by_role("region", name="What it keeps for its life")).not_to_contain_text("Partitions")
        expect(page.get_by_role("region", name="Limits").get_by_role("link")).to_have_attribute(
            "href", f"/queues/{queue}/partitions"
        )


def test_a_limit_that_cannot_be_is_refused_with_what_was_typed(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders/rules")
    page.get_by_label("Limit", exact=True).fill("many")
    page.get_by_label("Total rate").fill("1/s")
    page.get_by_role("button", name="Change the limits").click()
    refused(someone, page, "limit: 'many' is no whole number")
    expect(page.get_by_label("Total rate")).to_have_value("1/s")
    page.get_by_label("Limit", exact=True).fill("3")
    page.get_by_label("Longest wait").fill("inf")
    page.get_by_role("button", name="Change the limits").click()
    refused(someone, page, "max_wait: 'inf' is no length of time")
    page.get_by_label("Longest wait").fill("")
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text("limit 3, total rate 1/s")
    rules = someone.app.stats("orders").rules
    assert (rules.limit, rules.total_rate) == (3, "1/s")


def test_weights_of_tenants_of_any_name_come_back_as_they_were(someone: Looking) -> None:
    tenant = HOSTILE.replace("\0", "")
    someone.app.queue("fair", fair_by="tenant", weights={tenant: 2, "acme": 3.5})
    someone.app.migrate()
    page = someone.open("/queues/fair/rules")
    page.get_by_label("Limit", exact=True).fill("4")
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text("limit 4 now")
    rules = someone.app.stats("fair").rules
    assert (rules.limit, rules.weights) == (4, {tenant: 2, "acme": 3.5})
    weights = page.get_by_label("Weights")
    weights.fill(weights.input_value().replace("3.5", "1"))
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator(".said")).to_contain_text("weights")
    assert someone.app.stats("fair").rules.weights == {tenant: 2, "acme": 1}
    page.get_by_label("Weights").fill("{acme: 1}")
    page.get_by_role("button", name="Change the limits").click()
    refused(someone, page, "weights")
    expect(page.get_by_label("Weights")).to_have_value("{acme: 1}")


def test_a_queue_gets_another_number_of_partitions(someone: Looking, shop: Shop) -> None:
    page = someone.open("/queues/orders/partitions")
    page.get_by_role("spinbutton", name="Partitions").fill("4")
    page.get_by_role("button", name="Resize").click()
    expect(page.locator(".said")).to_contain_text("orders has 4 partitions")
    expect(page.locator("#partition-3")).to_be_visible()
    assert len(someone.app.stats("orders").partitions) == 4


def enqueue_form(someone: Looking) -> Page:
    page = someone.open("/queues/orders")
    page.get_by_role("link", name="Enqueue a job").click()
    return page


def test_a_job_is_enqueued_by_a_form(someone: Looking, shop: Shop) -> None:
    page = enqueue_form(someone)
    assert page.locator("#tasks option").first.get_attribute("value") == "book"
    page.get_by_label("Task", exact=True).fill("book")
    page.get_by_label("Arguments, as JSON").fill('{"customer": "c-7", "step": 12345678901234567}')
    page.get_by_label("Delay").fill("90.5")
    page.get_by_label("Priority").select_option("2")
    before = datetime.now(UTC)
    page.get_by_role("button", name="Enqueue").click()
    (job,) = [each for each in someone.app.jobs(queue="orders", task="book") if each.args.get("customer") == "c-7"]
    assert page.url == f"{someone.url}/jobs/{job.id}"
    assert (job.key, job.priority, job.args["step"]) == ("c-7", 2, 12345678901234567)
    assert job.run_at is not None
    assert timedelta(seconds=80) < job.run_at - before < timedelta(seconds=200)


def test_a_button_that_is_clicked_again_before_the_answer_acts_once(
    someone: Looking, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(someone.app.jobs(queue="orders"))
    send = InnerApi.send

    def send_slowly(self: InnerApi, *parts: Any, **named: Any) -> Any:
        sleep(1.0)
        return send(self, *parts, **named)

    monkeypatch.setattr(InnerApi, "send", send_slowly)
    page = enqueue_form(someone)
    page.get_by_label("Task", exact=True).fill("book")
    page.get_by_label("Arguments, as JSON").fill('{"customer": "c-9", "step": 1}')
    button = page.get_by_role("button", name="Enqueue").bounding_box()
    assert button is not None
    for _ in range(3):
        page.mouse.click(button["x"] + 5, button["y"] + 5)
        sleep(0.2)
    expect(page.locator(".said")).to_contain_text("was enqueued")
    assert len(someone.app.jobs(queue="orders")) == before + 1
    # Another time it is sent again.
    page.go_back()
    page.get_by_label("Task", exact=True).fill("book")
    page.get_by_label("Arguments, as JSON").fill('{"customer": "c-9", "step": 1}')
    page.get_by_role("button", name="Enqueue").click()
    expect(page.locator(".said")).to_contain_text("was enqueued")
    assert len(someone.app.jobs(queue="orders")) == before + 2


def test_arguments_that_are_no_json_come_back_as_they_were_typed(someone: Looking, shop: Shop) -> None:
    before = len(someone.app.jobs(queue="orders"))
    page = enqueue_form(someone)
    typed = '{"customer": "\u202ec-8",\n\t"step": 1,}'
    page.get_by_label("Task", exact=True).fill("book")
    page.get_by_label("Key", exact=True).fill("a \u202e key")
    page.get_by_label("Arguments, as JSON").fill(typed)
    page.get_by_role("button", name="Enqueue").click()
    refused(someone, page, "args")
    expect(page.get_by_label("Key", exact=True)).to_have_value("a \u202e key")
    arguments = page.get_by_label("Arguments, as JSON")
    expect(arguments).to_have_value(typed.replace("\u202e", "\\u202e"))
    arguments.fill(arguments.input_value().replace(",}", "}"))
    page.get_by_role("button", name="Enqueue").click()
    expect(page.locator("main")).not_to_contain_text("Arguments, as JSON")
    assert len(someone.app.jobs(queue="orders")) == before + 1
    (job,) = someone.app.jobs(queue="orders", key="a \u202e key")
    assert job.args == {"customer": "\u202ec-8", "step": 1}


@pytest.mark.parametrize(
    ("label", "typed", "said"),
    [("Arguments, as JSON", "[1]", "args: they are one JSON object"), ("Delay", "soon", "delay: 'soon'")],
)
def test_what_is_no_job_is_refused_by_name(someone: Looking, shop: Shop, label: str, typed: str, said: str) -> None:
    page = enqueue_form(someone)
    page.get_by_label("Task", exact=True).fill("book")
    page.get_by_label(label).fill(typed)
    page.get_by_role("button", name="Enqueue").click()
    refused(someone, page, said)
    expect(page.get_by_label(label)).to_have_value(typed)


def test_a_queue_is_made_by_a_form_and_none_is_changed_by_it(someone: Looking, shop: Shop) -> None:
    page = someone.open("/new-queue")
    page.get_by_label("Name").fill("orders")
    page.get_by_label("Partitions").fill("9")
    page.get_by_label("Limit", exact=True).fill("4")
    page.get_by_label("Order").select_option("key")
    page.get_by_label("When a job dies").select_option("halt")
    page.get_by_role("button", name="Make the queue").click()
    refused(someone, page, "there is a queue 'orders' already")
    assert len(someone.app.stats("orders").partitions) == 2
    page.get_by_label("Name").fill("new / <b>")
    page.get_by_role("button", name="Make the queue").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("new / <b>")
    stats = someone.app.stats("new / <b>")
    assert (len(stats.partitions), stats.rules.limit, stats.rules.order, stats.rules.on_dead) == (9, 4, "key", "halt")
