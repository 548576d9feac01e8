"""`penstock limit`: a queue's limits changed by a person, while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.cli_runs import CommandLine

from penstock import App


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    with App(database_url) as app:
        app.queue("q", limit=1)
        app.queue("fair", fair_by="tenant")
        app.migrate()
    return CommandLine(tmp_path, database_url)


def test_limits_are_changed_and_taken_away(penstock: CommandLine, database_url: str) -> None:
    changed = penstock.done("limit", "q", "--limit", "5", "--rate", "30/m", "--max-wait", "1.5", "--max-length", "9")
    assert changed.out == "queue 'q' has limit 5, rate 30/m, max_length 9, max_wait 1.5\n"
    figures = penstock.done("stats", "q", "--json").json
    assert (figures["limit"], figures["rules"]["rate"], figures["rules"]["max_wait"]) == (5, "30/m", 1.5)
    shown = penstock.done("stats", "q").out
    assert shown.endswith("rules: limit 5, rate 30/m, max_length 9, max_wait 1.5\n")
    taken_away = penstock.done("limit", "q", "--limit", "none", "--json").json
    assert taken_away == {"queue": "q", "limit": None}
    assert penstock.done("stats", "q", "--json").json["limit"] is None
    weighted = penstock.done("limit", "fair", "--weight", "acme=2", "--weight", "a=b=0.5", "--json").json
    assert weighted == {"queue": "fair", "weights": {"acme": 2.0, "a=b": 0.5}}
    assert penstock.done("stats", "fair").out.endswith("rules: fair_by tenant, weights acme=2 a=b=0.5\n")
    assert penstock.done("limit", "fair", "--weight", "none", "--json").json == {"queue": "fair", "weights": None}


def test_the_longest_wait_is_written_as_any_wait_is(penstock: CommandLine) -> None:
    for written, seconds in {"90": 90.0, "5m": 300.0, "2h": 7200.0, "none": None}.items():
        assert penstock.done("limit", "q", "--max-wait", written, "--json").json == {"queue": "q", "max_wait": seconds}
        assert penstock.done("stats", "q", "--json").json["rules"]["max_wait"] == seconds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["q", "--limit", "0"], "limit"),
        (["q", "--rate", "fast"], "100/s"),
        (["q", "--max-wait", "soon"], "90s, 15m, 2h, 1d"),
        (["q", "--max-wait", "0"], "max_wait: 0 seconds is out of bounds"),
        (["q", "--weight", "acme=2"], "fair_by"),
        (["nowhere", "--limit", "1"], "nowhere"),
    ],
)
def test_limits_that_cannot_be_are_refused(penstock: CommandLine, words: list[str], said: str) -> None:
    assert said in penstock.refused("limit", *words)


@pytest.mark.parametrize(
    "words", [["q"], ["q", "--limit", "many"], ["fair", "--weight", "acme"], ["fair", "--weight", "acme=x"]]
)
def test_a_command_that_cannot_be_read_is_wrong_use(penstock: CommandLine, words: list[str]) -> None:
    assert penstock("limit", *words).code == 2
