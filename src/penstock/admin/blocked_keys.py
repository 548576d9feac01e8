"""Keys that wait for the retry of one of their jobs, or for a person who lets them go on."""

from __future__ import annotations

from penstock.admin.answers import ask_everywhere
from penstock.errors import NotFound
from penstock.model.blocked_key import BlockedKey
from penstock.model.checks import checked_count, key_from_bytes, key_to_bytes
from penstock.model.overview import HaltedKey
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.inspect.blocked_keys import Blocked, count_behind, read_blocked_keys, read_halted_keys
from penstock.storage.repair.control import release_key

__all__ = ["blocked_keys", "halted_keys", "release"]

MOST_LISTED = 1_000


def blocked_keys(databases: Databases, queue: str) -> list[BlockedKey]:
    """The keys of a queue that are held or halted, those that have waited longest first."""
    id_ = databases.read(lambda connection: find_queue(connection, queue)).id
    found = [blocked for each in ask_everywhere(databases, lambda c: read_blocked_keys(c, id_)) for blocked in each]
    if not found:
        return []
    # A key whose partition moved is held on one shard, and its jobs wait on another.
    keys = list({blocked.key for blocked in found})
    behind: dict[bytes, int] = dict.fromkeys(keys, 0)
    for counts in databases.each(lambda connection: count_behind(connection, id_, keys), writes=False):
        for key, count in counts.items():
            behind[key] += count
    return [
        _to_blocked_key(blocked, behind[blocked.key]) for blocked in sorted(found, key=lambda blocked: blocked.since)
    ]


def halted_keys(databases: Databases, queue: str, limit: int) -> list[HaltedKey]:
    """The keys of a queue that wait for a person, those that have waited longest first; what it costs has a bound."""
    checked_count("limit", limit, most=MOST_LISTED)
    id_ = databases.read(lambda connection: find_queue(connection, queue)).id
    found = [halted for each in ask_everywhere(databases, lambda c: read_halted_keys(c, id_, limit)) for halted in each]
    return [
        HaltedKey(key=key_from_bytes(each.key), job_id=each.job_id, since=each.since, can_retry=each.can_retry)
        for each in sorted(found, key=lambda each: each.since)[:limit]
    ]


def release(databases: Databases, queue: str, key: str | bytes | int) -> None:
    """Let a halted key go on; its dead letter stays one. NotFound where it is not halted."""
    stored = key_to_bytes(key)
    id_ = databases.read(lambda connection: find_queue(connection, queue)).id
    answers = databases.each(lambda connection: release_key(connection, id_, stored))
    if any(answers):
        return
    answers.all()  # It may be halted on one that does not answer.
    raise NotFound(
        f"key {key!r:.200} of queue {queue!r} is not halted: "
        f"see app.blocked_keys({queue!r}), or `penstock blocked-keys {queue}`"
    )


def _to_blocked_key(found: Blocked, waiting: int) -> BlockedKey:
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
        waiting=waiting,
        job_id=found.job_id,
        until=found.until,
    )
