"""What needs attention, as sentences, and as words short enough for a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.cli.times import ago
from penstock.model.attention import Attention, AttentionKind

__all__ = ["Concern", "Weight", "concerns", "rate_text"]


class Weight(IntEnum):
    """How bad it is."""

    STANDS = 0  # jobs wait that will not start by themselves
    FAILS = 1
    GROWS = 2
    NOTE = 3  # a person may have meant it


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that needs attention: of a queue, or of no queue in particular."""

    weight: Weight
    word: str
    text: str
    queue: str | None = None


_WEIGHTS: Mapping[AttentionKind, Weight] = {
    "shard-down": Weight.STANDS,
    "shard-read-only": Weight.STANDS,
    "no-worker": Weight.STANDS,
    "unserved-task": Weight.STANDS,
    "halted-keys": Weight.STANDS,
    "failing-duty": Weight.FAILS,
    "stuck-jobs": Weight.FAILS,
    "dead-letters": Weight.FAILS,
    "failed-cron": Weight.FAILS,
    "set-aside": Weight.FAILS,
    "nearly-full": Weight.GROWS,
    "long-wait": Weight.GROWS,
    "growing": Weight.GROWS,
}
_WORDS: Mapping[AttentionKind, str] = {
    "no-worker": "no worker",
    "unserved-task": "no worker",
    "stuck-jobs": "stuck",
    "nearly-full": "full",
    "failed-cron": "cron failed",
    "set-aside": "set aside",
    "long-wait": "waits long",
    "growing": "grows",
    "paused-queue": "paused",
    "paused-load": "load paused",
    "paused-cron": "cron paused",
}


def concerns(found: Iterable[Attention]) -> list[Concern]:
    """Each in words, as urgent as they were told: the most urgent first, as everywhere."""
    return [Concern(_weight(each), _word(each), _sentence(each), each.queue) for each in found]


def rate_text(a_second: float | None) -> str:
    """A rate by the second, or by the minute where it is small."""
    if a_second is None:
        return ""
    if a_second >= 10:
        return f"{a_second:,.0f}/s"
    if a_second >= 1:
        return f"{a_second:.1f}/s"
    return f"{a_second * 60:.0f}/min" if a_second else "0"


def _weight(each: Attention) -> Weight:
    return _WEIGHTS.get(each.kind, Weight.NOTE)


def _word(each: Attention) -> str:
    if each.kind == "halted-keys":
        return f"{each.count:,} halted"
    if each.kind == "dead-letters":
        return f"{each.count:,} failed"
    return _WORDS.get(each.kind, "")


def _sentence(each: Attention) -> str:
    queue, count, since = each.queue, each.count or 0, ago(each.since)
    told = each.detail
    match each.kind:
        case "shard-down":
            return f"shard {each.shard} does not answer: {told.get('reason', '')}"
        case "shard-read-only":
            return f"shard {each.shard} takes no writes"
        case "no-worker":
            return f"{queue} has no worker: {_some(count, 'job')} waiting, the oldest enqueued {since}"
        case "unserved-task":
            return f"{queue} has no worker for {each.task}, which waits; the oldest was enqueued {since}"
        case "failing-duty":
            return f"upkeep fails at {each.name}: {told.get('error', '')}"
        case "halted-keys":
            return f"{queue}: {_some(count, 'key')} halted, the first {since}"
        case "stuck-jobs":
            return f"{queue}: {_some(count, 'job')} of {each.task} run for too long, the first began {since}"
        case "nearly-full":
            return f"{queue} is nearly full: {count:,} of {told.get('max_length', 0):,} wait in {told.get('partition')}"
        case "dead-letters":
            all_ = told.get("dead", count)
            return f"{queue}: {_some(count, 'dead letter')} within the last hour, {all_:,} in all"
        case "failed-cron":
            return f"cron {each.name} of {queue} failed {since}: job {told.get('job_id')} is a dead letter"
        case "set-aside":
            return f"{queue}: {_some(count, 'job')} set aside: {told.get('reason', '')}"
        case "long-wait":
            return f"{queue}: {_some(count, 'job')} waiting, the oldest enqueued {since}"
        case "growing":
            rates = f"{told.get('in_per_minute', 0):,.0f} in, {told.get('out_per_minute', 0):,.0f} out a minute"
            return f"{queue} grows: {rates}, {count:,} wait"
        case "paused-queue":
            return f"{queue} is paused, {count:,} wait"
        case "paused-load":
            return f"load {each.name} of {queue} is paused"
        case "paused-cron":
            return f"cron {each.name} of {queue} is paused"


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
