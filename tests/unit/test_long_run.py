"""The long run's books: it goes on where it was, gives rounds out until every fault has its number, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fault import ledger as books
from tests.fault import report, schedule
from tests.fault.ledger import Ledger, Round
from tests.fault.report import sometimes_missing, table, write_into_manual
from tests.fault.schedule import Schedule

FAULTS = {"kill": 10, "cut": 2}


@pytest.fixture(autouse=True)
def _few_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (books, schedule, report):
        monkeypatch.setattr(module, "FAULTS", FAULTS)
    monkeypatch.setattr(report, "SOMETIMES", ("a settle",))


def play(schedule: Schedule, brings: dict[str, dict[str, int]], *, most: int = 100, found: str = "") -> list[str]:
    """Run what is next, one after the other; the tests that were run."""
    run: list[str] = []
    while len(run) < most and (told := schedule.next()) is not None:
        run.append(told[0])
        schedule.end(Round(told[0], told[1], 1.0, brings[told[0]], {"a settle": 1}, found))
    return run


def test_each_test_is_run_once_and_then_what_is_missing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 1, 2)
    brings = {"kills": {"kill": 3}, "cuts": {"cut": 2}, "other": {}}
    run = play(Schedule(ledger, list(brings)), brings)
    assert run == ["kills", "cuts", "other", "kills", "kills", "kills"]
    assert ledger.missing() == {}


def test_what_is_under_way_is_not_given_out_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 1, 2)
    plan = Schedule(ledger, ["kills", "cuts"])
    for test, brought in (("kills", {"kill": 9}), ("cuts", {"cut": 2})):
        assert plan.next() is not None
        plan.end(Round(test, 1, 1.0, brought))
    assert plan.next() is not None
    assert plan.next() is None
    assert not plan.is_over()


def test_a_run_goes_on_where_it_was_stopped_with_the_same_seeds(tmp_path: Path) -> None:
    brings = {"kills": {"kill": 1}, "cuts": {"cut": 1}}
    whole = Ledger(tmp_path / "whole", 7, 1)
    play(Schedule(whole, list(brings)), brings)
    first = Ledger(tmp_path / "parts", 7, 1)
    play(Schedule(first, list(brings)), brings, most=4)
    second = Ledger(tmp_path / "parts", None, 1)
    assert second.is_resumed
    assert second.seed == 7
    play(Schedule(second, list(brings)), brings)
    assert [(each.test, each.seed) for each in second.rounds] == [(each.test, each.seed) for each in whole.rounds]
    assert len({each.seed for each in whole.rounds}) == len(whole.rounds)


def test_a_test_that_always_fails_is_given_up_and_the_table_says_so(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 1, 1)
    plan = Schedule(ledger, ["kills"])
    run = play(plan, {"kills": {"kill": 1}}, found="acknowledged and lost: 1 | <b>")
    assert len(run) == schedule.MOST_FAILURES
    assert plan.given_up() == ["kill", "cut"]
    text = table(ledger, "abc", 4)
    assert "| kill | 5 of 10 | 5 | 5 rounds failed |" in text
    assert "| cut | 0 of 2 | 0 | not brought about |" in text
    assert text.count("acknowledged and lost") == 5
    assert "<b>" not in text


def test_the_table_stands_in_its_place_of_the_manual(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    ledger = Ledger(tmp_path, 1, 1)
    assert sometimes_missing(ledger) == ["a settle"]
    write_into_manual(table(ledger, "abc", 4), page)
    write_into_manual(table(ledger, "def", 4), page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "`def`" in text
    assert "`abc`" not in text
    assert "old" not in text
    assert "It never came to: a settle." in text
    real = report.PAGE.read_text(encoding="utf-8")
    assert real.count(report.BEGIN) == real.count(report.END) == 1
