"""Rates as users write them."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidInput
from penstock.model.rate import checked_rate, rate_text


@pytest.mark.parametrize(
    ("text", "a_second"), [("100/s", 100), ("30/m", 0.5), ("10/h", 10 / 3600), ("1/d", 1 / 86400), ("2.5/s", 2.5)]
)
def test_a_rate_is_read_as_starts_a_second(text: str, a_second: float) -> None:
    assert checked_rate("rate", text) == a_second


@pytest.mark.parametrize("text", ["1/s", "100/s", "30/m", "90/m", "10/h", "7/h", "1/d", "13/d", "2.5/s", "0.5/d"])
def test_a_rate_that_was_read_is_written_so_that_it_reads_the_same(text: str) -> None:
    rate = checked_rate("rate", text)
    assert checked_rate("rate", rate_text(rate)) == pytest.approx(rate, rel=1e-9)


def test_a_rate_is_written_as_people_would() -> None:
    assert [rate_text(checked_rate("rate", text)) for text in ("100/s", "30/m", "10/h", "1/d", "60/m")] == [
        "100/s", "30/m", "10/h", "1/d", "1/s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "100", "100/", "/s", "100/w", "-1/s", "0/s", "nan/s", "inf/s", "1e3/s", " 1/s", "1/s\n", "1 /s", "²/s", "٣/s",
     "1000001/s", "0.001/d", "9" * 400 + "/s", 100, 1.5, None, True, b"1/s", ["1/s"]],
)  # fmt: skip
def test_what_is_no_rate_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(InvalidInput, match="/s'") as refused:
        checked_rate("per_key_rate", text)
    assert refused.value.field == "per_key_rate"
