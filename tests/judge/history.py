"""The history: one line of JSON for each thing an actor began, was told, or could not find out.

Every process appends to the same file with O_APPEND, a line in one write, so that lines never mix and a process that
is killed loses nothing it wrote. Times are the machine's monotonic clock, which all processes share.

An act has the name of what is done: `enqueue` (label: a name the producer made up, job: the id it was given), `run`
(job and the lease it runs under), `settle` (job), `stop` (label: the actor that was stopped by a signal), `limit`
(group: the queue, attempt: how many may run in it from now on; ok: no more than that are allotted any more). A type
says how far it came: invoke, ok, fail (certainly not done), unknown.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["Event", "EventType", "Reader", "Recorder", "read_history"]

EventType = Literal["invoke", "ok", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `call` joins the invoke of an enqueue with its answer, and of a run the
    jobs of one batch; `group` is where order is promised.
    """

    at: int
    actor: str
    act: str
    type: EventType
    label: str = ""
    job: int = 0
    lease: int = 0
    attempt: int = 0
    call: int = 0
    group: str = ""


class Recorder:
    """One actor's pen."""

    def __init__(self, path: Path, actor: str | None = None) -> None:
        self.actor = actor or str(os.getpid())
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._calls = count(1)

    def note(
        self,
        act: str,
        type_: EventType,
        *,
        label: str = "",
        job: int = 0,
        lease: int = 0,
        attempt: int = 0,
        call: int = 0,
        group: str = "",
    ) -> None:
        event = Event(time.monotonic_ns(), self.actor, act, type_, label, job, lease, attempt, call, group)
        os.write(self._file, msgspec.json.encode(event) + b"\n")

    @contextmanager
    def enqueuing(self, labels: list[str], group: str = "", keys: list[str] | None = None) -> Iterator[list[int]]:
        """Note a call of the jobs with these labels; the block puts the ids it was given into the list.

        Order is promised in the group, or for each job in the group of its key.
        """
        call = next(self._calls)
        groups = keys or [group] * len(labels)
        for label, group_ in zip(labels, groups, strict=True):
            self.note("enqueue", "invoke", label=label, call=call, group=group_)
        ids: list[int] = []
        try:
            yield ids
        except Exception as error:
            # Only an error that says so means that certainly nothing was written.
            type_: EventType = "fail" if getattr(error, "outcome", "unknown") == "not written" else "unknown"
            for label, group_ in zip(labels, groups, strict=True):
                self.note("enqueue", type_, label=label, call=call, group=group_)
            raise
        for label, group_, job in zip(labels, groups, ids, strict=True):
            self.note("enqueue", "ok", label=label, job=job, call=call, group=group_)

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """A history that others write: what was appended since it was last read is read, each line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._events: list[Event] = []
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def events(self) -> list[Event]:
        """All events so far, as they were written: nearly in the order of their times."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                # Of a line that is just being written only a part may be there yet.
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(whole) + len(newline)
            new = [msgspec.json.decode(line, type=Event) for line in whole.splitlines()]
            self._events += new
            self._counts.update((event.act, event.type, event.actor) for event in new)
        return self._events

    def count(self, act: str, type_: EventType, actor: str | None = None) -> int:
        """How many there are of a kind so far, of one actor or of all."""
        self.events()
        if actor is not None:
            return self._counts[act, type_, actor]
        return sum(count for (act_, type__, _), count in self._counts.items() if (act_, type__) == (act, type_))


def read_history(path: Path) -> list[Event]:
    """All events in the order of their times."""
    return sorted(Reader(path).events(), key=lambda event: event.at)
