"""A database whose work fails by something nobody expected is tried again after a while, and the others go on."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.system.facts import eventually

from penstock import App
from penstock.worker import database_worker
from penstock.worker.database_worker import DatabaseWorker


def test_it_is_not_tried_without_a_pause_and_told_once(
    shard_urls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    work_as_always = DatabaseWorker._work
    tries = []

    def work(self: DatabaseWorker) -> None:
        if self.number == 1 or self.is_stopping:
            work_as_always(self)
            return
        tries.append(self.number)
        self.wake()  # as a producer, a renewal or another shard does at any time
        raise RuntimeError("on purpose")

    monkeypatch.setattr(DatabaseWorker, "_work", work)
    monkeypatch.setattr(database_worker, "AGAIN_SECONDS", 0.2)
    with App(shards=shard_urls) as app:

        @app.queue("q", partitions=2).task
        def t(n: int) -> None: ...

        t.enqueue_many([{"n": n} for n in range(20)])
        with caplog.at_level(logging.WARNING, "penstock"):
            worker = threading.Thread(target=app.work)
            worker.start()
            eventually(lambda: len(tries) >= 3, "it was tried again")
            eventually(lambda: app.stats("q").partitions[0].queue_length == 0, "the other goes on")
            app.stop()
            worker.join()
    told = [record for record in caplog.records if "cannot be worked on" in record.getMessage()]
    assert [str(record.exc_info[1]) for record in told if record.exc_info] == ["on purpose"]
