"""The keys that most jobs of a queue wait for: which customer, device or file is the crowd."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.admin.answers import ask_everywhere, unavailable
from penstock.model.checks import checked_count, key_from_bytes
from penstock.model.hot_key import HotKey, HotKeys
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.inspect.hot_keys import KeyAtWork, KeyCount, KeyCounts, count_keys, keys_at_work

__all__ = ["MOST_HOT_KEYS", "hot_keys"]

MOST_HOT_KEYS = 100


def hot_keys(databases: Databases, queue: str, limit: int) -> HotKeys:
    """The keys of a queue with the most ready jobs, over all shards."""
    checked_count("limit", limit, most=MOST_HOT_KEYS)
    entry = databases.read(lambda connection: find_queue(connection, queue))
    answers = ask_everywhere(databases, lambda c: count_keys(c, entry.partition_ids))
    found = list(answers)
    keys = _together(found)
    hottest = sorted(keys, key=lambda key: (-keys[key].waiting, key))[:limit]
    waiting = sum(each.waiting for each in found)
    at_work = _at_work(databases, entry.id, entry.partition_ids, hottest) if hottest else {}
    return HotKeys(
        queue=entry.name,
        waiting=waiting,
        is_estimate=any(each.is_estimate for each in found),
        looked_at=sum(each.looked_at for each in found),
        keys=[_hot_key(key, keys[key], waiting, at_work[key]) for key in hottest],
        unavailable=unavailable(answers),
    )


def _together(found: Sequence[KeyCounts]) -> dict[bytes, KeyCount]:
    keys: dict[bytes, KeyCount] = {}
    for each in found:
        for key, count in each.keys.items():
            known = keys.setdefault(key, count)
            if known is not count:
                known.waiting += count.waiting
                known.oldest_ready_at = min(known.oldest_ready_at, count.oldest_ready_at)
    return keys


def _at_work(
    databases: Databases, queue: int, partitions: Sequence[int], keys: Sequence[bytes]
) -> dict[bytes, KeyAtWork]:
    found = dict.fromkeys(keys, KeyAtWork(0, is_held=False, is_halted=False))
    for told in databases.each(lambda connection: keys_at_work(connection, queue, partitions, keys), writes=False):
        for key, (running, is_held, is_halted) in told.items():
            before = found[key]
            found[key] = KeyAtWork(
                before.running + running, is_held=before.is_held or is_held, is_halted=before.is_halted or is_halted
            )
    return found


def _hot_key(key: bytes, count: KeyCount, waiting: int, at_work: KeyAtWork) -> HotKey:
    return HotKey(
        key=key_from_bytes(key),
        waiting=round(count.waiting),
        share=min(round(count.waiting / max(waiting, 1), 4), 1.0),
        oldest_ready_at=count.oldest_ready_at,
        running=at_work.running,
        is_held=at_work.is_held,
        is_halted=at_work.is_halted,
    )
