"""The facts of one database that may need attention: it costs the same at any backlog."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.inspect import health
from penstock.storage.inspect.health import SetAside, StuckJob, Trouble
from penstock.storage.inspect.system_figures import SystemFigures, read_system_figures

__all__ = ["AttentionFacts", "CronFacts", "read_attention_facts"]


class NotedFlow(msgspec.Struct, array_like=True, frozen=True):
    """How many jobs had come to a partition, and ended there, so many seconds ago."""

    partition: str
    seconds: float
    enqueued: int
    ended: int


class NotedFailures(msgspec.Struct, array_like=True, frozen=True):
    """How many times a job of a partition had become a dead letter, an hour ago at most."""

    partition: str
    failed: int


class NewLetters(msgspec.Struct, array_like=True, frozen=True):
    """Of the newest dead letters those of a partition, and for how long the last has been one."""

    partition: str
    letters: int
    last_seconds: float


class PausedLoad(msgspec.Struct, array_like=True, frozen=True):
    """A paused load of which something waits."""

    load: str
    queue: str


class CronFacts(msgspec.Struct, array_like=True, frozen=True):
    """A cron that is paused, or whose last job is a dead letter: which, and for how long."""

    cron: str
    queue: str
    task: str
    is_paused: bool
    job_id: int | None
    failed_seconds: float | None


class AttentionFacts(msgspec.Struct, frozen=True):
    """One database, at an instant by its own clock."""

    now: datetime
    figures: SystemFigures
    flows: list[NotedFlow]
    failures: list[NotedFailures]
    letters: list[NewLetters]
    loads: list[PausedLoad]
    crons: list[CronFacts]
    stuck: list[StuckJob]
    set_aside: list[SetAside]
    troubles: list[Trouble]


_flows = msgspec.json.Decoder(list[NotedFlow]).decode
_failures = msgspec.json.Decoder(list[NotedFailures]).decode
_letters = msgspec.json.Decoder(list[NewLetters]).decode
_loads = msgspec.json.Decoder(list[PausedLoad]).decode
_crons = msgspec.json.Decoder(list[CronFacts]).decode


def read_attention_facts(connection: Connection) -> AttentionFacts:
    """What there is to judge."""
    figures = read_system_figures(connection)
    row = connection.execute(query("attention_facts")).fetchone()
    assert row is not None  # noqa: S101
    now, flows, failures, letters, loads, crons = row
    return AttentionFacts(
        now,
        figures,
        _flows(flows),
        _failures(failures),
        _letters(letters),
        _loads(loads),
        _crons(crons),
        health.stuck_jobs(connection),
        health.jobs_set_aside(connection),
        health.troubles(connection),
    )
