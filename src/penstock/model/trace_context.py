"""Where a job comes from, in a distributed trace: the W3C trace context of the call that enqueued it.

It is kept only where that call was sampled: among the job's attributes, by the names of the two HTTP headers, or once
for a load, in the load's row. A worker that traces reads a load's with its jobs. There it stands apart, for a trace
that began with a load does not have each of a million jobs in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidInput

__all__ = ["OF_LOAD", "TRACEPARENT", "TRACESTATE", "TraceContext", "checked_trace", "trace_of", "trace_of_headers"]

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
# The attribute in which a job has its load's, while a worker has it.
OF_LOAD = "load_trace"
MOST_TRACESTATE = 512
EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# What a version after 00 adds at the end is for those who know it.
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?", re.ASCII)
_PRINTABLE = re.compile(r"[\x20-\x7e]*", re.ASCII)
_SAMPLED = 1
# Of the flags, those that version 00 knows: sampled, and random.
_KNOWN_FLAGS = 3


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A trace context in its W3C form, for whatever continues traces; `is_of_load`: the job came with a load, and this
    is the context in which that was loaded.
    """

    traceparent: str
    tracestate: str | None = None
    is_of_load: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The two as HTTP headers, which is what propagators read."""
        state = {} if self.tracestate is None else {TRACESTATE: self.tracestate}
        return {TRACEPARENT: self.traceparent, **state}


def checked_trace(traceparent: object, tracestate: object = None) -> dict[str, str]:
    """What is stored of a trace context, of a job among its attributes; empty where it is not sampled."""
    if tracestate is not None:
        _check_state(tracestate)
    found = _FORM.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        raise InvalidInput(TRACEPARENT, f"a W3C trace context is needed, such as {EXAMPLE}, not {traceparent!r:.80}")
    if not int(found[2], 16) or not int(found[3], 16):
        raise InvalidInput(TRACEPARENT, f"the ids of trace and span must not be all zeros, as in {traceparent!r:.80}")
    flags = int(found[4], 16)
    if not flags & _SAMPLED:
        return {}
    stored = {TRACEPARENT: f"00-{found[2]}-{found[3]}-{flags & _KNOWN_FLAGS:02x}"}
    return {**stored, TRACESTATE: str(tracestate)} if tracestate else stored


def trace_of_headers(traceparent: str | None, tracestate: str | None = None) -> dict[str, str]:
    """The same of a request's headers. As the standard says, what is malformed there is ignored: whoever passes a
    request on puts these in, and the request itself is not at fault.
    """
    if traceparent is None:
        return {}
    try:
        return checked_trace(traceparent, tracestate)
    except InvalidInput as error:
        return {} if error.field == TRACEPARENT else checked_trace(traceparent)


def trace_of(attributes: Mapping[str, Any]) -> TraceContext | None:
    """The trace context among a job's attributes: its own, else its load's."""
    own = attributes.get(TRACEPARENT)
    if own is not None:
        return TraceContext(own, attributes.get(TRACESTATE))
    loads: Mapping[str, str] | None = attributes.get(OF_LOAD)
    return None if loads is None else TraceContext(loads[TRACEPARENT], loads.get(TRACESTATE), is_of_load=True)


def _check_state(tracestate: object) -> None:
    if not isinstance(tracestate, str) or not _PRINTABLE.fullmatch(tracestate):
        raise InvalidInput(
            TRACESTATE, f"printable ASCII text is needed, such as 'vendor=value', not {tracestate!r:.80}"
        )
    if len(tracestate) > MOST_TRACESTATE:
        raise InvalidInput(
            TRACESTATE, f"{len(tracestate)} characters, more than the limit of {MOST_TRACESTATE}: leave it out"
        )
