"""A turn of one job, as a key has it whose jobs run one by one: it writes what a turn of many would, and where anything
is not as usual it leaves the turn to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.database.conftest import TOKEN, Scene
from tests.database.ledger import check
from tests.database.owned import Owned
from tests.database.stepwise import Step, orders, play, transaction

from penstock.storage import Connection
from penstock.storage.catalogue.queues import set_paused
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.work import exchange as exchanging
from penstock.storage.work import owner as storage
from penstock.storage.work.exchange import Turn, exchange
from penstock.storage.work.owner import ChosenJobs, Look, LookWish, Ownership
from penstock.storage.work.settle import Succeeded

KEYS = 5


class Key:
    """A key with some jobs in one range; the first of them is leased."""

    def __init__(self, scene: Scene, is_first_of_range: bool = True) -> None:
        self.owned = owned = Owned(scene, partitions=1)
        self.connection = owned.connection
        jobs = owned.enqueue([owned.key(0, 1)] * (KEYS + 1))
        self.jobs = jobs[:KEYS] if is_first_of_range else jobs[1:]
        ((self.lease, _),) = owned.lease(self.jobs[:1])
        (self.ownership,) = storage.share(self.connection, owned.worker)
        self.server = scene.one("select penstock.this_server()")

    def turn(
        self,
        ended: int,
        following: int,
        *,
        lease: int | None = None,
        connection: Connection | None = None,
        **changed: Any,
    ) -> Turn:
        """Settle the one, and lease the other."""
        done = Succeeded(
            lease or self.lease,
            changed.get("token", TOKEN),
            ended // 1024,
            True,
            [ended % 1024],
            [20],
            [10],
            [b'"yes"'],
        )
        choice = ChosenJobs.of(
            self.owned.worker,
            changed.get("ownership", self.ownership),
            changed.get("server", self.server),
            [following],
            1,
        )
        return exchange(connection or self.connection, self.owned.worker, "w", [done], [], None, [choice])

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement.encode()).fetchall()


@pytest.fixture
def key(scene: Scene) -> Key:
    return Key(scene)


@pytest.fixture
def only_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses turns of many."""

    def refuse(*_: object, **__: object) -> Turn:
        raise AssertionError("it went the way of many")

    monkeypatch.setattr(exchanging, "_exchange", refuse)


def facts(key: Key) -> list[list[tuple[Any, ...]]]:
    """What a turn has written, but for numbers and times."""
    return [
        key.rows("select partition_id, opened, completed from penstock.tally where completed > 0"),
        key.rows(
            "select range, partition_id, outcome, attempt, worker, positions, start_ages, run_times, results::text"
            " from penstock.finished"
        ),
        key.rows(
            "select worker_id, partition_id, priority, pos, range, penstock.positions(low, high, members), attempt,"
            " rescues, is_ahead, epoch, task, batch from penstock.lease"
        ),
        key.rows(
            "select partition_id, priority, pos, range, penstock.positions(low, high, members), attempt, rescues,"
            " epoch, task from penstock.ready"
        ),
        key.rows("select * from penstock.idle_partition"),
    ]


@pytest.mark.parametrize("is_first_of_range", [True, False])
def test_a_turn_of_one_writes_what_a_turn_of_many_does(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_first_of_range: bool
) -> None:
    key = Key(scene, is_first_of_range)
    first, second, *_ = key.jobs
    written: list[list[list[tuple[Any, ...]]]] = []
    for is_of_one in (True, False):
        with key.connection.transaction(force_rollback=True):
            storage.note_idle(
                key.connection,
                key.owned.worker,
                [(key.ownership, scene.one("select pg_current_snapshot()::text"))],
                key.server,
            )
            if not is_of_one:
                monkeypatch.setattr(exchanging, "_is_of_one", lambda *_: False)
            turn = key.turn(first, second)
            (lease,) = turn.chosen
            written.append(facts(key))
            written[-1].append(
                [
                    (
                        turn.not_held,
                        turn.children,
                        turn.holder,
                        lease.range,
                        list(lease.positions),
                        lease.attempt,
                        lease.task,
                    )
                ]
            )
            check(key.connection)
    assert written[0] == written[1]


@pytest.mark.usefixtures("only_of_one")
def test_a_key_goes_on_by_turns_of_one_to_its_end(key: Key) -> None:
    lease = key.lease
    token = TOKEN
    for ended, following in zip(key.jobs, key.jobs[1:], strict=False):
        turn = key.turn(ended, following, lease=lease, token=token)
        (held,) = turn.chosen
        assert (held.range, list(held.positions)) == (following // 1024, [following % 1024])
        assert turn.unsettled == []
        lease, token = held.id, held.token
        check(key.connection)


@pytest.mark.usefixtures("only_of_one")
def test_a_turn_of_one_tells_the_children_of_what_ended(key: Key) -> None:
    first, second, *_ = key.jobs
    child = key.owned.scene.enqueue(1, after=[first])
    assert key.turn(first, second).children == child


def another_owner(key: Key) -> None:
    key.connection.execute("update penstock.partition set owner_epoch = owner_epoch + 1")


def lost_worker(key: Key) -> None:
    key.connection.execute("delete from penstock.worker where id = %s", [key.owned.worker])


def pause(key: Key) -> None:
    set_paused(key.connection, "o", is_paused=True)


def cancel_next(key: Key) -> None:
    control.cancel_jobs(key.connection, [key.jobs[1]])


@pytest.mark.parametrize("happened", [another_owner, lost_worker, pause, cancel_next])
def test_where_the_next_may_not_start_the_end_is_settled_all_the_same(
    key: Key, happened: Callable[[Key], None]
) -> None:
    first, second, *_ = key.jobs
    happened(key)
    turn = key.turn(first, second)
    assert (turn.chosen, turn.not_held) == ([], [])
    assert key.owned.scene.places()[first] == ["succeeded"]
    assert key.owned.scene.places()[second] != ["running"]


def test_on_another_server_nothing_of_the_choice_is_leased(key: Key) -> None:
    first, second, *_ = key.jobs
    assert key.turn(first, second, server="another").chosen == []
    assert key.owned.scene.places()[first] == ["succeeded"]


def test_g4_an_end_without_its_lease_is_refused_and_told(key: Key) -> None:
    first, second, *_ = key.jobs
    turn = key.turn(first, second, token=TOKEN + 1)
    assert turn.not_held == [(key.lease, first % 1024)]
    assert key.owned.scene.places()[first] == ["running"]
    # As a turn of many has it: what was chosen is leased, and the owner knows what it chose.
    assert [lease.range * 1024 + position for lease in turn.chosen for position in lease.positions] == [second]


def test_g3_a_turn_of_one_that_is_repeated_settles_nothing_again(key: Key) -> None:
    first, second, third, *_ = key.jobs
    assert key.turn(first, second).not_held == []
    assert key.turn(first, third).not_held == [(key.lease, first % 1024)]
    assert key.rows("select sum(completed) from penstock.depth") == [(1,)]


def test_a_lease_of_several_jobs_is_left_to_a_turn_of_many(key: Key) -> None:
    _, second, third, fourth, *_ = key.jobs
    choice = ChosenJobs.of(key.owned.worker, key.ownership, key.server, [second, third], 2)
    (both,) = exchange(key.connection, key.owned.worker, "w", [], [], None, [choice]).chosen
    # It says that it has ended all of the lease, which it has not.
    assert key.turn(second, fourth, lease=both.id, token=both.token).not_held == []
    places = key.owned.scene.places()
    assert [places[job] for job in (second, third, fourth)] == [["succeeded"], ["running"], ["running"]]
    check(key.connection)


def play_beside(key: Key, order: str, steps: Sequence[Step]) -> tuple[Turn, list[Any]]:
    """A turn from the first to the second job, beside these steps."""
    first, second, *_ = key.jobs

    def act(connection: Connection) -> Turn:
        return key.turn(first, second, connection=connection)

    connections = (key.owned.scene.connect(), key.owned.scene.connect())
    played = play(order, transaction(act), steps, connections, key.connection)
    for connection in connections:
        connection.close()
    check(key.connection)
    return played.a[0], played.b


@pytest.mark.parametrize("order", list(orders(2, 3)))
def test_g5_a_turn_of_one_beside_a_hand_over_is_seen_whole_or_not_at_all(key: Key, order: str) -> None:
    _, second, *_ = key.jobs
    owned = key.owned
    heir = owned.scene.register(("t",), owned.entry)
    owned.connection.execute("delete from penstock.worker_task where worker_id = %s", [owned.worker])

    def give_up(connection: Connection) -> None:
        storage.give_up(connection, owned.worker, [key.ownership.partition_id])

    def look(connection: Connection) -> Look | None:
        held: list[Ownership] = storage.share(connection, heir)
        return storage.look(connection, [LookWish(held[0], None, [0] * 10, 100, True)])[0] if held else None

    turn, (*_, seen) = play_beside(key, order, [*transaction(give_up), look])
    if seen is not None:
        running = {job for job, _ in seen.running or ()}
        ready = {row.range * 1024 + position for row in seen.rows for position in row.positions}
        assert not running & ready
        if turn.chosen:
            assert running == {second}
        else:
            assert second in ready


@pytest.mark.parametrize("order", list(orders(2, 2)))
@pytest.mark.parametrize("which", [1, 2])
def test_a_turn_of_one_beside_a_cancel_in_its_range_loses_nothing(key: Key, order: str, which: int) -> None:
    wanted = key.jobs[which]
    turn, _ = play_beside(key, order, transaction(lambda connection: control.cancel_jobs(connection, [wanted])))
    places = key.owned.scene.places()
    assert places[key.jobs[0]] == ["succeeded"]
    assert places[key.jobs[1]] == (["running"] if turn.chosen else ["cancelled"])
    assert bool(turn.chosen) or which == 1
    if which == 2:
        assert places[wanted] == ["cancelled"]


@pytest.mark.parametrize("order", list(orders(2, 2)))
def test_g3_a_turn_of_one_beside_a_rescue_counts_once_or_not_at_all(key: Key, order: str) -> None:
    key.connection.execute("update penstock.worker set renewed_at = '-infinity' where id = %s", [key.owned.worker])
    turn, _ = play_beside(key, order, transaction(sweep.rescue))
    place = key.owned.scene.places()[key.jobs[0]]
    assert place == (["ready"] if turn.not_held else ["succeeded"])
