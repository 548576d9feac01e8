"""A shard to which nobody writes any more and that is not called drained yet: what was sent there goes another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Proxy

from penstock import App, Task
from penstock.errors import PartitionUnavailable
from penstock.shards import carrying, draining
from penstock.shards.databases import Databases
from penstock.shards.membership import read_shards
from penstock.storage.connection.database import Connection, Database
from penstock.upkeep import SharedUpkeep


class Killed(BaseException):
    pass


class Drained:
    """A queue `q` with a limit, whose one partition was on shard 2, moved to 3, and has to leave that too.

    A transaction on shard 2 that enqueued by the first map is open: what it commits comes late.
    """

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.ran: list[int] = []
        self.app, self.task = self._connect()
        self.app.work(until_idle=True)
        self.move(2)
        self.caller = psycopg.connect(urls[1])
        # Its connection is asked once which database it leads to.
        self.late = self._connect()[1].options(connection=self.caller).enqueue(n=99)
        self.move(3)
        assert self.places() == {1: "shut", 2: "shut", 3: "current"}

    def _connect(self) -> tuple[App, Task[..., Any]]:
        app = App(shards=self.urls, request_timeout=10.0, lease=60.0)
        return app, app.queue("q", partitions=1, limit=2).task(name="t")(lambda n: self.ran.append(n))

    @property
    def databases(self) -> Databases:
        return self.app.databases

    def move(self, shard: int) -> None:
        if self.app.stats("q").partitions[0].shard != str(shard):
            self.app.move_partition("q", 0, shard)
        for _ in range(3):
            self.sweep()

    def sweep(self) -> None:
        upkeep = SharedUpkeep(self.databases)
        upkeep.sweep()
        assert not upkeep.errors

    def fetch(self, shard: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls[shard - 1], autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def places(self) -> dict[int, str]:
        return dict(self.fetch(1, "select shard, state from penstock.partition order by shard"))

    def is_ended(self, shard: int = 3) -> bool:
        return bool(self.fetch(shard, "select from pg_trigger where tgname = 'no_writes_any_more'"))

    def state(self, shard: int = 3) -> str:
        return next(each.state for each in self.databases.read(read_shards) if each.number == shard)

    def send_late(self) -> None:
        """The late job is committed, and sent by the map that was the queue's when its place was shut: to shard 3."""
        self.caller.commit()
        assert self.fetch(2, "select penstock.send_off(50)") == [(1,)]
        assert self.fetch(2, "select shard, job_id from penstock.outbox") == [(3, self.late)]

    def drain(self) -> None:
        drain(self.app, 3)

    def finish(self) -> None:
        """It is drained, and the late job runs, once."""
        self.drain()
        for _ in range(3):
            self.sweep()
        self.app.work(until_idle=True)
        assert self.ran == [99]
        assert self.app.job(self.late).state == "succeeded"
        assert [self.fetch(n, "select count(*) from penstock.outbox") for n in (1, 2)] == [[(0,)]] * 2


def drain(app: App, shard: int) -> None:
    """Drain to the end, without a worker."""
    for _ in range(30):
        if (done := app.drain_shard(shard)).state == "drained":
            return
    raise AssertionError(done)


@pytest.fixture
def urls(shard_urls: list[str], empty_database_url: str) -> list[str]:
    with App(shards=shard_urls) as app:
        app.add_shard(empty_database_url)
    return [*shard_urls, empty_database_url]


@pytest.fixture
def drained(urls: list[str]) -> Iterator[Drained]:
    drained = Drained(urls)
    yield drained
    drained.caller.close()
    drained.app.close()


def stop_at(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do this once, when nobody writes to a shard any more and it is looked once more whether anything is left."""
    real, done = draining._query_value, list[int]()

    def query_value(connection: Connection, *, name: str, **parameters: Any) -> Any:
        answer = real(connection, name=name, **parameters)
        if name == "end_writes" and answer and not done:
            done.append(1)
            act()
        return answer

    monkeypatch.setattr(draining, "_query_value", query_value)


def kill() -> None:
    raise Killed


def test_g2_whoever_drains_is_killed_when_writes_have_ended_and_a_late_job_comes(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, kill)
    with pytest.raises(Killed):
        drained.drain()
    assert drained.is_ended()
    assert drained.state() == "draining"
    drained.send_late()
    drained.finish()


def test_g2_a_late_job_comes_just_when_writes_have_ended(drained: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, drained.send_late)
    drained.finish()


def test_g2_a_late_job_is_sent_to_a_shard_that_is_drained_in_that_moment(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its way is counted, then the job is sent there, then the shard is called drained."""
    real = draining._count_ties

    def count(databases: Databases, database: Database) -> tuple[int, int]:
        ties = real(databases, database)
        if drained.is_ended() and drained.caller.info.transaction_status:
            assert ties == (0, 0)
            drained.send_late()
        return ties

    monkeypatch.setattr(draining, "_count_ties", count)
    drained.drain()
    assert drained.fetch(2, "select shard, job_id from penstock.outbox") in ([(3, drained.late)], [(1, drained.late)])
    drained.finish()


def test_g2_what_came_before_writes_ended_and_was_not_let_go_does_not_come_twice(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained.send_late()
    sent = drained.fetch(2, "select penstock.read_outbox(3, 10)::text")[0][0]
    drained.fetch(3, "select penstock.take_arrivals(2, clock_timestamp(), %s::json)", sent)
    # Whoever carried it is killed before it departs from 2. From 3 it goes on.
    monkeypatch.setattr(draining, "_count_ties", lambda *_: (0, 0))
    monkeypatch.setattr(draining, "_end_if_drained", lambda *_: False)
    with psycopg.connect(drained.urls[1]) as carrier:
        carrier.execute("select penstock.begin_carrying()")
        for _ in range(5):
            drained.app.drain_shard(3)
        drained.fetch(3, "select penstock.end_writes()")
    assert drained.fetch(3, "select penstock.is_vacant()") == [(True,)]
    monkeypatch.undo()
    drained.finish()


def test_nothing_goes_another_way_while_something_that_came_before_is_there(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, kill)
    with pytest.raises(Killed):
        drained.drain()
    drained.send_late()
    ids = [row[0] for row in drained.fetch(2, "select id from penstock.outbox")]
    asked = "select penstock.arrived_for_good(2, %s)"
    assert drained.fetch(3, asked, ids) == [([],)]
    with psycopg.connect(drained.urls[2]) as connection:
        connection.execute("insert into penstock.halted (queue_id, key, job_id, epoch) values (1, 'k', 1, 1)")
        assert connection.execute(asked.encode(), [ids]).fetchone() == (None,)
        connection.rollback()
    assert drained.fetch(1, asked, ids) == [(None,)], "jobs are written there"
    drained.finish()


def test_g2_what_goes_another_way_may_be_where_it_comes_from(drained: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, kill)
    with pytest.raises(Killed):
        drained.drain()
    drained.send_late()
    drained.move(2)
    assert drained.places()[2] == "current"
    drained.finish()


def test_g2_a_shard_is_away_when_another_is_all_but_drained(urls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(urls[1])
    drained = Drained(urls)
    try:
        with App(shards=[urls[0], proxy.url, urls[2]], request_timeout=5.0) as other:
            other.queue("q", partitions=1, limit=2)
            stop_at(monkeypatch, proxy.go_down)
            with pytest.raises(PartitionUnavailable, match="shard 2"):
                drain(other, 3)
            assert drained.is_ended()
        drained.send_late()
        drained.finish()
    finally:
        drained.caller.close()
        drained.app.close()
        proxy.close()


def test_writes_do_not_end_while_a_shard_does_not_answer(drained: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(*_: Any) -> tuple[int, int]:
        raise PartitionUnavailable("away", shard=2)

    monkeypatch.setattr(draining, "_count_ties", count)
    for _ in range(5):
        with pytest.raises(PartitionUnavailable):
            drained.app.drain_shard(3)
    assert not drained.is_ended()


def test_a_shard_that_refuses_what_is_carried_keeps_nothing_from_the_others(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises when everything else is carried, and drains go on."""
    real = carrying._carry_some

    def carry_some(databases: Databases, database: Database, target: Database) -> int:
        if target.shard == 1:
            raise psycopg.ProgrammingError("no")
        return real(databases, database, target)

    monkeypatch.setattr(carrying, "_carry_some", carry_some)
    drained.send_late()
    outbox = (
        "insert into penstock.outbox (shard, job_id, partition_id, attempt) select 1, 1, id, 1 from penstock.partition"
    )
    drained.fetch(2, f"{outbox} where shard = 2 returning 1")
    refusals: list[Exception] = []
    assert carrying.carry(drained.databases, refusals) == 1
    assert [str(each) for each in refusals] == ["no"]
    upkeep = SharedUpkeep(drained.databases)
    upkeep.sweep()
    assert "no" in upkeep.errors["carry"]
    assert "drain" not in upkeep.errors
    drained.fetch(2, "delete from penstock.outbox returning 1")


def test_one_shard_that_cannot_be_drained_further_keeps_no_other(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in (2, 3):
        draining.begin_draining(drained.databases, shard)
    real = draining._advance_shard

    def advance(databases: Databases, number: int) -> int:
        if number == 2:
            raise psycopg.ProgrammingError("no")
        return real(databases, number)

    monkeypatch.setattr(draining, "_advance_shard", advance)
    with pytest.raises(psycopg.ProgrammingError, match="no"):
        draining.advance_draining(drained.databases)
    assert drained.places()[3] in ("left", "shut")
