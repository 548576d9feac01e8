"""Access tokens in a real browser: made, told once, revoked; and by administrators only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.dashboard_world import PHONE, Looking, looking
from tests.browser.test_report_page import HOSTILE

from penstock import App


@pytest.fixture
def someone(database_url: str, browser: Browser) -> Iterator[Looking]:
    with App(database_url) as app:
        app.queue("mail")
        app.queue("orders")
        app.migrate()
        with looking(app, browser) as someone:
            yield someone


def open_tokens(someone: Looking) -> Page:
    page = someone.open("/", someone.sign_in("admin", name="root"))
    page.get_by_role("navigation").get_by_role("link", name="Tokens").click()
    expect(page.locator("h1")).to_have_text("Access tokens")
    return page


def test_the_first_token_is_made_by_whoever_sits_here_and_signs_in(someone: Looking) -> None:
    page = someone.open("/tokens")
    expect(page.get_by_text("There is none yet")).to_be_visible()
    expect(page.get_by_label("Role")).to_have_value("admin")
    page.get_by_label("Name, of").fill("ada")
    page.get_by_role("button", name="Make the token").click()
    secret = page.get_by_label("The token").input_value()
    (token,) = someone.app.tokens()
    assert (token.name, token.role) == ("ada", "admin")
    page.get_by_role("link", name="back to the tokens").click()
    expect(page.get_by_label("Access token")).to_be_visible()
    page.get_by_label("Access token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#tokens")).to_contain_text("ada")


def test_a_token_is_made_and_its_secret_is_told_once_and_nowhere_else(someone: Looking) -> None:
    page = open_tokens(someone)
    page.get_by_label("Name, of").fill("shop")
    page.get_by_label("Role").select_option("produce")
    page.get_by_label("Good for").select_option("30 days")
    page.get_by_label("Only these queues").fill("mail\n orders \n")
    page.get_by_label("Only this tenant").fill("acme")
    page.get_by_label("Its bearer sees no").check()
    page.get_by_role("button", name="Make the token").click()
    secret = page.get_by_label("The token").input_value()
    assert re.fullmatch(r"penstock_[A-Za-z0-9_-]{43}", secret)
    token = next(each for each in someone.app.tokens() if each.name == "shop")
    assert (token.role, token.queues, token.tenant, token.hides_args) == ("produce", ("mail", "orders"), "acme", True)
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).days in (29, 30)
    assert all(secret not in url for url in someone.asked)
    assert all(secret not in str(cookie) for cookie in page.context.cookies())
    page.get_by_role("link", name="back to the tokens").click()
    expect(page.locator("#tokens tr", has_text="shop")).to_contain_text("mail, orders")
    assert secret not in page.content()


def test_what_does_not_do_is_said_and_what_was_typed_stays(someone: Looking) -> None:
    page = open_tokens(someone)
    page.get_by_label("Name, of").fill("root")
    page.get_by_label("Role").select_option("work")
    page.get_by_label("Good for").select_option("until it is revoked")
    page.get_by_label("Only this tenant").fill("acme")
    page.get_by_role("button", name="Make the token").click()
    expect(page.get_by_role("alert")).to_be_visible()
    for label, value in (("Name, of", "root"), ("Role", "work"), ("Good for", ""), ("Only this tenant", "acme")):
        expect(page.get_by_label(label)).to_have_value(value)
    assert [token.name for token in someone.app.tokens()] == ["root"]
    someone.said.clear()  # The browser says that the form was refused.


def test_a_token_is_revoked_after_a_question(someone: Looking) -> None:
    someone.app.create_token("shop/one", role="produce")
    page = open_tokens(someone)
    row = page.locator("#tokens tr", has_text="shop/one")
    row.get_by_role("link", name="Revoke…").click()
    expect(page.get_by_text("Its role is produce. Within a second nobody comes in by it")).to_be_visible()
    assert all(token.revoked_at is None for token in someone.app.tokens())
    page.get_by_role("button", name="Revoke it").click()
    expect(page.get_by_role("status").filter(has_text="shop/one is revoked")).to_be_visible()
    expect(row.locator(".state")).to_have_text("revoked")
    expect(row.get_by_role("link", name="Revoke…")).to_have_count(0)
    entry = someone.app.audit(act="revoke_token")[0]
    assert (entry.actor, entry.target) == ("token root", "shop/one")


def test_names_are_only_text(someone: Looking) -> None:
    name = HOSTILE.replace("\x00", "\x1b")
    someone.app.create_token(name, role="produce", tenant=name, queues=["mail"])
    someone.app.create_token("x" * 200, role="produce")
    page = open_tokens(someone)
    expect(page.locator("#tokens")).to_contain_text("<script>")
    other = someone.new_context(width=PHONE, scheme="dark")
    other.add_cookies(page.context.cookies())  # type: ignore[arg-type]
    page = someone.open("/tokens", other)
    expect(page.locator("#tokens")).to_contain_text("<script>")
    page.locator("#tokens tr", has_text="<script>").get_by_role("link", name="Revoke…").click()
    page.get_by_role("button", name="Revoke it").click()
    expect(page.locator(".said")).to_contain_text("<script>")
    assert next(token for token in someone.app.tokens() if token.name == name).revoked_at is not None


def test_who_signs_out_is_let_in_no_more_and_has_nothing_left_to_come_in_by(someone: Looking) -> None:
    context = someone.sign_in("read")
    (page,) = context.pages
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{someone.url}/sign-in")
    assert [cookie["name"] for cookie in context.cookies()] == ["penstock_csrf"]
    page.goto(f"{someone.url}/jobs")
    expect(page).to_have_url(f"{someone.url}/sign-in?next=%2Fjobs")
    page.go_back()
    page.go_back()
    expect(page.get_by_label("Access token")).to_be_visible()


@pytest.mark.parametrize("narrowed", [{"role": "read"}, {"role": "admin", "queues": ["mail"]}])
def test_only_an_administrator_of_everything_sees_tokens(someone: Looking, narrowed: dict[str, Any]) -> None:
    someone.app.create_token("hidden one", role="work")
    page = someone.open("/", someone.sign_in(**narrowed))
    expect(page.get_by_role("navigation").get_by_role("link", name="Tokens")).to_have_count(0)
    page.goto(f"{someone.url}/tokens")
    expect(page.get_by_role("alert")).to_be_visible()
    assert "hidden one" not in page.content()
    someone.said.clear()  # The browser says that the page was refused.
