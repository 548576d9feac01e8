"""The picture of an advice: the speed-up by number of partitions, and how full each partition would be."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clock import system
from penstock.drawing.axis import round_top
from penstock.drawing.charts import Stack, bar, columns, curve, legend
from penstock.drawing.formatting import count, duration, instant, percent, word
from penstock.drawing.html_parts import document, nothing, section, table, tile
from penstock.spark.advising.advice import Advice, Choice, Weights
from penstock.spark.advising.slow_keys import slow_keys_section

__all__ = ["SHOWN", "build_advice_page"]

# The rows of the table; the best and the present number stand there too.
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def build_advice_page(found: Advice, weights: Weights) -> str:
    """The whole page as HTML."""
    top = (
        f"<h1>How many partitions for {word(found.queue, 60)}?</h1>"
        f"<p>From <b>{count(found.jobs)}</b> jobs, waiting and ended, with <b>{count(found.keys)}</b> keys. "
        f"The queue has <b>{count(found.partitions)}</b> now.</p>"
    )
    body = f'<section class="advice"><p>{word(found.sentence, 1_000)}</p></section>'
    body += (
        _figures(found, weights) if found.choices else section("none", "Nothing to weigh", nothing("No job has a key."))
    )
    foot = f"Made by Penstock at {instant(system.now())} UTC. This page is one file: it loads nothing and runs nothing."
    return document(f"Penstock · partitions of {found.queue}", top, body, foot)


def _figures(found: Advice, weights: Weights) -> str:
    now, best = found.choice(found.partitions), found.choice(found.best) if found.best is not None else None
    top = max(found.choices, key=lambda choice: choice.speed_up)
    tiles = (
        tile("best", "advised", "any" if best is None else count(best.partitions), "partitions"),
        tile(
            "speed_up",
            "speed-up there",
            f"{(best or top).speed_up:.1f} times",
            "against one partition" if now is None else f"{now.speed_up:.1f} times with {now.partitions} now",
        ),
        _hottest_tile(found),
        tile("ceiling", "no more than", f"{found.ceiling or 0:.1f} times", _ceiling_note(found), "quiet"),
    )
    parts = weights.partitions or {}
    compared = [choice for choice in (now, best) if choice is not None]
    if now is not None and best is not None and now.partitions == best.partitions:
        compared = [now]
    fills = "".join(_fill(choice, parts[choice.partitions], choice is now) for choice in compared)
    return (
        f'<div class="tiles">{"".join(tiles)}</div>'
        + section(
            "curve",
            "Speed-up",
            _finding(found),
            '<div class="pair"><div>',
            _curve(found),
            "</div>",
            _table(found),
            "</div>",
        )
        + slow_keys_section(found, weights)
        + section(
            "fill",
            "How full each partition would be",
            "Red: half as many again as the average.",
            '<div class="pair even">',
            fills,
            "</div>",
        )
    )


def _hottest_tile(found: Advice) -> str:
    if found.slowest_key is None or found.least_seconds is None:
        return tile("hottest", "hottest key", percent(found.hottest_share), found.hottest_key or "", "bad")
    needs = duration(found.least_seconds)
    return tile(
        "hottest", "hottest key, alone", needs, f"{count(found.slowest_key.jobs)} jobs: {found.slowest_key.key}", "bad"
    )


def _ceiling_note(found: Advice) -> str:
    if found.run is None:
        return "with any number: a key stays whole"
    most = max(choice.speed_up_in_runs or 0.0 for choice in found.choices)
    return f"with any number; {most:.1f} times with run={found.run}"


def _finding(found: Advice) -> str:
    said = "A queue that keeps order is done when its fullest partition is"
    if found.slowest_key is None:
        said += f". The hottest key, <b>{word(found.hottest_key, 60)}</b>, is never divided"
    else:
        said += (
            f", and not before the key that needs the longest: <b>{word(found.slowest_key.key, 60)}</b> takes "
            f"<b>{duration(found.least_seconds)}</b> however many partitions there are"
        )
    return f"{said}, so that nothing passes <b>{found.ceiling or 0:.1f} times</b>."


def _curve(found: Advice) -> str:
    last = found.choices[-1].partitions
    tops = [choice.speed_up_in_runs or choice.speed_up for choice in found.choices]
    high = round_top(max(2.0, *tops, min(found.ceiling or 1.0, last)))

    def at(partitions: float, speed_up: float) -> tuple[float, float]:
        return (partitions - 1) / (last - 1), speed_up / high

    lines = [
        ("even-line", [at(1, 1), at(min(last, high), min(last, high))]),
        ("curve0", [at(choice.partitions, choice.speed_up) for choice in found.choices]),
    ]
    entries = [("curve0", "speed-up"), ("even-line", "ideal")]
    if found.run is not None:
        lines.append(("curve1", [at(choice.partitions, choice.speed_up_in_runs or 0.0) for choice in found.choices]))
        entries.insert(1, ("curve1", f"with run={found.run}"))
    if found.ceiling is not None and found.ceiling <= high:
        lines.append(("ceiling", [at(1, found.ceiling), at(last, found.ceiling)]))
        entries.append(("ceiling", "the hottest key's bound"))
    if found.best is not None:
        lines.append(("chosen", [at(found.best, 0), at(found.best, found.choices[found.best - 1].speed_up)]))
        entries.append(("other", f"advised: {found.best}"))
    width = 1 / (last - 1)
    hovers = [
        (
            max(0.0, (c.partitions - 1.5) * width),
            width,
            f"{c.partitions} partitions\n{c.speed_up:.2f} times{_in_runs(found, c)}\nbalance {c.balance:.2f}",
        )
        for c in found.choices
    ]
    marks = [(step / 4, f"{high * step / 4:g}") for step in range(5)]
    labels = [(at(number, 0)[0], str(number)) for number in (1, 8, 16, 24, 32, 40, 48, 56, 64)]
    says = f"Speed-up by number of partitions, {found.choices[-1].speed_up:.1f} times with {last}"
    return legend(*entries, unit="times one partition") + curve(lines, marks, labels, says, kind="tall", hovers=hovers)


def _in_runs(found: Advice, choice: Choice) -> str:
    return "" if choice.speed_up_in_runs is None else f"\n{choice.speed_up_in_runs:.2f} times with run={found.run}"


def _table(found: Advice) -> str:
    shown = [c for c in found.choices if c.partitions in {*SHOWN, found.best, found.partitions}]
    top = max(choice.speed_up for choice in found.choices)
    rows = [
        (
            f"{c.partitions}{' now' if c.partitions == found.partitions else ''}",
            f"{c.speed_up:.2f}",
            bar(c.speed_up / top) if c.speed_up_in_runs is None else f"{c.speed_up_in_runs:.2f}",
            percent(c.balance),
            count(c.fullest_jobs),
        )
        for c in shown
    ]
    classes = ["chosen" if choice.partitions == found.best else "" for choice in shown]
    third, kind = ("", "w") if found.run is None else (f"run={found.run}", "n")
    return table(["partitions", "speed-up", third, "balance", "fullest"], rows, ["n", "n", kind, "n", "n"], classes)


def _fill(choice: Choice, jobs: Sequence[int], is_now: bool) -> str:
    mean = sum(jobs) / len(jobs)
    stacks = [
        Stack(
            str(number) if len(jobs) <= 16 or number % 8 == 0 else "",
            f"partition {number}: {count(size)} jobs\n{size / mean:.2f} times the average",
            [("hot" if size > 1.5 * mean else "mild", size)],
        )
        for number, size in enumerate(jobs)
    ]
    about = f"{choice.partitions} partitions{', as now' if is_now else ', as advised'}"
    plot = columns(stacks, about, is_dense=False)
    return f"<div><h3>{about}<small>balance {choice.balance:.2f}</small></h3>{plot}</div>"
