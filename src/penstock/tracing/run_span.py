"""The span around a run of a handler: a CONSUMER's, made by the outermost middleware of an app that traces.

A job's own context is the parent: what a call enqueued, and every attempt at it, is in the trace of that call. A batch
has a trace of its own, for a span has one parent; so has each job of a load, for no trace has a million spans. All of
them link to where their jobs were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from opentelemetry.context import Context as Ambient
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.model.handler_signals import Discard, Retry, Snooze
from penstock.model.trace_context import TraceContext
from penstock.task.context import BatchContext, Context
from penstock.tracing.attributes import ATTEMPT, BATCH_COUNT, MESSAGE_ID, RAISED, TASK, describe_operation, note_error
from penstock.version import __version__

__all__ = ["trace_run"]

_tracer = get_tracer("penstock", __version__)
_propagator = TraceContextTextMapPropagator()
_NOTHING = Ambient()


@contextmanager
def trace_run(context: Context | BatchContext, args: object) -> Iterator[None]:
    """The middleware. What a handler asks for by `Retry`, `Snooze` or `Discard` is no error."""
    batch: Sequence[Context] | None = getattr(context, "jobs", None)
    described = describe_operation("process", "process", context.queue)
    described[TASK] = context.task
    described[ATTEMPT] = context.attempt
    if batch is None:
        described[MESSAGE_ID] = str(context.job_id)
    else:
        described[BATCH_COUNT] = len(batch)
    parent, links = _origin([cast(Context, context)] if batch is None else batch, may_be_parent=batch is None)
    with _tracer.start_as_current_span(
        f"process {context.queue}",
        context=parent,
        kind=SpanKind.CONSUMER,
        attributes=described,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except (Retry, Snooze, Discard) as asked:
            span.set_attribute(RAISED, type(asked).__name__)
            raise
        except BaseException as error:
            note_error(span, error)
            raise


def _origin(jobs: Sequence[Context], *, may_be_parent: bool) -> tuple[Ambient, list[Link]]:
    """What a run's span continues, and what it links to: where each of its jobs was made, once, and the span that it is
    run within, if there is one.
    """
    traces = [trace for job in jobs if (trace := job.trace) is not None]
    made = list(dict.fromkeys(traces))
    links = [Link(made_in) for trace in made if (made_in := _read(trace)).is_valid]
    continues = may_be_parent and bool(links) and not made[0].is_of_load
    parent = NonRecordingSpan(links[0].context) if continues else INVALID_SPAN
    around = get_current_span().get_span_context()
    if around.is_valid:
        links.append(Link(around))
    return set_span_in_context(parent), links


def _read(trace: TraceContext) -> SpanContext:
    return get_current_span(_propagator.extract(trace.headers, _NOTHING)).get_span_context()
