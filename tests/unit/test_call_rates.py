"""How many calls a second a caller may make, by a clock that stands still."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.model.token import Role
from penstock.server import call_rates
from penstock.server.call_rates import CALLS_A_SECOND, CallRates
from penstock.server.caller import Caller
from penstock.server.problem import ProblemError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(call_rates, "system", clock)
    return clock


def bearer(name: str) -> Caller:
    return Caller(bearer=name, role=Role.READ)


def is_taken_in(rates: CallRates, caller: Caller) -> bool:
    try:
        rates.count(caller)
    except ProblemError:
        return False
    return True


def calls_until_refused(rates: CallRates, caller: Caller) -> int:
    """How many calls are taken in before one is refused."""
    return next(count for count in range(2 * CALLS_A_SECOND) if not is_taken_in(rates, caller))


def test_a_token_may_make_two_thousand_calls_at_once_and_the_next_is_refused(clock: ManualClock) -> None:
    rates = CallRates()
    assert calls_until_refused(rates, bearer("wild")) == CALLS_A_SECOND == 2_000
    # One that was refused does not put off the next that is taken in.
    assert calls_until_refused(rates, bearer("wild")) == 0
    with pytest.raises(ProblemError, match=r"^token wild may make 2000 calls a second; make fewer$") as refused:
        rates.count(bearer("wild"))
    assert refused.value.code == "too-many-requests"


@pytest.mark.parametrize(("seconds", "more"), [(0.0005, 1), (0.25, 500), (1.0, 2_000), (60.0, 2_000)])
def test_it_may_make_as_many_more_as_time_has_passed_but_no_more_than_those_of_a_second(
    clock: ManualClock, seconds: float, more: int
) -> None:
    rates = CallRates()
    calls_until_refused(rates, bearer("wild"))
    clock.advance(seconds)
    # Parts of a second are added up, and rounded.
    assert abs(calls_until_refused(rates, bearer("wild")) - more) <= 1


def test_a_steady_caller_at_the_limit_is_never_refused(clock: ManualClock) -> None:
    rates = CallRates()
    for _ in range(3 * CALLS_A_SECOND):
        rates.count(bearer("steady"))
        clock.advance(1 / CALLS_A_SECOND)


def test_what_one_token_does_costs_no_other(clock: ManualClock) -> None:
    rates = CallRates()
    calls_until_refused(rates, bearer("wild"))
    assert calls_until_refused(rates, bearer("other")) == CALLS_A_SECOND


def test_callers_that_were_seen_long_ago_are_forgotten(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_rates, "MOST_CALLERS", 10)
    rates = CallRates()
    for number in range(11):
        rates.count(bearer(f"n{number}"))
    clock.advance(1.0)
    rates.count(bearer("another"))
    assert list(rates._full_at) == ["token another"]
