"""Keys that wait for the retry of one of their jobs, or for a person who lets them go on."""

from __future__ import annotations

from penstock.errors import NotFound
from penstock.model.blocked_key import BlockedKey
from penstock.model.limits import key_from_bytes, key_to_bytes
from penstock.storage import Connection, Database
from penstock.storage.blocked_keys import Blocked, read_blocked_keys, release_key
from penstock.storage.catalogue import find_queue

__all__ = ["blocked_keys", "release"]


def blocked_keys(database: Database, queue: str) -> list[BlockedKey]:
    """The keys of a queue that are held or halted, those that have waited longest first."""

    def read(connection: Connection) -> list[BlockedKey]:
        return [_shown(found) for found in read_blocked_keys(connection, find_queue(connection, queue).id)]

    return database.run(read)


def release(database: Database, queue: str, key: str | bytes | int) -> None:
    """Let a halted key go on; its dead letter stays one. NotFound where it is not halted."""
    stored = key_to_bytes(key)

    def act(connection: Connection) -> bool:
        return release_key(connection, find_queue(connection, queue).id, stored)

    if not database.run(act):
        raise NotFound(
            f"key {key!r:.200} of queue {queue!r} is not halted: "
            f"see app.blocked_keys({queue!r}), or `penstock blocked-keys {queue}`"
        )


def _shown(found: Blocked) -> BlockedKey:
    if found.until is not None:
        reason = f"held by job {found.job_id}, which runs again at {found.until.isoformat(timespec='seconds')}"
    elif found.can_retry:
        reason = f"halted by job {found.job_id}, which failed: retry it, or release the key"
    else:
        reason = f"halted by job {found.job_id}, whose dead letter is gone: release the key"
    return BlockedKey(
        key=key_from_bytes(found.key),
        reason=reason,
        since=found.since,
        waiting=found.waiting,
        job_id=found.job_id,
        until=found.until,
    )
