"""Of two jobs on different shards the newer has the higher id, to within a round of upkeep."""

from __future__ import annotations

import threading

from tests.shards.place import Place

from penstock import App
from penstock.shards.databases import Databases
from penstock.shards.ids import level_ids, read_range_number


def numbers(databases: Databases) -> list[int]:
    """What each shard has drawn, without its own number."""
    return [number // 1024 for number in databases.each(read_range_number)]


def test_shards_that_are_behind_draw_up_to_the_others(place: Place) -> None:
    place.execute(1, "select penstock.draw_range() from generate_series(1, 500)")
    (old,) = place.enqueue(1)
    assert numbers(place.app.databases)[1] == 0
    assert level_ids(place.app.databases) > 400
    ahead, behind = numbers(place.app.databases)
    assert behind == ahead
    (new,) = place.enqueue(2)
    (newest,) = place.enqueue(2)
    assert old < new < newest
    assert [job.id for job in place.app.jobs(limit=2)] == [newest, new]
    assert level_ids(place.app.databases) <= 2
    assert level_ids(place.app.databases) == 0


def test_numbers_drawn_meanwhile_are_drawn_once(place: Place) -> None:
    place.execute(1, "select penstock.draw_range() from generate_series(1, 30000)")
    drawing = threading.Thread(target=level_ids, args=[place.app.databases])
    drawing.start()
    ids = [place.enqueue(2)[0] for _ in range(50)]
    drawing.join()
    assert len(set(ids)) == 50
    assert ids == sorted(ids)


def test_many_tables_ahead_are_made_as_they_are_needed(place: Place) -> None:
    """Numbers are passed over, and the tables that jobs lie in are there all the same."""
    for _ in range(20):
        place.execute(1, "select penstock.draw_up_to(1024 * 300000, 20000)")
    (old,) = place.enqueue(1)
    while level_ids(place.app.databases):
        continue
    (new,) = place.enqueue(2)
    assert new > old > 1024 * 1024 * 300_000
    assert [job.id for job in place.app.jobs()] == [new, old]


def test_a_further_shard_begins_where_the_others_are(shard_urls: list[str], empty_database_url: str) -> None:
    with App(shards=shard_urls, request_timeout=10.0) as app:
        place = Place(app, shard_urls)
        app.queue("q", partitions=2)
        assert len(app.stats("q").partitions) == 2
        # Beyond the tables that an empty database has.
        for _ in range(20):
            place.execute(2, "select penstock.draw_up_to(1024 * 300000, 20000)")
        number = app.add_shard(empty_database_url)
        app.move_partition("q", 0, number)
        place.urls[number] = empty_database_url
        (first,) = place.enqueue(number)
        assert first > 1024 * 1024 * 300_000
        assert app.job(first).state == "ready"
