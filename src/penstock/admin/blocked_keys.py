"""Keys that wait for the retry of one of their jobs, or for a person who lets them go on."""

from __future__ import annotations

from penstock.admin.answers import ask_everywhere
from penstock.errors import NotFound
from penstock.model.blocked_key import BlockedKey
from penstock.model.checks import checked_choice, checked_count, key_from_bytes, key_to_bytes
from penstock.shards.databases import Databases
from penstock.storage import Connection
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.inspect.blocked_keys import Blocked, count_behind, read_halted_keys, read_held_keys
from penstock.storage.repair.control import release_key

__all__ = ["blocked_keys", "release"]

MOST_LISTED = 1_000
# So many ready jobs are looked at on each shard, to count those of these keys.
MOST_COUNTED = 10_000
_READERS = {"halted": read_halted_keys, "held": read_held_keys}


def blocked_keys(databases: Databases, queue: str, kind: str | None, limit: int) -> list[BlockedKey]:
    """The keys of a queue that are held or halted, those that have waited longest first. What it costs has a bound."""
    checked_choice("kind", kind, (None, *_READERS))
    checked_count("limit", limit, most=MOST_LISTED)
    entry = databases.read(lambda connection: find_queue(connection, queue))
    readers = [read for name, read in _READERS.items() if kind in (None, name)]

    def look(connection: Connection) -> list[Blocked]:
        return [blocked for read in readers for blocked in read(connection, entry.id, limit)]

    found = [blocked for each in ask_everywhere(databases, look) for blocked in each]
    if not found:
        return []
    shown = sorted(found, key=lambda blocked: blocked.since)[:limit]
    # A key whose partition moved is held on one shard, and its jobs wait on another.
    keys = list({blocked.key for blocked in shown})
    each = max(1, MOST_COUNTED // max(1, len(entry.partition_ids)))
    answers = databases.each(lambda connection: count_behind(connection, entry.id, keys, each), writes=False)
    behind = dict.fromkeys(keys, 0)
    may_be_more = False
    for told in answers:
        may_be_more |= told.may_be_more
        for key, count in told.counts.items():
            behind[key] += count
    return [_to_blocked_key(blocked, behind[blocked.key], may_be_more) for blocked in shown]


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


def _to_blocked_key(found: Blocked, waiting: int, may_be_more: bool) -> BlockedKey:
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
        may_be_more=may_be_more,
        job_id=found.job_id,
        until=found.until,
    )
