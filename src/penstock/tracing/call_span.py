"""The span around a call that enqueues: a PRODUCER's, whose context each of its jobs carries, or its load."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.tracing.attributes import BATCH_COUNT, MESSAGE_ID, describe_operation, note_error
from penstock.version import __version__

__all__ = ["CallSpan", "call_span"]

_tracer = get_tracer("penstock", __version__)
_propagator = TraceContextTextMapPropagator()


class CallSpan:
    """One such span. `trace` is what its jobs carry: nothing where it is not sampled."""

    __slots__ = ("_span", "trace")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.trace: dict[str, str] = {}
        if span.get_span_context().trace_flags.sampled:
            _propagator.inject(self.trace)

    def note_ids(self, ids: Sequence[int]) -> None:
        """Note what was written."""
        if len(ids) == 1:
            self._span.set_attribute(MESSAGE_ID, str(ids[0]))


@contextmanager
def call_span(operation: str, queues: Collection[str], jobs: int = 1) -> Iterator[CallSpan]:
    """Be within a call that writes so many jobs into these queues."""
    queue = next(iter(queues)) if len(queues) == 1 else None
    described = describe_operation(operation, "send", queue)
    if jobs > 1:
        described[BATCH_COUNT] = jobs
    name = operation if queue is None else f"{operation} {queue}"
    with _tracer.start_as_current_span(
        name, kind=SpanKind.PRODUCER, attributes=described, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield CallSpan(span)
        except BaseException as error:
            note_error(span, error)
            raise
