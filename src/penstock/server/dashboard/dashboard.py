"""A request for a page: who looks is found out, the page's function is called in a thread, and a template is drawn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.acting import Actor, acting_as
from penstock.clock import system
from penstock.errors import InvalidInput, PenstockError
from penstock.server.body import ClientGone
from penstock.server.call import Services
from penstock.server.call_rates import CallRates
from penstock.server.caller import Caller
from penstock.server.dashboard.drawn import draw
from penstock.server.dashboard.entry import Done, Elsewhere, Entry, Framed, Result, Shown
from penstock.server.dashboard.forms import page_before, read_form
from penstock.server.dashboard.live import LivePages, OpenPage, PageStream
from penstock.server.dashboard.live import Scope as PageScope
from penstock.server.dashboard.pages import PAGES
from penstock.server.dashboard.report_file import ReportFile
from penstock.server.dashboard.session import (
    LOOKING_ROLES,
    Session,
    TrustedProxy,
    csrf_of,
    keep_csrf,
    keep_said,
    said_by,
)
from penstock.server.dashboard.static_files import find_static
from penstock.server.dashboard.view import Given, View, link
from penstock.server.guard import Guard
from penstock.server.inner_api import InnerApi, Reads
from penstock.server.operation import EVENTS
from penstock.server.problem import ProblemError, problem_of
from penstock.server.router import Router
from penstock.server.standing_calls import StandingCalls
from penstock.server.threads import ACTING, DRAWING, CallThreads

__all__ = ["Dashboard"]

log = logging.getLogger("penstock")

SIGN_IN, SIGN_OUT, LIVE, STATIC = (b"sign-in",), (b"sign-out",), (b"live",), b"static"
# Nothing is loaded from elsewhere or runs but our own script; no other site may frame a page, or be sent a form.
# Charts have their sizes in style attributes, which run nothing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# A page that somebody else made stands in a frame of ours, where it can do nothing and load nothing.
FRAMED_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'self'; base-uri 'none'; "
        "sandbox"
    ),
    "X-Frame-Options": "SAMEORIGIN",
}
PAGE_THREADS = 4
MOST_OPTIONS = 1_000


class Dashboard:
    """The pages of one server."""

    def __init__(
        self,
        services: Services,
        guard: Guard,
        router: Router[Any],
        rates: CallRates,
        proxy: TrustedProxy | None = None,
        report: ReportFile | None = None,
    ) -> None:
        self._services = services
        self._session = Session(guard, proxy)
        self._operations = router
        self._report = report
        self._rates = rates
        self._pages: Router[Entry] = Router(PAGES)
        self._threads = CallThreads(DRAWING, PAGE_THREADS)
        # An act waits for a database that does not answer; nobody who looks waits behind it.
        self._acting = CallThreads(ACTING, PAGE_THREADS)
        self._live = LivePages(self._draw_again, self._threads.run, services.stopping)
        self._standing = StandingCalls(self._admit)
        # The server's, known with the first request.
        self._loop: asyncio.AbstractEventLoop

    def close(self) -> None:
        """Wait for what is drawn."""
        self._threads.close()
        self._acting.close()

    def has(self, method: str, parts: tuple[bytes, ...]) -> bool:
        """Whether there is a page, an act or a file of that path."""
        if parts in (SIGN_IN, SIGN_OUT, LIVE) or (len(parts) == 2 and parts[0] == STATIC):
            return True
        found = self._pages.find("GET" if method == "HEAD" else method, parts)
        return found.entry is not None or bool(found.methods)

    async def answer(self, scope: Scope, receive: Receive, headers: Headers, parts: tuple[bytes, ...]) -> Response:
        """The answer: a page, also to what goes wrong."""
        self._loop = asyncio.get_running_loop()
        root = quote(scope.get("root_path", "").rstrip("/"))
        try:
            return await self._respond(scope, receive, headers, parts, root)
        except PenstockError as error:
            return self._refuse(error, scope, headers, root)
        except ClientGone:
            raise
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            problem = ProblemError("internal", "the server's log has the cause")
            return self._refuse(problem, scope, headers, root)

    async def _respond(
        self, scope: Scope, receive: Receive, headers: Headers, parts: tuple[bytes, ...], root: str
    ) -> Response:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if len(parts) == 2 and parts[0] == STATIC:
            found = find_static(parts[1].decode(errors="replace"))
            if found is None:
                raise ProblemError("not-found", "there is no such file; open the page again")
            return found
        query = Given(_pairs(scope))
        if parts == SIGN_IN:
            return await self._sign_in(scope, receive, headers, query, root)
        if parts == SIGN_OUT:
            return await self._sign_out(scope, receive, headers, root)
        caller = await self._admit(scope, headers)
        self._rates.count(caller)
        if parts == LIVE:
            return self._follow(scope, headers, caller, query, root)
        sought = self._pages.find(method, parts)
        if sought.entry is None:
            if sought.methods:
                raise ProblemError("method-not-allowed", f"this page has {', '.join(sought.methods)}")
            raise ProblemError("not-found", "there is no such page")
        csrf, is_new = csrf_of(headers)
        form = await read_form(receive, headers, csrf) if method == "POST" else Given([])
        path = "/" + "/".join(part.decode("ascii", errors="replace") for part in parts)
        view = self._view(caller, root, path.rstrip("/") or "/", query, form, csrf)
        result = await self._carry_out(view, sought.entry, sought.named)
        if isinstance(result, Elsewhere):
            return RedirectResponse(result.to, 303, HEADERS)
        if isinstance(result, Framed):
            return HTMLResponse(result.html, headers=HEADERS | FRAMED_HEADERS)
        if isinstance(result, Done):
            done = RedirectResponse(result.to, 303, HEADERS)
            keep_said(done, result.said, scope, headers)
            return done
        response = await self._page(view, result, said_by(headers), scope)
        if is_new:
            keep_csrf(response, csrf, scope, headers)
        if said_by(headers) is not None:
            keep_said(response, "", scope, headers)
        return response

    async def _carry_out(self, view: View, entry: Entry, named: Any) -> Result:
        def call() -> Result:
            return entry.function(view, **named)

        threads = self._acting if entry.method == "POST" else self._threads
        with acting_as(Actor(view.caller.name, "http", view.caller.address)):
            return await threads.run(call)

    async def _page(self, view: View, shown: Shown, said: tuple[str, bool] | None, scope: Scope) -> HTMLResponse:
        asked = scope.get("query_string", b"").decode("ascii", errors="replace")
        here = view.path + (f"?{asked}" if asked else "")
        live = link(view.root, "live", page=here) if shown.is_live and view.form.text("csrf") is None else None
        text = await self._threads.run(
            lambda: draw(
                shown.template, **shown.values, view=view, title=shown.title, said=said, live=live, layout="layout.html"
            )
        )
        return HTMLResponse(text, shown.status, HEADERS)

    def _view(self, caller: Caller, root: str, path: str, query: Given, form: Given, csrf: str) -> View:
        api = InnerApi(self._services, self._operations, self._loop, caller)
        return View(api, caller, root, path, query, form, csrf, system.now(), self._report)

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        if self._session.is_fresh:
            caller = self._session.admit(scope, headers)
        else:
            caller = await self._services.admitting.run(lambda: self._session.admit(scope, headers))
        if caller.role not in LOOKING_ROLES:
            raise ProblemError("unauthorized", f"a token with role {caller.role} may not look; sign in with another")
        return caller

    async def _sign_in(self, scope: Scope, receive: Receive, headers: Headers, query: Given, root: str) -> Response:
        csrf, is_new = csrf_of(headers)
        following = _local(query.text("next"), root)
        if scope["method"] == "POST":
            form = await read_form(receive, headers, csrf)
            following = _local(form.text("next"), root)
            secret = form.required("token").strip()
            address = scope["client"][0] if scope.get("client") else None
            try:
                await self._services.admitting.run(lambda: self._session.sign_in(secret, address))
            except ProblemError as error:
                return self._sign_in_page(root, csrf, following, str(error), 401)
            response: Response = RedirectResponse(following, 303, HEADERS)
            self._session.keep(response, secret, scope, headers)
            return response
        response = self._sign_in_page(root, csrf, following, None, 200)
        if is_new:
            keep_csrf(response, csrf, scope, headers)
        return response

    @staticmethod
    def _sign_in_page(root: str, csrf: str, following: str, why: str | None, status: int) -> HTMLResponse:
        text = draw("sign_in.html", root=root, csrf=csrf, following=following, why=why)
        return HTMLResponse(text, status, HEADERS)

    async def _sign_out(self, scope: Scope, receive: Receive, headers: Headers, root: str) -> Response:
        if scope["method"] != "POST":
            raise ProblemError("method-not-allowed", "signing out is done by the button")
        await read_form(receive, headers, csrf_of(headers)[0])
        response = RedirectResponse(link(root, "sign-in"), 303, HEADERS)
        self._session.forget(response, scope, headers)
        return response

    def _refuse(self, error: PenstockError, scope: Scope, headers: Headers, root: str) -> Response:
        problem = problem_of(error)
        asks_page = scope["method"] in ("GET", "HEAD")
        if problem.code == "unauthorized" and asks_page and EVENTS not in headers.get("accept", ""):
            asked = scope.get("query_string", b"").decode("ascii", errors="replace")
            here = scope.get("raw_path", b"/").split(b"?")[0].decode("ascii", errors="replace")
            here += f"?{asked}" if asked else ""
            return RedirectResponse(link(root, "sign-in", next=here), 303, HEADERS)
        before = page_before(headers, root)
        if scope["method"] == "POST" and before is not None and problem.status in (404, 409, 422, 429, 503):
            # Where the form was: the page says what was wrong, and what stands otherwise by now.
            back = RedirectResponse(before, 303, HEADERS)
            field = f"{problem.field}: " if problem.field else ""
            keep_said(back, f"{field}{problem.detail}", scope, headers, is_bad=True)
            return back
        extra = HEADERS | ({"Connection": "close"} if getattr(error, "ends_connection", False) else {})
        return HTMLResponse(draw("problem.html", root=root, problem=problem), problem.status, extra)

    def _follow(self, scope: Scope, headers: Headers, caller: Caller, query: Given, root: str) -> Response:
        path, _, asked = (query.text("page") or "/").partition("?")
        if self._pages.find("GET", _parts_of(path)).entry is None:
            raise ProblemError("not-found", "there is no such page")
        sees = PageScope(caller.role, caller.queues, caller.tenant, caller.hides_args)
        stream = self._live.open(OpenPage(sees, root, path, tuple(_read_pairs(asked))))
        return _LiveResponse(stream, self._live, self._standing)

    def _draw_again(self, page: OpenPage, reads: Reads) -> str:
        """What stands in an open page by now."""
        sought = self._pages.find("GET", _parts_of(page.path))
        if sought.entry is None:
            raise ProblemError("not-found", "there is no such page")
        caller = Caller(bearer=None, **page.scope._asdict())
        api = InnerApi(self._services, self._operations, self._loop, caller, reads)
        # Forms of an open page are left as they are, so their word is not needed here.
        view = View(api, caller, page.root, page.path, page.given, Given([]), "", system.now(), self._report)
        shown = sought.entry.function(view, **sought.named)
        if not isinstance(shown, Shown):
            raise ProblemError("not-found", "there is no such page")
        return draw(shown.template, **shown.values, view=view, title=shown.title, layout="fragment.html")


class _LiveResponse(StreamingResponse):
    """What stands in an open page, as long as it is open and its token is good."""

    def __init__(self, stream: PageStream, live: LivePages, standing: StandingCalls) -> None:
        headers = HEADERS | {"X-Accel-Buffering": "no"}
        super().__init__(self._messages(stream), media_type=EVENTS, headers=headers)
        self._stream = stream
        self._pages = live
        self._standing = standing

    @staticmethod
    async def _messages(stream: PageStream) -> AsyncIterator[bytes]:
        async for message in stream.messages():
            yield message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._standing.standing(scope, Headers(scope=scope)) as refused:
                refused.add_done_callback(lambda _: self._stream.end())
                await super().__call__(scope, receive, send)
        finally:
            self._pages.close(self._stream)


def _parts_of(path: str) -> tuple[bytes, ...]:
    return tuple(part.encode() for part in path.strip("/").split("/"))


def _pairs(scope: Scope) -> list[tuple[str, str]]:
    return _read_pairs(scope.get("query_string", b"").decode("ascii", errors="replace"))


def _read_pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_OPTIONS)
    except ValueError:
        raise InvalidInput("query", f"it has more than {MOST_OPTIONS:,} options; give fewer") from None


def _local(following: str | None, root: str) -> str:
    """A path of this dashboard, and nothing else, to go on to."""
    home = f"{root}/"
    if following is None or not following.startswith(home) or following.startswith("//") or "\\" in following:
        return home
    return following
