"""Loads by their names, on one shard: how far they are; paused, resumed and cancelled as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.clock import system
from penstock.errors import NotFound
from penstock.model.load import Load
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.repair.control import cancel_jobs
from penstock.storage.upkeep.sweep import rescue

__all__ = [
    "BY_CANCEL_LOAD",
    "LoadShare",
    "cancel_load",
    "count_unstarted",
    "forget_stages",
    "has_load",
    "newest_loads",
    "pause_load",
    "read_loads",
    "resume_load",
    "suspend_paused_loads",
    "whole_load",
]

# Why its jobs were cancelled, where nobody says more.
BY_CANCEL_LOAD = "cancelled by app.cancel_load"
# Ranges a cancel takes at once.
_RANGES = 50
_MINUTE = 60.0


class LoadShare(NamedTuple):
    """What one database has of a load, and where its jobs stand there."""

    name: str
    queue: str
    is_queue_paused: bool
    is_stream: bool
    is_paused: bool
    cancelled_at: datetime | None
    batches: int
    rows: int
    duplicates: int
    age_seconds: float | None
    last_at: datetime | None
    ready: int
    scheduled: int
    running: int
    dead: int
    lately: int


def forget_stages(connection: Connection) -> int:
    """Forget stages that nobody published within a day."""
    return _count(connection, "forget_stages")


def suspend_paused_loads(connection: Connection) -> int:
    """Take out of the order again what came back of paused loads."""
    return _count(connection, "suspend_paused_loads")


def newest_loads(connection: Connection, limit: int) -> list[tuple[str, datetime]]:
    """The names of the newest loads, and when each was made."""
    rows = connection.execute(query("newest_loads"), {"limit": limit}).fetchall()
    return [(name, created_at) for name, created_at in rows]


def read_loads(connection: Connection, names: Sequence[str]) -> list[LoadShare]:
    """What this database has of these loads."""
    return [LoadShare._make(row) for row in connection.execute(query("read_loads"), {"names": list(names)}).fetchall()]


def has_load(connection: Connection, name: str) -> bool:
    """Whether this database has anything of a load."""
    return connection.execute(query("find_load"), {"name": name}).fetchone() is not None


def pause_load(connection: Connection, name: str) -> None:
    """Take what waits of a load out of the order."""
    load = _find(connection, name)
    with connection.transaction():
        connection.execute(query("pause_load"), {"load": load})
        connection.execute(query("suspend_load"), {"load": load})


def resume_load(connection: Connection, name: str) -> None:
    """Let it come back, behind what is ready by now."""
    connection.execute(query("resume_load"), {"load": _find(connection, name)})


def cancel_load(connection: Connection, name: str, reason: str = BY_CANCEL_LOAD) -> int:
    """End every job of a load that has not started, and ask those that run to stop; how many ended.

    When it returns none of them can start: it waits until workers have begun or handed back what they hold ahead.
    """
    load = _find(connection, name)
    connection.execute(query("mark_load_cancelled"), {"load": load})
    ended = _cancel_waiting(connection, load, reason)
    while True:
        # Nothing waits any more: what has not ended runs, and is asked to stop. A job whose retry was settled before it
        # was asked waits again: so look once more.
        for number, size in connection.execute(query("running_ranges_of_load"), {"load": load}).fetchall():
            cancel_jobs(connection, range(number * RANGE, number * RANGE + size), reason)
        found = _cancel_waiting(connection, load, reason)
        ended += found
        if not found:
            return ended


def count_unstarted(connection: Connection, name: str) -> int:
    """How many jobs of a load `cancel_load` would end, as they stand now."""
    row = connection.execute(query("count_unstarted_of_load"), {"load": _find(connection, name)}).fetchone()
    return int(row[0]) if row else 0


def _cancel_waiting(connection: Connection, load: int, reason: str) -> int:
    """End what waits of a load, until nothing does; how many jobs."""
    ended = 0
    while ranges := connection.execute(query("unstarted_ranges_of_load"), {"load": load, "limit": _RANGES}).fetchall():
        ids = [id_ for number, size in ranges for id_ in range(number * RANGE, number * RANGE + size)]
        found = len(cancel_jobs(connection, ids, reason).ended)
        ended += found
        if not found:
            # A worker is about to begin these, or to hand them back; a dead one never will.
            rescue(connection)
            system.sleep(0.02)
    return ended


def _find(connection: Connection, name: str) -> int:
    row = connection.execute(query("find_load"), {"name": name}).fetchone()
    if row is None:
        raise NotFound(f"load {name!r} does not exist: see app.loads(), or `penstock loads`")
    return int(row[0])


def _count(connection: Connection, name: str) -> int:
    row = connection.execute(query(name)).fetchone()
    return int(row[0] or 0) if row else 0


def whole_load(shares: Sequence[LoadShare]) -> Load:
    """A load, added up from what each shard has of it."""
    rows, duplicates = sum(share.rows for share in shares), sum(share.duplicates for share in shares)
    waiting, running = sum(share.ready + share.scheduled for share in shares), sum(share.running for share in shares)
    left = waiting + running
    age_seconds = max((share.age_seconds for share in shares if share.age_seconds is not None), default=_MINUTE)
    rate = sum(share.lately for share in shares) / min(_MINUTE, max(age_seconds, 1.0))
    is_paused, is_stream = any(share.is_paused for share in shares), any(share.is_stream for share in shares)
    is_cancelled = any(share.cancelled_at is not None for share in shares)
    return Load(
        name=shares[0].name,
        queue=shares[0].queue,
        state=_state(is_paused, is_cancelled, is_stream, left),
        is_queue_paused=any(share.is_queue_paused for share in shares),
        is_stream=is_stream,
        batches=max(share.batches for share in shares),
        rows=rows,
        duplicates=duplicates,
        waiting=waiting,
        running=running,
        failed=sum(share.dead for share in shares),
        done=rows - duplicates - left,
        rate=rate,
        eta_seconds=left / rate if left and rate and not is_paused else None,
        published_at=max((share.last_at for share in shares if share.last_at is not None), default=None),
    )


def _state(is_paused: bool, is_cancelled: bool, is_stream: bool, left: int) -> str:
    if is_cancelled:
        return "cancelled"
    if is_paused:
        return "paused"
    return "running" if left or is_stream else "done"
