"""G4 and G14 where numbers come again: a restored backup gives lease, range and worker numbers a second time.

Each test holds a lease on a database, puts an older copy in its place, and lets the same worker claim there: the new
lease has the number of the old one, and is for a job with the id of the old one. What is said about the old lease must
change nothing, and be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.servers import Backup

from penstock.engine.owner import Owner
from penstock.model.queue import QueueDefinition
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry, declare_queue
from penstock.storage.enqueue.job_group import Destination, JobGroup
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_groups
from penstock.storage.upkeep import sweep
from penstock.storage.work import owner as owner_storage
from penstock.storage.work import workers
from penstock.storage.work.exchange import ClaimWish, exchange, held_leases
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import End, Succeeded, note_started, settle_alone, split_lease
from penstock.storage.work.settle_in_transaction import settle_in

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "gated": {"limit": 100}, "owned": {"order": "key"}}


class Restored:
    """A worker that holds a lease of five jobs, and the same number and jobs of an older copy of its database."""

    def __init__(self, server_url: str, database: Database, options: dict[str, Any]) -> None:
        self.database = database
        with database.connect() as connection:
            self.queue = declare_queue(connection, QueueDefinition.of("q", 1, **options))
            self.worker = _register(connection, self.queue)
        backup = Backup(server_url, database.url)
        with database.connect() as connection:
            (self.old,) = self._claim(connection)
        backup.restore()
        self.connection = database.connect()
        (self.new,) = self._claim(self.connection)
        assert (self.new.id, self.new.range, self.new.positions) == (self.old.id, self.old.range, range(5))

    def _claim(self, connection: Connection) -> list[Lease]:
        _enqueue(connection, self.queue, 5)
        if not self.queue.is_owned:
            wish = ClaimWish(self.queue.partition_ids, self.queue.partition_ids, 5, 0)
            return exchange(connection, self.worker, "w", [], [], wish).leases
        owner = Owner({self.queue.id: ("t",)})
        owner.share(connection, self.worker, 10.0)
        owner.look(connection, 5, 10.0)
        return exchange(connection, self.worker, "w", [], [], None, owner.choose(5, 0, 0, 10.0)).chosen

    def ends(self, end: Any) -> list[End]:
        return [
            End(self.old.id, self.old.token, position, self.old.range, end, "of another job") for position in range(5)
        ]

    def assert_untouched(self) -> None:
        """The new lease is as it was, and nothing was written about its jobs."""
        (held,) = held_leases(self.connection, self.worker)
        assert (held.id, held.token, held.positions, held.is_ahead) == (self.new.id, self.new.token, range(5), False)
        for table in ("finished", "failure", "dead", "scheduled", "ready", "progress"):
            assert self.connection.execute(f"select * from penstock.{table}".encode()).fetchall() == []


def _enqueue(connection: Connection, queue: QueueEntry, count: int) -> list[int]:
    group = JobGroup(Destination(queue.id, queue.partition_ids[0], 5, "t"), range(count), [b"{}"] * count)
    if queue.is_owned:
        group.destination = group.destination._replace(task="", epoch=queue.epoch)
        group.keys, group.tasks = [b"%d" % n for n in range(count)], ["t"] * count
    ids = [0] * count
    with connection.transaction():
        drive(connection, write_groups([group], ids))
    return ids


def _register(connection: Connection, queue: QueueEntry) -> int:
    return workers.register(
        connection,
        name="w",
        host="here",
        pid=1,
        version="0",
        concurrency=10,
        lease_seconds=600.0,
        tasks=[(queue.id, "t")],
    )


@pytest.fixture(params=KINDS)
def restored(request: pytest.FixtureRequest, server_url: str, database: Database) -> Iterator[Restored]:
    restored = Restored(server_url, database, KINDS[request.param])
    yield restored
    restored.connection.close()


@pytest.mark.parametrize("is_whole", [True, False])
def test_g14_a_settle_of_a_lease_whose_number_came_again_changes_nothing(restored: Restored, is_whole: bool) -> None:
    old = restored.old
    done = Succeeded(old.id, old.token, old.range, is_whole, [0, 1, 2, 3, 4], [1] * 5, [1] * 5, [b'"other"'] * 5)
    turn = exchange(restored.connection, restored.worker, "w", [done], [], None)
    assert sorted(turn.not_held) == [(old.id, position) for position in range(5)]
    restored.assert_untouched()


@pytest.mark.parametrize("end", ["retry", "snooze", "failed", "release", "cancelled", "discarded", "expired"])
def test_g14_no_other_end_of_it_changes_anything(restored: Restored, end: Any) -> None:
    ends = restored.ends(end)
    turn = exchange(restored.connection, restored.worker, "w", [], ends, None)
    assert sorted(turn.not_held) == [(restored.old.id, position) for position in range(5)]
    assert settle_alone(restored.connection, restored.worker, "w", ends[0]) == "not held"
    restored.assert_untouched()


def test_g14_it_is_not_split_not_noted_as_started_and_not_settled_by_a_handler(restored: Restored) -> None:
    old, connection, worker = restored.old, restored.connection, restored.worker
    assert split_lease(connection, worker, old.id, old.token, old.range * 1024) is None
    connection.execute("update penstock.lease set is_ahead = true")
    note_started(connection, worker, [old])
    assert connection.execute("update penstock.lease set is_ahead = false where is_ahead").rowcount == 1
    with psycopg.connect(restored.database.url) as own:
        assert not settle_in(own, "penstock", worker, "w", old.id, old.token, old.range * 1024, {"of": "another"})
    restored.assert_untouched()


def test_g14_a_token_alone_is_no_lease_the_range_must_be_its_own(restored: Restored) -> None:
    new, connection, worker = restored.new, restored.connection, restored.worker
    done = Succeeded(new.id, new.token, new.range + 1024, True, [0, 1, 2, 3, 4], [1] * 5, [1] * 5)
    assert len(exchange(connection, worker, "w", [done], [], None).not_held) == 5
    ends = [End(new.id, new.token, 0, new.range + 1024, "failed")]
    assert len(exchange(connection, worker, "w", [], ends, None).not_held) == 1
    assert split_lease(connection, worker, new.id, new.token, (new.range + 1024) * 1024) is None
    restored.assert_untouched()


def test_g14_the_lease_that_has_the_number_now_is_settled(restored: Restored) -> None:
    old, new = restored.old, restored.new
    wrong = Succeeded(old.id, old.token, old.range, True, [0, 1, 2, 3, 4], [1] * 5, [1] * 5)
    right = Succeeded(new.id, new.token, new.range, True, [0, 1, 2, 3, 4], [1] * 5, [1] * 5)
    turn = exchange(restored.connection, restored.worker, "w", [wrong, right], [], None)
    # Of the two that were named by one number the one is told as lost.
    assert sorted(turn.not_held) == [(old.id, position) for position in range(5)]
    assert held_leases(restored.connection, restored.worker) == []
    assert restored.connection.execute("select count(*) from penstock.finished_job").fetchall() == [(5,)]


def test_g14_a_worker_that_the_copy_does_not_know_is_told_though_others_registered_there(
    server_url: str, database: Database
) -> None:
    with database.connect() as connection:
        queue = declare_queue(connection, QueueDefinition.of("q", 1))
    backup = Backup(server_url, database.url)
    with database.connect() as connection:
        lost = _register(connection, queue)
    backup.restore()
    with database.connect() as connection:
        another = _register(connection, queue)
        assert workers.renew(connection, lost) is None
        workers.remove(connection, lost)
        assert workers.renew(connection, another) is not None
        connection.execute("update penstock.worker set renewed_at = '-infinity'")
        assert workers.renew(connection, lost) is None
        assert sweep.rescue(connection).workers == 1


def test_g14_progress_of_a_job_that_is_not_the_workers_is_not_stored(restored: Restored) -> None:
    job = restored.new.range * 1024
    another = _register(restored.connection, restored.queue)
    workers.report_progress(restored.connection, another, [(job, 0.5, "of another job")])
    restored.assert_untouched()
    workers.report_progress(restored.connection, restored.worker, [(job, 0.5, "its own")])
    assert restored.connection.execute("select job_id from penstock.progress").fetchall() == [(job,)]


def _write_as_transaction_one(connection: Connection, partition: int) -> int:
    """A job of a key that a transaction wrote whose number is far below all that were seen before."""
    connection.execute(
        "with j as (insert into penstock.job (id, enqueued_at, partition_id, priority, task, args, key)"
        " values (5 * 1024, now(), %(partition)s, 5, 't', '{}', 'k'))"
        " insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, changed,"
        " epoch, task) values (%(partition)s, 5, 1, 5, 0, 1, 1, 0, '1', 1, '')",
        {"partition": partition},
    )
    return 5 * 1024


def test_g14_an_owner_forgets_what_it_saw_on_another_server(server_url: str, database: Database) -> None:
    """Numbers of transactions go back: a row that was written since would pass for one that was seen."""
    with database.connect() as connection:
        queue = declare_queue(connection, QueueDefinition.of("q", 1, order="key"))
        worker = _register(connection, queue)
        (first,) = _enqueue(connection, queue, 1)
        owner = Owner({queue.id: ("t",)})
        owner.share(connection, worker, 10.0)
        owner.look(connection, 5, 10.0)
    Backup(server_url, database.url).restore()
    with database.connect() as connection:
        second = _write_as_transaction_one(connection, queue.partition_ids[0])
        owner.look(connection, 5, 20.0)
        assert not owner.is_idle(20.0)
        owner.share(connection, worker, 20.0)
        owner.look(connection, 5, 20.0)
        (choice,) = owner.choose(5, 0, 0, 20.0)
        assert sorted(choice.jobs) == [first, second]
        assert len(exchange(connection, worker, "w", [], [], None, [choice]).chosen) == 2


def test_g14_what_was_noted_as_quiet_on_another_server_is_void(server_url: str, database: Database) -> None:
    with database.connect() as connection:
        queue = declare_queue(connection, QueueDefinition.of("q", 1, order="key"))
        worker, stranger = _register(connection, queue), _register(connection, queue)
        connection.execute("delete from penstock.worker_task where worker_id = %s", [stranger])
        owner = Owner({queue.id: ("t",)})
        owner.share(connection, worker, 10.0)
        owner.look(connection, 5, 10.0)
        owner.note_idle(connection, worker, 10.0)
        workers.add_tasks(connection, stranger, [(queue.id, "t")])
    Backup(server_url, database.url).restore()
    with database.connect() as connection:
        _write_as_transaction_one(connection, queue.partition_ids[0])
        assert owner_storage.has_work_of_others(connection, stranger)


def test_g14_what_was_chosen_by_a_look_at_another_server_is_not_leased(server_url: str, database: Database) -> None:
    with database.connect() as connection:
        queue = declare_queue(connection, QueueDefinition.of("q", 1, order="key"))
        worker = _register(connection, queue)
        ids = _enqueue(connection, queue, 1)
        owner = Owner({queue.id: ("t",)})
        owner.share(connection, worker, 10.0)
        owner.look(connection, 5, 10.0)
        choices = owner.choose(5, 0, 0, 10.0)
        assert [choice.jobs for choice in choices] == [ids]
    Backup(server_url, database.url).restore()
    with database.connect() as connection:
        turn = exchange(connection, worker, "w", [], [], None, choices)
        assert turn.chosen == []
        assert held_leases(connection, worker) == []
