"""The report's page: headline figures, then a section for each question one asks about a queue."""

from __future__ import annotations

from penstock.drawing.formatting import UNKNOWN, count, duration, instant, percent, rate, word
from penstock.drawing.html_parts import LOGO, document, tile
from penstock.spark.reporting import share_sections, time_sections
from penstock.spark.reporting.figures import Figures

__all__ = ["build_page"]


def build_page(figures: Figures) -> str:
    """The whole page as HTML."""
    about = f"queue {figures.queue}" if figures.queue is not None else "all queues"
    body = _report(figures) if figures.ended else _empty(figures)
    foot = (
        f"Made by Penstock at {instant(figures.made_at)} UTC. A percentile's rank is exact to 0.01 %. "
        "This page is one file: it loads nothing and runs nothing."
    )
    return document(f"Penstock report · {about}", _top(figures), body, foot)


def _top(figures: Figures) -> str:
    if not figures.ended:
        return f"<h1>Nothing has ended yet</h1><p>{_scope(figures)}.</p>"
    said = (
        f"<h1>{count(figures.ended)} jobs ended, {_well(figures)} of them well</h1>"
        f"<p>{_scope(figures)}, from <b>{instant(figures.start or figures.made_at)}</b> to "
        f"<b>{instant(figures.end or figures.made_at)}</b> UTC, {duration(figures.seconds)}.</p>"
    )
    names = ("throughput", "times", "waiting", "failures", "retries", "keys", "partitions", "workers")
    links = [*names, "loads"] if figures.loads else names
    return said + "<nav>" + "".join(f'<a href="#{name}">{name}</a>' for name in links) + "</nav>"


def _well(figures: Figures) -> str:
    share = figures.succeeded / figures.ended
    if share == 1:
        return "all"
    return f"all but {count(figures.ended - figures.succeeded)}" if share > 0.999 else percent(share)


def _scope(figures: Figures) -> str:
    queue = f"Queue <b>{word(figures.queue)}</b>" if figures.queue is not None else "All queues"
    return queue + (f", since {instant(figures.since)} UTC" if figures.since is not None else "")


def _report(figures: Figures) -> str:
    mean = figures.jobs_a_second
    busiest = figures.busiest
    first = figures.workers[0] if figures.workers else None
    tiles = (
        tile("ended", "jobs ended", count(figures.ended), f"{count(figures.succeeded)} succeeded"),
        tile(
            "throughput",
            "throughput",
            UNKNOWN if mean is None else rate(mean),
            "" if busiest is None else f"at most {rate(busiest.jobs / figures.moment_seconds)}",
        ),
        tile("wait", "wait, p50", duration(figures.wait.p50), f"p99 {duration(figures.wait.p99)}", "wait"),
        tile("run", "run, p50", duration(figures.run.p50), f"p99 {duration(figures.run.p99)}"),
        tile(
            "retried", "retried", count(figures.retried), f"{percent(figures.retried / figures.ended)} of jobs", "quiet"
        ),
        tile(
            "failed",
            "failed",
            count(figures.failed),
            f"{percent(figures.failed / figures.ended)} of jobs",
            "bad" if figures.failed else "quiet",
        ),
        tile(
            "workers",
            "workers",
            count(figures.worker_count),
            "" if first is None else f"the busiest ended {percent(first.jobs / figures.ended)}",
            "quiet",
        ),
        tile("waiting", "waiting now", count(figures.waiting.jobs), _oldest(figures), "wait"),
    )
    sections = (
        time_sections.throughput(figures),
        time_sections.times(figures),
        share_sections.waiting(figures),
        time_sections.failures(figures),
        time_sections.retries(figures),
        share_sections.keys(figures),
        share_sections.partitions(figures),
        share_sections.workers(figures),
        share_sections.loads(figures),
    )
    return f'<div class="tiles">{"".join(tiles)}</div>{"".join(sections)}'


def _oldest(figures: Figures) -> str:
    oldest = figures.waiting.oldest_seconds
    return "nothing" if oldest is None else f"the oldest for {duration(oldest)}"


def _empty(figures: Figures) -> str:
    """A friendly page where there is no history yet."""
    waits = figures.waiting.jobs
    advice = (
        f"<p><b>{count(waits)}</b> jobs wait. Start a worker, and look again when some have ended.</p>"
        "<pre><code>penstock work MODULE:APP</code></pre>"
        if waits
        else "<p>Enqueue some jobs, let a worker run them, and make this page again.</p>"
        "<pre><code>penstock load events.parquet --queue orders --task ship --key customer\n"
        "penstock work MODULE:APP</code></pre>"
    )
    hint = "<p>Or look further back: a report without <code>--since</code> has it all.</p>" if figures.since else ""
    said = "<p>There is no job in the history that this report could speak of.</p>"
    card = f'<section class="empty">{LOGO}{said}{advice}{hint}</section>'
    return card + (share_sections.waiting(figures) if waits else "")
