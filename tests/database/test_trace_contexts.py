"""Trace contexts given to @schema@.enqueue: it takes and keeps what Python does."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from tests.security.trace_contexts import GOOD, MALFORMED, MALFORMED_STATES, SAMPLED
from tests.spark.staged import Loader

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


def test_the_shard_that_leads_next_knows_in_which_trace_loads_were_made(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q")
        app.migrate()
        loader = Loader(app, "q")
        loader.publish("load", loader.stage(1), trace={"traceparent": SAMPLED})
    with psycopg.connect(database_url, autocommit=True) as connection:
        decided = connection.execute("select penstock.loads_decided()::text").fetchone()
        assert decided is not None
        # As another shard says it, that has a load more.
        told = json.loads(decided[0])
        others = {key: [{**each, "name": "other"} for each in told[key] if key == "loads"] for key in told}
        connection.execute("select penstock.take_loads(%s::json)", (json.dumps(others),))
        kept = connection.execute("select name, trace ->> 'traceparent' from penstock.load order by name").fetchall()
    assert kept == [("load", SAMPLED), ("other", SAMPLED)]
