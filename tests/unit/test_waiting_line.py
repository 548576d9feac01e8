"""Who leads and who waits, where calls to one shard meet."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.client.call import Call
from penstock.client.pending import PendingRows
from penstock.client.waiting_line import MOST_BYTES, STUCK_SECONDS, Caller, Entry, WaitingLine
from penstock.deadline import Deadline
from penstock.storage.connection.error_meaning import StillInLine
from penstock.storage.enqueue.job_group import RANGE, Destination, JobGroup


class Place:
    """A line with room for one call, which is under way as long as `busy` is there."""

    def __init__(self) -> None:
        self.line = WaitingLine(1, lambda: False)
        self.busy = Caller()
        self.busy.present.acquire()
        assert self.line.go_alone(self.busy)

    def come(self, count: int = 1, size: int = 2, seconds: float = 60.0) -> Entry:
        """A caller that is here, with a call of so many jobs."""
        caller = Caller()
        caller.present.acquire()
        caller.get_ready_to_wait()
        deadline = Deadline(seconds)
        call = Call(cast("PendingRows", None), [0] * count, deadline)
        group = JobGroup(Destination(1, 1, 5, "t"), range(count), [b"x" * size] * count)
        return Entry(caller, call, group, cast("Any", None))

    def look(self, entry: Entry) -> list[Entry] | None:
        """What a caller leads, where it does."""
        write = self.line._look(entry.caller, [entry], has_time=True)
        return None if write is None else write.entries


@pytest.mark.parametrize(("count", "size"), [(2, MOST_BYTES), (RANGE, 2)])
def test_who_comes_later_does_not_pass_by_a_large_call(count: int, size: int) -> None:
    place = Place()
    large, behind, next_one = place.come(count, size), place.come(), place.come()
    assert place.look(large) is None
    assert place.look(behind) is None
    place.line.end(place.busy)
    assert place.look(next_one) is None
    assert place.look(large) == [large]
    place.line.end(large.caller, large.write)
    assert place.look(next_one) == [behind, next_one]


def test_nobody_waits_behind_a_large_call_whose_caller_is_gone() -> None:
    place = Place()
    large, next_one = place.come(RANGE), place.come()
    assert place.look(large) is None
    large.caller.present.release()
    place.line.end(place.busy)
    assert place.look(next_one) == [next_one]


def test_a_call_without_time_leads_nobody_and_is_not_taken_along() -> None:
    place = Place()
    late, waiting = place.come(seconds=0.0), place.come()
    assert place.look(late) is None
    assert place.look(waiting) is None
    place.line.end(place.busy)
    with pytest.raises(StillInLine):
        place.line.lead_or_wait(late.caller, [late], late.call.deadline)
    assert late.fate == "alone"
    assert place.look(waiting) == [waiting]


def test_who_has_been_at_one_write_for_long_is_not_waited_for() -> None:
    place = Place()
    first, second = place.come(), place.come()
    assert place.look(first) is None
    place.busy.since -= STUCK_SECONDS
    assert place.look(first) == [first]
    assert place.look(second) is None


def test_who_came_first_is_first_of_those_who_are_written_together() -> None:
    place = Place()
    waiting, newcomer = place.come(), place.come()
    assert place.look(waiting) is None
    place.line.end(place.busy)
    assert place.look(newcomer) == [waiting, newcomer]


def test_who_left_without_a_word_is_not_counted_once_who_began_before_has_ended() -> None:
    place = Place()
    place.line._most = 2
    gone, next_one = Caller(), place.come()
    gone.present.acquire()
    assert place.line.go_alone(gone)
    place.line._under_way[gone] = 2
    gone.present.release()
    assert place.look(next_one) is None
    place.line.end(place.busy)
    assert place.look(next_one) == [next_one]
    assert list(place.line._under_way) == [next_one.caller]
