"""Records of the log: their fields, and their form as JSON."""

from __future__ import annotations

import contextvars
import json
import logging
from typing import Any

import pytest

from penstock import JobFilter, JsonFormatter
from penstock.log_records import current_job, log_about

JOB = {"job_id": 2**53 + 1, "queue": "q", "task": "t", "attempt": 2}


def made(message: str = "said", **extra: Any) -> logging.LogRecord:
    return logging.getLogger("shop").makeRecord("shop", logging.INFO, "f", 1, message, (), None, extra=extra)


def within(job: dict[str, Any] | None, call: Any) -> Any:
    def run() -> Any:
        current_job.note(lambda: job)
        return call()

    return contextvars.copy_context().run(run)


def test_a_record_made_within_a_handler_has_the_fields_of_its_job() -> None:
    record = made()
    assert within(JOB, lambda: JobFilter().filter(record))
    assert {name: getattr(record, name) for name in JOB} == JOB
    nothing: list[dict[str, Any] | None] = [None, {}]
    for job in nothing:
        record = made()
        within(job, lambda record=record: JobFilter().filter(record))
        assert {getattr(record, name) for name in JOB} == {None}


def test_what_a_record_says_itself_counts() -> None:
    record = made(job_id=7)
    within(JOB, lambda: JobFilter().filter(record))
    assert (record.job_id, record.queue) == (7, None)  # type: ignore[attr-defined]


def test_a_record_is_one_line_of_json() -> None:
    line = within(JOB, lambda: JsonFormatter().format(made("two\nlines \x1b\u202e", order=5, kind={"a": 1})))
    assert "\n" not in line
    assert line.isprintable()
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "info", "logger": "shop", "message": "two\nlines \x1b\u202e", "order": 5, "kind": {"a": 1},
        "job_id": "9007199254740993", "queue": "q", "task": "t", "attempt": 2,
    }  # fmt: skip
    assert "job_id" not in json.loads(JsonFormatter().format(made()))


def test_whatever_is_logged_becomes_json() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError

    entry = json.loads(JsonFormatter().format(made("half \udc80", odd={1, 2}, broken=Broken(), keys={(1, 2): 3})))
    assert entry["message"] == "half \\udc80"
    assert entry["broken"] == "<Broken>"


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("gone")
    except ValueError as error:
        record = logging.LogRecord(
            "shop", logging.ERROR, "f", 1, "failed", (), (ValueError, error, error.__traceback__)
        )
    assert "ValueError: gone" in json.loads(JsonFormatter().format(record))["exception"]


def test_an_applications_own_fields_of_these_names_do_no_harm(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*args: Any, **named: Any) -> logging.LogRecord:
        record = logging.LogRecord(*args, **named)
        record.task = "theirs"
        return record

    monkeypatch.setattr(logging, "_logRecordFactory", make)
    log_about(JOB, logging.WARNING, "said %d", 1)
    (record,) = caplog.records
    assert (record.getMessage(), record.task) == ("said 1", "theirs")  # type: ignore[attr-defined]
