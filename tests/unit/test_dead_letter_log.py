"""However many dead letters there are, the log has a line a second of them, and all are counted."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.storage.work.settle import End
from penstock.worker import dead_letter_log
from penstock.worker.dead_letter_log import DeadLetterLog


def died(job: int) -> End:
    return End(
        lease=1, token=1, position=job, range=0, end="failed", error=f"ValueError: {job}\nFile", due_in=0, age=0, run=0
    )


def test_the_first_is_told_at_once_and_the_others_together(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: threads.append(thread))
    monkeypatch.setattr(dead_letter_log, "TOGETHER_SECONDS", 0.0)
    log = DeadLetterLog()
    for job in range(50):
        log.note([died(job)])
    assert caplog.messages == ["dead letters: 1, the first is job 0: ValueError: 0"]
    threads.pop().run()
    assert caplog.messages[1:] == ["dead letters: 49, the first is job 1: ValueError: 1"]
    # A second passed without any: the next is told at once.
    log.note([died(7), died(8)])
    assert caplog.messages[2:] == ["dead letters: 2, the first is job 7: ValueError: 7"]
    log.note([died(9)])
    log.close()
    assert caplog.messages[3:] == ["dead letters: 1, the first is job 9: ValueError: 9"]


def test_the_rest_is_told_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_log, "TOGETHER_SECONDS", 0.01)
    told = threading.Semaphore(0)

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.release()

    handler = Told()
    dead_letter_log.log.addHandler(handler)
    try:
        log = DeadLetterLog()
        log.note([died(1)])
        log.note([died(2)])
        assert told.acquire(timeout=60)
        assert told.acquire(timeout=60)
    finally:
        dead_letter_log.log.removeHandler(handler)
