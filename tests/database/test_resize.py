"""Resizing a queue in use: maps of keys are set, closed and drained, one step at a time and in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned
from tests.database.stepwise import GATE, Actor, clear, gate, lasting_scene, orders, play, transaction

from penstock.errors import InvalidInput, NotFound
from penstock.routing.key_hash import partition_of
from penstock.storage import Connection
from penstock.storage.catalogue import resize
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.catalogue.resize import UndrainedKeyMaps
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene)


def maps(owned: Owned) -> list[tuple[Any, ...]]:
    return owned.connection.execute(
        "select epoch, partitions, coalesce(h.state = 'closed', false), m.state = 'drained'"
        " from penstock.queue_map as m left join penstock.map_here as h using (queue_id, epoch)"
        " where queue_id = %s order by epoch",
        [owned.entry.id],
    ).fetchall()


class Seen(NamedTuple):
    """What is left of earlier maps: how many partitions each map has, by number what is open, by key what is held."""

    partitions: dict[int, int]
    open: set[tuple[int, int]]
    held: set[tuple[int, bytes]]


def undrained_maps(connection: Connection, queue: int) -> Seen:
    maps = UndrainedKeyMaps.of(connection.execute(query("undrained_maps"), {"queue": queue}).fetchall())
    number: dict[int, int] = dict(connection.execute("select id, number from penstock.partition").fetchall())
    partitions = {epoch: len(partitions) for epoch, partitions in maps.partitions.items()}
    return Seen(partitions, {(epoch, number[partition]) for epoch, partition in maps.open}, maps.held)


def rows_by_map(connection: Connection) -> dict[int, dict[int, tuple[int, bytes | None]]]:
    """Of each map the jobs that are ready, run or hold their key, with their partition's number and their key."""
    found = connection.execute(
        """
        select r.epoch, r.range * 1024 + m, p.number, j.key
          from (select partition_id, epoch, range, low, high, members from penstock.ready
                union all select partition_id, epoch, range, low, high, members from penstock.lease
                union all select partition_id, epoch, range, low, high, members from penstock.scheduled
                           where pos is not null) as r
          join penstock.partition as p on p.id = r.partition_id
         cross join lateral unnest(penstock.positions(r.low, r.high, r.members)) as m
          join penstock.job as j on j.id = r.range * 1024 + m
         where r.epoch is not null
        """
    )
    by_map: dict[int, dict[int, tuple[int, bytes | None]]] = {}
    for epoch, job, number, key in found:
        by_map.setdefault(epoch, {})[job] = (number, key)
    return by_map


def check_maps(connection: Connection) -> dict[int, set[int]]:
    """Every job is where its map sends its key, and nothing is left of a drained map; the jobs of each closed map."""
    by_map = rows_by_map(connection)
    closed: dict[int, set[int]] = {}
    for epoch, partitions, is_closed, is_drained in connection.execute(
        "select epoch, partitions, coalesce(h.state = 'closed', false), m.state = 'drained'"
        " from penstock.queue_map as m left join penstock.map_here as h using (queue_id, epoch)"
        " where queue_id = (select id from penstock.queue where name = 'o')"
    ):
        jobs = by_map.pop(epoch, {})
        wrong = {job: n for job, (n, key) in jobs.items() if key is not None and n != partition_of(key, partitions)}
        assert wrong == {}, f"of map {epoch}"
        assert not (is_drained and jobs), f"map {epoch} is not drained"
        if is_closed:
            closed[epoch] = set(jobs)
    assert by_map == {}
    return closed


class Watch:
    """Looks after every step: nothing comes to a map once it is closed, but dead letters that halted their key."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed: dict[int, set[int]] = {}
        self._halted: set[int] = set()

    def __call__(self) -> None:
        closed = check_maps(self._connection)
        for epoch, jobs in closed.items():
            came = jobs - self._closed.get(epoch, jobs) - self._halted
            assert came == set(), f"came to map {epoch} after it was closed"
        self._closed = closed
        self._halted |= {row[0] for row in self._connection.execute("select job_id from penstock.halted")}


def test_a_resize_sets_a_new_map_and_the_old_one_drains(owned: Owned) -> None:
    (job,) = owned.enqueue([b"a"])
    assert resize.resize(owned.connection, "o", 5)
    entry = owned.entry
    assert (entry.partition_count, entry.epoch, len(entry.partition_ids)) == (5, 2, 5)
    assert entry.partition_names[4] == "o__p4"
    assert maps(owned) == [(1, 2, False, False), (2, 5, False, False)]
    assert resize.drain(owned.connection) == 1
    assert maps(owned)[0] == (1, 2, True, False)
    assert resize.draining(owned.connection, entry.id) == [(entry.partition_names[partition_of(b"a", 2)], 1)]
    held = owned.lease([job])
    assert resize.drain(owned.connection) == 0
    owned.end(held, "discarded")
    assert resize.drain(owned.connection) == 1
    assert maps(owned) == [(1, 2, True, True), (2, 5, False, False)]
    assert resize.draining(owned.connection, entry.id) == []


def test_the_same_number_again_changes_nothing(owned: Owned) -> None:
    assert not resize.resize(owned.connection, "o", 2)
    assert resize.resize(owned.connection, "o", 3)
    assert not resize.resize(owned.connection, "o", 3)
    assert len(maps(owned)) == 2


def test_a_shrunk_queue_keeps_its_partitions_and_grows_into_them_again(owned: Owned) -> None:
    ids = owned.entry.partition_ids
    resize.resize(owned.connection, "o", 1)
    assert owned.entry.partition_ids == ids
    assert owned.entry.partition_count == 1
    resize.resize(owned.connection, "o", 2)
    assert owned.entry.partition_ids == ids
    assert [row[:2] for row in maps(owned)] == [(1, 2), (2, 1), (3, 2)]


def test_a_plain_queue_changes_its_number_only(scene: Scene) -> None:
    scene.declare("p", 3)
    (partition,) = scene.connection.execute("select id from penstock.partition where name = 'p__p2'").fetchone() or ()
    entry = find_queue(scene.connection, "p")
    scene.enqueue(2, queue=entry, partition=2)
    assert resize.resize(scene.connection, "p", 2)
    entry = find_queue(scene.connection, "p")
    assert (entry.partition_count, entry.epoch) == (2, 1)
    assert entry.partition_ids[2] == partition
    assert resize.draining(scene.connection, entry.id) == [("p__p2", 2)]
    for _ in range(6):
        scene.one("select penstock.enqueue('p', 't')")
    assert scene.one("select count(*) from penstock.ready where partition_id = %s", partition) == 1
    assert scene.one("select count(*) from penstock.queue_map where queue_id = %s", entry.id) == 1


def test_a_queue_that_is_not_there_and_a_name_that_is_taken_are_refused(owned: Owned) -> None:
    with pytest.raises(NotFound):
        resize.resize(owned.connection, "nothing", 3)
    owned.scene.declare("o__p2")
    with pytest.raises(InvalidInput, match="o__p2"):
        resize.resize(owned.connection, "o", 3)
    assert maps(owned) == [(1, 2, False, False)]


def test_a_map_is_closed_only_when_no_producer_holds_it_and_nobody_waits_for_that(owned: Owned) -> None:
    producer, other = owned.scene.connect(), owned.scene.connect()
    other.execute("set lock_timeout = '1ms'")
    with producer.transaction():
        owned.enqueue([b"a"], connection=producer)
        other.execute("select penstock.resize('o', 3)")
        assert resize.drain(other) == 0
        owned.enqueue([b"a"], connection=other)
        other.execute("select penstock.enqueue('o', 't', key => 'a')")
        assert resize.drain(other) == 0
    assert resize.drain(other) == 1
    assert sorted(rows_by_map(owned.connection)) == [1, 2]


def test_what_is_left_of_earlier_maps_is_told_by_partition_and_then_by_key(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    here, there = owned.key(0, 2), owned.key(1, 2)
    held, running, behind = owned.enqueue([here] * 3)
    (halted,) = owned.enqueue([there])
    queue = owned.entry.id
    assert undrained_maps(owned.connection, queue) == Seen({1: 2}, set(), set())
    resize.resize(owned.connection, "o", 3)
    assert undrained_maps(owned.connection, queue) == Seen({1: 2, 2: 3}, {(1, 0), (1, 1)}, set())
    resize.drain(owned.connection)
    owned.end(owned.lease([halted]), "failed")
    assert undrained_maps(owned.connection, queue) == Seen({1: 2, 2: 3}, {(1, 0)}, {(1, there)})
    leases = owned.lease([held, running])
    owned.end(leases[:1], "retry", due_in=60)
    control.cancel_job(owned.connection, behind)
    assert undrained_maps(owned.connection, queue) == Seen({1: 2, 2: 3}, {(1, 0)}, {(1, there), (1, here)})
    owned.end(leases[1:], "discarded")
    assert undrained_maps(owned.connection, queue) == Seen({1: 2, 2: 3}, set(), {(1, there), (1, here)})
    resize.drain(owned.connection)
    control.cancel_job(owned.connection, held)
    resize.drain(owned.connection)
    assert maps(owned)[0] == (1, 2, True, False)  # for the halted key
    owned.connection.execute("select penstock.release_key(%s, %s)", [queue, there])
    resize.drain(owned.connection)
    assert undrained_maps(owned.connection, queue) == Seen({2: 3}, set(), set())


def test_a_retry_that_holds_its_key_keeps_its_map(owned: Owned) -> None:
    (job,) = owned.enqueue([b"a"])
    owned.end(owned.lease([job]), "retry", due_in=60)
    resize.resize(owned.connection, "o", 3)
    resize.drain(owned.connection)
    assert maps(owned)[0] == (1, 2, True, False)
    control.cancel_job(owned.connection, job)
    resize.drain(owned.connection)
    assert maps(owned)[0] == (1, 2, True, True)


def test_few_keys_left_in_a_partition_hold_only_themselves(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    halted, other = owned.key(0, 2), owned.key(0, 2, moves_to=(2, 3))
    jobs = owned.enqueue([halted, halted, halted, other])
    owned.end(owned.lease(jobs[:1]), "failed")
    queue = owned.entry.id
    resize.resize(owned.connection, "o", 3)
    assert resize.list_rest(owned.connection) == 0  # producers may still hold the map
    resize.drain(owned.connection)
    assert undrained_maps(owned.connection, queue).open == {(1, 0)}
    assert resize.list_rest(owned.connection) == 1
    assert undrained_maps(owned.connection, queue)[1:] == (set(), {(1, halted), (1, other)})
    owned.end(owned.lease(jobs[3:]), "discarded")
    resize.list_rest(owned.connection)
    assert undrained_maps(owned.connection, queue)[1:] == (set(), {(1, halted)})
    # The dead letter comes back to its place, also where the key had nothing left there.
    control.cancel_jobs(owned.connection, jobs[1:3])
    (third,) = owned.enqueue([other])
    assert third
    owned.connection.execute("update penstock.map_rest set keys = '{}'")
    control.retry_dead(owned.connection, jobs[:1])
    assert undrained_maps(owned.connection, queue)[1:] == (set(), {(1, halted)})
    resize.drain(owned.connection)
    owned.end(owned.lease(jobs[:1]), "discarded")
    resize.drain(owned.connection)
    assert undrained_maps(owned.connection, queue) == Seen({2: 3}, set(), set())
    assert owned.scene.one("select count(*) from penstock.map_rest") == 0


def test_many_keys_left_in_a_partition_are_not_listed(owned: Owned) -> None:
    keys = [key for key in (b"k%d" % n for n in range(99)) if partition_of(key, 2) == 0]
    owned.enqueue(keys)
    resize.resize(owned.connection, "o", 3)
    resize.drain(owned.connection)
    assert owned.scene.one("select penstock.list_rest(1000, %s)", len(keys) - 1) == 0
    assert undrained_maps(owned.connection, owned.entry.id).open == {(1, 0)}
    assert owned.scene.one("select penstock.list_rest(1000, %s)", len(keys)) == 1
    assert undrained_maps(owned.connection, owned.entry.id).open == set()


def test_a_key_with_very_many_jobs_left_holds_only_itself(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    halted, other, last = (owned.key(0, 2, moves_to=(to, 3)) for to in range(3))
    (first,) = owned.enqueue([halted])
    owned.end(owned.lease([first]), "failed")
    owned.enqueue([other])
    for _ in range(25):
        owned.enqueue([halted] * 1000)
    owned.enqueue([last])
    resize.resize(owned.connection, "o", 3)
    resize.drain(owned.connection)
    assert resize.list_rest(owned.connection) == 0  # it goes on with the next call
    assert undrained_maps(owned.connection, owned.entry.id).open == {(1, 0)}
    assert resize.list_rest(owned.connection) == 1
    assert undrained_maps(owned.connection, owned.entry.id)[1:] == (set(), {(1, halted), (1, other), (1, last)})
    owned.scene.assert_conserved()


def test_a_list_of_what_is_left_misses_nothing_that_moves_between_its_pages(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    keys = [key for key in (b"k%d" % n for n in range(200)) if partition_of(key, 2) == 0][:10]
    ids = [owned.enqueue([key])[0] for key in keys]
    running, failing, halted, later_halted, done = ids[0], ids[1], ids[2], ids[3], ids[4]
    held = owned.lease([running, failing])
    owned.end(owned.lease([halted, later_halted]), "failed")
    resize.resize(owned.connection, "o", 3)
    resize.drain(owned.connection)
    acts: list[Callable[[], Any]] = [
        lambda: owned.end(held[1:], "retry", due_in=3600),
        lambda: owned.end(owned.lease([done]), "discarded"),
        # Their places were passed already.
        lambda: control.retry_dead(owned.connection, [halted, later_halted]),
        lambda: owned.end(held[:1], "release"),
        lambda: owned.end(owned.lease([ids[7]]), "discarded"),
    ]
    for page, act in enumerate(acts):
        assert owned.scene.one("select penstock.list_rest(1, 100)") == 0, page
        act()
    while owned.scene.one("select penstock.list_rest(1, 100)") == 0:
        pass
    # One more at most: what ended after its page.
    assert undrained_maps(owned.connection, owned.entry.id)[1:] == (set(), {(1, key) for key in keys if key != keys[4]})
    while owned.scene.one("select penstock.list_rest(1, 100)") == 0:
        pass
    left = {(1, key) for key in keys if key not in (keys[4], keys[7])}
    assert undrained_maps(owned.connection, owned.entry.id)[1:] == (set(), left)


def test_of_several_dead_letters_that_come_back_together_each_key_is_waited_for(scene: Scene) -> None:
    owned = Owned(scene, on_dead="halt")
    keys = [key for key in (b"k%d" % n for n in range(200)) if partition_of(key, 2) == 0][:4]
    *dead, stays = (owned.enqueue([key])[0] for key in keys)
    owned.end(owned.lease(dead), "failed")
    resize.resize(owned.connection, "o", 3)
    resize.drain(owned.connection)
    assert resize.list_rest(owned.connection) == 1
    control.retry_dead(owned.connection, dead)
    assert owned.halted() == []
    assert undrained_maps(owned.connection, owned.entry.id)[1:] == (set(), {(1, key) for key in keys})
    assert stays


def test_a_chain_of_resizes_waits_for_every_map_that_is_not_drained(owned: Owned) -> None:
    owned.enqueue([owned.key(1, 2)])
    resize.resize(owned.connection, "o", 3)
    owned.enqueue([owned.key(2, 3)])
    resize.resize(owned.connection, "o", 1)
    resize.drain(owned.connection)
    found = undrained_maps(owned.connection, owned.entry.id)
    assert found == Seen({1: 2, 2: 3, 3: 1}, {(1, 1), (2, 2)}, set())
    check_maps(owned.connection)


def test_a_resize_that_was_undone_or_killed_leaves_the_queue_as_it_was_or_goes_on_by_itself(owned: Owned) -> None:
    other = owned.scene.database.connect()
    other.execute("begin")
    other.execute("select penstock.resize('o', 3)")
    owned.connection.execute("select pg_terminate_backend(%s)", [other.info.backend_pid])
    while owned.scene.one("select exists (select from pg_stat_activity where pid = %s)", other.info.backend_pid):
        pass
    assert maps(owned) == [(1, 2, False, False)]
    assert len(owned.entry.partition_ids) == 2
    resize.resize(owned.connection, "o", 3)  # killed after this: any sweep goes on
    resize.drain(owned.scene.connect())
    assert maps(owned) == [(1, 2, True, True), (2, 3, False, False)]
    other.close()


# Every order of two sessions.


@pytest.fixture(scope="module")
def lasting(server_url: str, template_database: str) -> Iterator[Owned]:
    with lasting_scene(server_url, template_database, "resize") as scene:
        yield Owned(scene, on_dead="halt")


@pytest.fixture
def stage(lasting: Owned) -> Owned:
    set_anew(lasting)
    return lasting


def set_anew(owned: Owned) -> None:
    connection = owned.connection
    connection.execute("delete from penstock.halted")
    connection.execute("delete from penstock.map_rest")
    clear(owned.scene)
    queue = owned.entry.id
    connection.execute("delete from penstock.map_here")
    connection.execute("delete from penstock.queue_map where queue_id = %s", [queue])
    connection.execute(
        "insert into penstock.queue_map (queue_id, epoch, partition_ids, state) values (%s, 1, %s, 'open')",
        [queue, list(owned.entry.partition_ids[:2])],
    )
    connection.execute("update penstock.queue set epoch = 1, partitions = 2 where id = %s", [queue])
    owned.worker = owned.scene.register(("t", "u"), owned.entry)


def write(owned: Owned, epoch: int) -> Callable[[Connection], bool]:
    """One job by that map, or by the next where it is stale, as producers do."""

    def act(connection: Connection) -> bool:
        for each, partitions in ((epoch, 2), (epoch + 1, 3)):
            number = partition_of(b"a", partitions)
            row = connection.execute(
                "select penstock.enqueue_one_if_mapped(q.id, %s, p.id, 5::smallint, 't', 'a', '{}', null)"
                " from penstock.queue as q join penstock.partition as p on p.queue_id = q.id and p.number = %s"
                " where q.name = 'o'",
                [each, number],
            ).fetchone()
            if row is not None and row[0] is not None:
                return True
        return False

    return act


def steps_of_resize(partitions: int = 3) -> list[Callable[[Connection], Any]]:
    return [
        lambda c: c.execute("select penstock.resize('o', %s)", [partitions]).fetchone(),
        resize.drain,
        resize.list_rest,
        resize.drain,
    ]


def both(owned: Owned, steps_a: list[Any], steps_b: list[Any], prepare: Callable[[], Any]) -> Iterator[Any]:
    connections = owned.scene.connect(), owned.scene.connect()
    for order in orders(len(steps_a), len(steps_b)):
        set_anew(owned)
        prepare()
        watch = Watch(owned.connection)
        played = play(order, steps_a, steps_b, connections, owned.scene.connection, watch)
        watch()
        yield played


def test_resize_beside_enqueue_in_every_order_sends_each_job_where_its_map_says(stage: Owned) -> None:
    resize.resize(stage.connection, "o", 3)  # so that all partitions are there
    numbers = set()
    for played in both(stage, transaction(write(stage, 1), write(stage, 1)), steps_of_resize(), lambda: None):
        assert played.a[:2] == [True, True]
        assert played.waited == []
        numbers.add(tuple(sorted((e, len(jobs)) for e, jobs in rows_by_map(stage.connection).items())))
        resize.drain(stage.connection)
        assert maps(stage)[0][2] is True
    assert numbers == {((1, 2),), ((1, 1), (2, 1)), ((2, 2),)}


def acts_on_waiting_jobs(owned: Owned) -> dict[str, tuple[Callable[[], Any], Callable[[Connection], Any]]]:
    key = owned.key(0, 2, moves_to=(2, 3))

    def delay() -> None:
        owned.enqueue([key, key, None], run_at=LATER)
        owned.connection.execute("update penstock.scheduled set due_at = now() - interval '1 s'")

    def hold() -> None:
        (job, _) = owned.enqueue([key, key])
        owned.end(owned.lease([job]), "retry", due_in=60)
        owned.connection.execute("update penstock.scheduled set due_at = now() - interval '1 s'")

    def block() -> None:
        (parent,) = owned.enqueue([key])
        owned.enqueue([key], parents={0: Parents([parent], "run")})
        owned.end(owned.lease([parent]), "discarded")

    def die() -> None:
        (job, _) = owned.enqueue([key, key])
        owned.end(owned.lease([job]), "failed")

    def retry(connection: Connection) -> None:
        dead = [row[0] for row in connection.execute("select job_id from penstock.dead").fetchall()]
        control.retry_dead(connection, dead)

    return {
        "delay": (delay, sweep.promote),
        "held retry": (hold, sweep.promote),
        "child": (block, sweep.unblock_all),
        "halted": (die, retry),
    }


@pytest.mark.parametrize("name", ["delay", "held retry", "child", "halted"])
def test_resize_beside_what_makes_jobs_ready_in_every_order_loses_and_misplaces_none(stage: Owned, name: str) -> None:
    prepare, act = acts_on_waiting_jobs(stage)[name]
    resize.resize(stage.connection, "o", 3)
    steps = transaction(lambda c: c.execute("select").fetchall(), act)
    for _ in both(stage, steps, steps_of_resize(), prepare):
        waiting = stage.scene.one("select count(*) from penstock.scheduled") + stage.scene.one(
            "select count(*) from penstock.blocked"
        )
        assert waiting + stage.scene.one("select count(*) from penstock.dead") == 0
        stage.scene.assert_conserved()


def test_a_map_is_not_drained_while_a_dead_letter_comes_back_to_it_in_any_order(stage: Owned) -> None:
    key = stage.key(0, 2)
    held: list[tuple[int, int]] = []

    def prepare() -> None:
        held[:] = stage.lease(stage.enqueue([key]))
        resize.resize(stage.connection, "o", 3)
        resize.resize(stage.connection, "o", 2)
        stage.connection.execute("select penstock.close_maps()")

    def retry(connection: Connection) -> None:
        assert control.retry_dead(connection, [held[0][1]]) == [held[0][1]]

    steps = transaction(lambda c: c.execute("select penstock.drain_maps()").fetchone())
    has_waited = set()
    for played in both(stage, steps, [lambda _: stage.end(held, "failed"), retry], prepare):
        has_waited.update(played.waited)
        stage.scene.assert_conserved()
    assert has_waited == {"B"}


def test_two_resizes_at_once_are_one_after_the_other(stage: Owned) -> None:
    steps_a, steps_b = (transaction(steps_of_resize(partitions)[0]) for partitions in (3, 4))
    for _ in both(stage, steps_a, steps_b, lambda: None):
        assert sorted(row[1] for row in maps(stage)[1:]) == [3, 4]
        assert stage.entry.epoch == 3
        assert stage.entry.partition_count == maps(stage)[2][1]


def test_two_equal_resizes_at_once_are_one(stage: Owned) -> None:
    steps = transaction(steps_of_resize()[0])
    for _ in both(stage, steps, steps, lambda: None):
        assert [row[:2] for row in maps(stage)] == [(1, 2), (2, 3)]


ONE_BY_MAP = "select penstock.enqueue_one_if_mapped(%s, 1, %s, 5::smallint, 't', 'a', '{}', null)"
MERGED_BY_MAP = """select (penstock.enqueue_merged(
    array[%s::int], array[1], array[%s::int], array[5::smallint], array[''], null, null, array[1::smallint], null,
    array['t'], array['a'::bytea], '[{}]', '[{}]', null, null))[1]"""


@pytest.mark.parametrize("statement", [ONE_BY_MAP, MERGED_BY_MAP])
def test_a_resize_that_comes_between_a_producers_snapshot_and_its_lock_is_seen(stage: Owned, statement: str) -> None:
    gate(stage.connection, "queue_map")
    where = [stage.entry.id, stage.entry.partition_ids[partition_of(b"a", 2)]]
    with stage.scene.database.connect() as late, stage.scene.database.connect() as keeper:
        late.execute("set role gated")
        keeper.execute("select pg_advisory_lock(%s)", [GATE])
        actor = Actor("late", late)
        actor.start(lambda c: c.execute(statement, where).fetchone())
        assert not actor.has_ended(stage.connection), "it has not locked"
        resizer = stage.scene.connect()
        resizer.execute("set lock_timeout = '1ms'")
        resize.resize(resizer, "o", 3)
        resize.drain(resizer)
        assert sorted(check_maps(stage.connection)) == [1], "nobody held it"
        keeper.execute("select pg_advisory_unlock(%s)", [GATE])
        assert actor.has_ended(stage.connection)
        actor.close()
    assert actor.results[0][0] is None
    assert rows_by_map(stage.connection) == {}
