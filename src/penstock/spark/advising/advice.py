"""Advice on a number of partitions: plain arithmetic on how many jobs each would have, and how long a key needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp2, log2

from penstock.model.rules import QueueRules
from penstock.model.short_repr import ShortRepr
from penstock.spark.advising.sentences import advise_in_words
from penstock.spark.reporting.figures import HotKey
from penstock.spark.reporting.key_time import KeyTime, find_run

__all__ = ["MOST_PARTITIONS", "Advice", "Choice", "Weights", "build_advice"]

MOST_PARTITIONS = 64
# Each doubling of the partitions must gain a quarter, or it does not pay.
WORTH = 1.25
# A key that takes so much of the fullest partition's time is what a queue waits for.
BOUND = 0.8
# No time is shorter: what is divided by it stays a number.
_LEAST_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Weights:
    """What was counted: jobs, keys, the hottest of them, and the jobs of each partition for 1 to 64 partitions.

    `slowest` are the keys that need the longest for their jobs, the longest first. `run_seconds` is how long a job
    runs, None where none has; `jobs_a_second` how many a partition ended in the second of the median job.
    """

    jobs: int = 0
    unkeyed_jobs: int = 0
    keys: int = 0
    hottest_key: str | None = None
    hottest_jobs: int = 0
    partitions: Mapping[int, Sequence[int]] | None = None
    slowest: Sequence[HotKey] = ()
    run_seconds: float | None = None
    jobs_a_second: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A number of partitions. `balance` is 1 where all would have as many jobs, `speed_up` is against one partition.

    `speed_up_in_runs` is that with the `run` that is advised, where one is.
    """

    partitions: int
    fullest_jobs: int
    balance: float
    speed_up: float
    speed_up_in_runs: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(ShortRepr):
    """What was found about a queue, and what to do. `best` is None where the number of partitions does not matter.

    `least_seconds` is what the slowest key needs alone, and with it the queue, on any number of partitions; None where
    the jobs of a key need not wait for each other. `run` is advised where it would shorten that to `seconds_in_runs`.
    """

    queue: str
    partitions: int
    jobs: int
    keys: int
    hottest_key: str | None
    hottest_share: float
    slowest_key: HotKey | None = None
    least_seconds: float | None = None
    run: int | None = None
    seconds_in_runs: float | None = None
    choices: list[Choice] = field(repr=False)
    best: int | None
    ceiling: float | None
    sentence: str

    def choice(self, partitions: int) -> Choice | None:
        """The figures of a number of partitions, where it was looked at."""
        return next((choice for choice in self.choices if choice.partitions == partitions), None)


def build_advice(queue: str, partitions: int, rules: QueueRules, weights: Weights) -> Advice:
    """What the weights say about a queue that has so many partitions and these rules now."""
    keyed = weights.jobs - weights.unkeyed_jobs
    times = [hot.time for hot in weights.slowest if hot.time is not None]
    least = max((_find_least(time, rules) for time in times), default=None)
    job = _find_job_seconds(weights)
    one = max(keyed * job, least or 0.0)
    choices = [
        Choice(number, max(jobs), keyed / number / max(jobs), one / max(max(jobs) * job, least or 0.0))
        for number, jobs in sorted((weights.partitions or {}).items())
        if keyed
    ]
    best = _best(choices) if rules.is_owned else None
    run, in_runs = find_run(rules, times), None
    if run is not None and least is not None and best is not None:
        if least < BOUND * choices[best - 1].fullest_jobs * job:
            run = None
        else:
            in_runs = max(time.seconds_in_runs(run) for time in times)
            choices = [_add_runs(each, one, _find_job_seconds(weights, run), in_runs) for each in choices]
    found = Advice(
        queue=queue,
        partitions=partitions,
        jobs=weights.jobs,
        keys=weights.keys,
        hottest_key=weights.hottest_key,
        hottest_share=weights.hottest_jobs / keyed if keyed else 0.0,
        slowest_key=weights.slowest[0] if weights.slowest else None,
        least_seconds=least,
        run=run,
        seconds_in_runs=in_runs,
        choices=choices,
        best=best,
        ceiling=one / max(weights.hottest_jobs * job, least or 0.0) if keyed else None,
        sentence="",
    )
    return replace(found, sentence=advise_in_words(found, rules, weights.run_seconds is not None))


def _add_runs(choice: Choice, one: float, job: float, least: float) -> Choice:
    """With what it would gain in runs: against one partition without."""
    return replace(choice, speed_up_in_runs=one / max(choice.fullest_jobs * job, least))


def _find_least(time: KeyTime, rules: QueueRules) -> float:
    """What a key needs at least: several of its jobs may run at once, or its rate may let them start more slowly."""
    rate = rules.starts_of_key_a_second
    return max(time.seconds / (rules.per_key or 1), 0.0 if rate is None else time.jobs / rate)


def _find_job_seconds(weights: Weights, run: int = 1) -> float:
    """What a job takes of a busy partition's time: as was seen, and no more than if they ran there one by one.

    Where no partition was seen faster than that, turns were what it waited for, and of those a run leaves a part.
    """
    time = weights.slowest[0].time if weights.slowest else None
    each = KeyTime(1, weights.run_seconds or 0.0, time.turn_seconds if time is not None else 0.0, False)
    seen = 1 / weights.jobs_a_second if weights.jobs_a_second else each.seconds
    return max(seen if seen < each.seconds else each.seconds_in_runs(run), _LEAST_SECONDS)


def _best(choices: Sequence[Choice]) -> int | None:
    """The least number beyond which none pays."""

    def pays(more: Choice, choice: Choice) -> bool:
        return more.speed_up >= choice.speed_up * exp2(log2(WORTH) * log2(more.partitions / choice.partitions))

    return next(
        (
            choice.partitions
            for choice in choices
            if not any(pays(more, choice) for more in choices if more.partitions > choice.partitions)
        ),
        None,
    )
