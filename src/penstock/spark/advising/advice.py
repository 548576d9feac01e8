"""Advice on a number of partitions: plain arithmetic on how many jobs each partition would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp2, log2

from penstock.model.short_repr import ShortRepr

__all__ = ["MOST_PARTITIONS", "Advice", "Choice", "Weights", "build_advice"]

MOST_PARTITIONS = 64
# Each doubling of the partitions must gain a quarter, or it does not pay.
WORTH = 1.25
# A queue that comes as near to the best number is left as it is.
NEAR = 0.9


@dataclass(frozen=True, slots=True)
class Weights:
    """What was counted: jobs, keys, the hottest of them, and the jobs of each partition for 1 to 64 partitions."""

    jobs: int = 0
    unkeyed_jobs: int = 0
    keys: int = 0
    hottest_key: str | None = None
    hottest_jobs: int = 0
    partitions: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A number of partitions. `balance` is 1 where all would have as many jobs, `speed_up` is against one partition."""

    partitions: int
    fullest_jobs: int
    balance: float
    speed_up: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(ShortRepr):
    """What was found about a queue, and what to do. `best` is None where the number of partitions does not matter."""

    queue: str
    partitions: int
    jobs: int
    keys: int
    hottest_key: str | None
    hottest_share: float
    choices: list[Choice] = field(repr=False)
    best: int | None
    sentence: str

    @property
    def ceiling(self) -> float | None:
        """What the speed-up cannot pass, since a key's jobs stay together."""
        return 1 / self.hottest_share if self.hottest_share else None

    def choice(self, partitions: int) -> Choice | None:
        """The figures of a number of partitions, where it was looked at."""
        return next((choice for choice in self.choices if choice.partitions == partitions), None)


def build_advice(queue: str, partitions: int, is_ordered: bool, weights: Weights) -> Advice:
    """What the weights say about a queue that has this many partitions now."""
    keyed = weights.jobs - weights.unkeyed_jobs
    choices = [
        Choice(number, max(jobs), keyed / number / max(jobs), keyed / max(jobs))
        for number, jobs in sorted((weights.partitions or {}).items())
        if keyed
    ]
    best = _best(choices) if is_ordered else None
    found = Advice(
        queue=queue,
        partitions=partitions,
        jobs=weights.jobs,
        keys=weights.keys,
        hottest_key=weights.hottest_key,
        hottest_share=weights.hottest_jobs / keyed if keyed else 0.0,
        choices=choices,
        best=best,
        sentence="",
    )
    return replace(found, sentence=_sentence(found, is_ordered))


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


def _sentence(found: Advice, is_ordered: bool) -> str:
    name = f"queue {found.queue!r}"
    if not found.jobs:
        return f"{name} has no jobs to learn from: enqueue or load some, or name the lake that holds its history."
    if not found.choices:
        return f"{name} has no keys, so any number of workers serves each of its partitions: more of them gain nothing."
    if not is_ordered:
        return (
            f"{name} keeps no order of keys, so any number of workers serves each of its partitions: "
            "more of them gain nothing, and the figures are those it would have with order='key'."
        )
    last, now = found.choices[-1], found.choice(found.partitions)
    best = found.choice(found.best or 1) or last
    if 2 * best.partitions > last.partitions:
        return (
            f"Give {name} as many partitions as it will have workers ({found.partitions} now): its keys are so even "
            f"that each one helps, up to {last.speed_up:.1f} times as fast with {last.partitions}."
        )
    is_kept = now is not None and now.speed_up >= NEAR * best.speed_up
    taken = now if now is not None and is_kept else best
    act = f"Keep {_partitions(taken.partitions)}"
    if not is_kept:
        act = f"Resize {name} from {found.partitions} to {_partitions(taken.partitions)}"
    return (
        f"{act}: that is {taken.speed_up:.1f} times as fast as one, and more would gain little: key "
        f"{found.hottest_key!r} alone has {found.hottest_share * 100:.0f} % of the jobs, so that no number passes "
        f"{found.ceiling or 1:.1f} times."
    )


def _partitions(number: int) -> str:
    return "one partition" if number == 1 else f"{number} partitions"
