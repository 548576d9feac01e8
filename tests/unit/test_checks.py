"""The bounds of what may be handed in: inside them a value comes back, outside it is refused by its field."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.model import checks
from penstock.model.checks import key_from_bytes, key_to_bytes


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


def refusal(check: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as refused:
        check()
    assert refused.value.field
    assert len(str(refused.value)) < 300
    return refused.value.field


@pytest.mark.parametrize(
    "name",
    ["a", "...", ".a", "customer-updates", "名前", "🐘", " spaced ", "a" * 200, "🐘" * 200, "'; drop table job; --"],
)
def test_a_name_within_bounds_is_kept_as_it_is(name: str) -> None:
    assert checks.checked_name("queue", name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "\t\n", ".", "..", "a\0b", "\ud800", "a" * 201, None, 7, b"bytes", Unshowable(), ["a"]]
)
def test_a_name_outside_bounds_is_refused_by_its_field(name: object) -> None:
    assert refusal(lambda: checks.checked_name("tenant", name)) == "tenant"


def test_tags_are_names_without_repeats() -> None:
    assert checks.checked_tags(("b", "a", "b")) == ["b", "a"]
    for tags in ("x", b"x", 7, None, ["ok", ""], ["ok", 7], [str(number) for number in range(33)]):
        assert refusal(lambda tags=tags: checks.checked_tags(tags)) == "tags"  # type: ignore[misc]


def test_an_idempotency_key_has_at_most_512_bytes() -> None:
    assert checks.checked_idempotency_key("é" * 256) == "é" * 256
    for key in ("é" * 257, "a" * 513, "", " ", "a\0", "\udfff", 7, None, b"m-7"):
        assert refusal(lambda key=key: checks.checked_idempotency_key(key)) == "idempotency_key"  # type: ignore[misc]


def test_a_key_is_text_bytes_or_the_decimal_text_of_an_int() -> None:
    assert key_to_bytes("ключ") == "ключ".encode()
    assert key_to_bytes(b"\xff\0") == b"\xff\0"
    assert key_to_bytes(bytearray(b"ab")) == key_to_bytes(memoryview(b"ab")) == b"ab"
    assert key_to_bytes(-42) == key_to_bytes("-42") == b"-42"
    assert key_to_bytes("") == b""
    assert key_to_bytes(10**511) == b"1" + b"0" * 511


@pytest.mark.parametrize(
    "key",
    ["a" * 513, b"a" * 513, 10**512, pytest.param(10**5000, id="huge"), True, 1.5, None, "\ud800", ["a"], Unshowable()],
)
def test_a_key_that_is_too_long_or_of_another_type_is_refused(key: object) -> None:
    assert refusal(lambda: key_to_bytes(key)) == "key"


@given(st.text(max_size=128))
def test_a_text_key_comes_back_as_text(key: str) -> None:
    try:
        stored = key_to_bytes(key)
    except InvalidInput:
        assert any("\ud800" <= character <= "\udfff" for character in key)
    else:
        assert key_from_bytes(stored) == key


@given(st.binary(max_size=512))
def test_a_key_in_either_form_names_the_same_bytes(key: bytes) -> None:
    assert key_to_bytes(key_from_bytes(key)) == key


def test_a_priority_is_0_to_9() -> None:
    assert [checks.checked_priority(number) for number in range(10)] == list(range(10))
    for priority in (-1, 10, True, 1.0, "1", None, 10**5000, math.nan):
        assert refusal(lambda priority=priority: checks.checked_priority(priority)) == "priority"  # type: ignore[misc]


def test_attempts_and_concurrency_have_their_bounds() -> None:
    assert checks.checked_attempts(1) == 1
    assert checks.checked_attempts(32_767) == 32_767
    assert checks.checked_concurrency(1_000) == 1_000
    assert {refusal(lambda v=v: checks.checked_attempts(v)) for v in (0, 32_768, True, "3")} == {"max_attempts"}  # type: ignore[misc]
    assert {refusal(lambda v=v: checks.checked_concurrency(v)) for v in (0, 1_001, 1.5)} == {"concurrency"}  # type: ignore[misc]


def test_an_id_is_an_int_or_its_decimal_text_also_beyond_2_to_the_53() -> None:
    for number in (1, 2**31, 2**53 + 1, 2**63 - 1):
        assert checks.checked_job_id(number) == checks.checked_job_id(str(number)) == number


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        2**63,
        str(2**63),
        "0",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1_0",
        "1.0",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "",
        "x",
        "9" * 5000,
        1.0,
        True,
        None,
        b"1",
    ],
)
def test_what_is_not_an_id_is_refused(value: object) -> None:
    assert refusal(lambda: checks.checked_job_id(value)) == "job_id"


def test_a_delay_may_be_0_and_a_timeout_may_not() -> None:
    assert checks.checked_delay("delay", 0) == 0
    assert math.copysign(1, checks.checked_delay("delay", -0.0)) == 1
    assert checks.checked_delay("delay", timedelta(days=3650)) == 3650 * 86_400
    assert checks.checked_seconds("timeout", 0.001) == 0.001
    assert refusal(lambda: checks.checked_seconds("timeout", 0)) == "timeout"


@pytest.mark.parametrize(
    "value", [-1, math.nan, math.inf, -math.inf, 10**400, 4e8, timedelta.max, timedelta(-1), "60", None, True]
)
def test_a_length_of_time_outside_bounds_is_refused(value: object) -> None:
    assert refusal(lambda: checks.checked_delay("delay", value)) == "delay"
    assert refusal(lambda: checks.checked_seconds("timeout", value)) == "timeout"


def test_an_instant_is_kept_in_utc() -> None:
    berlin = datetime(2026, 11, 15, 12, tzinfo=timezone(timedelta(hours=1)))
    assert checks.checked_run_at(berlin) == datetime(2026, 11, 15, 11, tzinfo=UTC)
    assert checks.checked_run_at(berlin).tzinfo is UTC


def test_a_datetime_without_time_zone_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInput, match=r"2026-11-15T12:00:00 has no time zone.*tzinfo=UTC"):
        checks.checked_run_at(datetime(2026, 11, 15, 12))  # noqa: DTZ001


@pytest.mark.parametrize(
    "value",
    [
        None,
        "2026-11-15",
        1_763_200_000,
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
    ],
)
def test_what_is_not_an_instant_or_beyond_the_calendar_is_refused(value: object) -> None:
    assert refusal(lambda: checks.checked_run_at(value)) == "run_at"


@given(st.text())
def test_any_text_can_be_made_fit_to_be_stored(text: str) -> None:
    stored = checks.storable_text(text)
    assert "\0" not in stored
    assert stored.encode().decode() == stored


def test_text_that_is_fit_to_be_stored_is_kept_and_long_text_is_cut() -> None:
    assert checks.storable_text("naïve 🐘\n") == "naïve 🐘\n"
    assert checks.storable_text("a" * 30, most_characters=10) == "aaaaaaa..."
