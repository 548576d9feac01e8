"""Loads as a person handles them: how far they are, to pause, resume or cancel one as a whole.

A load has a part on each shard that it wrote to; together they are the load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from penstock.admin.answers import ask_everywhere, refuse_missing, some_jobs
from penstock.errors import NotFound, PartitionUnavailable
from penstock.model.checks import checked_count, checked_flag, checked_name
from penstock.model.load import Load
from penstock.shards.databases import Answers, Databases
from penstock.shards.decided_loads import publish_decided
from penstock.storage import Connection
from penstock.storage.loads import loads as storage

__all__ = ["cancel_load", "loads", "pause_load", "resume_load"]

MOST_LISTED = 1_000


def loads(databases: Databases, limit: int = 100, names: Sequence[str] | None = None) -> list[Load]:
    """The newest loads, or those of these names that there are."""
    checked_count("limit", limit, most=MOST_LISTED)
    names = _newest(databases, limit) if names is None else [checked_name("load", name) for name in names]
    shares: dict[str, list[storage.LoadShare]] = {name: [] for name in names}
    for found in databases.each(lambda connection: storage.read_loads(connection, names)) if names else ():
        for share in found:
            shares[share.name].append(share)
    return [storage.whole_load(found) for found in shares.values() if found]


def _newest(databases: Databases, limit: int) -> list[str]:
    made: dict[str, datetime] = {}
    for each in ask_everywhere(databases, lambda connection: storage.newest_loads(connection, limit)):
        for name, created_at in each:
            made[name] = max(made.get(name, created_at), created_at)
    return sorted(made, key=lambda name: made[name], reverse=True)[:limit]


def pause_load(databases: Databases, name: str) -> None:
    """Take what waits of a load out of its queue."""
    answers, _ = _on_all(databases, name, storage.pause_load)
    refuse_missing(answers, f"paused load {name!r}")


def resume_load(databases: Databases, name: str) -> None:
    """Let it come back."""
    answers, _ = _on_all(databases, name, storage.resume_load)
    refuse_missing(answers, f"resumed load {name!r}")


def cancel_load(databases: Databases, name: str, reason: str | None = None, *, preview: bool = False) -> int:
    """End what has not started of a load; how many jobs. With `preview` they are counted, and nothing is changed."""
    checked_flag("preview", preview)
    why = storage.BY_CANCEL_LOAD if reason is None else checked_name("reason", reason)
    if preview:
        answers, ended = _on_all(databases, name, storage.count_unstarted, writes=False)
        refuse_missing(answers, f"would cancel {some_jobs(ended)} of load {name!r}")
        return ended
    answers, ended = _on_all(databases, name, partial(storage.cancel_load, reason=why))
    refuse_missing(answers, f"cancelled {some_jobs(ended)} of load {name!r}")
    return ended


def _on_all(
    databases: Databases, name: str, act: Callable[[Connection, str], int | None], *, writes: bool = True
) -> tuple[Answers[int | None], int]:
    """Do something to a load on each shard that has a part of it; what they said, and the sum of it."""
    checked_name("load", name)

    def work(connection: Connection) -> int | None:
        return (act(connection, name) or 0) if storage.has_load(connection, name) else None

    # What was decided and is not published everywhere belongs to the load. A shard that is away is in `missing` below.
    with suppress(PartitionUnavailable):
        if writes:
            publish_decided(databases, name, waits=False)
    answers = databases.each(work, writes=writes)
    counts = [count for count in answers if count is not None]
    if not counts and not answers.missing:
        raise NotFound(f"load {name!r} does not exist: see app.loads(), or `penstock loads`")
    return answers, sum(counts)
