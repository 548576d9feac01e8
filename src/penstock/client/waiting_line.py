"""Calls that meet are written together: who waits for whom, and who writes.

A call to a shard to which fewer than `MOST_UNDER_WAY` calls of this app are under way is written at once and alone, as
ever. Any other waits in the shard's line. Whenever there is room, one of those who wait *leads*: it takes what is in
the line, its own call among it, and writes all of it in one transaction. Nobody waits for others to come.

    in line     waits to be taken; may leave when its time is up, or its database is down
    taken       by a leader, whose transaction is under way or about to be
    written     its ids are set
    alone       was not written, whatever became of the others: it is written by itself
    in doubt    the answer was lost: it is looked for, by whoever still has time, and found out for all

What the server says no to is written again call by call, so that each hears its own no. The transaction ends by the
earliest deadline in it; then, too, the others are written by themselves.

A leader is one of the callers, and may be interrupted anywhere. So nothing is handed to anybody: a caller in the line
sees for itself what it has to do, whenever it is woken and every `STEP_SECONDS`. Each holds a lock of its own while it
is here, which is let go of whatever happens: by that the others see whether their leader is still there. If not, what
it had sent is in doubt, and what it had not sent is written by its callers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from queue import Empty, SimpleQueue
from typing import Literal

from penstock.client.call import Call
from penstock.clock import system
from penstock.deadline import Deadline, earliest
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.error_meaning import StillInLine
from penstock.storage.enqueue.job_group import RANGE, JobGroup
from penstock.storage.enqueue.merged import MergedRange
from penstock.storage.enqueue.receipts import Receipt

__all__ = ["MOST_UNDER_WAY", "Caller", "Entry", "MergedWrite", "WaitingLine"]

Fate = Literal["written", "alone", "in doubt"]

# So many calls of an app are under way to a shard before further ones wait: see ADR 44.
MOST_UNDER_WAY = 4
# What is written together has at most a range's jobs, and so many bytes of arguments.
MOST_BYTES = 1_000_000
# How often somebody in the line looks without having been woken: what it waits for may be gone.
STEP_SECONDS = 0.25
# Who has been at one write for so long is not waited for: what it waits for, such as a lock, others may not need.
STUCK_SECONDS = 1.0
# A leader ends by the earliest deadline of its calls, or a moment later.
GRACE_SECONDS = 0.75


class Caller:
    """A thread that is here for as long as it holds its lock."""

    __slots__ = ("_woken", "present", "since")

    def __init__(self) -> None:
        self.present = threading.Lock()
        # When it began to write.
        self.since = 0.0
        self._woken: SimpleQueue[None] | None = None

    @property
    def is_gone(self) -> bool:
        return not self.present.locked()

    def get_ready_to_wait(self) -> None:
        """From here on it can be woken."""
        if self._woken is None:
            self._woken = SimpleQueue()

    def wake(self) -> None:
        """Have it look again what there is to do."""
        if self._woken is not None:
            self._woken.put(None)

    def wait(self, seconds: float) -> None:
        """Wait to be woken, so long."""
        assert self._woken is not None  # noqa: S101
        try:
            self._woken.get(timeout=max(seconds, 0.0))
        except Empty:
            return


class Entry:
    """The jobs of a call that go to one destination."""

    __slots__ = ("call", "caller", "fate", "group", "number", "queue", "write")

    def __init__(self, caller: Caller, call: Call, group: JobGroup, queue: QueueEntry) -> None:
        self.caller = caller
        self.call = call
        self.group = group
        self.queue = queue
        # Its place in the line: what came first is admitted first.
        self.number = 0
        # What it was taken into, and what became of it.
        self.write: MergedWrite | None = None
        self.fate: Fate | None = None

    @property
    def is_free(self) -> bool:
        """Whether nobody has taken it, and it has not left."""
        return self.write is None and self.fate is None

    @property
    def byte_count(self) -> int:
        return sum(map(len, self.group.args))


class _Load:
    """How much is written together."""

    __slots__ = ("jobs", "size")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.jobs = sum(len(entry.group.args) for entry in entries)
        self.size = sum(entry.byte_count for entry in entries)

    def takes(self, entry: Entry) -> bool:
        """Whether there is room for this one, too."""
        return self.jobs + len(entry.group.args) <= RANGE and self.size + entry.byte_count <= MOST_BYTES

    def add(self, entry: Entry) -> None:
        self.jobs += len(entry.group.args)
        self.size += entry.byte_count


class MergedWrite:
    """What a leader has taken, and what is known of it. Where the answer is lost, who finds out does so for all."""

    __slots__ = ("entries", "is_found_out", "leader", "looking", "ranges", "receipt")

    def __init__(self, leader: Caller, entries: list[Entry]) -> None:
        self.leader = leader
        self.entries = entries
        self.receipt = Receipt()
        self.ranges: list[MergedRange] = []
        self.looking = threading.Lock()
        self.is_found_out = False

    @property
    def deadline(self) -> Deadline:
        """The earliest of its calls'."""
        return earliest(entry.call.deadline for entry in self.entries)

    def end(self) -> None:
        """Nobody leads it any more: what has no fate yet gets one."""
        fate: Fate = "in doubt" if self.receipt.is_sent else "alone"
        for entry in self.entries:
            if entry.fate is None:
                entry.fate = fate


class WaitingLine:
    """The calls that wait for one shard, and those under way. Used by any number of threads."""

    def __init__(self, most_under_way: int, is_down: Callable[[], bool]) -> None:
        self._most = most_under_way
        self._is_down = is_down
        self.stuck_seconds = STUCK_SECONDS
        self._lock = threading.Lock()
        self._numbers = count(1)
        # How many calls each caller writes that writes just now.
        self._under_way: dict[Caller, int] = {}
        self._waiting: deque[Entry] = deque()

    def go_alone(self, caller: Caller) -> bool:
        """Whether this caller, who is present, may write its call at once; then `end` it is told."""
        with self._lock:
            if self._waiting or not self._has_room():
                return False
            self._begin(caller, 1)
            return True

    def lead_or_wait(self, caller: Caller, entries: Sequence[Entry], deadline: Deadline) -> MergedWrite | None:
        """What this caller, who is present, writes from now on; None where all of its entries have a fate.

        Raises where the time is up and none of them was taken.
        """
        caller.get_ready_to_wait()
        try:
            while pending := [entry for entry in entries if entry.fate is None]:
                left = deadline.left()
                if (write := self._look(caller, pending, has_time=left > 0.0)) is not None:
                    return write
                if left <= 0.0 or self._is_down():
                    self._leave(pending)
                    if left <= 0.0 and all(entry.write is None for entry in entries):
                        raise StillInLine(f"{self._most} calls of this app were under way for {deadline.seconds:g} s")
                    if left <= -GRACE_SECONDS:
                        self._doubt(pending)
                    left = 0.0 if all(entry.fate for entry in pending) else left + GRACE_SECONDS
                caller.wait(min(left, STEP_SECONDS))
        except BaseException:
            self._leave(entries)
            raise
        return None

    def end(self, caller: Caller, write: MergedWrite | None = None) -> None:
        """This caller writes no more: another one may, and those whose calls it took go on."""
        if write is not None:
            write.end()
        with self._lock:
            self._under_way.pop(caller, None)
            self._wake_next()
        if write is not None:
            for other in dict.fromkeys([entry.caller for entry in write.entries]):
                if other is not caller:
                    other.wake()

    def _look(self, caller: Caller, pending: Sequence[Entry], *, has_time: bool) -> MergedWrite | None:
        """Lead where there is room; get in line otherwise. What was taken by one who is gone gets its fate.

        Who has no time left does neither: its transaction would end before it began, and with it those of others.
        """
        with self._lock:
            free = [entry for entry in pending if entry.write is None]
            if not free:
                for entry in pending:
                    if entry.write is not None and entry.write.leader.is_gone:
                        entry.write.end()
                return None
            if not has_time:
                return None
            for entry in free:
                entry.number = entry.number or next(self._numbers)
            has_room = self._has_room()
            if not has_room or not self._goes_with_first(free):
                for entry in free:
                    if entry not in self._waiting:
                        self._waiting.append(entry)
                if has_room:
                    self._wake_next()
                return None
            write = MergedWrite(caller, self._take(free))
            for entry in write.entries:
                entry.write = write
            self._begin(caller, len(write.entries))
            self._wake_next()
            return write

    def _begin(self, caller: Caller, calls: int) -> None:
        caller.since = system.monotonic()
        self._under_way[caller] = calls

    def _has_room(self) -> bool:
        """Whether so few calls are under way that the next need not wait."""
        if sum(self._under_way.values()) < self._most:
            return True
        # One may have been interrupted and left without a word, or be stuck: looked for once who began first is so.
        oldest, before = next(iter(self._under_way)), system.monotonic() - self.stuck_seconds
        if oldest.since > before and not oldest.is_gone:
            return False
        for caller in [caller for caller in self._under_way if caller.is_gone]:
            del self._under_way[caller]
        return sum(calls for caller, calls in self._under_way.items() if caller.since > before) < self._most

    def _first(self) -> Entry | None:
        """Who has waited longest, of those who are still there and have time."""
        while self._waiting:
            entry = self._waiting[0]
            if entry.is_free and not entry.caller.is_gone and entry.call.deadline.left() > 0.0:
                return entry
            self._waiting.popleft()
        return None

    def _goes_with_first(self, own: Sequence[Entry]) -> bool:
        """Whether who has waited longest is written with these: passed by, a large call would wait for ever."""
        first = self._first()
        return first is None or first in own or _Load(own).takes(first)

    def _take(self, own: Sequence[Entry]) -> list[Entry]:
        """A leader's own entries and as many of the line as go with them, in the order in which they came."""
        taken = dict.fromkeys(own)
        load = _Load(own)
        while (entry := self._first()) is not None:
            if entry not in taken:
                if not load.takes(entry):
                    break
                load.add(entry)
                taken[entry] = None
            self._waiting.popleft()
        return sorted(taken, key=lambda entry: entry.number)

    def _leave(self, entries: Sequence[Entry]) -> None:
        """Take out of the line what nobody has taken: it is not written from there."""
        with self._lock:
            for entry in entries:
                if entry.is_free:
                    entry.fate = "alone"
                    if entry in self._waiting:
                        self._waiting.remove(entry)
            self._wake_next()

    def _doubt(self, entries: Sequence[Entry]) -> None:
        """A leader has not come back in time: nobody waits for it any longer."""
        with self._lock:
            for entry in entries:
                entry.fate = entry.fate or "in doubt"

    def _wake_next(self) -> None:
        """Whoever is first in line leads, where there is room."""
        if self._waiting and self._has_room() and (first := self._first()) is not None:
            first.caller.wake()
