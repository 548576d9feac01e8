"""The error tree: messages that say what happened, to what, and what to do, and that survive a process border."""

from __future__ import annotations

import pickle

import pytest

from penstock import errors
from penstock.errors import (
    InvalidInput,
    JobFailed,
    LeaseLost,
    NotFound,
    PartitionUnavailable,
    PenstockError,
    QueueFull,
    RequestTimeout,
    ResultTimeout,
    SchemaMismatch,
    UnknownTask,
    WorkerGone,
    WorkerStuck,
)

ONE_OF_EACH: list[PenstockError] = [
    QueueFull("emails", 10_000),
    PartitionUnavailable("partition 'emails__p1' does not answer"),
    RequestTimeout("no answer within 5 s", "not written"),
    LeaseLost("job 7 was rescued"),
    WorkerGone("worker 7 is not known"),
    UnknownTask("no task 'sned'"),
    InvalidInput("priority", "10 is out of bounds; give 0 to 9"),
    SchemaMismatch("schema 9 is newer than this code"),
    NotFound("no job 7"),
    JobFailed(7, "failed", "ValueError: no"),
    ResultTimeout(7, 2.5),
    WorkerStuck("17 handlers do not come back"),
]


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_every_error_is_a_penstock_error_and_survives_pickling(error: PenstockError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, PenstockError)
    assert type(copy) is type(error)
    assert str(copy) == str(error) != ""
    assert vars(copy) == vars(error)


def test_the_list_above_leaves_no_error_out() -> None:
    assert {type(error).__name__ for error in ONE_OF_EACH} | {"PenstockError"} == set(errors.__all__)


def test_the_tree_drawn_at_the_top_names_every_error() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert name in errors.__doc__


def test_a_full_queue_says_which_and_how_long_it_may_be() -> None:
    error = QueueFull("x", 10_000)
    assert str(error) == "queue 'x' is full: max_length 10000"
    assert (error.queue, error.max_length) == ("x", 10_000)


def test_a_request_that_timed_out_has_an_unknown_outcome_unless_it_is_known() -> None:
    assert RequestTimeout("no answer").outcome == "unknown"
    assert RequestTimeout("no answer", outcome="not written").outcome == "not written"


def test_an_invalid_input_names_the_field_and_the_remedy() -> None:
    error = InvalidInput("key", "900 bytes is too long; give at most 512")
    assert error.field == "key"
    assert str(error) == "key: 900 bytes is too long; give at most 512"


@pytest.mark.parametrize("field", ["\ud800", "a\nb", "a" * 10_000])
def test_whatever_the_field_is_called_the_message_can_be_printed(field: str) -> None:
    error = InvalidInput(field, "no such argument; leave it out")
    assert error.field == field
    assert str(error).encode().isascii()
    assert len(str(error)) < 300


def test_a_failed_job_says_how_it_ended_and_what_to_do() -> None:
    assert str(JobFailed(7, "failed", "boom")) == (
        "job 7 ended as failed: boom; read app.job(7).failures, and app.retry(7) once the cause is gone"
    )
    assert "app.retry" not in str(JobFailed(7, "cancelled", None))


def test_a_result_that_did_not_come_in_time_is_a_timeout_error_too() -> None:
    assert isinstance(ResultTimeout(7, 1), TimeoutError)
    assert str(ResultTimeout(7, 1)).startswith("job 7 has not ended within 1 s")
