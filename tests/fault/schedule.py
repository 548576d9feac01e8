"""Which round is next: first each test once, which shows what it brings about and how long it takes; then whichever
fault would take longest to complete.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.fault.ledger import Ledger, Round
from tests.fault.tally import FAULTS

__all__ = ["Schedule"]

# A test that has failed so often is not tried again: it has said what it has to say.
MOST_FAILURES = 5


@dataclass(slots=True)
class Schedule:
    """Gives rounds out until every fault has its count."""

    ledger: Ledger
    tests: list[str]
    _under_way: Counter[str] = field(default_factory=Counter)

    def next(self) -> tuple[str, int] | None:
        """A test and its seed; None where nothing is left to be begun."""
        done = self.ledger.by_test()
        for test in self.tests:
            if not done.get(test) and not self._under_way[test]:
                return self._begin(test)
        left = self._left(done)
        if not left:
            return None
        by_seconds = {fault: self._seconds_for(fault, count, done) for fault, count in left.items()}
        fault = max(by_seconds, key=lambda each: by_seconds[each])
        return self._begin(min(self._bringing(fault, done), key=lambda each: len(done[each]) + self._under_way[each]))

    def is_over(self) -> bool:
        """Whether nothing is under way, and nothing left to do."""
        return not +self._under_way

    def end(self, entry: Round) -> None:
        self._under_way[entry.test] -= 1
        self.ledger.add(entry)

    def given_up(self) -> list[str]:
        """Faults that are not complete, and no test is left that could bring them about."""
        done = self.ledger.by_test()
        return [fault for fault in self.ledger.missing() if not self._bringing(fault, done)]

    def _begin(self, test: str) -> tuple[str, int]:
        number = len(self.ledger.by_test().get(test, [])) + self._under_way[test]
        self._under_way[test] += 1
        return test, self.ledger.seed_of(test, number)

    def _left(self, done: dict[str, list[Round]]) -> dict[str, float]:
        """What the rounds under way will not complete, of what some test can."""
        expected: dict[str, float] = defaultdict(float)
        for test, number in self._under_way.items():
            for fault in FAULTS:
                expected[fault] += number * _mean(each.faults.get(fault, 0) for each in done.get(test, []))
        missing = {fault: count - expected[fault] for fault, count in self.ledger.missing().items()}
        return {fault: count for fault, count in missing.items() if count > 0 and self._bringing(fault, done)}

    def _bringing(self, fault: str, done: dict[str, list[Round]]) -> list[str]:
        return [
            test
            for test in self.tests
            if any(each.faults.get(fault) for each in done.get(test, []))
            and sum(bool(each.found) for each in done[test]) < MOST_FAILURES
        ]

    def _seconds_for(self, fault: str, count: float, done: dict[str, list[Round]]) -> float:
        rounds = [each for test in self._bringing(fault, done) for each in done[test]]
        return count * _mean(each.seconds for each in rounds) / _mean(each.faults.get(fault, 0) for each in rounds)


def _mean(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return sum(listed) / len(listed) if listed else 0.0
