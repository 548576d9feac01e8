"""What is taken for a W3C trace context, and what is kept of it."""

from __future__ import annotations

import pytest
from tests.security.trace_contexts import GOOD, MALFORMED, MALFORMED_STATES, SAMPLED, TRACE_AND_SPAN

from penstock import InvalidInput
from penstock.client.options import Options
from penstock.model.trace_context import OF_LOAD, TraceContext, checked_trace, trace_of, trace_of_headers


@pytest.mark.parametrize(("given", "kept"), GOOD)
def test_what_is_kept_is_version_00_of_what_was_sampled(given: str, kept: str | None) -> None:
    expected = {} if kept is None else {"traceparent": kept}
    assert checked_trace(given) == trace_of_headers(given) == expected
    with_state = {**expected, "tracestate": "a=1"} if expected else {}
    assert checked_trace(given, "a=1") == trace_of_headers(given, "a=1") == with_state


@pytest.mark.parametrize("given", MALFORMED)
def test_what_is_malformed_is_refused_where_a_person_gave_it_and_ignored_in_a_header(given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_trace(given)
    assert refused.value.field == "traceparent"
    assert trace_of_headers(given) == {}


@pytest.mark.parametrize("given", MALFORMED_STATES)
def test_a_malformed_tracestate_costs_a_header_only_itself(given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_trace(SAMPLED, given)
    assert refused.value.field == "tracestate"
    assert trace_of_headers(SAMPLED, given) == {"traceparent": SAMPLED}


@pytest.mark.parametrize("given", [None, b"", 7, [SAMPLED]])
def test_what_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput):
        checked_trace(given)
    assert trace_of_headers(None) == {}
    assert trace_of_headers(None, "a=1") == {}


def test_a_job_has_its_own_trace_before_its_loads() -> None:
    loads = {OF_LOAD: {"traceparent": f"00-{TRACE_AND_SPAN}-03", "tracestate": "a=1"}}
    assert trace_of({}) is None
    assert trace_of({"traceparent": SAMPLED, **loads}) == TraceContext(SAMPLED)
    found = trace_of(loads)
    assert found == TraceContext(f"00-{TRACE_AND_SPAN}-03", "a=1", is_of_load=True)
    assert found.headers == loads[OF_LOAD]
    assert TraceContext(SAMPLED).headers == {"traceparent": SAMPLED}


def test_options_take_a_trace_once_and_lose_nothing_else() -> None:
    plain = Options.checked(tags=["x"])
    assert plain.with_trace({}) is plain
    traced = plain.with_trace({"traceparent": SAMPLED})
    assert traced.attributes == {"tags": ["x"], "traceparent": SAMPLED}
    assert plain.attributes == {"tags": ["x"]}
    assert traced.with_trace({"traceparent": f"00-{TRACE_AND_SPAN}-03"}) is traced
