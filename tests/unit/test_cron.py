"""When crons are due, above all where clocks change."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.policy import Schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def due_between(schedule: Schedule, start: datetime, end: datetime) -> list[str]:
    found: list[str] = []
    instant = start
    while (instant := schedule.next_after(instant)) <= end:
        found.append(f"{instant:%d %H:%M}")
    return found


def test_the_next_is_later_and_the_previous_may_be_now() -> None:
    nightly = Schedule("0 3 * * *")
    three = at("2026-11-15T03:00:00+00:00")
    assert nightly.next_after(three) == three + timedelta(days=1)
    assert nightly.next_after(three - timedelta(microseconds=1)) == three
    assert nightly.previous_at_or_before(three) == three
    assert nightly.previous_at_or_before(three + timedelta(hours=23)) == three
    assert nightly.previous_at_or_before(three - timedelta(microseconds=1)) == three - timedelta(days=1)


def test_answers_are_in_utc_whatever_zone_the_question_was_in() -> None:
    schedule = Schedule("0 3 * * *", "Europe/Berlin")
    answer = schedule.next_after(at("2026-07-01T12:00:00+09:00"))
    assert answer == at("2026-07-02T01:00:00+00:00")
    assert answer.tzinfo is UTC


def test_a_fixed_time_in_the_gap_of_spring_is_due_once_right_after_it() -> None:
    schedule = Schedule("30 2 * * *", "Europe/Berlin")  # on 29 March 2026 the clock goes from 02:00 to 03:00
    start, end = at("2026-03-28T00:00:00+00:00"), at("2026-03-30T12:00:00+00:00")
    assert due_between(schedule, start, end) == ["28 01:30", "29 01:00", "30 00:30"]
    assert schedule.previous_at_or_before(at("2026-03-29T12:00:00+00:00")) == at("2026-03-29T01:00:00+00:00")


def test_a_yearly_time_in_the_gap_is_found_from_far_behind_it_too() -> None:
    schedule = Schedule("30 2 29 3 *", "Europe/Berlin")
    assert schedule.previous_at_or_before(at("2026-11-15T00:00:00+00:00")) == at("2026-03-29T01:00:00+00:00")


def test_a_fixed_time_that_comes_twice_in_autumn_is_due_once() -> None:
    schedule = Schedule("30 2 * * *", "Europe/Berlin")  # on 25 October 2026 the clock goes from 03:00 back to 02:00
    start, end = at("2026-10-24T12:00:00+00:00"), at("2026-10-26T12:00:00+00:00")
    assert due_between(schedule, start, end) == ["25 00:30", "26 01:30"]


def test_asked_between_the_two_half_past_twos_it_does_not_answer_with_the_past() -> None:
    schedule = Schedule("30 2 * * *", "Europe/Berlin")
    second_ten_past_two = at("2026-10-25T01:10:00+00:00")
    assert schedule.next_after(second_ten_past_two) == at("2026-10-26T01:30:00+00:00")
    assert schedule.previous_at_or_before(second_ten_past_two) == at("2026-10-25T00:30:00+00:00")


def test_an_hourly_schedule_sees_neither_gap_nor_repetition() -> None:
    hourly = Schedule("@hourly", "Europe/Berlin")
    spring = due_between(hourly, at("2026-03-28T23:30:00+00:00"), at("2026-03-29T03:00:00+00:00"))
    autumn = due_between(hourly, at("2026-10-24T23:30:00+00:00"), at("2026-10-25T03:00:00+00:00"))
    assert spring == ["29 00:00", "29 01:00", "29 02:00", "29 03:00"]
    assert autumn == ["25 00:00", "25 01:00", "25 02:00", "25 03:00"]


def test_leap_days_and_seconds_are_known() -> None:
    assert Schedule("0 0 29 2 *").next_after(at("2026-01-01T00:00:00+00:00")) == at("2028-02-29T00:00:00+00:00")
    every_ten = Schedule("*/10 * * * * *")
    assert every_ten.next_after(at("2026-01-01T00:00:05+00:00")) == at("2026-01-01T00:00:10+00:00")


EXPRESSIONS = ["30 2 * * *", "0 0 * * *", "*/20 * * * *", "15 */2 * * *", "0 2,3 * * 0", "59 1 * * *", "0 12 1 * *"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll"]
INSTANTS = st.one_of(
    st.datetimes(datetime(2025, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
    st.datetimes(datetime(2026, 3, 28), datetime(2026, 3, 30), timezones=st.just(UTC)),  # noqa: DTZ001
    st.datetimes(datetime(2026, 10, 24), datetime(2026, 10, 26), timezones=st.just(UTC)),  # noqa: DTZ001
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), INSTANTS)
def test_previous_and_next_agree_on_what_is_due(expression: str, zone: str, instant: datetime) -> None:
    schedule = Schedule(expression, zone)
    previous, following = schedule.previous_at_or_before(instant), schedule.next_after(instant)
    assert previous <= instant < following
    assert schedule.next_after(previous) == following, "nothing is due between them"
    assert schedule.previous_at_or_before(following) == following
    assert schedule.previous_at_or_before(following - timedelta(microseconds=1)) == previous


@pytest.mark.parametrize(
    "expression",
    [
        "", " ", "never",
        "* * * *", "* * * * * * *", "60 * * * *", "0 24 * * *", "0 0 31 2 *", "0 0 30 2 *", "0 0 0 1 *",
        "0 0 * * 1L/2", "0 0 * * 8", "*/0 * * * *", "-1 * * * *", "0 0 \N{SUPERSCRIPT TWO} * *",
        "0\0 * * * *", "@reboot",
        "0 0 * * *; drop table job", "0 " * 300, None, 7, "0 0 31 4,6,9,11 *", "0 0 * 2 MON#6",
    ],
)  # fmt: skip
def test_an_expression_that_names_no_time_is_refused_with_a_remedy(expression: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Schedule(expression)
    assert refused.value.field == "expression"


@pytest.mark.parametrize(
    "zone",
    ["", "Mars/Olympus", "Europe", "../../etc/passwd", "/etc/passwd", "utc+1", "\ud800", "a\0", None, 7, "x" * 300],
)
def test_a_time_zone_that_is_none_is_refused_with_a_remedy(zone: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Schedule("0 3 * * *", zone)
    assert refused.value.field == "timezone"


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("61 3 * * *", "has '61' for the minute; give 0 to 59; or"),
        ("61 0 3 * * *", "has '61' for the second; give 0 to 59; or"),
        ("0 24 * * *", "has '24' for the hour; give 0 to 23; or"),
        ("0 0 32 * *", "has '32' for the day of month; give 1 to 31,"),
        ("0 0 1 foo *", "has 'foo' for the month; give 1 to 12, or JAN to DEC; or"),
        ("0 0 * * 8", r"has '8' for the day of week; give 0 \(Sunday\) to 7"),
        ("* * *", r"has 3 fields; write five \(minute, hour"),
        ("never", r"has 1 field; write five \(minute, hour"),
        ("@reboot", "is no short form; write @hourly, @daily"),
        ("0 0 31 2 *", "names no day that ever comes; mend"),
    ],
)
def test_the_field_that_cannot_be_is_named_with_what_it_may_be(expression: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"^expression: '{re.escape(expression)}' {told}"):
        Schedule(expression)


def test_an_expression_whose_fields_never_meet_is_refused() -> None:
    with pytest.raises(InvalidInput, match="names no day that ever comes"):
        Schedule("0 0 */29 2 0#2")  # the second Sunday of February, if it is the 1st


@given(st.lists(st.text("0123456789*/,-#LWMON", min_size=1, max_size=5), min_size=5, max_size=6))
def test_whatever_is_written_is_a_schedule_or_refused(fields: list[str]) -> None:
    try:
        schedule = Schedule(" ".join(fields))
    except InvalidInput:
        return
    assert schedule.next_after(at("2026-01-01T00:00:00+00:00")) > at("2026-01-01T00:00:00+00:00")


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no time zone"):
        Schedule("0 3 * * *").next_after(datetime(2026, 1, 1))  # noqa: DTZ001
