"""What may start next in an owned partition: each rule by itself."""

from __future__ import annotations

import random

import pytest

from penstock.model import QueueRules
from penstock.policy import Roster, WaitingJob

ORDERED = QueueRules(per_key=1)


def job(
    number: int,
    key: bytes | None = b"a",
    *,
    priority: int = 5,
    pos: int | None = None,
    ready_at: float | None = None,
    epoch: int = 1,
    is_known: bool = True,
) -> WaitingJob:
    place = number if pos is None else pos
    rank = (place if ready_at is None else ready_at) + 60.0 * priority
    return WaitingJob(number, key, priority, place, rank, "", epoch, is_known)


def roster_with(*jobs: WaitingJob, rules: QueueRules = ORDERED) -> Roster:
    roster = Roster(rules, 0, 0.0)
    roster.add(jobs)
    return roster


def take(roster: Roster, wanted: int = 100, now: float = 0.0) -> list[int]:
    return roster.take(wanted, now)


def run(roster: Roster) -> list[int]:
    """Take and end jobs one by one until nothing more starts; in which order they did."""
    order: list[int] = []
    while started := roster.take(1, 0.0):
        assert roster.take(1, 0.0) == [], "the next of a key starts when the one before it has ended"
        roster.note_end(started[0], "succeeded", 0.0)
        order += started
    return order


def test_the_jobs_of_a_key_start_one_at_a_time_in_order_and_keys_side_by_side() -> None:
    roster = roster_with(job(1), job(2), job(3, b"b"), job(4))
    assert roster.take(10, 0.0) == [1, 3]
    assert roster.take(10, 0.0) == []
    roster.note_end(3, "succeeded", 0.0)
    assert roster.take(10, 0.0) == []
    roster.note_end(1, "succeeded", 0.0)
    assert roster.take(10, 0.0) == [2]


def test_keys_begin_by_the_rank_of_their_next_job() -> None:
    roster = roster_with(
        job(1, b"late", ready_at=30.0),
        job(2, b"soon", ready_at=10.0),
        job(3, b"urgent", priority=0, ready_at=300.0),
        job(4, b"old", priority=9, ready_at=-500.0),
    )
    assert take(roster, 3) == [4, 3, 2]
    assert take(roster, 1) == [1]


def test_within_a_key_a_priority_goes_first_until_the_other_has_waited_a_minute_for_each() -> None:
    roster = roster_with(job(1, priority=5, ready_at=0.0), job(2, priority=5, ready_at=0.0))
    roster.add([job(3, priority=4, ready_at=59.0), job(4, priority=4, ready_at=61.0)])
    assert run(roster) == [3, 1, 2, 4]


def test_within_a_key_and_priority_the_position_counts_and_not_when_it_was_read_or_became_ready() -> None:
    roster = roster_with(job(3, pos=7, ready_at=0.0), job(9, pos=2, ready_at=50.0))
    roster.add([job(1, pos=7, ready_at=90.0), job(5, pos=4, ready_at=20.0)])
    assert run(roster) == [9, 5, 1, 3]


def test_read_in_any_order_a_deep_key_is_in_order() -> None:
    numbers = list(range(10_000))
    random.Random(7).shuffle(numbers)
    roster = Roster(ORDERED, 0, 0.0)
    for begin in range(0, 10_000, 100):
        roster.add(job(number, pos=number // 10) for number in numbers[begin : begin + 100])
    taken: list[int] = []
    while started := take(roster):
        (number,) = started
        if number % 7 == 0 and number not in taken[-1:]:
            # It comes back before the rest goes on, as one that was handed back unstarted.
            roster.note_end(number, "release", 0.0)
            roster.add([job(number, pos=number // 10)])
            assert take(roster) == [number]
        taken.append(number)
        roster.note_end(number, "succeeded", 0.0)
    assert taken == list(range(10_000))
    assert roster.waiting == roster.startable == 0


def test_a_job_read_twice_waits_once() -> None:
    roster = roster_with(job(1), job(2), job(3))
    roster.add([job(2), job(3), job(1)])
    assert roster.waiting == 3
    assert run(roster) == [1, 2, 3]
    assert roster.waiting == 0


def test_a_job_that_is_out_comes_back_into_its_place_by_being_read_again() -> None:
    roster = roster_with(job(1), job(2))
    assert take(roster, 1) == [1]
    roster.add([job(1)])
    assert take(roster) == [1]
    roster.add([job(1)])
    roster.note_end(1, "gone", 0.0)
    assert run(roster) == [1, 2]


def test_a_job_that_entered_its_order_twice_is_given_out_once_at_a_time() -> None:
    roster = roster_with(job(1), job(2), rules=QueueRules(per_key=3))
    roster.add([job(1, pos=5)])
    assert take(roster) == [1, 2]
    assert roster.waiting == 0
    for number in (1, 2):
        roster.note_end(number, "succeeded", 0.0)
    assert roster.is_idle(0.0)


def test_n_of_a_key_are_out_at_a_time_and_start_in_order() -> None:
    roster = roster_with(*(job(number) for number in range(6)), rules=QueueRules(per_key=3))
    assert take(roster) == [0, 1, 2]
    roster.note_end(1, "succeeded", 0.0)
    assert take(roster) == [3]
    assert take(roster) == []


def test_jobs_without_a_key_wait_for_nothing() -> None:
    roster = roster_with(job(1, None), job(2, None), job(3, None, is_known=False), job(4, None))
    assert roster.startable == 3
    assert roster.take(9, 0.0) == [1, 2, 4]
    roster.note_end(1, "retry", 0.0)
    roster.add([job(5, None)])
    assert roster.take(9, 0.0) == [5]
    assert roster.waiting == 1


def test_without_a_key_rule_a_key_has_no_order_and_a_retry_holds_nothing() -> None:
    roster = roster_with(job(1), job(2), rules=QueueRules(per_key=None, per_key_rate="5/s"))
    assert take(roster, now=10.0) == [1, 2]
    roster.note_end(1, "retry", 10.0)
    roster.add([job(3)])
    assert take(roster, now=10.0) == [3]


def test_a_key_whose_next_job_has_no_handler_waits_and_others_do_not() -> None:
    roster = roster_with(job(1), job(2, is_known=False), job(3), job(4, b"b"))
    assert roster.take(9, 0.0) == [1, 4]
    roster.note_end(1, "succeeded", 0.0)
    roster.note_end(4, "succeeded", 0.0)
    assert take(roster) == []
    assert roster.waiting == 2
    assert roster.startable == 0
    assert roster.is_idle(0.0)
    roster.add([job(2)])
    assert not roster.is_idle(0.0)
    assert run(roster) == [2, 3]


@pytest.mark.parametrize("end", ["retry", "snooze"])
def test_a_retry_holds_its_key_until_it_is_read_again(end: str) -> None:
    roster = roster_with(job(1), job(2), job(3, b"b"))
    assert roster.take(2, 0.0) == [1, 3]
    roster.note_end(1, end, 0.0)
    roster.set_held([(1, b"a")])
    assert take(roster) == []
    roster.add([job(1)])
    roster.set_held([])
    assert run(roster) == [1, 2]


def test_a_retry_that_passes_lets_its_key_go_on() -> None:
    roster = roster_with(job(1), job(2), rules=QueueRules(per_key=1, on_retry="pass"))
    assert take(roster, 1) == [1]
    roster.note_end(1, "retry", 0.0)
    assert take(roster, 1) == [2]


def test_a_retry_cancelled_while_it_waited_lets_its_key_go_on() -> None:
    roster = roster_with(job(1), job(2))
    assert take(roster, 1) == [1]
    roster.note_end(1, "retry", 0.0)
    roster.set_held([(1, b"a")])
    assert take(roster) == []
    roster.set_held([])
    assert take(roster) == [2]


def test_a_retry_that_the_snapshot_did_not_know_yet_still_holds_its_key_and_not_for_ever() -> None:
    roster = roster_with(job(1), job(2))
    assert take(roster, 1) == [1]
    roster.note_end(1, "retry", 0.0)
    roster.set_held([])
    assert take(roster) == []
    roster.set_held([])
    assert take(roster) == [2]


def test_a_released_job_holds_its_key_until_it_is_read_again() -> None:
    roster = roster_with(job(1), job(2))
    assert take(roster) == [1]
    roster.note_end(1, "release", 0.0)
    assert take(roster) == []
    roster.set_held([])
    assert take(roster) == []
    assert not roster.is_idle(0.0)
    roster.add([job(1)])
    roster.set_held([])
    assert take(roster) == [1]


def test_a_released_job_that_was_cancelled_before_it_was_read_lets_its_key_go_on() -> None:
    roster = roster_with(job(1), job(2))
    assert take(roster) == [1]
    roster.note_end(1, "release", 0.0)
    roster.set_held([])
    roster.set_held([])
    assert take(roster) == [2]


def test_a_released_job_without_a_key_holds_nothing_and_is_not_forgotten() -> None:
    roster = roster_with(job(1, None), job(2, None), rules=QueueRules(per_key=1, limit=1))
    assert take(roster) == [1]
    roster.note_end(1, "release", 0.0)
    assert take(roster) == [2]
    roster.note_end(2, "succeeded", 0.0)
    assert not roster.is_idle(0.0)


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "discarded", "expired", "gone"])
def test_after_every_final_end_the_key_goes_on(end: str) -> None:
    roster = roster_with(job(1), job(2))
    assert take(roster, 1) == [1]
    roster.note_end(1, end, 0.0)
    assert take(roster) == [2]


def test_an_end_that_does_not_exist_is_refused() -> None:
    roster = roster_with(job(1))
    assert take(roster) == [1]
    with pytest.raises(ValueError, match="exploded"):
        roster.note_end(1, "exploded", 0.0)


def test_a_dead_letter_halts_its_key_where_that_is_asked_for() -> None:
    roster = roster_with(job(1), job(2), job(3, b"b"), rules=QueueRules(per_key=1, on_dead="halt"))
    assert roster.take(2, 0.0) == [1, 3]
    roster.note_end(1, "failed", 0.0)
    assert take(roster) == []
    roster.set_halted([])
    assert take(roster) == [], "a snapshot from before the halt does not end it"
    roster.set_halted([b"a"])
    assert take(roster) == []
    roster.note_end(3, "succeeded", 0.0)
    assert roster.is_idle(0.0)
    roster.set_halted([])
    assert take(roster) == [2]


def test_a_halt_nobody_ever_named_ends_with_the_second_snapshot() -> None:
    roster = roster_with(job(1), job(2), rules=QueueRules(per_key=1, on_dead="halt"))
    assert take(roster, 1) == [1]
    roster.note_end(1, "failed", 0.0)
    roster.set_halted([])
    roster.set_halted([])
    assert take(roster) == [2]


def test_a_key_that_was_halted_before_it_was_owned_here_does_not_start() -> None:
    roster = Roster(ORDERED, 0, 0.0)
    roster.set_halted([b"a"])
    roster.add([job(1), job(2, b"b")])
    assert take(roster) == [2]
    roster.set_halted([b"b"])
    assert take(roster) == [1]


def test_a_halted_job_that_is_tried_again_is_the_first_of_its_key() -> None:
    roster = roster_with(job(1), job(2), rules=QueueRules(per_key=1, on_dead="halt"))
    assert take(roster, 1) == [1]
    roster.note_end(1, "failed", 0.0)
    roster.set_halted([b"a"])
    roster.add([job(1)])
    assert take(roster) == []
    roster.set_halted([])
    assert run(roster) == [1, 2]


def test_what_another_worker_still_runs_keeps_its_key_busy() -> None:
    roster = Roster(ORDERED, 0, 0.0)
    roster.add([job(2), job(3, b"b")])
    roster.set_elsewhere([(1, b"a")])
    assert take(roster) == [3]
    roster.note_end(3, "succeeded", 0.0)
    assert take(roster) == []
    assert not roster.is_idle(0.0), "the job waits only for the other worker"
    roster.set_elsewhere([])
    assert take(roster) == [2]


def test_what_another_worker_ran_and_will_try_again_holds_its_key() -> None:
    roster = Roster(ORDERED, 0, 0.0)
    roster.add([job(2)])
    roster.set_elsewhere([(1, b"a")])
    roster.set_elsewhere([])
    roster.set_held([(1, b"a")])
    assert take(roster) == []
    roster.add([job(1)])
    roster.set_held([])
    assert run(roster) == [1, 2]


def test_nothing_of_a_key_passes_what_may_come_back_unstarted_from_elsewhere() -> None:
    roster = roster_with(job(2), job(3), job(4, b"b"), rules=QueueRules(per_key=3))
    roster.set_elsewhere([(1, b"a")], {1, 99})
    assert take(roster) == [4]
    assert not roster.is_idle(0.0)
    roster.set_elsewhere([(1, b"a")], ())  # it has started
    assert take(roster, 1) == [2]
    roster.set_elsewhere([(1, b"a")], {1})
    roster.add([job(1)])
    roster.set_elsewhere([])
    assert take(roster) == [1, 3]


def test_what_is_handed_back_by_who_forgot_that_it_was_out_is_not_passed() -> None:
    roster = roster_with(job(2), rules=QueueRules(per_key=3))
    roster.set_elsewhere([(1, b"a")])
    roster.note_end(1, "release", 0.0)
    assert take(roster) == []
    roster.add([job(1)])
    roster.set_elsewhere([])
    roster.set_held([])
    assert take(roster) == [1, 2]


def test_what_others_run_counts_for_n_of_a_key_and_for_the_limit() -> None:
    roster = Roster(QueueRules(per_key=2, limit=3), 0, 0.0)
    roster.add([job(2), job(3), job(4, b"b"), job(5, b"b")])
    roster.set_elsewhere([(1, b"a"), (0, None)])
    assert take(roster) == [2]
    roster.set_elsewhere([(1, b"a")])
    assert take(roster) == [4]
    roster.set_elsewhere([])
    assert take(roster) == [3]


def test_at_most_a_limit_are_out_and_they_start_in_order() -> None:
    """Attune's example: a limit of two, A to E."""
    roster = roster_with(
        *(job(number, b"ABCDE"[number : number + 1]) for number in range(5)), rules=QueueRules(per_key=1, limit=2)
    )
    started = take(roster)
    assert started == [0, 1]
    for ends, starts in ((1, [2]), (0, [3]), (3, [4]), (2, [])):
        assert take(roster) == []
        roster.note_end(ends, "succeeded", 0.0)
        assert take(roster) == starts


def test_a_raised_limit_starts_what_waits_and_a_lowered_one_lets_the_running_end() -> None:
    roster = roster_with(*(job(number, b"%d" % number) for number in range(6)), rules=QueueRules(per_key=1, limit=1))
    assert take(roster) == [0]
    roster.rules = QueueRules(per_key=1, limit=3)
    assert take(roster) == [1, 2]
    roster.rules = QueueRules(per_key=1, limit=1)
    roster.note_end(0, "succeeded", 0.0)
    roster.note_end(1, "succeeded", 0.0)
    assert take(roster) == []
    roster.note_end(2, "succeeded", 0.0)
    assert take(roster) == [3]
    roster.rules = QueueRules(per_key=1)
    assert take(roster) == [4, 5]


def test_whether_a_queue_is_fair_does_not_change_under_it() -> None:
    with pytest.raises(ValueError, match="fair"):
        roster_with().rules = QueueRules(per_key=1, fair_by="tenant")


def test_what_is_waiting_and_startable_is_counted() -> None:
    roster = roster_with(*(job(number) for number in range(5)), job(5, b"b"), rules=QueueRules(per_key=2))
    assert (roster.waiting, roster.startable) == (6, 3)
    assert take(roster, 2) == [0, 1]
    assert (roster.waiting, roster.startable) == (4, 1)
    roster.note_end(0, "succeeded", 0.0)
    assert (roster.waiting, roster.startable) == (4, 2)
    roster.note_end(1, "retry", 0.0)
    assert (roster.waiting, roster.startable) == (4, 1)


def test_a_limit_does_not_make_it_idle_and_a_held_key_does() -> None:
    roster = roster_with(job(1), job(2), rules=QueueRules(per_key=1, limit=0))
    assert take(roster) == []
    assert not roster.is_idle(0.0)
    roster.rules = ORDERED
    assert take(roster, 1) == [1]
    assert not roster.is_idle(0.0)
    roster.note_end(1, "retry", 0.0)
    roster.set_held([(1, b"a")])
    assert roster.is_idle(0.0)


def test_turns_that_are_out_of_date_are_forgotten() -> None:
    roster = roster_with(job(0, b"first"), rules=QueueRules(per_key=1, limit=1))
    assert take(roster) == [0]
    for number in range(20_000, 0, -1):
        roster.add([job(number, b"a")])
    assert len(roster._ready_keys._line) + len(roster._ready_keys._heap) < 500
    assert roster.waiting == 20_000
    roster.note_end(0, "succeeded", 0.0)
    assert take(roster) == [1]


def test_keys_without_anything_are_forgotten() -> None:
    roster = Roster(QueueRules(per_key=1, per_key_rate="1000/s"), 0, 0.0)
    for begin in range(0, 30_000, 100):
        roster.add(job(number, b"%d" % number) for number in range(begin, begin + 100))
        for number in take(roster, now=10.0 + begin):
            roster.note_end(number, "succeeded", 10.0 + begin)
    assert len(roster._keys) == 0
    assert len(roster._allowance._key_buckets or ()) <= 1_100
