"""Open pages are drawn once for all who look, and as rarely as it takes to stay a small share of the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from penstock.clock import system
from penstock.errors import PartitionUnavailable, PenstockError
from penstock.model.token import Role
from penstock.server.dashboard import live
from penstock.server.dashboard.live import LivePages, OpenPage, PageStream, Scope
from penstock.server.inner_api import Reads
from penstock.server.problem import ProblemError

EVERYTHING = Scope(Role.ADMIN, None, None, False)
SOME = Scope(Role.READ, frozenset({"mail"}), None, False)


def page(path: str = "/", scope: Scope = EVERYTHING) -> OpenPage:
    return OpenPage(scope, "", path, ())


class Drawn:
    """Pages that say how often each was drawn."""

    def __init__(self) -> None:
        self.times: dict[OpenPage, int] = {}
        self.reads: list[Reads] = []
        self.says: Callable[[OpenPage], str] | None = None

    def __call__(self, open_page: OpenPage, reads: Reads) -> str:
        self.times[open_page] = self.times.get(open_page, 0) + 1
        self.reads.append(reads)
        return self.says(open_page) if self.says else f"{open_page.path} {self.times[open_page]}"


async def at_once(call: Callable[[], None]) -> None:
    call()


async def texts(stream: PageStream) -> AsyncIterator[str]:
    async for message in stream.messages():
        if message.startswith(b"event: page\n"):
            lines = message.decode().split("\n")[1:]
            yield "\n".join(line.removeprefix("data: ") for line in lines if line)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ROUND_SECONDS", 0.001)


def test_a_page_is_drawn_once_for_all_who_look_at_it_and_may_see_the_same() -> None:
    drawn = Drawn()

    async def scenario() -> None:
        pages = LivePages(drawn, at_once, asyncio.Event())
        streams = [pages.open(each) for each in (page(), page(), page(scope=SOME))]
        told = [texts(stream) for stream in streams]
        for _ in range(3):
            for each in told:
                await anext(each)
        for stream in streams:
            pages.close(stream)

    asyncio.run(scenario())
    rounds = len({id(reads) for reads in drawn.reads})
    assert drawn.times.keys() == {page(), page(scope=SOME)}
    assert rounds - 1 <= min(drawn.times.values()) <= max(drawn.times.values()) <= rounds


def test_what_one_page_read_in_a_round_is_there_for_the_others_and_not_for_the_next_round() -> None:
    drawn = Drawn()

    async def scenario() -> None:
        pages = LivePages(drawn, at_once, asyncio.Event())
        first, second = pages.open(page("/a")), pages.open(page("/b"))
        told = [texts(first), texts(second)]
        for _ in range(3):
            for each in told:
                await anext(each)
        pages.close(first)
        pages.close(second)

    asyncio.run(scenario())
    rounds = list(zip(drawn.reads[::2], drawn.reads[1::2], strict=False))
    assert all(one is other for one, other in rounds)
    assert rounds[0][0] is not rounds[1][0]


def test_what_has_not_changed_is_not_sent_again() -> None:
    drawn = Drawn()
    drawn.says = lambda open_page: "same" if drawn.times[open_page] < 5 else "other\nlines"

    async def scenario() -> list[str]:
        pages = LivePages(drawn, at_once, asyncio.Event())
        stream = pages.open(page())
        told = texts(stream)
        seen = [await anext(told), await anext(told)]
        pages.close(stream)
        return seen

    assert asyncio.run(scenario()) == ["same", "other\nlines"]
    assert drawn.times[page()] >= 5


def test_a_page_that_cannot_be_drawn_stays_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    drawn = Drawn()

    def says(open_page: OpenPage) -> str:
        if open_page.path == "/a":
            raise PenstockError("away") if drawn.times[open_page] % 2 else ValueError("broken")
        return str(drawn.times[open_page])

    drawn.says = says

    async def scenario() -> None:
        pages = LivePages(drawn, at_once, asyncio.Event())
        broken, whole = pages.open(page("/a")), pages.open(page("/b"))
        told = texts(whole)
        for _ in range(4):
            await anext(told)
        pages.close(broken)
        pages.close(whole)

    asyncio.run(scenario())
    assert "a page could not be drawn again" in caplog.text


def test_drawing_takes_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    paused = asyncio.Event()
    now = 0.0

    async def note(_: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        paused.set()
        await asyncio.sleep(0)

    def draw(_: OpenPage, __: Reads) -> str:
        nonlocal now
        now += 3.0
        return str(now)

    async def scenario() -> None:
        pages = LivePages(draw, at_once, asyncio.Event())
        streams = [pages.open(page("/a")), pages.open(page("/b"))]
        await paused.wait()
        for stream in streams:
            pages.close(stream)

    monkeypatch.setattr(live, "wait_at_most", note)
    monkeypatch.setattr(system, "monotonic", lambda: now)
    asyncio.run(scenario())
    assert pauses[0] == pytest.approx(6.0 / live.MOST_SHARE - 6.0)


def test_after_an_outage_nobody_looks_at_an_old_page_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    paused = asyncio.Event()
    now = 0.0

    async def note(_: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        paused.set()
        await asyncio.sleep(0)

    def draw(drawn: OpenPage, _: Reads) -> str:
        nonlocal now
        now += 30.0
        if drawn.path == "/waits":
            return "the database came back"
        raise PartitionUnavailable("it does not answer")

    async def scenario() -> None:
        pages = LivePages(draw, at_once, asyncio.Event())
        streams = [pages.open(page(path)) for path in ("/waits", *(f"/{number}" for number in range(20)))]
        await paused.wait()
        for stream in streams:
            pages.close(stream)

    monkeypatch.setattr(live, "wait_at_most", note)
    monkeypatch.setattr(system, "monotonic", lambda: now)
    asyncio.run(scenario())
    assert pauses[0] <= 30


def test_beyond_a_bound_a_page_stays_as_it_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_PAGES", 2)
    monkeypatch.setattr(live, "MOST_STREAMS", 4)

    async def scenario() -> None:
        pages = LivePages(Drawn(), at_once, asyncio.Event())
        streams = [pages.open(page("/a")), pages.open(page("/b"))]
        with pytest.raises(ProblemError, match="too many pages"):
            pages.open(page("/c"))
        streams += [pages.open(page("/a")), pages.open(page("/a"))]
        with pytest.raises(ProblemError, match="too many pages"):
            pages.open(page("/a"))
        for stream in streams:
            pages.close(stream)

    asyncio.run(scenario())


def test_nobody_is_kept_waiting_when_the_server_stops() -> None:
    async def scenario() -> None:
        stopping = asyncio.Event()
        pages = LivePages(Drawn(), at_once, stopping)
        stream = pages.open(page())
        told = texts(stream)
        await anext(told)
        stopping.set()
        with suppress(StopAsyncIteration):
            while True:
                await anext(told)
        with pytest.raises(ProblemError, match="stopping"):
            pages.open(page())

    asyncio.run(scenario())
