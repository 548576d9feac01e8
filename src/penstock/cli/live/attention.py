"""What needs attention, worst first, each in a sentence: whoever looks should not have to find it in the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.cli.live.looks import UNKNOWN, Flow
from penstock.cli.times import length
from penstock.model.overview import Overview, QueueOverview

__all__ = ["Concern", "Weight", "concerns", "rate_text"]

# A queue grows where less than this part of what comes in leaves it, and so many more wait than before.
KEEPS_UP = 0.8
GROWTH = 50
GROWTH_SECONDS = 5.0
OVERDUE_SECONDS = 15.0


class Weight(IntEnum):
    """How bad it is."""

    STANDS = 0  # jobs wait that will not start by themselves
    FAILS = 1
    GROWS = 2
    NOTE = 3  # a person may have meant it


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that is wrong: with a queue, or with no queue in particular. `word` is short enough for a table."""

    weight: Weight
    word: str
    text: str
    queue: str | None = None


def concerns(overview: Overview, flows: Mapping[str, Flow]) -> list[Concern]:
    """All there is, worst first; of the same weight by how they came."""
    found = [*_of_system(overview)]
    for queue in overview.queues:
        found += _of_queue(queue, flows.get(queue.queue, UNKNOWN))
    found += _dead_letters(overview.queues)
    return sorted(found, key=lambda concern: concern.weight)


def rate_text(a_second: float | None) -> str:
    """A rate by the second, or by the minute where it is small."""
    if a_second is None:
        return ""
    if a_second >= 10:
        return f"{a_second:,.0f}/s"
    if a_second >= 1:
        return f"{a_second:.1f}/s"
    return f"{a_second * 60:.0f}/min" if a_second else "0"


def _of_system(overview: Overview) -> Iterator[Concern]:
    for shard in overview.unavailable:
        yield Concern(Weight.STANDS, "", f"shard {shard} does not answer: its partitions are not in these figures")
    for shard in overview.read_only:
        yield Concern(Weight.STANDS, "", f"shard {shard} takes no writes")
    if overview.overdue_seconds > OVERDUE_SECONDS:
        since = length(overview.overdue_seconds)
        why = "no worker is alive to do it" if not overview.workers else "the workers' upkeep is behind"
        yield Concern(Weight.STANDS, "", f"what is due has not been made ready for {since}: {why}")
    if overview.failing_duties:
        yield Concern(Weight.FAILS, "", "upkeep fails again and again: penstock doctor says what of it")
    if overview.silent_workers:
        yield Concern(Weight.NOTE, "", f"{_some(overview.silent_workers, 'worker')} not heard of: their jobs run again")


def _of_queue(queue: QueueOverview, flow: Flow) -> Iterator[Concern]:
    name = queue.queue
    if queue.halted_keys:
        keys = _some(queue.halted_keys, "key")
        since = length(queue.halted_seconds)
        yield Concern(
            Weight.STANDS, f"{queue.halted_keys:,} halted", f"{name}: {keys} halted, the first {since} ago", name
        )
    if queue.paused:
        waiting = f", {queue.waiting:,} wait" if queue.waiting else ""
        yield Concern(Weight.NOTE, "paused", f"{name} is paused{waiting}", name)
    elif queue.waiting and not queue.workers:
        since = length(queue.oldest_wait_seconds)
        text = f"{name} has no worker: {_some(queue.waiting, 'job')} waiting, the oldest for {since}"
        yield Concern(Weight.STANDS, "no worker", text, name)
    elif queue.unserved:
        tasks = ", ".join(each.task for each in queue.unserved[:3]) + (", ..." if len(queue.unserved) > 3 else "")
        since = length(max(each.waited_seconds for each in queue.unserved))
        yield Concern(Weight.STANDS, "no worker", f"{name} has no worker for {tasks}, waiting for {since}", name)
    elif _grows(flow):
        rates = f"{rate_text(flow.incoming)} in, {rate_text(flow.outgoing)} out"
        yield Concern(Weight.GROWS, "grows", f"{name} grows: {rates}, {queue.waiting:,} wait", name)
    if flow.failed:
        letters = _some(flow.failed, "new dead letter")
        yield Concern(Weight.FAILS, "fails", f"{name}: {letters} within {length(flow.seconds)}", name)


def _dead_letters(queues: Iterable[QueueOverview]) -> Iterator[Concern]:
    """Those that lie there are one concern, however many queues have some."""
    having = sorted((each for each in queues if each.dead), key=lambda each: -each.dead)
    if having:
        total = sum(each.dead for each in having)
        named = ", ".join(f"{each.queue} {each.dead:,}" for each in having[:3]) + (", ..." if len(having) > 3 else "")
        yield Concern(Weight.NOTE, "", f"{_some(total, 'dead letter')}: {named}")


def _grows(flow: Flow) -> bool:
    if flow.incoming is None or flow.outgoing is None or flow.seconds < GROWTH_SECONDS:
        return False
    return flow.grown >= GROWTH and flow.outgoing < flow.incoming * KEEPS_UP


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
