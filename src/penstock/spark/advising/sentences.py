"""An advice in words: which number of partitions, which key bounds it, and what runs would make of that key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.drawing.formatting import as_text, count, duration, percent
from penstock.model.rules import QueueRules

if TYPE_CHECKING:
    from penstock.spark.advising.advice import Advice, Choice

__all__ = ["advise_in_words"]

# A queue that comes as near to the best number is left as it is.
NEAR = 0.9
# Less is no gain to speak of.
GAIN = 1.05


def advise_in_words(found: Advice, rules: QueueRules, has_ended: bool) -> str:
    """What to do, and why; `has_ended`: whether any job has, so that times are known."""
    name = f"queue {found.queue!r}"
    if not found.jobs:
        return f"{name} has no jobs to learn from: enqueue or load some, or name the lake that holds its history."
    if not found.choices:
        return f"{name} has no keys, so any number of workers serves each of its partitions: more of them gain nothing."
    if not rules.is_owned:
        return (
            f"{name} keeps no order of keys, so any number of workers serves each of its partitions: "
            "more of them gain nothing, and the figures are those it would have with order='key'."
        )
    known = "" if has_ended else " No job of it has ended, so this counts jobs alone: ask again when some have."
    last, now = found.choices[-1], found.choice(found.partitions)
    best = found.choice(found.best or 1) or last
    if 2 * best.partitions > last.partitions:
        return (
            f"Give {name} as many partitions as it will have workers ({found.partitions} now): its keys are so even "
            f"that each one helps, up to {last.speed_up:.1f} times as fast with {last.partitions}, while there are "
            f"cores for the workers and the database keeps up.{known}{_runs(found, last)}"
        )
    is_kept = now is not None and now.speed_up >= NEAR * best.speed_up
    taken = now if now is not None and is_kept else best
    act = f"Keep {_partitions(taken.partitions)}"
    if not is_kept:
        act = f"Resize {name} from {found.partitions} to {_partitions(taken.partitions)}"
    gain = f"that is {taken.speed_up:.1f} times as fast as one, and more would gain little"
    if taken.speed_up < GAIN:
        gain = "more would gain nothing"
    return f"{act}: {gain}: {_bound(found)}.{known}{_runs(found, taken)}"


def _bound(found: Advice) -> str:
    """Which key no number of partitions gets past."""
    key, ceiling = found.slowest_key, f"so that no number passes {found.ceiling or 1:.1f} times"
    if key is None or key.time is None or found.least_seconds is None:
        return f"key {found.hottest_key!r} alone has {found.hottest_share * 100:.0f} % of the jobs, {ceiling}"
    each = f"{duration(key.time.run_seconds)} each and {duration(key.time.turn_seconds)} until the next starts"
    return as_text(
        f"key {key.key!r} needs {duration(found.least_seconds)} for its {count(key.jobs)} jobs alone, "
        f"{percent(key.share)} of all ({each}), {ceiling}"
    )


def _runs(found: Advice, taken: Choice) -> str:
    """What runs would make of it, and what they ask for."""
    if found.run is None or taken.speed_up_in_runs is None:
        return ""
    gain = ""
    if taken.speed_up_in_runs >= GAIN * taken.speed_up:
        gain = f", and {_partitions(taken.partitions)} would be {taken.speed_up_in_runs:.1f} times as fast"
    return as_text(
        f" With run={found.run} that key would need {duration(found.seconds_in_runs)}{gain}: "
        f"app.limit({found.queue!r}, run={found.run}), if its handlers can live with seeing the last jobs of a key "
        "again after a crash."
    )


def _partitions(number: int) -> str:
    return "one partition" if number == 1 else f"{number} partitions"
