"""The owner beside those who move jobs: what it starts stands where it believes it to stand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.database.conftest import Scene
from tests.database.ledger import check
from tests.database.owned import Owned

from penstock.engine.owner import Owner
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.work.exchange import exchange
from penstock.storage.work.owner import ChosenJobs

LATER = datetime.now(UTC) + timedelta(days=1)


class Owning:
    """A worker's owner, turn by turn."""

    def __init__(self, owned: Owned) -> None:
        self.owned = owned
        self.connection = owned.connection
        self.owner = Owner({owned.entry.id: ("t", "u")})
        self.leases: dict[int, int] = {}
        self._now = 0.0

    def choose(self, wanted: int = 10) -> list[ChosenJobs]:
        self._now += 10.0
        self.owner.share(self.connection, self.owned.worker, self._now)
        self.owner.look(self.connection, wanted, self._now)
        return self.owner.choose(wanted, 0, 0, self._now)

    def lease(self, choices: list[ChosenJobs]) -> list[int]:
        """What of it got leases."""
        turn = exchange(self.connection, self.owned.worker, "w", [], [], None, choices)
        self.owner.note_leased(choices, turn, self._now)
        got = {lease.range * 1024 + p: lease.id for lease in turn.chosen for p in lease.positions}
        self.leases |= got
        self.owned.scene.tokens |= {lease.id: lease.token for lease in turn.chosen}
        return sorted(got)

    def start(self, wanted: int = 10) -> list[int]:
        """What starts next; looked for twice, since the owner may have found that it must read anew."""
        return self.lease(self.choose(wanted)) or self.lease(self.choose(wanted))

    def end(self, job: int, end: str = "discarded") -> None:
        partition = self.owner.ownerships[0].partition_id
        self.owner.note_end(partition, job, end, self._now)
        self.owned.end([(self.leases.pop(job), job)], end)


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene, partitions=1)


@pytest.fixture
def owning(owned: Owned) -> Owning:
    return Owning(owned)


def put_off_and_back(owned: Owned, job: int) -> None:
    assert control.reschedule_job(owned.connection, job, LATER) == "scheduled"
    owned.connection.execute("update penstock.scheduled set due_at = now() - interval '1 s'")
    assert sweep.promote(owned.connection) == 1


def test_a_job_that_was_put_off_and_is_due_starts_at_its_new_place(owned: Owned, owning: Owning) -> None:
    first, second, third = (owned.enqueue([b"a"])[0] for _ in range(3))
    assert owning.start() == [first]
    put_off_and_back(owned, second)
    owning.end(first)
    assert owning.start() == [third]
    owning.end(third)
    assert owning.start() == [second]
    check(owned.connection)


def test_a_job_that_was_chosen_and_put_off_before_it_is_leased_does_not_start(owned: Owned, owning: Owning) -> None:
    first, second = (owned.enqueue([b"a"])[0] for _ in range(2))
    choices = owning.choose()
    assert [choice.jobs for choice in choices] == [[first]]
    put_off_and_back(owned, first)
    assert owning.lease(choices) == []
    assert owning.start() == [second]
    owning.end(second)
    assert owning.start() == [first]


def test_a_job_that_is_put_off_leaves_its_key_free(owned: Owned, owning: Owning) -> None:
    first, second = (owned.enqueue([b"a"])[0] for _ in range(2))
    owning.choose(0)
    assert control.reschedule_job(owned.connection, first, LATER) == "scheduled"
    assert owning.start() == [second]


def test_the_jobs_of_a_load_that_was_paused_and_resumed_start_behind_what_was_ready(
    owned: Owned, owning: Owning
) -> None:
    first, second, third = (owned.enqueue([b"a"])[0] for _ in range(3))
    connection, queue = owned.connection, owned.entry
    connection.execute("insert into penstock.load (name, queue_id, is_stream) values ('l', %s, false)", [queue.id])
    connection.execute(
        "insert into penstock.load_range (range, stage, load_id, size, partition_id, priority, has_idempotency_keys,"
        " task)"
        " select %s, 's', id, 1, %s, 5, false, '' from penstock.load",
        [second // 1024, queue.partition_ids[0]],
    )
    assert owning.start() == [first]
    connection.execute("update penstock.load set is_paused = true")
    assert owned.scene.one("select penstock.suspend_paused_loads()") == 1
    connection.execute("select penstock.resume_load(id) from penstock.load")
    assert sweep.promote(connection) == 1
    owning.end(first)
    assert owning.start() == [third]
    owning.end(third)
    assert owning.start() == [second]


def test_nothing_of_a_key_passes_a_rescued_job_that_is_put_off(scene: Scene) -> None:
    owned = Owned(scene, partitions=1, per_key=3)
    owning = Owning(owned)
    first, second, other = owned.enqueue([b"a", b"a", b"b"])
    owned.connection.execute(
        "update penstock.ready set members = penstock.span(0, 3) & ~penstock.single(0) where range = %s",
        [first // 1024],
    )
    owned.connection.execute(
        "insert into penstock.ready (partition_id, priority, pos, range, low, high, rescues, changed, epoch, task)"
        " select partition_id, priority, pos, range, 0, 1, 1, changed, epoch, task from penstock.ready"
    )
    # It runs only in a slot that is free now, and there is none: what is claimed ahead is not of its key.
    owning.start(0)
    choices = owning.owner.choose(0, 10, 0, 100.0)
    assert [choice.jobs for choice in choices] == [[other]]
    assert owning.lease(choices) == [other]
    assert owning.start() == [first, second]


def test_a_new_owner_starts_nothing_past_what_a_worker_claimed_ahead(scene: Scene) -> None:
    owned = Owned(scene, partitions=1, per_key=3)
    ids = [owned.enqueue([b"a"])[0] for _ in range(4)]
    running, ahead = owned.lease(ids[:1]), owned.lease(ids[1:2], is_ahead=True)
    before, owned.worker = owned.worker, owned.scene.register(("t", "u"), owned.entry)
    owned.connection.execute("update penstock.partition set owner_id = null")
    owned.connection.execute("delete from penstock.worker_task where worker_id = %s", [before])
    heir = Owning(owned)
    assert heir.start() == []
    owned.worker, after = before, owned.worker
    owned.end(ahead, "release")
    owned.worker = after
    assert heir.start() == ids[1:3]
    assert running
