"""The names that spans of Penstock have in OpenTelemetry's conventions for messaging, and how an error is noted."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Span, Status, StatusCode

from penstock.model.error_text import describe, summarize

__all__ = ["ATTEMPT", "BATCH_COUNT", "MESSAGE_ID", "RAISED", "TASK", "describe_operation", "note_error"]

BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
# What only Penstock has is in its own part of that namespace.
TASK: Final = "messaging.penstock.task"
ATTEMPT: Final = "messaging.penstock.attempt"
RAISED: Final = "messaging.penstock.raised"


def describe_operation(name: str, kind: str, queue: str | None) -> dict[str, str | int]:
    """What a span about a queue has from its beginning, so that samplers see it; None: about several queues."""
    described: dict[str, str | int] = {
        "messaging.system": "penstock",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    return described if queue is None else {**described, "messaging.destination.name": queue}


def note_error(span: Span, error: BaseException) -> None:
    """Note that what the span is around raised."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    # Described as Penstock stores it: exceptions are the user's own code, and what one says may be anything.
    span.set_attribute("error.type", name)
    described = {"exception.type": name, "exception.message": summarize(error), "exception.stacktrace": describe(error)}
    span.add_event("exception", described)
    span.set_status(Status(StatusCode.ERROR, summarize(error)))
