"""Jobs that become ready when their key lives on another shard are carried there: once, in order, found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import errors
from tests.shards.scene import set_map_state

from penstock import App
from penstock.errors import NotFound, PartitionUnavailable
from penstock.routing.key_hash import partition_of
from penstock.shards import carrying, locating
from penstock.shards.databases import Databases
from penstock.shards.parents import tell_children
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.queries import query
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep

LATER = datetime.now(UTC) + timedelta(days=1)
PLACES = """
    select range * 1024 + m, 'ready' from penstock.ready, unnest(penstock.positions(low, high, members)) as m
    union all
    select range * 1024 + m, 'running' from penstock.lease, unnest(penstock.positions(low, high, members)) as m
    union all
    select range * 1024 + m, 'scheduled' from penstock.scheduled, unnest(penstock.positions(low, high, members)) as m
    union all select job_id, 'blocked' from penstock.blocked
    union all select job_id, 'dead' from penstock.dead
    union all select job_id, 'sent' from penstock.outbox
    union all select job_id, 'ended' from penstock.finished_job
"""


class World:
    """The queue `o` on two shards, and its partition 1, which moves between them."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.databases: Databases = app.databases
        self.queue_id = self.databases.lead.run(lambda c: find_queue(c, "o")).id
        # Keys of partition 1, which begins on shard 2.
        self.keys = [key for key in (b"k%d" % n for n in range(100)) if partition_of(key, 2) == 1]

    def fetch(self, number: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.databases.of(number).run(lambda c: c.execute(statement, parameters).fetchall())

    def one(self, number: int, statement: str, *parameters: Any) -> Any:
        return self.fetch(number, statement, *parameters)[0][0]

    def enqueue(self, number: int, key: bytes, **options: Any) -> int:
        given = {"queue": "o", "task": "t", "key_bytes": key, **options}
        names = ", ".join(f"{name} => %s" for name in given)
        return int(self.one(number, f"select penstock.enqueue({names})", *given.values()))

    def move(self, to: int) -> None:
        self.app.move_partition("o", 1, to)

    def due(self, number: int) -> None:
        """Let every delay be over."""
        self.fetch(
            number, "update penstock.scheduled set due_at = due_at - interval '2 days' where pos is null returning 1"
        )
        self.databases.of(number).run(sweep.promote)

    def places(self) -> dict[int, list[tuple[int, str]]]:
        """Where each job is: the shard and the place."""
        found: dict[int, list[tuple[int, str]]] = {}
        for database in self.databases:
            for job, place in self.fetch(database.shard, PLACES):
                found.setdefault(job, []).append((database.shard, place))
        return found

    def order(self, number: int, key: bytes) -> list[int]:
        """The ready jobs of a key on a shard, in their order."""
        rows = self.fetch(
            number,
            "select r.range * 1024 + m from penstock.ready as r, unnest(penstock.positions(low, high, members)) as m,"
            " lateral (select key from penstock.job_stored where id = r.range * 1024 + m) as j"
            " where j.key = %s order by r.epoch, r.pos, 1",
            key,
        )
        return [row[0] for row in rows]

    def assert_conserved(self, jobs: int) -> None:
        """Each job is in one place, and the figures are those of the tables."""
        places = self.places()
        assert {job: found for job, found in places.items() if len(found) != 1} == {}
        assert len(places) == jobs
        found = [place for [(_, place)] in places.values()]
        told = [
            sum(
                self.one(database.shard, f"select coalesce(sum({name}), 0)::int from penstock.depth")
                for database in self.databases
            )
            for name in ("opened", "scheduled", "blocked", "dead")
        ]
        opened = sum(found.count(place) for place in ("ready", "running", "sent"))
        assert told == [opened, *(found.count(place) for place in ("scheduled", "blocked", "dead"))]


@pytest.fixture
def world(shard_urls: list[str]) -> Iterator[World]:
    with App(shards=shard_urls, request_timeout=5.0) as app:
        app.queue("o", order="key", partitions=2, on_dead="halt")
        yield World(app)


def die(world: World, number: int, job: int, key: bytes, *, halts: bool) -> None:
    """Let a ready job become a dead letter."""
    [(partition, epoch)] = world.fetch(
        number, "delete from penstock.ready where range = %s returning partition_id, epoch", job // 1024
    )
    for table, columns, values in (
        ("dead", "job_id, partition_id, task, attempt, cause", [job, partition, "t", 1, 7]),
        ("failure", "job_id, attempt, error", [job, 1, "ValueError: no"]),
        ("tally", "partition_id, opened, dead", [partition, -1, 1]),
        ("halted", "queue_id, key, job_id, epoch", [world.queue_id, key, job, epoch] if halts else None),
    ):
        if values is not None:
            places = ", ".join(["%s"] * len(values))
            world.fetch(number, f"insert into penstock.{table} ({columns}) values ({places}) returning 1", *values)


def test_a_delayed_job_becomes_ready_where_its_key_lives_by_then(world: World) -> None:
    key = world.keys[0]
    args = '{"a": [1,  2.50, "\\u00e9"]}'
    first, second = (world.enqueue(2, key, run_at=LATER, args=args, tags=["x"]) for _ in range(2))
    world.move(1)
    world.due(2)
    assert world.places() == {first: [(2, "sent")], second: [(2, "sent")]}
    assert world.app.job(first).state == "ready"
    before = world.app.job(first)
    assert carrying.carry(world.databases) == 2
    assert world.places() == {first: [(1, "ready")], second: [(1, "ready")]}
    assert world.order(1, key) == [first, second]
    after = world.app.job(first)
    assert (after.args, after.key, after.tags, after.enqueued_at, after.partition) == (
        (before.args, before.key, before.tags, before.enqueued_at, before.partition)
    )
    assert world.fetch(1, "select distinct epoch from penstock.ready") == [(2,)]
    assert carrying.carry(world.databases) == 0
    world.assert_conserved(2)


def test_what_stays_is_not_carried_and_a_range_is_parted(world: World) -> None:
    stays = next(key for key in (b"k%d" % n for n in range(100)) if partition_of(key, 2) == 0)
    jobs = [world.enqueue(2, world.keys[0], run_at=LATER), world.enqueue(1, stays, run_at=LATER)]
    world.move(1)
    for number in (1, 2):
        world.due(number)
    carrying.carry(world.databases)
    assert world.places() == {job: [(1, "ready")] for job in jobs}
    world.assert_conserved(2)


def test_a_child_goes_where_its_key_lives_when_its_parents_have_ended(world: World) -> None:
    parent = world.enqueue(2, world.keys[0])
    child = world.enqueue(2, world.keys[1], after=[parent])
    world.move(1)
    world.databases.of(2).run(lambda c: control.cancel_job(c, parent))
    assert world.places()[child] == [(2, "ended")]
    world.move(2)
    parent = world.enqueue(2, world.keys[0])
    child = world.enqueue(2, world.keys[1], after=[parent], on_parent_failure="run")
    world.move(1)
    world.databases.of(2).run(lambda c: control.cancel_job(c, parent))
    assert world.places()[child] == [(2, "sent")]
    carrying.carry(world.databases)
    assert world.places()[child] == [(1, "ready")]
    world.assert_conserved(4)


def test_a_dead_letter_is_retried_where_its_key_lives_with_what_it_failed_for(world: World) -> None:
    job = world.enqueue(2, world.keys[0])
    die(world, 2, job, world.keys[0], halts=False)
    world.move(1)
    assert world.app.retry(job) == "ready"
    carrying.carry(world.databases)
    assert world.places() == {job: [(1, "ready")]}
    found = world.app.job(job)
    assert [each.error for each in found.failures] == ["ValueError: no"]
    assert world.one(1, "select attempt from penstock.ready") == 2
    world.assert_conserved(1)


def test_a_dead_letter_is_edited_on_its_shard_and_takes_its_edits_along(world: World) -> None:
    @world.app.queue("o", order="key", partitions=2, on_dead="halt").task
    def t(n: int = 0) -> None: ...

    job = world.enqueue(2, world.keys[0], args='{"n": 1}')
    die(world, 2, job, world.keys[0], halts=False)
    world.move(1)
    assert world.app.retry(job, args={"n": 2}) == "ready"
    before = world.app.job(job).edits
    assert [each.args for each in before] == [{"n": 1}]
    carrying.carry(world.databases)
    assert world.places() == {job: [(1, "ready")]}
    found = world.app.job(job)
    assert (found.args, found.edits) == ({"n": 2}, before)
    # Back to the shard it came from, where its old row may still lie.
    world.fetch(1, "select penstock.keep_jobs(min(low), min(high), 10000) from penstock.job_table")
    die(world, 1, job, world.keys[0], halts=False)
    world.move(2)
    assert world.app.retry(job, args={"n": 3}) == "ready"
    carrying.carry(world.databases)
    found = world.app.job(job)
    assert (found.args, [each.args for each in found.edits]) == ({"n": 3}, [{"n": 1}, {"n": 2}])
    world.assert_conserved(1)


def test_a_dead_letter_that_halted_its_key_comes_back_to_its_place(world: World) -> None:
    job = world.enqueue(2, world.keys[0])
    die(world, 2, job, world.keys[0], halts=True)
    world.move(1)
    assert world.app.retry(job) == "ready"
    assert carrying.carry(world.databases) == 0
    assert world.places() == {job: [(2, "ready")]}
    assert world.fetch(2, "select epoch from penstock.ready") == [(1,)]
    world.assert_conserved(1)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_job_that_comes_back_while_prune_lets_it_go_stays(world: World, is_kept: bool) -> None:
    """G1: nobody wanted it here when prune looked, and its arrival had not committed yet."""
    job = world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    world.due(2)
    carrying.carry(world.databases)
    world.fetch(1, "with gone as (delete from penstock.ready returning *) select from gone")
    world.fetch(
        1,
        "insert into penstock.outbox (shard, job_id, partition_id, attempt)"
        " select 2, %s, partition_id, 1 from penstock.job_kept returning 1",
        job,
    )
    if is_kept:
        world.fetch(
            2,
            "with gone as (delete from penstock.job where id = %s returning *)"
            " insert into penstock.job_kept select * from gone returning 1",
            job,
        )
    jobs = world.one(1, "select penstock.read_outbox(2, 10)")
    world.move(2)
    there = world.databases.of(2)
    with there.connect() as brings, there.connect() as prunes:
        with brings.transaction():
            brings.execute(query("take_arrivals"), {"from": 1, "as_of": datetime.now(UTC), "jobs": jobs.decode()})
            for statement in ("select penstock.keep_jobs(0, 67108864, 10000)", "select penstock.clean_kept(0, 100)"):
                with suppress(errors.LockNotAvailable):
                    prunes.execute(statement)
        prunes.execute("update penstock.job_table set is_detached = true where low = 0")
        prunes.execute("alter table penstock.job detach partition penstock.job_0")
        assert find_job(brings, job).state == "ready"


def test_g13_a_job_that_is_sent_and_not_stored_is_set_aside_and_the_others_arrive(world: World) -> None:
    key = world.keys[0]
    bad, good = (world.enqueue(2, key, run_at=LATER) for _ in range(2))
    world.move(1)
    world.due(2)
    [row] = world.fetch(2, "delete from penstock.job where id = %s returning *", bad)
    assert carrying.carry(world.databases) == 1
    assert world.places() == {bad: [(2, "ready")], good: [(1, "ready")]}
    assert world.app.explain(bad).reason.startswith("set aside: it is in no table of jobs")
    assert carrying.carry(world.databases) == 0
    world.assert_conserved(2)
    world.fetch(
        2,
        "insert into penstock.job_kept values (%s, %s, %s, %s, %s, %s, %s, %s) returning 1",
        *(*row[:6], row[6].decode(), None),
    )
    assert world.app.retry(bad) == "ready"
    assert carrying.carry(world.databases) == 1
    assert world.order(1, key) == [good, bad]
    world.assert_conserved(2)


def test_a_job_whose_time_is_now_goes_where_its_key_lives(world: World) -> None:
    job = world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    assert world.app.reschedule(job, datetime.now(UTC) - timedelta(seconds=1)) == "ready"
    carrying.carry(world.databases)
    assert world.places() == {job: [(1, "ready")]}
    world.assert_conserved(1)


def test_a_job_goes_back_and_forth_with_its_key_and_is_found_wherever_it_is(world: World) -> None:
    job = world.enqueue(2, world.keys[0], run_at=LATER)
    for to, away in ((1, 2), (2, 1), (1, 2)):
        world.move(to)
        world.due(away)
        carrying.carry(world.databases)
        assert world.places() == {job: [(to, "ready")]}
        assert locating.locate(world.databases, job).shard == to
        world.app.reschedule(job, LATER)
        assert world.app.job(job).state == "scheduled"
    assert world.fetch(2, "select count(*) from penstock.job_stored where id = %s", job) == [(1,)]
    world.assert_conserved(1)


def test_a_job_whose_key_moves_on_while_it_is_on_its_way_is_sent_on(world: World) -> None:
    job = world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    world.due(2)
    world.move(2)
    # To the shard it was sent to, which sends it on: back.
    assert carrying.carry(world.databases) >= 1
    carrying.carry(world.databases)
    assert world.places() == {job: [(2, "ready")]}
    assert locating.locate(world.databases, job).shard == 2
    world.assert_conserved(1)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", ["begin_carrying", "read_outbox", "take_arrivals", "depart"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_carries_may_be_killed_at_each_step(
    world: World, step: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [world.enqueue(2, key, run_at=LATER) for key in world.keys[:5]]
    world.move(1)
    world.due(2)
    ask = Database.ask

    class Dying:
        """A connection whose user dies at a step: what is not committed is undone."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, statement: str, parameters: Any = None) -> Any:
            if statement == query(step) and when == "before":
                raise Killed
            done = self._connection.execute(statement, parameters)
            if statement == query(step):
                raise Killed
            return done

    def dying(self: Database, act: Callable[[Any], Any], *, timeout: float | None = None) -> Any:
        return ask(self, lambda connection: act(Dying(connection)), timeout=timeout)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "ask", dying)
        with pytest.raises(Killed):
            carrying.carry(world.databases)
    carrying.carry(world.databases)
    assert world.places() == {job: [(1, "ready")] for job in jobs}
    world.assert_conserved(5)


def test_what_was_written_and_not_let_go_is_not_written_again(world: World) -> None:
    job = world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    world.due(2)
    sent = world.one(2, "select penstock.read_outbox(1, 10)::text")
    for _ in range(3):
        world.fetch(1, "select penstock.take_arrivals(2, clock_timestamp(), %s::json)", sent)
    assert world.fetch(1, "select count(*) from penstock.ready") == [(1,)]
    # It has ended there since.
    world.databases.of(1).run(lambda c: control.cancel_job(c, job))
    assert carrying.carry(world.databases) == 1
    assert world.places() == {job: [(1, "ended")]}
    world.assert_conserved(1)


def test_whoever_read_too_long_ago_has_to_read_again(world: World) -> None:
    world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    world.due(2)
    sent = world.one(2, "select penstock.read_outbox(1, 10)::text")
    with pytest.raises(Exception, match="too long ago"):
        world.fetch(1, "select penstock.take_arrivals(2, clock_timestamp() - interval '11 minutes', %s::json)", sent)


def test_one_carries_at_a_time_and_nobody_waits(world: World) -> None:
    world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    world.due(2)
    with world.databases.of(2).connection() as other, other.transaction():
        other.execute("select penstock.begin_carrying()")
        assert carrying.carry(world.databases) == 0
    assert carrying.carry(world.databases) == 1


def test_a_shard_that_is_down_is_passed_over(world: World) -> None:
    job = world.enqueue(2, world.keys[0], run_at=LATER)
    world.move(1)
    world.due(2)
    silent = Database("postgresql://127.0.0.1:1/none", request_timeout=0.2, shard=1, is_alone=False)
    assert carrying.carry(Databases([silent, world.databases.of(2)])) == 0
    silent.close()
    assert world.places() == {job: [(2, "sent")]}
    carrying.carry(world.databases)
    assert world.places() == {job: [(1, "ready")]}


def test_arrivals_and_forwards_are_forgotten_only_when_nobody_can_ask(world: World) -> None:
    kept, gone = (world.enqueue(2, world.keys[0], run_at=LATER) for _ in range(2))
    world.move(1)
    world.due(2)
    sent = world.one(2, "select penstock.read_outbox(1, 10)::text")
    world.fetch(1, "select penstock.take_arrivals(2, clock_timestamp(), %s::json)", sent)
    world.fetch(1, "update penstock.arrival set at = at - interval '2 days' returning 1")
    carrying.clean(world.databases)
    assert world.fetch(1, "select count(*) from penstock.arrival") == [(2,)], "they are in the outbox still"
    carrying.carry(world.databases)
    world.assert_conserved(2)
    carrying.clean(world.databases)
    assert world.fetch(1, "select count(*) from penstock.arrival") == [(0,)]
    world.databases.of(1).run(lambda c: control.cancel_job(c, gone))
    world.fetch(1, "delete from penstock.finished returning 1")
    world.fetch(2, "update penstock.forward set at = at - interval '2 days' returning 1")
    carrying.clean(world.databases)
    assert world.fetch(2, "select job_id from penstock.forward") == [(kept,)]
    assert world.app.job(kept).state == "ready"
    with pytest.raises(NotFound):
        world.app.job(gone)


def test_a_child_hears_of_a_parent_that_was_carried_away(world: World) -> None:
    parent = world.enqueue(2, world.keys[0], run_at=LATER)
    child = world.enqueue(2, world.keys[1], after=[parent], on_parent_failure="run")
    world.move(1)
    world.due(2)
    carrying.carry(world.databases)
    tell_children(world.databases)
    assert world.places()[child] == [(2, "blocked")]
    world.databases.of(1).run(lambda c: control.cancel_job(c, parent))
    tell_children(world.databases)
    assert world.places()[child] == [(2, "sent")]


def test_a_child_written_while_its_parent_is_carried_hears_of_it_too(world: World) -> None:
    parent = world.enqueue(2, world.keys[0], run_at=LATER)
    with world.databases.of(2).connection() as producer, producer.transaction():
        row = producer.execute(
            "select penstock.enqueue('o', 't', key_bytes => %s, after => %s, on_parent_failure => 'run')",
            [world.keys[1], [parent]],
        ).fetchone()
        world.fetch(
            2,
            "with sent as (delete from penstock.scheduled returning partition_id)"
            " insert into penstock.outbox (shard, job_id, partition_id, attempt)"
            " select 1, %s, partition_id, 1 from sent returning 1",
            parent,
        )
        world.fetch(2, "select penstock.depart(array(select id from penstock.outbox))")
    assert row is not None
    world.fetch(
        2, "insert into penstock.forward (job_id, shard) values (%s, 1) on conflict do nothing returning 1", parent
    )
    carrying.clean(world.databases)
    tell_children(world.databases)
    # It is nowhere: it did not succeed, and the child runs all the same.
    assert world.places()[row[0]] == [(2, "ready")]


def test_a_queue_whose_map_is_not_open_holds_up_no_other(world: World) -> None:
    world.app.queue("other", order="key", partitions=3)
    key = next(key for key in world.keys if other_shard(world, key) == 2)
    parent = world.enqueue(2, key)
    waits = [world.enqueue(2, key, run_at=LATER), world.enqueue(2, key, after=[parent], on_parent_failure="run")]
    goes = world.enqueue(2, key, queue="other", run_at=LATER)
    world.fetch(2, set_map_state("announced", "o"))
    world.databases.of(2).run(lambda c: control.cancel_job(c, parent))
    world.due(2)
    assert world.places()[goes] == [(2, "ready")]
    assert [world.places()[job] for job in waits] == [[(2, "scheduled")], [(2, "blocked")]]
    world.fetch(2, set_map_state("open"))
    world.due(2)
    world.databases.of(2).run(sweep.unblock_all)
    assert [world.places()[job] for job in waits] == [[(2, "ready")], [(2, "ready")]]
    world.assert_conserved(4)


def other_shard(world: World, key: bytes) -> int:
    entry = world.app.databases.lead.run(lambda c: find_queue(c, "other"))
    return entry.partition_shards[partition_of(key, 3)]


def test_a_job_that_is_nowhere_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.app.job(2 * 1024 + 5)
    with pytest.raises((NotFound, PartitionUnavailable)):
        world.databases.of(1).run(lambda c: find_job(c, 2 * 1024))
