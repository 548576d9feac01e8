"""What an owner of very many partitions keeps in mind about them, so that a turn costs what there is to do, and not
what is owned: which have to be looked at, since something came, and which may have something to start.

Partitions are named by number; one that is not owned any more is passed over by whoever takes it from here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

__all__ = ["PartitionWatch"]

# So many partitions at most are looked at for one reason in one look; where something may start in as many already,
# what is new can wait, and it is a few.
MOST_LOOKS = 64
FEW_LOOKS = 8
# And so many of those where nothing is known to have changed: what others do there is seen some time.
SWEPT = 1


class PartitionWatch:
    """Used by one thread."""

    def __init__(self) -> None:
        # As of which snapshot it is known what came; None: what is there has to be listed.
        self.as_of: str | None = None
        self.asked_at = 0.0
        self.swept_at = 0.0
        # To be looked at: something came there; hardly anything is left of what was read, and there is more.
        self._fresh: dict[int, None] = {}
        self._hungry: dict[int, None] = {}
        # To be looked at when something is taken from their queues again.
        self._put_off: dict[int, None] = {}
        # To be looked at again and again: others keep jobs back there, and do not tell when that ends.
        self._held: dict[int, None] = {}
        # By queue, in the order of their turns: where something may start.
        self._stocked: dict[int, dict[int, None]] = {}
        self._stock = 0
        # Whether less was found to start than was wanted: what is stocked may wait for a limit, or for its queue.
        self.has_free_slots = False
        self._all: deque[int] = deque()

    def set_partitions(self, partitions: Collection[int]) -> None:
        """Let these be all that there are."""
        # In the order of their turns: what was swept last is swept last again.
        known = dict.fromkeys(each for each in self._all if each in partitions)
        self._all = deque([*known, *(each for each in partitions if each not in known)])
        for some in (self._fresh, self._hungry, self._put_off, self._held):
            for each in [each for each in some if each not in partitions]:
                del some[each]
        for queue, stocked in list(self._stocked.items()):
            for each in [each for each in stocked if each not in partitions]:
                self.unstock(queue, each)

    def list_anew(self) -> None:
        """Do not rely on what was seen to have come: there are partitions that were not owned then."""
        self.as_of = None
        self.asked_at = 0.0

    def is_empty(self, partition: int) -> bool:
        """Whether nothing was ready in one that was never looked at."""
        return self.as_of is not None and partition not in self._fresh and partition not in self._put_off

    @property
    def has_unread(self) -> bool:
        """Whether jobs may be found by looking, without any more coming."""
        return bool(self._fresh or self._hungry)

    @property
    def is_short(self) -> bool:
        """Whether something may start in few partitions only, or too little has."""
        return self.has_free_slots or self._stock < MOST_LOOKS

    @property
    def has_held(self) -> bool:
        return bool(self._held)

    def add_fresh(self, partitions: Iterable[int]) -> None:
        self._fresh.update(dict.fromkeys(partitions))

    def put_off(self, partition: int) -> None:
        self._put_off[partition] = None

    def note_taken_from_again(self) -> None:
        """Look at what was put off: its queues may be taken from again."""
        self._fresh.update(self._put_off)
        self._put_off.clear()

    def note_hungry(self, partition: int) -> None:
        self._hungry[partition] = None

    def note_held(self, partition: int, *, is_held: bool) -> None:
        if is_held:
            self._held[partition] = None
        else:
            self._held.pop(partition, None)

    def take_due(self) -> list[int]:
        """Partitions in which there is something to be read, each once."""
        most = MOST_LOOKS if self.is_short else FEW_LOOKS
        due = list(islice(self._hungry, most))
        due += [each for each in islice(self._fresh, most) if each not in self._hungry]
        for each in due:
            self._hungry.pop(each, None)
            self._fresh.pop(each, None)
        return due

    def take_held(self) -> list[int]:
        """Some of those where something is held, in turn."""
        held = list(islice(self._held, MOST_LOOKS))
        for each in held:
            del self._held[each]
            self._held[each] = None
        return held

    def take_swept(self) -> list[int]:
        """Some of all, in turn."""
        swept = list(islice(self._all, SWEPT))
        self._all.rotate(-SWEPT)
        return swept

    def stock(self, queue: int, partition: int) -> None:
        """Something may start there."""
        partitions = self._stocked.setdefault(queue, {})
        if partition not in partitions:
            partitions[partition] = None
            self._stock += 1

    def unstock(self, queue: int, partition: int) -> None:
        """Nothing can, before it is stocked again."""
        partitions = self._stocked.get(queue)
        if partitions is not None and partition in partitions:
            del partitions[partition]
            self._stock -= 1
            if not partitions:
                del self._stocked[queue]

    def stocked(self, queues: Iterable[int] | None = None) -> Iterator[int]:
        """Where something may start, of all queues or of these."""
        for queue in list(self._stocked) if queues is None else queues:
            yield from list(self._stocked.get(queue, ()))

    def turn(self) -> None:
        """Let another queue be first, and another partition of the one that was."""
        for queue, partitions in self._stocked.items():
            first = next(iter(partitions))
            partitions[first] = partitions.pop(first)
            del self._stocked[queue]
            self._stocked[queue] = partitions
            break
