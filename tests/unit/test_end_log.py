"""However many jobs end badly, the log has a line a second of each kind, and all are counted."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.task.definition import define
from penstock.task.verdict import Verdict
from penstock.worker import end_log
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.end_log import EndLog

TASK = define("q", print, name="t", max_attempts=3)


def ended(job: int, end: Any = "failed") -> ClaimedJob:
    lease: Any = SimpleNamespace(attempt=1)
    claimed = ClaimedJob(lease, TASK, job, "{}", None, None)
    claimed.verdict = Verdict(end, f"ValueError: {job}\nFile", 2.0)
    return claimed


def test_the_first_is_told_at_once_and_the_others_together(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: threads.append(thread))
    monkeypatch.setattr(end_log, "TOGETHER_SECONDS", 0.0)
    log = EndLog()
    for job in range(50):
        log.note([ended(job)])
    assert caplog.messages == ["dead letters: 1, the first is job 0 (q/t), attempt 1 of 3: ValueError: 0"]
    threads.pop().run()
    assert caplog.messages[1:] == ["dead letters: 49, the first is job 1 (q/t), attempt 1 of 3: ValueError: 1"]
    # A second passed without any: the next is told at once.
    log.note([ended(7), ended(8)])
    assert caplog.messages[2:] == ["dead letters: 2, the first is job 7 (q/t), attempt 1 of 3: ValueError: 7"]
    log.note([ended(9)])
    log.close()
    assert caplog.messages[3:] == ["dead letters: 1, the first is job 9 (q/t), attempt 1 of 3: ValueError: 9"]


def test_a_dead_letter_that_was_retried_and_fails_again_is_not_told_as_one_attempt_too_many(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    job = ended(1)
    job.lease.attempt = 4
    EndLog().note([job])
    assert caplog.messages == [
        "dead letters: 1, the first is job 1 (q/t), attempt 4, after a retry by hand: ValueError: 1"
    ]


def test_each_kind_has_its_line_its_level_and_the_fields_of_the_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    log = EndLog()
    with caplog.at_level(logging.INFO, "penstock"):
        log.note([ended(1, "retry"), ended(2), ended(3, "discarded"), ended(4, "retry"), ended(5, "snooze")])
    assert [(record.levelname, record.job_id, record.jobs) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("INFO", 3, 1),
        ("WARNING", 1, 2),
        ("ERROR", 2, 1),
    ]
    assert "again in 2 s: ValueError: 1" in caplog.messages[1]


def test_no_dead_letter_stands_before_the_attempts_that_came_before_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: threads.append(thread))
    monkeypatch.setattr(end_log, "TOGETHER_SECONDS", 0.0)
    log = EndLog()
    for end in ("retry", "retry", "failed", "failed", "retry"):
        log.note([ended(1, end)])
    threads.pop().run()
    kinds = [said.partition(":")[0] for said in caplog.messages]
    repeated, dead = "attempts that failed and are repeated", "dead letters"
    assert kinds == [repeated, repeated, dead, repeated, dead]


def test_the_rest_is_told_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_log, "TOGETHER_SECONDS", 0.01)
    told = threading.Semaphore(0)

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.release()

    handler = Told()
    end_log.log.addHandler(handler)
    try:
        log = EndLog()
        log.note([ended(1)])
        log.note([ended(2)])
        assert told.acquire(timeout=60)
        assert told.acquire(timeout=60)
    finally:
        end_log.log.removeHandler(handler)
