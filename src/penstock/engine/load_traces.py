"""The trace context of a load, given to its jobs when they are read: it is stored once, with the load.

Only a worker that traces asks for it, once for all leases of a turn, and not where jobs have one of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.engine.conversation import Conversation
from penstock.model.trace_context import OF_LOAD, TRACEPARENT
from penstock.storage.work.leases import Lease, Stored
from penstock.storage.work.load_traces import traces_of_loads

__all__ = ["add_load_traces"]

# As jsonb is written; in a text of an attribute the quotes would be escaped.
_HAS_OWN = f'"{TRACEPARENT}": '
_ATTRIBUTES = 3


def add_load_traces(conversation: Conversation, leases: Sequence[Lease], rows: Stored) -> None:
    """Add to the attributes of these jobs, as they were read, the trace context of the load that they came with."""
    asked = [lease for lease in leases if not _has_own(lease, rows)]
    if not asked:
        return
    traces = conversation.ask(lambda connection: traces_of_loads(connection, {lease.range for lease in asked}))
    for lease in asked:
        trace = traces.get(lease.range)
        if trace is not None:
            for position in lease.positions:
                _add(rows, lease.range * 1024 + position, trace)


def _has_own(lease: Lease, rows: Stored) -> bool:
    """Whether a job of a lease has its own: then it came with no load, and neither did the others of its range."""
    first = rows.get(lease.range * 1024 + lease.positions[0]) if lease.positions else None
    return first is not None and first[_ATTRIBUTES] is not None and _HAS_OWN in first[_ATTRIBUTES]


def _add(rows: Stored, job: int, trace: dict[str, str]) -> None:
    row = rows[job]
    attributes = msgspec.json.decode(row[_ATTRIBUTES]) if row[_ATTRIBUTES] else {}
    added = msgspec.json.encode({**attributes, OF_LOAD: trace}).decode()
    rows[job] = (*row[:_ATTRIBUTES], added, *row[_ATTRIBUTES + 1 :])
