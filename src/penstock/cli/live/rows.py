"""The queues as a table: its columns, and in which order the rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.cli.live.attention import Concern, Weight, rate_text
from penstock.cli.live.looks import UNKNOWN, Flow
from penstock.cli.terminal import Column
from penstock.cli.times import length
from penstock.model.overview import QueueOverview

__all__ = ["COLUMNS", "ORDERS", "QueueRow", "queue_rows", "sort_rows"]

COLUMNS = [
    Column("queue", is_cut=True, before_spared=40),
    Column("waiting", "right"),
    Column("running", "right"),
    Column("in", "right"),
    Column("out", "right"),
    Column("oldest", "right"),
    Column("dead", "right"),
    Column("attention"),
    Column("workers", "right", is_spared=True),
    Column("scheduled", "right", is_spared=True),
    Column("blocked", "right", is_spared=True),
    Column("partitions", "right", is_spared=True),
    Column("succeeded", "right", is_spared=True),
    Column("failed", "right", is_spared=True),
]


class QueueRow(NamedTuple):
    """A queue, what comes and goes there, and what is wrong with it, worst first."""

    queue: QueueOverview
    flow: Flow
    concerns: Sequence[Concern]

    def cells(self) -> list[str]:
        """What stands in the columns."""
        queue, flow = self.queue, self.flow
        return [
            queue.queue,
            f"{queue.waiting:,}",
            f"{queue.running:,}" if queue.limit is None else f"{queue.running:,} of {queue.limit:,}",
            rate_text(flow.incoming),
            rate_text(flow.outgoing),
            length(queue.oldest_wait_seconds) if queue.waiting else "",
            f"{queue.dead:,}",
            ", ".join(concern.word for concern in self.concerns),
            f"{queue.workers:,}",
            f"{queue.scheduled:,}",
            f"{queue.blocked:,}",
            f"{queue.partitions:,}",
            f"{queue.total_completed:,}",
            f"{queue.total_failed:,}",
        ]


_UNTROUBLED = len(Weight)


def _attention(row: QueueRow) -> tuple[float, ...]:
    worst = min((concern.weight for concern in row.concerns), default=_UNTROUBLED)
    return (worst, -row.queue.halted_keys, -row.queue.waiting)


# By what rows are sorted: the first row is the one that is looked for.
ORDERS: dict[str, Callable[[QueueRow], tuple[float | str, ...]]] = {
    "attention": _attention,
    "queue": lambda row: (),
    "waiting": lambda row: (-row.queue.waiting,),
    "running": lambda row: (-row.queue.running,),
    "in": lambda row: (-(row.flow.incoming or 0.0),),
    "out": lambda row: (-(row.flow.outgoing or 0.0),),
    "oldest": lambda row: (-(row.queue.oldest_wait_seconds if row.queue.waiting else 0.0),),
    "dead": lambda row: (-row.queue.dead,),
}


def queue_rows(
    queues: Iterable[QueueOverview], flows: Mapping[str, Flow], concerns: Iterable[Concern]
) -> list[QueueRow]:
    """A row for each."""
    found = list(concerns)
    return [
        QueueRow(
            each,
            flows.get(each.queue, UNKNOWN),
            [concern for concern in found if concern.queue == each.queue and concern.word],
        )
        for each in queues
    ]


def sort_rows(rows: Iterable[QueueRow], order: str) -> list[QueueRow]:
    """In one of the `ORDERS`; what is alike there, by name."""
    key = ORDERS[order]
    return sorted(rows, key=lambda row: (*key(row), row.queue.queue))
