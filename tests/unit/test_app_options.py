"""What an app is given: the kind of each option is checked where it is written, and the error says what is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import App, InvalidInput

URL = "postgresql://h/d"


def test_retention_counts_days_and_a_timedelta_is_as_long_as_it_says() -> None:
    given: dict[str, Any] = {"failed": timedelta(hours=36), "succeeded": 2, "expired": 0.5}
    kept = App(URL, retention=given).retention
    assert kept == {"succeeded": 2.0, "failed": 1.5, "cancelled": 7.0, "discarded": 7.0, "expired": 0.5, "audit": 365.0}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (7, r"a dict of days by final state is needed, not int; write retention=\{'succeeded': 7\}"),
        ({"done": 7}, "'done' is no final state; give succeeded, failed"),
        ({"failed": "7"}, "failed: days or a timedelta is needed, not str '7'"),
        ({"failed": True}, "failed: days or a timedelta is needed, not bool True"),
        ({"failed": -1}, "failed: -1 days is out of bounds; give more than 0, up to 3660"),
        ({"failed": timedelta(0)}, "failed: 0 days is out of bounds"),
        ({"failed": 604_800}, "failed: 604800 days is out of bounds"),
        ({"failed": float("nan")}, "failed: nan days is out of bounds"),
        ({"failed": 10**400}, "failed: inf days is out of bounds"),
        ({"audit": 0.5}, "audit: what was done today stays; give at least 1 day"),
    ],
)
def test_a_retention_that_cannot_be_is_refused_by_its_state_and_in_days(given: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"^retention: {told}"):
        App(URL, retention=given)


@pytest.mark.parametrize("given", ["no", "false", 0, 1, None, "True"])
def test_accept_data_loss_is_said_by_true_and_by_nothing_else(given: Any) -> None:
    with pytest.raises(InvalidInput, match="accept_data_loss: must be True or False, not "):
        App(URL, accept_data_loss=given)


@pytest.mark.parametrize("given", ["tasks", 3, [3], ["tasks.py.", "a"], ["my-tasks"], [""]])
def test_imports_are_names_of_modules(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"imports: .*write imports=\['tasks'\]"):
        App(URL, imports=given)


def test_modules_of_packages_may_be_imported() -> None:
    assert App(URL, imports=["shop.tasks", "more"]).imports == ("shop.tasks", "more")
