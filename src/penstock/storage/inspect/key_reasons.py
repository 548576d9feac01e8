"""Why the owner of a partition does not start a job: the facts it goes by, read from the tables."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.model.rules import QueueRules
from penstock.storage.catalogue.queues import rules_of
from penstock.storage.catalogue.resize import OpenKeyMaps
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.inspect.jobs import find_job

__all__ = ["HeldBack", "HoldingRetry", "why_not_started"]


class HoldingRetry(msgspec.Struct):
    """A retry that holds its key until it runs."""

    job: str
    due_at: datetime


class HeldBack(NamedTuple):
    """What bears on a ready job of a queue with rules about keys."""

    queue_id: int
    partition_id: int
    rules: QueueRules
    owner: str | None
    epoch: int
    key: bytes | None
    # Jobs of its key that run, and where the first does; the retry its key waits for, the job it halted for and whether
    # that is a dead letter still, an earlier job that is ready.
    running: list[int]
    running_on: str | None
    retry: HoldingRetry | None
    halted_by: int | None
    can_retry: bool
    behind: int | None
    behind_task: str | None
    # What its partition's owner has handlers for.
    owner_knows: list[str]
    maps: OpenKeyMaps


def why_not_started(connection: Connection, job_id: int) -> HeldBack | None:
    """The facts about a ready job, or None where its queue has no owner or it is not ready any more."""
    row = connection.execute(query("why_not_started"), {"id": job_id}).fetchone()
    if row is None:
        return None
    queue, partition, stored, weights, is_paused, *facts, running, retry, halted_by, can_retry, behind, owner_knows = (
        row
    )
    rules = rules_of(json.loads(stored), weights, is_paused)
    maps = OpenKeyMaps.of(connection.execute(query("open_maps"), {"queue": queue}).fetchall())
    running_on = find_job(connection, running[0]).worker if running else None
    waits_for = None if retry is None else msgspec.json.decode(retry, type=HoldingRetry)
    behind_task = None if behind is None else find_job(connection, behind).task
    held = [running, running_on, waits_for, halted_by, can_retry, behind, behind_task, owner_knows, maps]
    return HeldBack._make([queue, partition, rules, *facts, *held])
