"""What a handler may say about its job."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta

import pytest

from penstock.errors import InvalidInput, PenstockError
from penstock.model import Discard, Retry, Snooze


def test_a_wait_is_seconds_or_a_timedelta_and_0_is_kept_as_at_once() -> None:
    assert Retry().after is None
    assert Retry(after=0).after == 0
    assert Retry(2).after == 2.0
    assert Retry(after=timedelta(minutes=2)).after == 120.0
    assert Snooze(for_=0).for_ == 0
    assert Snooze(timedelta(hours=1)).for_ == 3600.0


@pytest.mark.parametrize(
    "wait", [-1, -0.001, math.nan, math.inf, -math.inf, 10**400, "5", True, timedelta(-1), [], 1e12]
)
def test_a_wait_that_is_none_is_refused(wait: object) -> None:
    with pytest.raises(InvalidInput) as retry:
        Retry(after=wait)  # type: ignore[arg-type]
    assert retry.value.field == "after"
    with pytest.raises(InvalidInput) as snooze:
        Snooze(for_=wait)  # type: ignore[arg-type]
    assert snooze.value.field == "for_"


def test_a_snooze_needs_a_length() -> None:
    with pytest.raises(InvalidInput, match="for_"):
        Snooze(None)  # type: ignore[arg-type]


def test_a_discard_says_why() -> None:
    assert Discard("no such customer").reason == "no such customer"
    with pytest.raises(InvalidInput, match="reason"):
        Discard(7)  # type: ignore[arg-type]


def test_signals_are_not_errors_of_penstock_and_survive_pickling() -> None:
    for signal in (Retry(), Retry(1.5), Snooze(3), Discard("why")):
        copy = pickle.loads(pickle.dumps(signal))
        assert not isinstance(signal, PenstockError)
        assert (type(copy), str(copy), vars(copy)) == (type(signal), str(signal), vars(signal))
