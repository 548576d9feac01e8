"""Why the owner of a partition does not start a job: the facts it goes by, read from the tables."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.model.rules import QueueRules
from penstock.storage.catalogue.queues import rules_of
from penstock.storage.catalogue.resize import UndrainedKeyMaps
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.inspect.health import holder_of_job
from penstock.storage.inspect.jobs import find_job

__all__ = ["HoldingRetry", "KeyFacts", "why_not_started"]


class HoldingRetry(msgspec.Struct):
    """A retry that holds its key until it runs."""

    job: str
    due_at: datetime


_decode_retry = msgspec.json.Decoder(HoldingRetry).decode


class KeyFacts(NamedTuple):
    """What bears on a ready job of a queue with rules about keys."""

    queue_id: int
    partition_id: int
    rules: QueueRules
    owner: str | None
    epoch: int
    key: bytes | None
    # Jobs of its key that run, where the first does, and whether that worker is gone or silent; the retry its key is
    # held for; the job its key is halted by, and whether that is a dead letter still; a job of its key that is ready
    # and goes before it.
    running: list[int]
    running_on: str | None
    is_holder_gone: bool
    retry: HoldingRetry | None
    halted_by: int | None
    can_retry: bool
    earlier_job: int | None
    earlier_task: str | None
    # What its partition's owner has handlers for.
    owner_knows: list[str]
    key_maps: UndrainedKeyMaps


def why_not_started(connection: Connection, job_id: int) -> KeyFacts | None:
    """The facts about a ready job, or None where its queue has no owner or it is not ready any more."""
    row = connection.execute(query("why_not_started"), {"id": job_id}).fetchone()
    if row is None:
        return None
    queue, partition, stored, weights, is_paused, *facts, running, retry, halted_by, can_retry, earlier, owner_knows = (
        row
    )
    rules = rules_of(json.loads(stored), weights, is_paused)
    key_maps = UndrainedKeyMaps.of(connection.execute(query("undrained_maps"), {"queue": queue}).fetchall())
    running_on = find_job(connection, running[0]).worker if running else None
    holder = holder_of_job(connection, running[0]) if running else None
    is_holder_gone = holder is not None and (holder.is_gone or holder.silent_seconds is not None)
    waits_for = None if retry is None else _decode_retry(retry)
    earlier_task = None if earlier is None else find_job(connection, earlier).task
    of_key = [running, running_on, is_holder_gone, waits_for, halted_by, can_retry, earlier, earlier_task, owner_knows]
    return KeyFacts._make([queue, partition, rules, *facts, *of_key, key_maps])
