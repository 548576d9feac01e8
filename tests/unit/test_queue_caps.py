"""The caps of a worker on several databases: exact while they answer, and one that is away keeps only what runs."""

from __future__ import annotations

import pytest

from penstock.worker.queue_caps import SILENT_SECONDS, DatabaseCaps, QueueCaps
from penstock.worker.served_queues import ServedQueue

MAIL = 7


class Member:
    """A conductor: how often it was woken, and how many of its jobs run."""

    def __init__(self, caps: QueueCaps, cap: int) -> None:
        self.woken = self.running = 0
        joined = caps.join([ServedQueue(MAIL, "mail", (1,), None, cap=cap)], self._wake, lambda: self.running)
        assert joined is not None
        self.caps: DatabaseCaps = joined

    def _wake(self) -> None:
        self.woken += 1

    def ask(self, now: float, held: int = 0) -> int:
        return self.caps.ask({MAIL: held}, now)[MAIL]

    def note_claimed(self, now: float, held: int) -> None:
        self.running = held
        self.caps.note_claimed({MAIL: held}, now)


def make_members(cap: int) -> tuple[Member, Member]:
    caps = QueueCaps()
    return Member(caps, cap), Member(caps, cap)


def test_a_worker_whose_queues_have_no_cap_has_none_to_ask() -> None:
    assert QueueCaps().join([ServedQueue(MAIL, "mail", (1,), None)], lambda: None, lambda: 0) is None


def test_alone_a_conductor_may_take_what_the_cap_leaves() -> None:
    member = Member(QueueCaps(), 4)
    assert member.ask(0.0) == 4
    member.note_claimed(0.1, 3)
    assert member.ask(0.2, held=3) == 1
    member.note_claimed(0.3, 4)
    assert member.ask(0.4, held=4) == 0


def test_what_a_claim_under_way_may_bring_is_nobody_elses() -> None:
    first, second = make_members(4)
    assert first.ask(0.0) == 4
    assert second.ask(1.0) == 0
    first.note_claimed(1.1, 1)
    assert second.woken == 1
    assert second.ask(1.2) == 3


def test_a_conductor_that_was_left_without_is_woken_when_it_may_take_one() -> None:
    first, second = make_members(1)
    first.ask(0.0)
    first.note_claimed(0.1, 1)
    assert second.ask(0.2) == 0
    second.note_claimed(0.2, 0)
    assert second.woken == 0
    assert first.ask(0.3, held=0) == 0, "it is the other's turn"
    first.note_claimed(0.3, 0)
    assert second.woken == 1
    assert second.ask(0.31) == 1


@pytest.mark.parametrize(("running", "left"), [(0, 4), (3, 1)])
def test_a_conductor_that_its_database_keeps_has_only_what_runs(running: int, left: int) -> None:
    first, second = make_members(4)
    first.ask(0.0)
    first.note_claimed(0.1, 3)
    # The answer to this does not come, nor can it be said that jobs have ended.
    assert first.ask(0.2, held=3) == 1
    first.running = running
    assert second.ask(0.2 + SILENT_SECONDS) == 0
    assert second.ask(0.3 + SILENT_SECONDS) == left
