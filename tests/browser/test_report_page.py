"""The report in a real browser: it shows the figures it was given, on any screen, and does nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import Open
from tests.browser.example import NOW, figures

from penstock.model.rules import QueueRules
from penstock.spark.advising.advice import Weights, build_advice
from penstock.spark.advising.advice_page import build_advice_page
from penstock.spark.reporting.figures import Figures, HotKey
from penstock.spark.reporting.key_time import KeyTime
from penstock.spark.reporting.page import build_page

SCREENS = [(1240, "light"), (1240, "dark"), (390, "light"), (320, "dark")]
SECTIONS = ["throughput", "times", "waiting", "failures", "retries", "keys", "partitions", "workers", "loads"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\u202egnp\x00\x1b[31m"


def fits(shown: Page) -> bool:
    """Nothing makes the page wider than its window: what is too wide scrolls inside its own card."""
    return bool(shown.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def text_of(shown: Page, selector: str) -> str:
    return shown.locator(selector).inner_text().replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_page_shows_the_figures_on_any_screen(open_page: Open, width: int, scheme: str) -> None:
    given = figures()
    shown = open_page(build_page(given), width=width, scheme=scheme)
    assert fits(shown)
    tiles = {name: text_of(shown, f'[data-figure="{name}"] dd') for name in ("ended", "failed", "retried", "waiting")}
    assert tiles == {
        "ended": f"{given.ended:,}",
        "failed": f"{given.failed:,}",
        "retried": "321",
        "waiting": "42",
    }
    assert text_of(shown, '[data-figure="wait"]').split("\n") == ["wait, p50", "1.2 s", "p99 1 min 15 s"]
    assert text_of(shown, '[data-figure="run"] dd') == "12 ms"
    assert (
        text_of(shown, '[data-figure="throughput"] small')
        == f"at most {max(m.jobs for m in given.moments) / 10:,.0f}/s"
    )
    for name in SECTIONS:
        assert shown.locator(f"#{name}").is_visible()
    assert "9,876" in text_of(shown, "#keys")
    assert "0.43" in text_of(shown, "#keys")
    assert "1 ms each and 4 ms until the next starts: it needs 49 s for them" in text_of(shown, "#keys header")
    assert "With run=100 it would need 10 s" in text_of(shown, "#keys header")
    assert "49 s" in text_of(shown, "#keys .spaced")
    assert f"{given.outcomes['succeeded']:,}" in text_of(shown, "#throughput")
    assert "ValueError: orders" in text_of(shown, "#failures")
    assert "6 or more" in text_of(shown, "#retries")
    assert shown.locator("#throughput .column").count() == len(given.moments)


def test_what_is_under_the_pointer_tells_its_figures(open_page: Open) -> None:
    given = figures()
    shown = open_page(build_page(given))
    column = shown.locator("#throughput .column").nth(9)
    column.hover()
    said = column.evaluate("element => getComputedStyle(element, '::after').content")
    assert f"{given.moments[9].jobs:,} jobs" in said


def test_columns_are_as_high_as_their_figures(open_page: Open) -> None:
    given = figures()
    shown = open_page(build_page(given))
    heights = shown.locator("#throughput .column").evaluate_all(
        "columns => columns.map(column => [...column.children].reduce((sum, piece) => sum + piece.offsetHeight, 0))"
    )
    jobs = [moment.jobs for moment in given.moments]
    assert heights[7] == 0
    assert heights.index(max(heights)) == jobs.index(max(jobs))
    assert heights[40] / heights[0] == pytest.approx(jobs[40] / jobs[0], rel=0.05)


def test_whatever_users_name_their_things_is_only_text(open_page: Open) -> None:
    shown = open_page(build_page(replace(figures(HOSTILE), queue=HOSTILE, since=NOW)))
    assert shown.locator("script, img").count() == 0
    assert "<script>alert(1)</script>" in text_of(shown, "#times")
    assert fits(shown)


@pytest.mark.parametrize("waiting", [figures().waiting, Figures(made_at=NOW).waiting])
def test_an_empty_history_has_a_friendly_page(open_page: Open, waiting: object) -> None:
    shown = open_page(build_page(Figures(made_at=NOW, waiting=waiting)), width=390)  # type: ignore[arg-type]
    assert text_of(shown, "h1") == "Nothing has ended yet"
    assert "penstock work" in text_of(shown, "pre")
    assert fits(shown)


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_picture_of_an_advice_shows_its_figures(open_page: Open, width: int, scheme: str) -> None:
    jobs = {
        number: [700, *([300 // (number - 1)] * (number - 1))] if number > 1 else [1_000] for number in range(1, 65)
    }
    hot = HotKey(HOSTILE, 700, 0.7, KeyTime(700, 0.001, 0.004, True))
    weights = Weights(1_000, 0, 300, HOSTILE, 700, jobs, [hot], 0.001, 1_000)
    found = build_advice("orders", 4, QueueRules(order="key"), weights)
    shown = open_page(build_advice_page(found, weights), width=width, scheme=scheme)
    assert fits(shown)
    assert text_of(shown, '[data-figure="best"] dd') == str(found.best)
    assert text_of(shown, '[data-figure="hottest"] dd') == "3.5 s"
    assert text_of(shown, '[data-figure="hottest"] small').startswith("700 jobs: <script>")
    assert "run=100" in text_of(shown, '[data-figure="ceiling"] small')
    cells = text_of(shown, "#slowest tbody tr").split("\t")
    assert cells[1:] == ["700", "70 %", "1 ms", "4 ms", "3.5 s", "728 ms"]
    assert "app.limit('orders', run=100)" in text_of(shown, "#slowest header")
    assert shown.locator("#curve tr.chosen td").first.inner_text() == str(found.best)
    assert shown.locator("script").count() == 0
