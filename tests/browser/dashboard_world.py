"""The dashboard of an app, served on a port of this machine, and browsers that look at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.system.facts import eventually

from penstock import App
from penstock.server import Application
from penstock.server.beside import serving_beside
from penstock.server.serving import bind

__all__ = ["PHONE", "SCREEN", "Looking", "check_every_look", "check_page", "looking"]

PHONE, SCREEN = 375, 1440
# axe, which no page of ours loads, asks each frame in vain if it stands in one of another origin.
OF_AXE = "Failed to execute 'postMessage' on 'DOMWindow'"
LOOKS = ((SCREEN, "light"), (SCREEN, "dark"), (PHONE, "dark"), (PHONE, "light"))


class Looking:
    """Somebody before a browser. What is opened must be silent, and ask nobody but this server."""

    def __init__(self, app: App, browser: Browser, url: str) -> None:
        self.app = app
        self.url = url
        self._browser = browser
        self._stack = ExitStack()
        self.said: list[str] = []
        self.asked: list[str] = []

    @cached_property
    def context(self) -> BrowserContext:
        """One browser for pages that are opened without anything else said."""
        return self.new_context()

    def new_context(
        self, *, width: int = SCREEN, height: int = 900, scheme: Any = "light", scripts: bool = True
    ) -> BrowserContext:
        """Another browser, with cookies of its own."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=scripts
        )
        self._stack.callback(context.close)
        return context

    def sign_in(self, role: Any = "read", *, name: str = "somebody", **narrowed: Any) -> BrowserContext:
        """A browser that has signed in with a new token."""
        secret = self.app.create_token(name, role=role, **narrowed)
        context = self.new_context()
        # A server hears of a new token within a second.
        bearing, asked = {"Authorization": f"Bearer {secret}"}, f"{self.url}/api/v1/jobs/0"
        eventually(lambda: context.request.get(asked, headers=bearing).status != 401, "the token is known")
        page = self.open("/sign-in", context)
        page.get_by_label("Access token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        return context

    def open(self, path: str, context: BrowserContext | None = None) -> Page:
        """A page, by its path."""
        page = (context or self.context).new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(dialog.message))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(f"{self.url}{path}")
        return page

    def check(self) -> None:
        """Nothing complained, and nothing was asked of others."""
        said = [each for each in self.said if not each.startswith(OF_AXE)]
        assert said == [], said
        assert {urlsplit(url).netloc for url in self.asked} <= {urlsplit(self.url).netloc}

    def close(self) -> None:
        """Close all browsers."""
        self._stack.close()


def check_page(page: Page, rules: Sequence[str] | None = None) -> None:
    """It fits its window, and axe finds nothing serious: by these of its rules, or all."""
    needed, has = page.evaluate(
        "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.documentElement)"
    )
    assert needed <= has, f"{page.url} needs {needed} of {has} pixels"
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"]} | ({} if rules is None else {"runOnly": rules})
    found = page.evaluate("options => axe.run(options).then(results => results.violations)", options)
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert serious == [], [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in serious]


def check_every_look(page: Page) -> None:
    """The same on a screen and on a phone, light and dark."""
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        # Nothing but colours is of a scheme.
        check_page(page, None if scheme == "light" else ["color-contrast"])


@contextmanager
def looking(app: App, browser: Browser, *, is_local: bool = True, **options: Any) -> Iterator[Looking]:
    """Serve the app, and look."""
    application = Application(app, is_local=is_local, **options)
    with serving_beside(application, bind("127.0.0.1", 0)) as url:
        someone = Looking(app, browser, url)
        try:
            yield someone
            someone.check()
        finally:
            someone.close()
