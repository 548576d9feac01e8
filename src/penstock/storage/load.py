"""Loads by their names, on one shard: how far they are; paused, resumed and cancelled as a whole."""

from __future__ import annotations

from datetime import datetime

from penstock.clock import system
from penstock.errors import NotFound
from penstock.model.load import Load
from penstock.storage.control import cancel_jobs
from penstock.storage.database import Connection
from penstock.storage.enqueue import RANGE
from penstock.storage.queries import query
from penstock.storage.sweep import rescue

__all__ = [
    "cancel_load",
    "forget_stages",
    "hold_loads",
    "pause_load",
    "read_loads",
    "resume_load",
]

# Ranges a cancel takes at once.
_RANGES = 50
_MINUTE = 60.0


def forget_stages(connection: Connection) -> int:
    """Forget stages that nobody published within a day."""
    return _count(connection, "forget_stages")


def hold_loads(connection: Connection) -> int:
    """Take out of the order again what came back of paused loads."""
    return _count(connection, "hold_loads")


def read_loads(connection: Connection, name: str | None = None, limit: int = 100) -> list[Load]:
    """The newest loads, or the one of that name."""
    rows = connection.execute(query("read_loads"), {"name": name, "limit": limit}).fetchall()
    return [_load(*row) for row in rows]


def pause_load(connection: Connection, name: str) -> None:
    """Take what waits of a load out of the order."""
    load = _find(connection, name)
    with connection.transaction():
        connection.execute(query("pause_load"), {"load": load})
        connection.execute(query("hold_load"), {"load": load})


def resume_load(connection: Connection, name: str) -> None:
    """Let it come back, behind what is ready by now."""
    connection.execute(query("resume_load"), {"load": _find(connection, name)})


def cancel_load(connection: Connection, name: str) -> int:
    """End every job of a load that has not started, and ask those that run to stop; how many ended.

    When it returns none of them can start: it waits until workers have begun or handed back what they hold ahead.
    """
    load = _find(connection, name)
    connection.execute(query("mark_load_cancelled"), {"load": load})
    ended = _cancel_waiting(connection, load)
    while True:
        # Nothing waits: what is not ended runs. A retry that was decided before its job was asked waits again.
        for number, size in connection.execute(query("running_ranges_of_load"), {"load": load}).fetchall():
            cancel_jobs(connection, range(number * RANGE, number * RANGE + size))
        found = _cancel_waiting(connection, load)
        ended += found
        if not found:
            return ended


def _cancel_waiting(connection: Connection, load: int) -> int:
    """End what waits of a load, until nothing does; how many jobs."""
    ended = 0
    while ranges := connection.execute(query("open_ranges_of_load"), {"load": load, "limit": _RANGES}).fetchall():
        ids = [id_ for number, size in ranges for id_ in range(number * RANGE, number * RANGE + size)]
        found = len(cancel_jobs(connection, ids).ended)
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


def _load(
    name: str,
    queue: str,
    is_stream: bool,
    is_paused: bool,
    cancelled_at: datetime | None,
    batches: int,
    rows: int,
    duplicates: int,
    age_seconds: float | None,
    last_at: datetime | None,
    ready: int,
    scheduled: int,
    running: int,
    dead: int,
    lately: int,
) -> Load:
    waiting = ready + scheduled
    left = waiting + running
    rate = lately / min(_MINUTE, max(age_seconds or _MINUTE, 1.0))
    return Load(
        name=name,
        queue=queue,
        state=_state(is_paused, cancelled_at is not None, is_stream, left),
        is_stream=is_stream,
        batches=batches,
        rows=rows,
        duplicates=duplicates,
        waiting=waiting,
        running=running,
        failed=dead,
        done=rows - duplicates - left,
        rate=rate,
        eta_seconds=left / rate if left and rate and not is_paused else None,
        published_at=last_at,
    )


def _state(is_paused: bool, is_cancelled: bool, is_stream: bool, left: int) -> str:
    if is_cancelled:
        return "cancelled"
    if is_paused:
        return "paused"
    return "running" if left or is_stream else "done"
