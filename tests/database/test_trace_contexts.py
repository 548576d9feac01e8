"""Trace contexts given to @schema@.enqueue: it takes and keeps what Python does."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.security.trace_contexts import GOOD, MALFORMED, MALFORMED_STATES, SAMPLED

from penstock import App
from penstock.model.trace_context import checked_trace

ENQUEUE = "select penstock.enqueue('q', 't', traceparent => %s, tracestate => %s)"


def test_sql_keeps_and_refuses_of_a_trace_context_what_python_does(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q")
        app.migrate()
    with psycopg.connect(database_url, autocommit=True) as connection:

        def enqueue(traceparent: str | None, tracestate: str | None) -> Any:
            (job,) = connection.execute(ENQUEUE, (traceparent, tracestate)).fetchone() or ()
            found = connection.execute("select attributes from penstock.job where id = %s", (job,)).fetchone()
            return None if found is None else found[0]

        for given, _ in GOOD:
            for state in (None, "", "vendor=a b!~"):
                assert (enqueue(given, state) or {}) == checked_trace(given, state), given
        assert enqueue(None, None) is None
        for given in MALFORMED:
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="traceparent"):
                enqueue(given, None)
        for state in MALFORMED_STATES:
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="tracestate"):
                enqueue(SAMPLED, state)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="traceparent"):
            enqueue(None, "a=1")
