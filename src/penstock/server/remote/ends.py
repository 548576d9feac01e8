"""How jobs ended, as a remote worker says it and as it is settled.

What becomes of a job that failed is decided by what its task was registered with, as it is for a native worker: it
waits by the task's backoff until it has no attempts left. A wait that the worker gives goes before the backoff.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.clock import system
from penstock.engine.conversation import Settlement
from penstock.errors import InvalidInput
from penstock.model.checks import ARGS_BYTES, JOBS_A_CALL, checked_delay, storable_text
from penstock.model.encoding import MOST_DEPTH
from penstock.server.remote.job_names import read_name
from penstock.server.remote.messages import (
    DiscardedEnd,
    FailedEnd,
    JobEnd,
    ReleasedEnd,
    RetryEnd,
    SnoozedEnd,
    SucceededEnd,
)
from penstock.server.remote.registered_worker import RegisteredWorker
from penstock.storage.work.remote_workers import Greeting, HeldLease, NamedJob
from penstock.storage.work.settle import End, EndKind, Succeeded

__all__ = ["TIMED_OUT", "CheckedEnd", "SettledEnds", "check_ends", "judge_failure", "settle"]

TIMED_OUT = "TimeoutError: the job ran longer than its timeout of {:g} s and was taken away"
STOPPED = "stopped on request"
# One with an exponent, or of so many digits that it may be out of bounds.
_LONG_NUMBER = re.compile(rb"[0-9][eE]|(?<![0-9])[0-9]{300}")


class CheckedEnd(NamedTuple):
    """An end that can be stored, of a job as its worker names it."""

    named: NamedJob
    end: JobEnd
    result: bytes | None = None


def check_ends(ends: Sequence[JobEnd]) -> dict[int, list[CheckedEnd]]:
    """The ends of a poll, by shard; `InvalidInput` with the one that cannot be used."""
    if len(ends) > JOBS_A_CALL:
        raise InvalidInput("ends", f"{len(ends)} ends are too many; give at most {JOBS_A_CALL} in a poll")
    found: dict[int, list[CheckedEnd]] = {}
    seen: set[tuple[int, NamedJob]] = set()
    for number, end in enumerate(ends):
        try:
            shard, named = read_name(end.job, end.lease)
            if (shard, named) in seen:
                raise InvalidInput("job", f"job {named.job} ends twice in this poll; name it once")
            seen.add((shard, named))
            result = None
            if isinstance(end, SucceededEnd):
                result = _checked_result(bytes(end.result))
            elif isinstance(end, (RetryEnd, SnoozedEnd)) and end.after is not None:
                checked_delay("after", end.after)
        except InvalidInput as error:
            raise InvalidInput(f"ends[{number}].{error.field}", error.problem) from error
        found.setdefault(shard, []).append(CheckedEnd(named, end, result))
    return found


def _checked_result(raw: bytes) -> bytes | None:
    """A result as it is stored: as it came, where PostgreSQL takes it for JSON, too."""
    if raw == b"null":
        return None
    if len(raw) > ARGS_BYTES:
        raise InvalidInput(
            "result", f"{len(raw)} bytes of JSON is too long; give at most {ARGS_BYTES}, or store it and pass where"
        )
    try:
        raw.decode()
        # A number that no program could read back would break every list that the job is in.
        is_doubtful = (
            b"\\u" in raw or raw.count(b"{") + raw.count(b"[") > MOST_DEPTH or _LONG_NUMBER.search(raw) is not None
        )
        if is_doubtful and _depth(msgspec.json.decode(raw)) > MOST_DEPTH:
            raise RecursionError
    except RecursionError:
        raise InvalidInput("result", f"it is nested too deeply; give at most {MOST_DEPTH} levels") from None
    except msgspec.ValidationError:
        raise InvalidInput("result", "it holds a number that is out of bounds; give it as text") from None
    except (UnicodeDecodeError, msgspec.DecodeError):
        raise InvalidInput("result", "it holds what is not text; give JSON in UTF-8") from None
    return raw


def _depth(value: object) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, parts), default=0) if isinstance(value, (dict, list)) else 0


@dataclass(slots=True)
class SettledEnds:
    """What a poll settles on one database: what goes to the turn, and what whoever chooses has to know of it."""

    settlement: Settlement = field(default_factory=Settlement)
    # As they are told to a source: partition, job, how it ended.
    ended: list[tuple[int, int, str]] = field(default_factory=list)
    # Which of its ends are not held, and of all that were named.
    lost: list[NamedJob] = field(default_factory=list)
    named: list[NamedJob] = field(default_factory=list)
    # Queues on which others may have something to do by it; and in how many seconds something is due again.
    wake: list[int] = field(default_factory=list)
    due_in: float | None = None

    @property
    def held(self) -> int:
        return len(self.named) - len(self.lost)

    @property
    def ended_jobs(self) -> int:
        """How many jobs were run to an end; what is handed back was not."""
        return self.held - sum(end.end == "release" for end in self.settlement.ends)

    @property
    def failed_jobs(self) -> int:
        return sum(end.end in ("retry", "failed") for end in self.settlement.ends)


def settle(
    ends: Sequence[CheckedEnd],
    greeting: Greeting,
    registered: RegisteredWorker,
    task_of: Callable[[Sequence[HeldLease]], Mapping[int, str]],
    limited: Container[int] = (),
) -> SettledEnds:
    """What is to be settled of these ends, as leases are held by now. `task_of` reads the tasks of jobs whose lease
    does not tell; `limited`: queues whose partitions have a limit that others wait for.
    """
    settled = SettledEnds(named=[each.named for each in ends])
    succeeded: dict[int, Succeeded] = {}
    others: list[End] = []
    freed: set[int] = set()
    wake: set[int] = set()
    found = greeting.find_held(settled.named)
    held = [(each, found[each.named]) for each in ends if each.named in found]
    settled.lost = [named for named in settled.named if named not in found]
    tasks = _tasks_of(held, task_of)
    for each, lease in held:
        named = each.named
        if lease.queue_id in limited:
            freed.add(lease.partition_id)
        if isinstance(each.end, SucceededEnd):
            group = succeeded.get(lease.id)
            if group is None:
                group = succeeded[lease.id] = Succeeded(lease.id, lease.token, lease.range)
            _add(group, named.job % 1024, each.result)
            settled.ended.append((lease.partition_id, named.job, "succeeded"))
            continue
        end = _end_of(each, lease, registered, tasks.get(named.job, lease.task), is_asked=named.job in greeting.asked)
        if end.end in ("retry", "snooze"):
            settled.due_in = end.due_in if settled.due_in is None else min(settled.due_in, end.due_in)
        if end.end == "release" or (end.end in ("retry", "snooze") and end.due_in <= 0):
            wake.add(lease.queue_id)
        if end.end != "release":
            end.age = end.run = _microseconds(lease.age)
        others.append(end)
        settled.ended.append((lease.partition_id, named.job, end.end))
    for lease_id, group in succeeded.items():
        lease, jobs = greeting.held[lease_id], len(group.positions)
        group.is_whole = jobs == len(lease.positions)
        group.ages = group.runs = [_microseconds(lease.age)] * jobs

    def attempts() -> dict[tuple[int, int], tuple[int, int]]:
        return {each.named.pair: (each.named.job, lease.attempt) for each, lease in held}

    settled.settlement = Settlement(list(succeeded.values()), others, sorted(freed), attempts)
    settled.wake = sorted(wake)
    return settled


def _tasks_of(
    held: Sequence[tuple[CheckedEnd, HeldLease]], task_of: Callable[[Sequence[HeldLease]], Mapping[int, str]]
) -> Mapping[int, str]:
    """The tasks of jobs that failed, by whose options it is decided what becomes of them."""
    untold = {lease.id: lease for each, lease in held if isinstance(each.end, RetryEnd) and not lease.task}
    return task_of(list(untold.values())) if untold else {}


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6)


def _add(group: Succeeded, position: int, result: bytes | None) -> None:
    group.positions.append(position)
    if result is not None and group.results is None:
        group.results = [None] * (len(group.positions) - 1)
    if group.results is not None:
        group.results.append(result)


def _end_of(each: CheckedEnd, lease: HeldLease, registered: RegisteredWorker, task: str, *, is_asked: bool) -> End:
    end = each.end

    def make(kind: EndKind, error: str | None = None, due_in: float = 0.0) -> End:
        text = None if error is None else storable_text(error)
        return End(lease.id, lease.token, each.named.job % 1024, lease.range, kind, text, due_in)

    if isinstance(end, SnoozedEnd):
        return make("snooze", None, end.after)
    if isinstance(end, DiscardedEnd):
        return make("discarded", end.reason)
    if isinstance(end, ReleasedEnd):
        return make("release")
    if is_asked:
        return make("cancelled", STOPPED)
    if isinstance(end, FailedEnd):
        return make("failed", end.error)
    assert isinstance(end, RetryEnd)  # noqa: S101
    kind, due_in = judge_failure(registered, lease.queue_id, task, lease.attempt, end.after)
    return make(kind, end.error, due_in)


def judge_failure(
    registered: RegisteredWorker, queue: int, task: str, attempt: int, after: float | None = None
) -> tuple[EndKind, float]:
    """What becomes of a job whose attempt failed, and in how many seconds it is tried again."""
    options = registered.task(queue, task)
    if attempt >= options.max_attempts:
        return "failed", 0.0
    return "retry", options.wait_after(attempt, system.random_unit()) if after is None else after
