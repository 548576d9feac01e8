"""Sections of the report about what happened when: throughput, waits and runs, failures, retries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock.drawing.axis import find_labelled, logarithmic
from penstock.drawing.charts import Stack, bar, columns, fan, legend, spread
from penstock.drawing.formatting import UNKNOWN, count, duration, instant, moment_label, percent, rate, word
from penstock.drawing.html_parts import nothing, section, table
from penstock.spark.reporting.failure_causes import COLOURED_CAUSES
from penstock.spark.reporting.figures import LAST_ATTEMPT, Cause, Figures, Moment, Percentiles

__all__ = ["failures", "retries", "throughput", "times"]

SHOWN_TASKS = 30


def throughput(figures: Figures) -> str:
    """How many jobs ended, moment by moment."""
    busiest = figures.busiest
    assert busiest is not None  # noqa: S101  (a report with jobs has moments)
    step = figures.moment_seconds
    finding = (
        f"At its busiest, at <b>{busiest.at:%H:%M:%S} UTC</b>, <b>{rate(busiest.jobs / step)}</b> ended; "
        f"a column stands for {duration(step)}."
    )
    labels = _time_labels(figures)
    stacks = [
        Stack(
            labels.get(moment.at, ""),
            f"{instant(moment.at)}\n{count(moment.jobs)} jobs · {rate(moment.jobs / step)}"
            + "".join(f"\n{count(jobs)} {outcome}" for outcome, jobs in moment.outcomes.items()),
            [(kind, jobs) for kind, jobs in _kinds(moment.outcomes).items()],
        )
        for moment in figures.moments
    ]
    names = {"succeeded": "succeeded", "failed": "failed", "ended": "cancelled, discarded, expired"}
    present = [kind for kind in names if _kinds(figures.outcomes)[kind]]
    rows = [
        (word(outcome), count(jobs), percent(jobs / figures.ended), bar(jobs / figures.ended, _kind(outcome)))
        for outcome, jobs in figures.outcomes.items()
    ]
    says = f"Jobs ended over time, at most {count(busiest.jobs)} in {duration(step)}"
    return section(
        "throughput",
        "Throughput",
        finding,
        '<div class="pair"><div>',
        legend(*((kind, names[kind]) for kind in present), unit=f"jobs in {duration(step)}"),
        columns(stacks, says),
        "</div>",
        table(["outcome", "jobs", "share", ""], rows, ["name", "n", "n", "w"]),
        "</div>",
    )


def times(figures: Figures) -> str:
    """How long jobs waited and ran, over time and by task."""
    finding = (
        f"Half of the jobs started within <b>{duration(figures.wait.p50)}</b> of being enqueued, 99 of 100 within "
        f"<b>{duration(figures.wait.p99)}</b>. Their handlers took <b>{duration(figures.run.p50)}</b> and "
        f"<b>{duration(figures.run.p99)}</b>."
    )
    shown = figures.tasks[:SHOWN_TASKS]
    known = [
        value
        for task in shown
        for values in (task.wait, task.run)
        for value in (values.p50, values.p99)
        if value is not None
    ]
    axis = logarithmic(min(known, default=0.001), max(known, default=1.0))
    scale = f'<span class="axis"><span>{duration(axis[0])}</span><span>{duration(axis[-1])}</span></span>'
    rows = [
        (
            f"{word(task.task)}<small>{word(task.queue)}</small>",
            count(task.jobs),
            _spread(task.wait, axis, "wait"),
            *_format_each(task.wait),
            _spread(task.run, axis, "run"),
            *_format_each(task.run),
        )
        for task in shown
    ]
    percentiles = ["p50", "p90", "p99"]
    titles = ["task", "jobs", f"wait{scale}", *percentiles, f"run{scale}", *percentiles]
    more = len(figures.tasks) - len(shown)
    return section(
        "times",
        "Wait and run",
        finding,
        '<div class="pair even"><div><h3>Wait<small>from enqueue to the first start: p50, p90, p99</small></h3>',
        f'<div class="wait">{_fan(figures, lambda moment: moment.wait, "wait")}</div></div>',
        "<div><h3>Run<small>the time in the handler: p50, p90, p99</small></h3>",
        f'<div class="run">{_fan(figures, lambda moment: moment.run, "run")}</div></div></div>',
        '<h3 style="margin-top:26px">By task<small>dots: p50 and p90, stroke: p99; logarithmic</small></h3>',
        table(titles, rows, ["name", "n", "spreads", "n", "n", "n", "spreads", "n", "n", "n"]),
        f'<p class="note">and {count(more)} more tasks with fewer jobs</p>' if more > 0 else "",
    )


def failures(figures: Figures) -> str:
    """What failed for good, why and when."""
    failed = sum(moment_jobs for cause in figures.moments for moment_jobs in cause.causes.values())
    if not figures.causes:
        return section("failures", "Failures", "No job failed for good.")
    worst = figures.causes[0]
    finding = (
        f"<b>{count(failed)}</b> jobs failed, were discarded or expired, {percent(failed / figures.ended)} of all. "
        f"Most often: <b>{word(worst.text, 110)}</b>, {percent(worst.count / failed)} of them."
    )
    coloured = [cause.text for cause in figures.causes[:COLOURED_CAUSES]]
    entries = [(f"cause{number}", text) for number, text in enumerate(coloured)]
    if any("" in moment.causes for moment in figures.moments):
        entries.append(("cause5", "others"))
    labels = _time_labels(figures)
    stacks = [
        Stack(
            labels.get(moment.at, ""),
            f"{instant(moment.at)}\n{count(sum(moment.causes.values()))} failed"
            + "".join(
                f"\n{count(moment.causes[text])} {text or 'others':.70}"
                for text in [*coloured, ""]
                if text in moment.causes
            ),
            [(f"cause{number}", moment.causes.get(text, 0)) for number, text in [*enumerate(coloured), (5, "")]],
        )
        for moment in figures.moments
    ]
    return section(
        "failures",
        "Failures",
        finding,
        '<div class="pair even"><div>',
        legend(*entries, unit=f"jobs in {duration(figures.moment_seconds)}"),
        columns(stacks, f"Failures over time, {count(failed)} in all"),
        "</div>",
        _causes_table(figures.causes, failed),
        "</div>",
    )


def retries(figures: Figures) -> str:
    """How many attempts jobs needed, and why attempts failed."""
    if not figures.retried and not figures.attempt_causes:
        return section("retries", "Retries", "Every job ended with its first attempt.")
    finding = (
        f"<b>{count(figures.retried)}</b> jobs, {percent(figures.retried / figures.ended)}, needed more than one; "
        f"<b>{count(figures.extra_attempts)}</b> attempts were made again."
    )
    rows = [
        (
            _name_attempt(each.attempt),
            count(each.jobs),
            percent(each.outcomes.get("succeeded", 0) / each.jobs),
            bar(each.jobs / figures.ended),
        )
        for each in figures.attempts
    ]
    total = sum(cause.count for cause in figures.attempt_causes)
    return section(
        "retries",
        "Retries",
        finding,
        '<div class="pair even"><div><h3>Ended with attempt</h3>',
        table(["attempt", "jobs", "succeeded", "share of jobs"], rows, ["name", "n", "n", "w"]),
        "</div><div><h3>Why attempts failed<small>also of jobs that succeeded later</small></h3>",
        _causes_table(figures.attempt_causes, total)
        if figures.attempt_causes
        else nothing("None of their attempts failed."),
        "</div></div>",
    )


def _causes_table(causes: list[Cause], total: int) -> str:
    rows = [
        (
            word(cause.text) + (f"<small>{word(_name_some(cause.tasks), 80)}</small>" if cause.tasks else ""),
            count(cause.count),
            percent(cause.count / total),
            f"{cause.last_at:%m-%d %H:%M}",
        )
        for cause in causes
    ]
    return table(["cause", "times", "share", "last"], rows, ["name", "n", "n", "n"])


def _name_attempt(number: int) -> str:
    return {0: "never started", LAST_ATTEMPT: f"{LAST_ATTEMPT} or more"}.get(number, str(number))


def _name_some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _time_labels(figures: Figures) -> dict[datetime, str]:
    """The labels of the moments that have one."""
    moments, step = figures.moments, figures.moment_seconds
    shown = [moments[number].at for number in find_labelled(moments[0].at, step, len(moments))]
    return {at: moment_label(at, step, figures.seconds) for at in shown}


def _kind(outcome: str) -> str:
    return outcome if outcome in ("succeeded", "failed") else "ended"


def _kinds(outcomes: dict[str, int]) -> dict[str, int]:
    """Outcomes as the plot colours them."""
    kinds = {"succeeded": 0, "failed": 0, "ended": 0}
    for outcome, jobs in outcomes.items():
        kinds[_kind(outcome)] += jobs
    return kinds


def _fan(figures: Figures, of: Callable[[Moment], Percentiles], name: str) -> str:
    if not any(of(moment).is_known for moment in figures.moments):
        return nothing("Nothing was timed.")
    labels = _time_labels(figures)
    return fan(
        [
            (
                labels.get(moment.at, ""),
                f"{instant(moment.at)}\n{_describe(of(moment))}",
                [of(moment).p50, of(moment).p90, of(moment).p99],
            )
            for moment in figures.moments
        ],
        f"Percentiles of the {name} over time: half within {duration(_percentiles_of(figures, name).p50)}",
    )


def _percentiles_of(figures: Figures, name: str) -> Percentiles:
    """The percentiles of all jobs, of their wait or their run."""
    return figures.wait if name == "wait" else figures.run


def _describe(values: Percentiles) -> str:
    return (
        f"p50 {duration(values.p50)}\np90 {duration(values.p90)}\np99 {duration(values.p99)}"
        if values.is_known
        else UNKNOWN
    )


def _spread(values: Percentiles, axis: tuple[float, ...], kind: str) -> str:
    return spread([values.p50, values.p90, values.p99], axis, kind, _describe(values))


def _format_each(values: Percentiles) -> list[str]:
    return [duration(value) for value in (values.p50, values.p90, values.p99)]
