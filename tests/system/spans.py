"""The spans of a test, kept in memory, and a request to be in. Handler processes import this too, and so have spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

__all__ = ["UNSAMPLED", "Spans", "count_of", "describe_current", "spans_of_this_process", "within"]

# Of a request that another program did not sample.
UNSAMPLED = NonRecordingSpan(SpanContext(0xFACE, 0xCAFE, is_remote=True, trace_flags=TraceFlags(0)))


class Spans:
    """What has ended since the test began."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()

    @property
    def processor(self) -> SimpleSpanProcessor:
        """What a provider hands spans to."""
        return SimpleSpanProcessor(self._exporter)

    @contextmanager
    def request(self, name: str = "request") -> Iterator[Span]:
        """Be in a span, as a handler of a web server is."""
        with trace.get_tracer("test").start_as_current_span(name) as span:
            yield span

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of that name, in the order in which they began."""
        found = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def only(self, name: str) -> ReadableSpan:
        """The one of that name."""
        (span,) = self.named(name)
        return span

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()


def _begin() -> Spans:
    provider, spans = TracerProvider(), Spans()
    provider.add_span_processor(spans.processor)
    trace.set_tracer_provider(provider)
    return spans


spans_of_this_process = _begin()


def within(child: ReadableSpan, parent: ReadableSpan | Span) -> bool:
    """Whether a span continues another one."""
    context = parent.get_span_context()
    assert child.context is not None
    assert context is not None
    is_child = child.parent is not None and child.parent.span_id == context.span_id
    assert not is_child or child.context.trace_id == context.trace_id
    return is_child


def count_of(span: ReadableSpan) -> object:
    """How many jobs a span says that it is about."""
    return (span.attributes or {}).get("messaging.batch.message_count")


def describe_current() -> list[str | None]:
    """The name of the span that is current, and the ids of its trace and of what it continues."""
    span = trace.get_current_span()
    assert isinstance(span, ReadableSpan)
    context = span.get_span_context()
    assert context is not None
    return [span.name, f"{context.trace_id:x}", None if span.parent is None else f"{span.parent.span_id:x}"]


def describe_for_each(items: list[dict[str, int]]) -> list[list[str | None]]:
    """The same for each job of a batch, and how many links the span has."""
    span = trace.get_current_span()
    assert isinstance(span, ReadableSpan)
    return [[*describe_current(), str(len(span.links))] for _ in items]
