"""Which keys wait for an older key map.

A queue that was resized has several key maps for a while, numbered by epoch: each says which partition a key goes to. A
job carries the epoch under which it was routed. It waits while the partition that its key went to under a lower epoch
may still have jobs of it: all keys of that partition while anything of the epoch is ready or leased there, or may still
be written; after that only the keys that are held or halted there. Jobs wait for lower epochs only, so no two can wait
for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from sys import maxsize
from typing import NamedTuple

from penstock.routing.key_hash import partition_of

__all__ = ["KeyMaps"]


class Change(NamedTuple):
    """What follows when the key maps are not what they were."""

    # Keys that did not wait may have to now.
    may_wait_anew: bool
    # Keys may have come here from elsewhere.
    may_have_moved: bool


class KeyMaps:
    """The key maps as one partition sees them; none known at first, and then nothing waits."""

    __slots__ = ("_held", "_open", "_partition", "_partitions", "newest", "oldest")

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._partitions: dict[int, Sequence[int]] = {}
        self._open: frozenset[tuple[int, int]] = frozenset()
        self._held: frozenset[tuple[int, bytes]] = frozenset()
        # Jobs of epochs up to the oldest wait for nothing.
        self.oldest = maxsize
        self.newest = maxsize

    def change(
        self,
        partitions: Mapping[int, Sequence[int]],
        open_: Collection[tuple[int, int]],
        held: Collection[tuple[int, bytes]],
    ) -> Change:
        """Take over what a snapshot shows; `partitions` of each key map in order of number."""
        before = self._partitions, self._open, self._held
        self.oldest, self.newest = min(partitions, default=maxsize), max(partitions, default=maxsize)
        self._partitions, self._held = dict(partitions), frozenset(held)
        self._open = frozenset(pair for pair in open_ if pair[0] != self.newest)
        is_subset = (
            self._partitions.items() <= before[0].items() and self._open <= before[1] and self._held <= before[2]
        )
        return Change(may_wait_anew=not is_subset, may_have_moved=(self._partitions, self._open) != before[:2])

    def is_draining(self, key: bytes, epoch: int) -> bool:
        """Whether a job of this key and epoch has to wait."""
        if epoch <= self.oldest:
            return False
        if epoch > self.newest:
            # Written under a key map made since the last look: nothing is known yet of the one before it.
            return True
        for earlier, partitions in self._partitions.items():
            if earlier < epoch:
                before = partitions[partition_of(key, len(partitions))]
                if before != self._partition and ((earlier, before) in self._open or (earlier, key) in self._held):
                    return True
        return False

    def is_held(self, key: bytes, epoch: int) -> bool:
        """Of one that has to wait, whether it is only for a job that waits itself: for its retry, or for a person."""
        return self.oldest < epoch <= self.newest and not any(
            (earlier, partition) in self._open
            for earlier, partitions in self._partitions.items()
            if earlier < epoch and (partition := partitions[partition_of(key, len(partitions))]) != self._partition
        )
