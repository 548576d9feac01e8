"""Idempotency keys that may still lie where an earlier map of their queue sent them.

While keys are carried to their homes of now, whoever writes one at its new home asks its former ones first. There
nothing is written by the earlier map any more, so that the answer stays true; as long as somebody may still do so, it
is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from penstock.deadline import Deadline
from penstock.errors import PartitionUnavailable
from penstock.routing.router import KeyMap, route
from penstock.shards.databases import Databases
from penstock.shards.idempotency_keys import ask_former_home
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.enqueue.job_group import JobGroup

__all__ = ["ask_former_homes"]

PAUSE_SECONDS = 0.02


def ask_former_homes(
    databases: Databases, shard: int, groups: Iterable[JobGroup], entries: Mapping[int, QueueEntry], deadline: Deadline
) -> None:
    """Tell groups that are to be written on a shard which of their idempotency keys are known elsewhere. `entries` are
    their queues, by id.
    """
    for group in groups:
        entry = entries[group.destination.queue_id]
        if entry.former and group.idempotency_keys is not None:
            holders: dict[str, int] = {}
            for (epoch, home), keys in _group_by_former_home(entry, group, shard).items():
                holders.update(_ask_until_closed(databases, entry, home, epoch, sorted(keys), deadline))
            group.idempotency_keys.holders = holders


def _group_by_former_home(entry: QueueEntry, group: JobGroup, shard: int) -> dict[tuple[int, int], set[str]]:
    """The keys to ask for, as they are stored, by epoch and shard."""
    to_ask: dict[tuple[int, int], set[str]] = {}
    given = () if group.idempotency_keys is None else group.idempotency_keys.given
    for row, idempotency_key in enumerate(given):
        stored = group.stored_idempotency_key(row)
        if stored is None:
            continue
        key = group.keys[row] if group.keys else None
        for former in entry.former:
            home = route(KeyMap(former.shards, former.homes, entry.is_owned), key, idempotency_key).shard
            if home is not None and home != shard:
                to_ask.setdefault((former.epoch, home), set()).add(stored)
    return to_ask


def _ask_until_closed(
    databases: Databases, entry: QueueEntry, home: int, epoch: int, keys: list[str], deadline: Deadline
) -> dict[str, int]:
    """The jobs that have these keys on a former home, once nobody writes there by that map any more."""
    database = databases.of(home)
    ask = partial(ask_former_home, queue_id=entry.id, epoch=epoch, keys=keys)
    while (found := database.run(ask, writes=False)) is None:
        if deadline.left() <= PAUSE_SECONDS * 4:
            raise PartitionUnavailable(
                f"idempotency keys of queue {entry.name!r} move from shard {home} to others, and a transaction that "
                "enqueued there before is still open; end it, and call again",
                shard=home,
            )
        database.clock.sleep(PAUSE_SECONDS)
    return found
