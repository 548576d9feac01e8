"""The jobs of a key that has whole ranges to itself are read some hundred at a time when they start, not one by one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned

from penstock.engine import owned_partition
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.engine.owned_source import OwnedSource
from penstock.storage.work import leases as reading
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import Succeeded

JOBS = 300


class Reader:
    """An owner that starts the jobs of a key one by one, and how often it asked for jobs."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owned = owned = Owned(scene, partitions=1)
        self.jobs = owned.enqueue([owned.key(0, 1)] * JOBS)
        self.source = OwnedSource(owned.worker, {owned.entry.id: {"t"}})
        self.link = Link(scene.database, "test", wait_as_long_as_a_request(scene.database))
        self.conversation = Conversation(self.link, Holder(owned.worker, "w"), self.source.forget)
        self.reads = 0
        read = reading._Reader.read

        def count(reader: Any, *given: Any) -> Any:
            self.reads += 1
            return read(reader, *given)

        monkeypatch.setattr(reading._Reader, "read", count)
        self._now = 1.0
        self._running: list[Lease] = []

    def start(self) -> tuple[int, str] | None:
        """End the job that runs, and start the next: its id, and its arguments; None where it was set aside."""
        self._now += 1.0
        self.conversation.ask(lambda connection: self.source.look(connection, 1, self._now))
        ended = []
        for lease in self._running:
            positions = list(lease.positions)
            ended.append(Succeeded(lease.id, lease.token, lease.range, True, positions, [2], [1]))
            jobs = [lease.range * 1024 + position for position in positions]
            self.source.note_succeeded(lease.partition_id, jobs, self._now)
        wish = self.source.wish(1, 0, 0, self._now)
        turn = self.conversation.exchange(Settlement(ended), wish)
        assert turn.not_held == []
        leases = self.source.learn(wish, turn, self._now)
        rows = read_leased(self.conversation, self.source, leases)
        self._running = [lease for lease in leases if lease.positions]
        return next(((job, args) for job, args, *_ in rows.values()), None)


@pytest.fixture
def reader(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    reader = Reader(scene, monkeypatch)
    yield reader
    reader.link.close()


def test_the_jobs_of_one_key_are_read_some_hundred_at_a_time(reader: Reader) -> None:
    assert [reader.start() for _ in range(JOBS)] == [(job, "{}") for job in reader.jobs]
    assert reader.reads == -(-JOBS // owned_partition.JOBS_READ_ON)


def test_long_arguments_are_read_when_their_job_starts(reader: Reader) -> None:
    long = "".join(Random(1).choices("abcdefghij0123456789", k=9_000))
    second = reader.jobs[1]
    reader.owned.connection.execute("update penstock.job set args = to_json(%s::text) where id = %s", [long, second])
    assert [reader.start() for _ in range(3)] == [
        (reader.jobs[0], "{}"),
        (second, f'"{long}"'),
        (reader.jobs[2], "{}"),
    ]
    assert reader.reads == 2


def test_a_job_that_cannot_be_read_is_found_out_when_it_starts(reader: Reader) -> None:
    """G13: reading on costs nobody anything."""
    first, second, third, *_ = reader.jobs
    assert reader.start() == (first, "{}")
    reader.owned.connection.execute("delete from penstock.job where id = %s", [second])
    reader.source.forget()
    assert [reader.start() for _ in range(2)] == [None, (third, "{}")]
    assert reader.owned.row(second, "ready") is not None
