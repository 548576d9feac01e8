"""The wait between attempts."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.policy import Backoff


def test_the_default_doubles_from_a_second_to_an_hour() -> None:
    middle = [Backoff().wait(attempt, 0.5).seconds for attempt in (1, 2, 3, 12, 13, 32_767)]
    assert middle == pytest.approx([1, 2, 4, 2048, 3600, 3600])


@given(st.integers(1, 32_767), st.floats(0, 1))
def test_chance_makes_the_default_at_most_a_fifth_shorter_or_longer(attempt: int, unit: float) -> None:
    middle = Backoff().wait(attempt, 0.5).seconds
    wait = Backoff().wait(attempt, unit)
    assert middle * 0.8 <= wait.seconds + 1e-9
    assert wait.seconds - 1e-9 <= middle * 1.2
    assert wait.problem is None


def test_lesson_codeq_another_draw_gives_another_wait() -> None:
    assert Backoff().wait(5, 0.1) != Backoff().wait(5, 0.9)
    assert Backoff(10).wait(1, 0.1) != Backoff(10).wait(1, 0.9)


@given(st.floats(0, 1))
def test_0_means_at_once_whatever_chance_says(unit: float) -> None:
    assert Backoff(0).wait(1, unit).seconds == 0
    assert Backoff(lambda attempt: 0).wait(1, unit).seconds == 0


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_a_wait_that_was_asked_for_is_never_shortened(seconds: float, unit: float) -> None:
    for backoff in (Backoff(seconds), Backoff(lambda attempt: seconds)):
        assert seconds <= backoff.wait(1, unit).seconds <= seconds + min(seconds * 0.2 + 1e-9, 60)


def test_seconds_timedeltas_and_functions_of_the_attempt_are_taken() -> None:
    assert Backoff(timedelta(minutes=1)).wait(3, 0).seconds == 60
    assert Backoff(lambda attempt: attempt * 10).wait(3, 0).seconds == 30
    assert Backoff(lambda attempt: timedelta(hours=attempt)).wait(2, 0).seconds == 7200


def raising(attempt: int) -> float:
    raise RuntimeError(f"no wait for {attempt}")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raising_silence(attempt: int) -> float:
    raise Silent


@pytest.mark.parametrize(
    "function",
    [
        raising,
        raising_silence,
        lambda attempt: -1,
        lambda attempt: math.nan,
        lambda attempt: None,
        lambda attempt: "soon",
        lambda: 1,
    ],
    ids=["raises", "raises what cannot be told", "negative", "not a number", "nothing", "text", "takes no attempt"],
)
def test_a_function_that_answers_nonsense_falls_back_to_the_default_and_is_reported(
    function: Callable[..., float],
) -> None:
    wait = Backoff(function).wait(4, 0.5)
    assert wait.seconds == pytest.approx(8)
    assert wait.problem is not None
    assert wait.problem.startswith("backoff for attempt 4: ")


async def later(attempt: int) -> float:
    return 1.0


@pytest.mark.parametrize("given", [-1, math.nan, math.inf, "5", True, [], later])
def test_a_backoff_that_cannot_be_used_is_refused_when_the_task_is_declared(given: object) -> None:
    with pytest.raises(InvalidInput, match=r"^backoff: "):
        Backoff(given)  # type: ignore[arg-type]
