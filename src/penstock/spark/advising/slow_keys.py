"""The part of an advice's page about keys: which need the longest for their jobs, and what runs would make of them."""

from __future__ import annotations

from penstock.drawing.charts import bar
from penstock.drawing.formatting import count, duration, percent, word
from penstock.drawing.html_parts import section, table
from penstock.spark.advising.advice import Advice, Weights

__all__ = ["slow_keys_section"]


def slow_keys_section(found: Advice, weights: Weights) -> str:
    """What each of the slowest keys needs alone; nothing where the jobs of a key do not wait for each other."""
    timed = [(hot, hot.time) for hot in weights.slowest if hot.time is not None]
    if not timed:
        return ""
    longest = max(time.seconds for _, time in timed)
    rows = [
        (
            word(hot.key, 48),
            count(hot.jobs),
            percent(hot.share),
            duration(time.run_seconds),
            duration(time.turn_seconds),
            duration(time.seconds),
            bar(time.seconds / longest) if found.run is None else duration(time.seconds_in_runs(found.run)),
        )
        for hot, time in timed
    ]
    last, kind = ("", "w") if found.run is None else (f"with run={found.run}", "n")
    titles = ["key", "jobs", "share", "each runs", "until the next", "needs alone", last]
    return section(
        "slowest",
        "Keys that need the longest",
        "The jobs of a key run one after the other: it needs jobs times (run + turn), a turn being what lies between "
        f"the end of one and the start of the next. {_runs(found)}",
        table(titles, rows, ["name", "n", "n", "n", "n", "n", kind]),
        f'<p class="note">{_note(weights)}</p>',
    )


def _runs(found: Advice) -> str:
    if found.run is None:
        return ""
    limit = f"app.limit({found.queue!r}, run={found.run})"
    return (
        f"With <code>{word(limit, 260)}</code> up to {found.run} jobs share a turn; handlers must be able to live with "
        "seeing the last jobs of a key again after a crash."
    )


def _note(weights: Weights) -> str:
    if all(hot.time is not None and hot.time.is_turn_measured for hot in weights.slowest):
        return "Turns are the median of those that were seen."
    return (
        "Turns are the median of those that were seen; where they were too few, what a commit takes on a small machine."
    )
