"""What watchers ask, of all shards as one: children, ends, dead letters, minutes, pages."""

from __future__ import annotations

import pytest
from tests.fault.proxy import Proxy
from tests.shards.place import Place

from penstock import JobPage
from penstock.model.dead_letter import DeadLetter


def ids_of(letters: list[DeadLetter]) -> list[int]:
    return sorted(letter.job_id for letter in letters)


def test_children_are_found_on_whichever_shard(place: Place) -> None:
    (parent,) = place.enqueue(1)
    children = [place.child(1, [parent]), place.child(2, [parent])]
    place.child(2, place.enqueue(2))
    assert place.app.children(parent) == sorted(children, reverse=True)
    assert place.app.children(parent, queues=["other"]) == []
    assert place.app.children(str(parent), queues=["q"]) == sorted(children, reverse=True)
    assert place.app.children(parent, tenant="acme") == []


def test_ends_are_told_of_the_shards_that_answer(place: Place, second: Proxy) -> None:
    ended = [*place.enqueue(1, 2), *place.enqueue(2, 2)]
    place.succeed(1, 2)
    place.fail(2, 2)
    waiting = [*place.enqueue(1), *place.enqueue(2)]
    blocked = place.child(1, waiting)
    running = [*place.enqueue(1)]
    assert place.app.ended_jobs([*ended, *waiting, blocked, *running]) == set(ended)
    second.go_down()
    assert place.app.ended_jobs([*ended, *waiting]) == set(ended[:2])
    second.come_up()


def test_dead_letters_of_all_shards_are_told_each_from_where_it_was_read(place: Place, second: Proxy) -> None:
    place.enqueue(1)
    before = place.fail(1)
    first = place.app.dead_letters({})
    assert (ids_of(first.found), sorted(first.seen)) == (before, [1, 2])
    place.enqueue(1)
    place.enqueue(2)
    new = place.fail(1) + place.fail(2)
    found = place.app.dead_letters(first.seen)
    assert set(new) <= set(ids_of(found.found))
    second.go_down()
    place.enqueue(1)
    (later,) = place.fail(1)
    without = place.app.dead_letters(found.seen)
    assert later in ids_of(without.found)
    # Of the one that is away it goes on where that was read last.
    assert without.seen[2] == found.seen[2]
    second.come_up()


def test_minutes_of_all_shards_are_added_up(place: Place) -> None:
    place.enqueue(1, 3)
    place.enqueue(2, 4)
    for shard in (1, 2):
        place.execute(shard, "select penstock.note_minute()")
        place.execute(
            shard,
            "update penstock.minute set minute = minute - interval '1 minute',"
            " noted_at = noted_at - interval '1 minute', previous = previous - interval '1 minute'",
        )
    place.enqueue(2, 5)
    place.execute(2, "select penstock.note_minute()")
    history = place.app.history("q")
    assert sum(minute.waiting for minute in history.minutes[:-1]) == 7
    newest = history.minutes[-1]
    assert (newest.waiting, newest.enqueued, newest.completed) == (9, 5, 0)
    assert history.unavailable == []


def test_waits_and_run_times_of_all_shards_are_one_histogram(place: Place) -> None:
    for shard, counts in ((1, "{0,0,1}"), (2, "{3}")):
        place.execute(shard, "select penstock.note_minute()")
        place.execute(
            shard,
            "insert into penstock.minute_histogram (minute, queue_id, waits, runs)"
            " select date_trunc('minute', now()), id, %s::int[], '{}' from penstock.queue where name = 'q'",
            counts,
        )
    noted = [minute.wait_seconds for minute in place.app.history("q").minutes if minute.wait_seconds is not None]
    assert sum(each.count for each in noted) == 4
    # On a bound of buckets 0.1, 0.126 and 0.158 ms: three of four in the first.
    assert max(each.p99 for each in noted) > 0.000126
    assert min(each.p50 for each in noted) < 0.0001


def test_hot_keys_are_those_of_the_shards_that_answer(place: Place, second: Proxy) -> None:
    for shard, count in ((1, 3), (2, 4)):
        place.enqueue(shard, count)
        place.execute(shard, "update penstock.job set key = 'a'")
    place.enqueue(2)
    found = place.app.hot_keys("q")
    assert (found.waiting, [(each.key, each.waiting) for each in found.keys]) == (8, [("a", 7)])
    assert found.keys[0].share == pytest.approx(7 / 8)
    second.go_down()
    without = place.app.hot_keys("q")
    assert (without.waiting, [each.waiting for each in without.keys], without.unavailable) == (3, [3], ["2"])
    second.come_up()


def test_a_page_says_which_shard_is_missing(place: Place, second: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    here = place.enqueue(1, 2)
    place.enqueue(2, 2)
    second.go_down()
    page = place.app.job_page(queue="q")
    assert isinstance(page, JobPage)
    assert ([job.id for job in page.jobs], page.next, page.unavailable) == (sorted(here, reverse=True), None, ["2"])
    second.come_up()
