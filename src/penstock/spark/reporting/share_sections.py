"""Sections of the report about who has how much: what waits, keys, partitions, workers, loads."""

from __future__ import annotations

from itertools import groupby

from penstock.drawing.charts import Stack, bar, columns, curve, legend, strip
from penstock.drawing.formatting import UNKNOWN, count, duration, instant, percent, word
from penstock.drawing.html_parts import section, table
from penstock.spark.reporting.figures import Figures, KeySkew, PartitionFigures

__all__ = ["keys", "loads", "partitions", "waiting", "workers"]

STATES = ("ready", "running", "scheduled", "blocked")
SHOWN_QUEUES = 4
SHOWN_WAITING_QUEUES = 12
SHOWN_PARTITIONS = 64


def waiting(figures: Figures) -> str:
    """What had not ended when the report was made, by age."""
    waits = figures.waiting
    if not waits.jobs:
        return section("waiting", "Waiting now", "Nothing waits: every job that was enqueued has ended.")
    finding = (
        f"<b>{count(waits.jobs)}</b> jobs had not ended when this page was made; the oldest was enqueued "
        f"<b>{duration(waits.oldest_seconds)}</b> before."
    )
    stacks = []
    for age in waits.ages:
        label = f"< {duration(age.below_seconds)}" if age.below_seconds else "older"
        told = "".join(f"\n{count(jobs)} {state}" for state, jobs in age.states.items())
        stacks.append(
            Stack(label, f"{label}: {count(age.jobs)} jobs{told}", [(s, age.states.get(s, 0)) for s in STATES])
        )
    rows = [
        (
            word(each.queue),
            count(each.jobs),
            bar(each.jobs / waits.queues[0].jobs, "ready"),
            duration(each.oldest_seconds),
        )
        for each in waits.queues[:SHOWN_WAITING_QUEUES]
    ]
    return section(
        "waiting",
        "Waiting now",
        finding,
        '<div class="pair"><div>',
        legend(*((state, state) for state in STATES if state in waits.states), unit="jobs by age"),
        columns(stacks, f"Ages of {count(waits.jobs)} jobs that wait", is_dense=False),
        "</div>",
        table(["queue", "jobs", "", "oldest"], rows, ["name", "n", "w", "n"]),
        "</div>",
    )


def keys(figures: Figures) -> str:
    """How unevenly jobs lie on their keys."""
    if not figures.keys:
        return section("keys", "Keys", "No job that ended had a key.")
    shown = figures.keys[:SHOWN_QUEUES]
    finding = _slowest_key(shown) or _hottest_key(shown)
    lines = [("even-line", [(0.0, 0.0), (1.0, 1.0)])]
    lines += [(f"curve{number}", skew.lorenz) for number, skew in enumerate(shown)]
    marks = [(step / 4, f"{step * 25} %") for step in range(5)]
    said = "; ".join(f"{skew.queue}: Gini {skew.gini:.2f}" for skew in shown)
    rows = [(word(s.queue), count(s.keys), count(s.jobs), f"{s.gini:.2f}", percent(s.hottest_share)) for s in shown]
    return section(
        "keys",
        "Keys",
        finding,
        '<div class="pair even"><div>',
        legend(
            *((f"curve{number}", skew.queue) for number, skew in enumerate(shown)),
            ("even-line", "all keys alike"),
            unit="share of jobs",
        ),
        curve(
            lines,
            marks,
            [(0.0, "coldest keys"), (0.85, "hottest keys")],
            f"Share of jobs by share of keys. {said}",
            kind="square",
        ),
        "</div><div>",
        table(["queue", "keys", "jobs", "Gini", "hottest"], rows, ["name", "n", "n", "n", "n"]),
        '<p class="note">The further a curve hangs below the diagonal, the fewer keys have most of the jobs. Gini is 0 '
        "where all keys have as many, and near 1 where one has them all.</p></div></div>",
        '<div class="pair even spaced">',
        *(f"<div>{_hottest(skew)}</div>" for skew in shown),
        "</div>",
    )


def _slowest_key(shown: list[KeySkew]) -> str | None:
    """Of queues that keep order, the key that needs the longest."""
    timed = [(skew, hot, hot.time) for skew in shown if (hot := skew.slowest) is not None and hot.time is not None]
    if not timed:
        return None
    skew, hot, time = max(timed, key=lambda each: each[2].seconds)
    said = (
        f"Key <b>{word(hot.key, 60)}</b> of {word(skew.queue)} has <b>{count(hot.jobs)}</b> jobs, {percent(hot.share)} "
        f"of all. They run one after the other, {duration(time.run_seconds)} each and {duration(time.turn_seconds)} "
        f"until the next starts: it needs <b>{duration(time.seconds)}</b> for them, on any number of workers and "
        "partitions."
    )
    if skew.advised_run is not None:
        said += (
            f" With <code>run={skew.advised_run}</code> it would need "
            f"<b>{duration(time.seconds_in_runs(skew.advised_run))}</b>, if handlers can live with seeing the last "
            "jobs of a key again after a crash."
        )
    return said


def _hottest_key(shown: list[KeySkew]) -> str:
    worst = max(shown, key=lambda skew: skew.hottest_share)
    return (
        f"The hottest key of {word(worst.queue)} is <b>{word(worst.hottest[0].key, 60)}</b>: it has "
        f"<b>{percent(worst.hottest_share)}</b> of its jobs."
    )


def _hottest(skew: KeySkew) -> str:
    has_times = skew.slowest is not None
    rows = [
        (
            word(hot.key, 48),
            count(hot.jobs),
            percent(hot.share),
            bar(hot.jobs / skew.hottest[0].jobs),
            *([duration(hot.time.seconds if hot.time is not None else None)] if has_times else []),
        )
        for hot in skew.hottest
    ]
    title = f"<h3>Hottest keys<small>{word(skew.queue)}</small></h3>"
    titles, kinds = ["key", "jobs", "share", ""], ["name", "n", "n", "w"]
    return title + table([*titles, "needs alone"] if has_times else titles, rows, [*kinds, "n"] if has_times else kinds)


def partitions(figures: Figures) -> str:
    """How evenly the partitions of each queue were used."""
    groups = {queue: list(parts) for queue, parts in groupby(figures.partitions, lambda part: part.queue)}
    several = {queue: parts for queue, parts in groups.items() if len(parts) > 1}
    if not several:
        return section("partitions", "Partitions", "Every queue has one partition: there is nothing to balance.")
    shown = dict(sorted(several.items(), key=lambda item: -sum(part.jobs for part in item[1]))[:SHOWN_QUEUES])
    worst = max(shown, key=lambda queue: _imbalance(shown[queue]))
    finding = (
        f"The fullest partition of {word(worst)} had <b>{_imbalance(shown[worst]):.2f} times</b> as many jobs as the "
        f"average one. <code>penstock advise {word(worst)}</code> tells what another number of them would do."
    )
    return section("partitions", "Partitions", finding, *(_partitions(queue, shown[queue]) for queue in shown))


def _imbalance(parts: list[PartitionFigures]) -> float:
    return max(part.jobs for part in parts) * len(parts) / max(1, sum(part.jobs for part in parts))


def _partitions(queue: str, parts: list[PartitionFigures]) -> str:
    seen = parts[:SHOWN_PARTITIONS]
    total, mean = sum(part.jobs for part in parts), sum(part.jobs for part in parts) / len(parts)
    stacks = [
        Stack(
            str(number) if len(seen) <= 16 or number % 8 == 0 else "",
            f"{part.partition}: {count(part.jobs)} jobs\n{part.jobs / mean:.2f} times the average",
            [("hot" if part.jobs > 1.5 * mean else "mild", part.jobs)],
        )
        for number, part in enumerate(seen)
    ]
    rows = [
        (word(part.partition), count(part.jobs), percent(part.jobs / total), duration(part.run_seconds))
        for part in sorted(parts, key=lambda part: -part.jobs)[:8]
    ]
    about = f"{len(parts)} partitions · the fullest has {_imbalance(parts):.2f} times the average"
    return (
        f"<h3>{word(queue)}<small>{about}</small></h3>"
        '<div class="pair"><div>'
        + columns(stacks, f"Jobs by partition of {queue}", is_dense=False)
        + "</div>"
        + table(["partition", "jobs", "share", "handlers ran"], rows, ["name", "n", "n", "n"])
        + "</div>"
    )


def workers(figures: Figures) -> str:
    """Which worker ended how much, and when."""
    if not figures.workers:
        return section("workers", "Workers", "No job was run by a worker.")
    first = figures.workers[0]
    said = "one worker" if figures.worker_count == 1 else f"{count(figures.worker_count)} workers"
    finding = (
        f"<b>{said}</b> ended jobs; the busiest, "
        f"{word(first.worker, 60)}, <b>{percent(first.jobs / figures.ended)}</b> of them."
    )
    highest = max(max(worker.moments) for worker in figures.workers)
    rows = []
    for worker in figures.workers:
        tips = [
            f"{instant(moment.at)} · {count(jobs)} jobs"
            for moment, jobs in zip(figures.moments, worker.moments, strict=True)
        ]
        at_once = worker.running_on_average
        rows.append(
            (
                word(worker.worker, 60),
                count(worker.jobs),
                count(worker.failed),
                UNKNOWN if at_once is None else f"{at_once:.2f}",
                strip(worker.moments, highest, tips),
            )
        )
    titles = ["worker", "jobs", "failed", "running at once", "ended over time"]
    more = figures.worker_count - len(figures.workers)
    return section(
        "workers",
        "Workers",
        finding,
        table(titles, rows, ["name", "n", "n", "n", "strips"]),
        '<p class="note">Running at once: the time its handlers ran, by the time from its first start to its last end.'
        + (f" {count(more)} more workers ended fewer." if more > 0 else "")
        + "</p>",
    )


def loads(figures: Figures) -> str:
    """Loads from Spark; no section where there are none."""
    if not figures.loads:
        return ""
    rows = []
    for load in figures.loads:
        seconds = (load.last_at - load.first_at).total_seconds()
        rows.append(
            (
                word(load.load, 80),
                count(load.jobs),
                percent(load.outcomes.get("succeeded", 0) / load.jobs),
                count(load.outcomes.get("failed", 0)),
                instant(load.first_at),
                duration(seconds),
                f"{load.jobs / seconds:,.0f}/s" if seconds > 0 else UNKNOWN,
            )
        )
    titles = ["load", "jobs ended", "succeeded", "failed", "loaded at (UTC)", "until the last end", "jobs"]
    newest = figures.loads[0]
    finding = f"The newest is <b>{word(newest.load, 80)}</b>, with <b>{count(newest.jobs)}</b> jobs that ended."
    return section("loads", "Loads", finding, table(titles, rows, ["name", "n", "n", "n", "n", "n", "n"]))
