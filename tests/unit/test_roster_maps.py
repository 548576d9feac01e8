"""Keys that moved by a resize wait for what the earlier map left elsewhere."""

from __future__ import annotations

from penstock.model import QueueRules
from penstock.policy import Roster, WaitingJob
from penstock.routing.key_hash import partition_of

ORDERED = QueueRules(per_key=1)


def key_that_goes(*places: tuple[int, int]) -> bytes:
    """A key that lies, of so many partitions, in the one given, for each of the places."""
    return next(
        key
        for key in (b"%d" % number for number in range(100_000))
        if all(partition_of(key, partitions) == partition for partitions, partition in places)
    )


MOVED = key_that_goes((2, 0), (4, 2))
STAYED = key_that_goes((2, 0), (4, 0))


def job(number: int, key: bytes | None, epoch: int, *, pos: int | None = None, priority: int = 5) -> WaitingJob:
    place = number if pos is None else pos
    return WaitingJob(number, key, priority, place, place + 60.0 * priority, "", epoch, True)


def taken(roster: Roster) -> list[int]:
    return sorted(roster.take(100, 0.0))


def test_a_key_that_moved_waits_while_its_old_partition_has_anything_of_the_earlier_map() -> None:
    roster = Roster(ORDERED, 2, 0.0)
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 0), (2, 2)}, ())
    roster.add([job(1, MOVED, 2)])
    assert taken(roster) == []
    assert (roster.waiting, roster.startable) == (1, 0)
    assert not roster.is_idle(0.0)
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 1), (2, 2)}, ())
    assert taken(roster) == [1]


def test_once_the_old_partition_has_nothing_ready_or_leased_only_its_held_keys_wait() -> None:
    other = key_that_goes((2, 0), (4, 2), (3, (partition_of(MOVED, 3) + 1) % 3))
    roster = Roster(ORDERED, 2, 0.0)
    roster.add([job(1, MOVED, 2), job(2, other, 2)])
    roster.set_key_maps({1: range(2), 2: range(4)}, (), {(1, MOVED)})
    assert taken(roster) == [2]
    roster.set_key_maps({1: range(2), 2: range(4)}, (), ())
    assert taken(roster) == [1]


def test_a_key_that_stayed_waits_for_nothing() -> None:
    roster = Roster(ORDERED, 0, 0.0)
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 0), (1, 1)}, {(1, STAYED)})
    roster.add([job(1, STAYED, 1), job(2, STAYED, 2)])
    for number in (1, 2):
        assert taken(roster) == [number]
        roster.note_end(number, "succeeded", 0.0)


def test_a_key_waits_for_the_partition_that_had_its_number_before_it_moved() -> None:
    roster = Roster(ORDERED, 9, 0.0)
    roster.set_key_maps({1: (5, 6), 2: (9, 6)}, {(1, 5)}, ())
    roster.add([job(1, MOVED, 2)])
    assert taken(roster) == []
    roster.set_key_maps({1: (5, 6), 2: (9, 6)}, {(1, 6)}, ())
    assert taken(roster) == [1]


def test_jobs_of_the_earliest_map_and_jobs_without_a_key_wait_for_nothing() -> None:
    roster = Roster(ORDERED, 0, 0.0)
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 0), (1, 1)}, ())
    roster.add([job(1, MOVED, 1), job(2, None, 2), job(3, None, 1)])
    assert taken(roster) == [1, 2, 3]


def test_a_job_of_a_map_not_heard_of_yet_waits_until_it_is() -> None:
    roster = Roster(ORDERED, 2, 0.0)
    roster.set_key_maps({1: range(2)}, (), ())
    roster.add([job(1, MOVED, 2)])
    assert taken(roster) == []
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 0)}, ())
    assert taken(roster) == []
    roster.set_key_maps({2: range(4)}, (), ())
    assert taken(roster) == [1]


def test_a_key_waits_for_every_earlier_map_not_only_the_last() -> None:
    key = key_that_goes((2, 0), (3, 2), (4, 2))
    roster = Roster(ORDERED, 2, 0.0)
    roster.add([job(1, key, 3)])
    roster.set_key_maps({1: range(2), 2: range(3), 3: range(4)}, {(1, 0)}, ())
    assert taken(roster) == []
    roster.set_key_maps({1: range(2), 2: range(3), 3: range(4)}, {(2, 2)}, ())
    assert taken(roster) == [1]


def test_a_job_of_an_older_map_goes_before_newer_ones_of_its_key_whatever_their_place() -> None:
    """A newer one may wait for another partition, which may wait for the older one to be gone from here."""
    key = key_that_goes((2, 0), (4, 2), (3, 0))
    roster = Roster(ORDERED, 0, 0.0)
    roster.set_key_maps({1: range(2), 2: range(4), 3: range(3)}, {(1, 0), (2, 2), (3, 0)}, ())
    roster.add([job(5, key, 3, pos=1), job(6, key, 1, pos=9), job(7, key, 3, priority=0), job(8, key, 1)])
    for number in (8, 6):
        assert taken(roster) == [number]
        roster.note_end(number, "succeeded", 0.0)
    assert taken(roster) == []
    roster.set_key_maps({2: range(4), 3: range(3)}, {(3, 0)}, ())
    for number in (7, 5):
        assert taken(roster) == [number]
        roster.note_end(number, "succeeded", 0.0)


def test_a_job_of_a_newer_map_waits_behind_one_of_its_key_that_does_not() -> None:
    roster = Roster(ORDERED, 2, 0.0)
    roster.set_key_maps({1: range(4), 2: range(2), 3: range(4)}, {(2, 0)}, ())
    roster.add([job(1, MOVED, 1), job(2, MOVED, 3)])
    assert taken(roster) == [1]
    roster.note_end(1, "succeeded", 0.0)
    assert taken(roster) == []


def test_keys_that_could_start_wait_again_when_a_map_shows_a_reason() -> None:
    roster = Roster(ORDERED, 2, 0.0)
    roster.add([job(1, MOVED, 2)])
    assert roster.startable == 1
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 0)}, ())
    assert roster.startable == 0
    assert taken(roster) == []


RATED = QueueRules(per_key=1, per_key_rate="1/s")


def test_keys_that_may_have_come_from_elsewhere_have_no_token_at_first() -> None:
    """The partition that had them may have spent it just now: a rate holds through a resize."""
    roster = Roster(RATED, 2, 0.0)
    roster.set_key_maps({1: range(2)}, {(1, 0)}, ())
    assert roster.take(9, 10.0) == []
    roster.set_key_maps({1: range(2), 2: range(4)}, {(1, 1)}, ())
    roster.add([job(1, MOVED, 2)])
    assert roster.take(9, 20.0) == []
    assert roster.next_at(20.0) == 21.0
    assert roster.take(9, 21.0) == [1]


def test_a_key_that_was_held_elsewhere_has_no_token_when_it_comes_and_others_keep_theirs() -> None:
    other = key_that_goes((2, 0), (4, 2), (3, (partition_of(MOVED, 3) + 1) % 3))
    roster = Roster(RATED, 2, 0.0)
    roster.set_key_maps({1: range(2), 2: range(4)}, (), {(1, MOVED)})
    roster.add([job(1, MOVED, 2), job(2, other, 2)])
    assert roster.take(9, 10.0) == []
    roster.set_key_maps({1: range(2), 2: range(4)}, (), ())
    assert roster.take(9, 20.0) == [2]
    assert roster.take(9, 20.9) == []
    assert roster.take(9, 21.0) == [1]
