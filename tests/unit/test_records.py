"""Records: what is read back as JSON carries it, and the types that describe it."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from jsonschema_rs import Draft202012Validator

from penstock import model
from penstock.model import BlockedKey, Drain, DrainRest, Explanation, Failure, Job, Resize, Shard, State, Stats
from penstock.model.dead_letter import DeadLetter
from penstock.model.job import JobDetail
from penstock.model.records import record, record_type

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
LARGE = 2**62 + 1
JOB = Job(
    id=LARGE,
    queue="q",
    partition="q__p1",
    task="t",
    args={"n": 2**64, "deep": [{"id": 5}]},
    key=b"\xff\x00",
    state=State.FAILED,
    enqueued_at=NOW,
    after=[LARGE, 1],
    failures=[Failure(attempt=1, error="E: x", at=NOW, worker=None)],
)
VALUES: list[Any] = [
    JOB,
    JobDetail(**{each.name: getattr(JOB, each.name) for each in dataclasses.fields(Job)}, children=[LARGE]),
    Stats.of("q", [], rules=model.QueueRules(fair_by="tenant", weights={"a": 1.5})),
    Shard(name="1", url="postgresql://u:secret@h/d", address="h/d", health="up", state="active", partitions=1,
          queued=0, running=0),
    Explanation(job_id=LARGE, state=State.READY, reason="limit 2 of 2",
                detail={"held_by": [LARGE, 2], "limit": 2, "running": 2, "at": NOW}),
    BlockedKey(key=b"\xfe", reason="r", since=NOW, waiting=1, job_id=LARGE, until=None),
    Resize(queue="q", partitions=2, epoch=3, draining=[("q__p1", 4)], is_through=False),
    Drain(shard="2", state="draining", rest=[DrainRest(queue="", kind="ready", count=1, reason="r")]),
    DeadLetter(job_id=LARGE, queue="q", partition="q", task="t", attempt=3, failed_at=NOW, worker=None, error=None),
    model.JobPage(jobs=[JOB], next=LARGE, searched_to=NOW),
    model.History(queue="q", minutes=[
        model.Minute(minute=NOW, waiting=1, running=0, scheduled=0, blocked=0, dead=0,
                     wait_seconds=model.Percentiles(count=3, p50=0.1, p95=2.0, p99=2.5))]),
    model.HotKeys(queue="q", waiting=2, is_estimate=True, looked_at=1, keys=[
        model.HotKey(key=b"\xfe", waiting=2, share=1.0, oldest_ready_at=NOW, running=0, is_held=False,
                     is_halted=True)]),
]  # fmt: skip


def as_json(value: object) -> Any:
    return json.loads(msgspec.json.encode(record(value)))


def test_ids_are_text_and_keys_that_are_no_text_say_so() -> None:
    told = as_json(JOB)
    assert (told["id"], told["after"], told["key"]) == (str(LARGE), [str(LARGE), "1"], {"base64": "/wA="})
    assert told["args"] == {"n": 2**64, "deep": [{"id": 5}]}
    assert told["failures"] == [{"attempt": 1, "error": "E: x", "at": "2030-01-02T03:04:05Z", "worker": None}]
    assert as_json(VALUES[1])["children"] == [str(LARGE)]
    assert as_json(VALUES[5])["job_id"] == str(LARGE)
    assert as_json(VALUES[9])["next"] == str(LARGE)


def test_a_record_has_the_fields_of_its_value_but_for_what_is_secret() -> None:
    for value in VALUES:
        names = {each.name for each in dataclasses.fields(value)}
        assert set(as_json(value)) == names - ({"url"} if isinstance(value, Shard) else set())
    assert "secret" not in str(as_json(VALUES[3]))


def test_an_explanation_tells_of_jobs_by_text_and_of_counts_by_number() -> None:
    assert as_json(VALUES[4])["detail"] == {
        "held_by": [str(LARGE), "2"], "limit": 2, "running": 2, "at": "2030-01-02T03:04:05Z",
    }  # fmt: skip
    running = Explanation(job_id=1, state=State.READY, reason="r", detail={"head": 7, "running": [7], "batch": 10})
    assert as_json(running)["detail"] == {"head": "7", "running": ["7"], "batch": 10}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_record_is_of_the_type_that_describes_it(value: object) -> None:
    schema = msgspec.json.schema(record_type(type(value)))
    Draft202012Validator(schema).validate(as_json(value))
    assert record([value, value]) == [record(value)] * 2
    whole = {name for name, each in schema["$defs"].items() if each.get("properties")}
    # Every field is told, also one that has nothing to say.
    assert all(set(schema["$defs"][name]["properties"]) == set(schema["$defs"][name]["required"]) for name in whole)


def test_what_is_no_value_of_the_model_is_what_it_is() -> None:
    for value in (None, 5, "x", {"a": 1}, b"x"):
        assert record(value) == value
