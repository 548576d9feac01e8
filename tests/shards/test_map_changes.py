"""A queue over two shards gets another map of its keys: in two steps, by anybody, and no key notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import App
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable
from penstock.routing.key_hash import partition_of
from penstock.shards import map_changes
from penstock.shards.databases import Databases
from penstock.shards.membership import read_digest
from penstock.storage import Connection, Database
from penstock.storage.catalogue import resize
from penstock.storage.catalogue.queues import QueueEntry, find_queue
from penstock.storage.catalogue.resize import UndrainedKeyMaps
from penstock.storage.connection.queries import query

SILENT: list[Database] = []


@pytest.fixture
def app(shard_urls: list[str]) -> Iterator[App]:
    with App(shards=shard_urls, request_timeout=5.0) as app:
        app.queue("o", order="key", partitions=2, on_dead="halt")
        app.queue("p", partitions=2)
        yield app
    while SILENT:
        SILENT.pop().close()


@pytest.fixture
def databases(app: App) -> Databases:
    return app.databases


def entry_on(databases: Databases, number: int, name: str = "o") -> QueueEntry:
    return databases.of(number).run(lambda c: find_queue(c, name))


def fetch(databases: Databases, number: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return databases.of(number).run(lambda c: c.execute(statement, parameters).fetchall())


def key_of(databases: Databases, shard: int, *, then: int | None = None, partitions: int = 3) -> bytes:
    """A key that lives on a shard by the map of now, and on another by the map of so many partitions in their order."""
    entry = entry_on(databases, 1)
    places = entry.partition_shards[: entry.partition_count]
    spread = [entry_shard(databases, number) for number in range(partitions)]
    return next(
        key
        for key in (b"k%d" % n for n in range(10_000))
        if places[partition_of(key, len(places))] == shard
        and (then is None or spread[partition_of(key, partitions)] == then)
    )


def entry_shard(databases: Databases, number: int) -> int:
    """Where a further partition of the queue would be."""
    (row,) = fetch(databases, 1, "select penstock.shard_for(id, %s) from penstock.queue where name = 'o'", number)
    return int(row[0])


def write(databases: Databases, shard: int, epoch: int, key: bytes, partition: int | None = None) -> int | None:
    """Write a job by a map, as producers do; its id, or None where the shard does not let one."""

    def act(connection: Connection) -> int | None:
        entry = find_queue(connection, "o")
        ids = [
            row[0]
            for row in connection.execute(
                "select partition_ids from penstock.queue_map where queue_id = %s and epoch = %s", [entry.id, epoch]
            ).fetchall()
        ]
        place = partition or (ids[0][partition_of(key, len(ids[0]))] if ids else entry.partition_ids[0])
        row = connection.execute(
            "select penstock.enqueue_one_if_mapped(%s, %s, %s, 5::smallint, 't', %s, '{}', null)",
            [entry.id, epoch, place, key],
        ).fetchone()
        return row[0] if row else None

    return databases.of(shard).run(act)


def accepted(databases: Databases, epochs: range) -> dict[int, set[int]]:
    """By shard: the maps by which one may write there now. Nothing is written."""
    found: dict[int, set[int]] = {}
    for database in databases:

        def act(connection: Connection) -> set[int]:
            queue = find_queue(connection, "o").id
            taken = set()
            for epoch in epochs:
                row = connection.execute("select penstock.lock_map(%s, %s)", [queue, epoch]).fetchone()
                if row and row[0]:
                    taken.add(epoch)
            return taken

        found[database.shard] = database.run(act)
    return found


def maps_of(databases: Databases, number: int) -> list[tuple[Any, ...]]:
    return fetch(
        databases,
        number,
        "select m.epoch, m.partitions, m.state not in ('announced', 'withdrawn'), coalesce(h.state = 'closed', false),"
        " m.state = 'drained'"
        " from penstock.queue_map as m join penstock.queue as q on q.id = m.queue_id"
        " left join penstock.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch"
        " where q.name = 'o' order by 1",
    )


def undrained_maps(databases: Databases, number: int) -> UndrainedKeyMaps:
    queue = entry_on(databases, number).id
    rows = databases.of(number).run(lambda c: c.execute(query("undrained_maps"), {"queue": queue}).fetchall())
    return UndrainedKeyMaps.of(rows)


def without(databases: Databases, number: int) -> Databases:
    """The same with one that does not answer."""
    silent = Database("postgresql://127.0.0.1:1/none", request_timeout=0.2, shard=number, is_alone=False)
    SILENT.append(silent)
    return Databases([silent if each.shard == number else each for each in databases])


def begin(databases: Databases, partitions: int = 3) -> None:
    """The first step of a resize, as if killed after it."""
    assert databases.lead.run(lambda c: resize.resize(c, "o", partitions))


def test_nobody_writes_by_an_old_map_once_anybody_may_by_the_new_one(databases: Databases) -> None:
    def open_map(_: Databases) -> None:
        queue = entry_on(databases, 1).id
        databases.lead.run(lambda c: c.execute("select penstock.open_map(%s, 2)", [queue]))

    seen = [accepted(databases, range(1, 4))]
    steps: list[Callable[[Databases], Any]] = [begin, Databases.level, open_map, Databases.level]
    for step in steps:
        step(databases)
        seen.append(accepted(databases, range(1, 4)))
    assert seen == [
        {1: {1}, 2: {1}},
        {1: set(), 2: {1}},
        {1: set(), 2: set()},
        {1: {2}, 2: set()},
        {1: {2}, 2: {2}},
    ]


def test_a_map_is_not_opened_before_every_shard_of_the_old_one_has_learned_it(databases: Databases) -> None:
    begin(databases)
    silent = without(databases, 2)
    assert map_changes.advance_changes(silent) == {}
    assert accepted(databases, range(1, 4)) == {1: set(), 2: {1}}
    assert map_changes.advance_changes(databases) == {}
    assert accepted(databases, range(1, 4)) == {1: {2}, 2: {2}}
    assert len(set(databases.each(read_digest))) == 1


@pytest.mark.parametrize("killed_in", ["level", "open", "carrying"])
def test_a_resize_that_was_killed_anywhere_goes_on(
    databases: Databases, killed_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    real_level, levels = Databases.level, []

    def level(self: Databases) -> Any:
        levels.append(1)
        # The first sees that all answer, the second carries the new map, the third is of `go_on`, then it is open.
        if len(levels) == {"level": 2, "carrying": 4}.get(killed_in, 99):
            raise Killed
        return real_level(self)

    with monkeypatch.context() as patched:
        patched.setattr(Databases, "level", level)
        if killed_in == "open":
            patched.setattr(map_changes, "_change_state", die)
        with pytest.raises(Killed):
            map_changes.change(databases, "o", lambda c: resize.resize(c, "o", 3))
    assert entry_on(databases, 1).epoch == 2
    map_changes.advance_changes(databases)
    databases.level()
    assert accepted(databases, range(1, 4)) == {1: {2}, 2: {2}}
    assert len(set(databases.each(read_digest))) == 1


def test_a_change_is_undone_where_a_shard_dies_in_between_and_it_goes_on_by_the_map_it_knows(
    databases: Databases,
) -> None:
    here, there = key_of(databases, 1), key_of(databases, 2)
    assert write(databases, 1, 1, here)
    begin(databases)
    silent = without(databases, 2)
    databases.lead.run(lambda c: c.execute("update penstock.queue_map set set_at = set_at - interval '6 s'"))
    undone = map_changes.advance_changes(silent)
    assert isinstance(undone["o"], PartitionUnavailable)
    assert undone["o"].shard == 2
    assert "are as they were" in str(undone["o"])
    assert entry_on(databases, 1).partition_ids[:2] == entry_on(databases, 2).partition_ids[:2]
    assert accepted(databases, range(1, 4)) == {1: {3}, 2: {1}}
    assert write(databases, 2, 1, there)
    assert write(databases, 1, 3, here)
    # Nobody waits for the shard that is down: each key is where it was, and nothing was written by the map between.
    seen = undrained_maps(databases, 1)
    assert sorted(seen.partitions) == [1, 3]
    assert seen.partitions[1] == seen.partitions[3]
    databases.level()
    assert accepted(databases, range(1, 4)) == {1: {3}, 2: {3}}
    assert [row[:3] for row in maps_of(databases, 2)] == [(1, 2, True), (2, 3, False), (3, 2, True)]
    assert len(set(databases.each(read_digest))) == 1


def test_a_resize_is_refused_while_a_shard_is_down_and_changes_nothing(databases: Databases) -> None:
    with pytest.raises(PartitionUnavailable):
        map_changes.change(without(databases, 2), "o", lambda c: resize.resize(c, "o", 3))
    assert maps_of(databases, 1) == [(1, 2, True, False, False)]


def test_a_transaction_above_read_committed_holds_a_change_up_and_nothing_else(app: App, databases: Databases) -> None:
    key = key_of(databases, 2)
    with databases.of(2).connect() as producer:
        producer.execute("begin isolation level repeatable read")
        producer.execute("select penstock.enqueue('o', 't', key_bytes => %s)", [key])
        with pytest.raises(PartitionUnavailable, match="READ COMMITTED"):
            app.resize("o", partitions=3)
        assert [row[:3] for row in maps_of(databases, 1)] == [(1, 2, True), (2, 3, False), (3, 2, True)]
        assert accepted(databases, range(1, 5)) == {1: {3}, 2: {1}}
        producer.execute("commit")
    assert app.resize("o", partitions=3).epoch == 4


def test_whoever_asked_is_told_that_somebody_else_undid_the_change(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undo(_: Databases) -> dict[str, PartitionUnavailable]:
        queue = entry_on(databases, 1).id
        databases.lead.run(lambda c: c.execute("select penstock.undo_map(%s, 2)", [queue]))
        return {}

    monkeypatch.setattr(map_changes, "advance_changes", undo)
    with pytest.raises(PartitionUnavailable, match="are as they were"):
        map_changes.change(databases, "o", lambda c: resize.resize(c, "o", 3))


def test_a_second_change_waits_for_the_first(app: App, databases: Databases) -> None:
    begin(databases)
    assert app.resize("o", partitions=4).epoch == 3
    assert [row[:3] for row in maps_of(databases, 2)] == [(1, 2, True), (2, 3, True), (3, 4, True)]


def test_open_or_undone_in_any_order_never_both(databases: Databases) -> None:
    for first, second in (("open_map", "undo_map"), ("undo_map", "open_map")):
        partitions = entry_on(databases, 1).partition_count
        begin(databases, partitions + 1)
        queue, epoch = entry_on(databases, 1).id, entry_on(databases, 1).epoch
        answers = [fetch(databases, 1, f"select penstock.{act}(%s, %s)", queue, epoch)[0][0] for act in (first, second)]
        assert answers == [True, False]
        databases.level()


def test_what_is_left_elsewhere_is_waited_for_until_it_is_told(app: App, databases: Databases) -> None:
    key = key_of(databases, 2, then=1)
    job = write(databases, 2, 1, key)
    assert job is not None
    before = entry_on(databases, 1).partition_ids[:2]
    map_changes.change(databases, "o", lambda c: resize.resize(c, "o", 3))
    databases.lead.run(resize.drain)
    # Nothing was told: everything may be left.
    assert (1, before[partition_of(key, 2)]) in undrained_maps(databases, 1).open
    map_changes.tell_rest(databases)
    assert (1, before[partition_of(key, 2)]) in undrained_maps(databases, 1).open, (
        "producers may still hold the map there"
    )
    databases.of(2).run(resize.drain)
    map_changes.tell_rest(databases)
    assert undrained_maps(databases, 1).open == {(1, before[partition_of(key, 2)])}
    databases.of(2).run(resize.list_rest)
    map_changes.tell_rest(databases)
    assert undrained_maps(databases, 1)[1:] == (set(), {(1, key)})
    databases.lead.run(resize.drain)
    assert not maps_of(databases, 1)[0][4]
    fetch(
        databases,
        2,
        "select cancelled::text from penstock.cancel_in_range(%s, ~repeat('0', 1024)::bit(1024))",
        job // 1024,
    )
    assert undrained_maps(databases, 1)[1:] == (set(), {(1, key)}), "an older answer is never too little"
    map_changes.tell_rest(databases)
    databases.change(resize.drain)
    assert maps_of(databases, 1)[0][4]
    assert maps_of(databases, 2)[0][4]
    assert [fetch(databases, n, "select count(*) from penstock.map_elsewhere") for n in (1, 2)] == [[(0,)], [(0,)]]
    assert app.resize("o", partitions=3).is_through


def test_only_the_lead_calls_a_map_drained(databases: Databases) -> None:
    map_changes.change(databases, "o", lambda c: resize.resize(c, "o", 3))
    databases.each(resize.close)
    map_changes.tell_rest(databases)
    assert databases.of(2).run(resize.drain) == 0
    assert databases.of(1).run(resize.drain) == 1
    assert len(set(databases.each(read_digest))) == 2
    databases.level()
    assert len(set(databases.each(read_digest))) == 1


def test_a_halted_key_holds_what_comes_to_another_shard_until_it_is_released(databases: Databases) -> None:
    key = key_of(databases, 2, then=1)
    job = write(databases, 2, 1, key)
    assert job is not None
    queue = entry_on(databases, 2).id
    fetch(databases, 2, "insert into penstock.halted (queue_id, key, job_id, epoch) values (%s, %s, %s, 1) returning 1",
          queue, key, job)  # fmt: skip
    fetch(databases, 2, "delete from penstock.ready where range = %s returning 1", job // 1024)
    map_changes.change(databases, "o", lambda c: resize.resize(c, "o", 3))
    databases.each(resize.drain)
    map_changes.tell_rest(databases)
    assert undrained_maps(databases, 1)[1:] == (set(), {(1, key)})
    fetch(databases, 2, "select penstock.release_key(%s, %s)", queue, key)
    map_changes.tell_rest(databases)
    databases.change(resize.drain)
    assert list(undrained_maps(databases, 1).partitions) == [2]


# Moving


def test_a_partition_moves_under_its_number_and_name_and_back_again(app: App, databases: Databases) -> None:
    before = entry_on(databases, 1)
    assert before.partition_shards == (1, 2)
    assert app.move_partition("o", "o__p1", 1).epoch == 2
    moved = entry_on(databases, 2)
    assert (moved.partition_count, moved.partition_names) == (2, ("o", "o__p1", "o__p1"))
    assert moved.partition_shards == (1, 1, 2)
    assert moved.partition_ids[2] == before.partition_ids[1]
    assert moved.homes == (1, 1)
    assert app.move_partition("o", 1, databases.of(2).url).epoch == 3
    back = entry_on(databases, 2)
    assert back.partition_ids[:2] == before.partition_ids
    assert app.move_partition("o", 1, 2).epoch == 3
    assert len(set(databases.each(read_digest))) == 1


def test_what_is_left_of_a_partition_that_moved_is_told_by_its_name(app: App, databases: Databases) -> None:
    key = key_of(databases, 2)
    assert write(databases, 2, 1, key)
    assert app.move_partition("o", 1, 1).draining == [("o__p1", 1)]
    assert write(databases, 1, 2, key)
    done = app.move_partition("o", 1, 1)
    assert (done.draining, done.is_through) == ([("o__p1", 1)], False)


def test_a_plain_queue_moves_a_partition_and_keeps_its_homes_where_it_can(app: App, databases: Databases) -> None:
    before = entry_on(databases, 1, "p")
    assert before.partition_shards == (2, 1)
    assert before.homes == (1, 2)
    app.move_partition("p", 0, 1)
    after = entry_on(databases, 2, "p")
    assert after.partition_shards == (1, 1, 2)
    assert after.homes == (1, 1)
    assert after.epoch == 2
    app.resize("p", partitions=4)
    assert entry_on(databases, 2, "p").epoch == 2
    assert len(set(databases.each(read_digest))) == 1


def test_a_plain_queue_that_shrinks_away_from_a_home_gets_a_map_for_its_idempotency_keys(
    app: App, databases: Databases
) -> None:
    assert app.resize("p", partitions=1).epoch == 2
    assert entry_on(databases, 1, "p").homes == (2, 2)


@pytest.mark.parametrize("partition", [2, -1, "x", "p"])
def test_a_partition_that_is_not_there_is_refused(app: App, partition: Any) -> None:
    with pytest.raises(NotFound, match="has no partition"):
        app.move_partition("o", partition, 1)


def test_what_can_be_no_partition_and_no_shard_is_refused_as_such(app: App) -> None:
    wrong: list[Any] = [True, None, 1.5, ["o"], b"o"]
    for value in wrong:
        with pytest.raises(InvalidInput, match="give a number from 0 to 1, or one of its names: o, ") as refused:
            app.move_partition("o", value, 1)
        assert refused.value.field == "partition"
        with pytest.raises(InvalidInput, match="a number or a URL is needed") as refused:
            app.move_partition("o", 0, value)
        assert refused.value.field == "shard"


def test_a_shard_that_is_not_there_or_not_in_use_is_refused(app: App, databases: Databases) -> None:
    with pytest.raises(NotFound, match="there is no shard"):
        app.move_partition("o", 0, 3)
    with pytest.raises(NotFound, match="there is no shard"):
        app.move_partition("o", 0, "postgresql://elsewhere/jobs")
    databases.change(lambda c: c.execute("select penstock.begin_draining(2)").fetchone())
    with pytest.raises(InvalidInput, match="draining"):
        app.move_partition("o", 0, 2)
