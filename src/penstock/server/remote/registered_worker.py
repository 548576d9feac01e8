"""What a worker announced when it registered, checked, and as it is stored for whichever server acts for it later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache

import msgspec

from penstock.errors import InvalidInput
from penstock.model.checks import (
    MOST_CONCURRENCY,
    checked_attempts,
    checked_count,
    checked_delay,
    checked_name,
    checked_seconds,
)
from penstock.policy.backoff import Backoff
from penstock.server.remote.messages import Registration, TaskOptions
from penstock.storage.catalogue.queues import QueueEntry
from penstock.task.definition import DEFAULT_ATTEMPTS

__all__ = ["QueueSet", "RegisteredQueue", "RegisteredTask", "RegisteredWorker", "read_registered"]

# How long a worker may be silent, in seconds.
SHORTEST_LEASE_SECONDS, LONGEST_LEASE_SECONDS = 1.0, 3_600.0

MOST_TASKS = 1_000

# Queues, each with tasks of it, in order: what makes workers alike.
QueueSet = tuple[tuple[int, tuple[str, ...]], ...]


class RegisteredTask(msgspec.Struct, frozen=True):
    """A task that a worker runs."""

    max_attempts: int
    timeout: float | None
    backoff: float | None

    @classmethod
    def checked(cls, field: str, given: TaskOptions) -> RegisteredTask:
        """The same as a worker gave it; `InvalidInput`."""
        try:
            return cls(
                DEFAULT_ATTEMPTS if given.max_attempts is None else checked_attempts(given.max_attempts),
                None if given.timeout is None else checked_seconds("timeout", given.timeout),
                None if given.backoff is None else checked_delay("backoff", given.backoff),
            )
        except InvalidInput as error:
            raise InvalidInput(f"{field}.{error.field}", error.problem) from None

    def wait_after(self, attempt: int, unit: float) -> float:
        """Seconds until the next attempt; `unit` is a random number from 0 to 1."""
        return Backoff(self.backoff).wait(attempt, unit).seconds


class RegisteredQueue(msgspec.Struct, frozen=True):
    """A queue of which a worker wants jobs, with the tasks that it runs."""

    id: int
    name: str
    is_owned: bool
    tasks: dict[str, RegisteredTask]


class RegisteredWorker(msgspec.Struct, frozen=True, dict=True):
    """All of it."""

    name: str
    concurrency: int
    lease: float
    queues: list[RegisteredQueue]

    @classmethod
    def checked(cls, given: Registration, entries: Mapping[str, QueueEntry], usual_lease: float) -> RegisteredWorker:
        """The same as a worker gave it, with the queues as the catalogue has them; `InvalidInput`."""
        lease = usual_lease if given.lease is None else checked_seconds("lease", given.lease)
        if not SHORTEST_LEASE_SECONDS <= lease <= LONGEST_LEASE_SECONDS:
            raise InvalidInput(
                "lease",
                f"{lease:g} s is out of bounds; give {SHORTEST_LEASE_SECONDS:g} to {LONGEST_LEASE_SECONDS:g} seconds",
            )
        return cls(
            checked_name("name", given.name),
            checked_count("concurrency", given.concurrency, most=MOST_CONCURRENCY),
            lease,
            [
                RegisteredQueue(
                    entries[name].id,
                    name,
                    entries[name].is_owned,
                    {
                        checked_name(f"queues.{name}", task): RegisteredTask.checked(f"queues.{name}.{task}", options)
                        for task, options in tasks.items()
                    },
                )
                for name, tasks in given.queues.items()
            ],
        )

    @staticmethod
    def names(given: Registration) -> list[str]:
        """The queues that a worker names; `InvalidInput` where there is none, one without a task, or too many tasks."""
        if not given.queues:
            raise InvalidInput("queues", "it names no queue; write {'emails': {'send': {}}}")
        for name, tasks in given.queues.items():
            checked_name("queues", name)
            if not tasks:
                raise InvalidInput(f"queues.{name}", "it names no task; write {'send': {}}")
        count = sum(map(len, given.queues.values()))
        if count > MOST_TASKS:
            raise InvalidInput("queues", f"{count} tasks are too many for one worker; give at most {MOST_TASKS}")
        return list(given.queues)

    def is_within(self, queues: Collection[str] | None) -> bool:
        """Whether it gets jobs of these queues only; None: any."""
        return queues is None or all(queue.name in queues for queue in self.queues)

    def as_json(self) -> str:
        """As it is stored."""
        return msgspec.json.encode(self).decode()

    @cached_property
    def by_queue(self) -> Mapping[int, RegisteredQueue]:
        return {queue.id: queue for queue in self.queues}

    @cached_property
    def shortest_timeout(self) -> float | None:
        """The shortest among its tasks, if any has one."""
        return min((task.timeout for task in self._tasks() if task.timeout is not None), default=None)

    @cached_property
    def plain(self) -> QueueSet:
        """The queues from which it claims."""
        return _queue_set(queue for queue in self.queues if not queue.is_owned)

    @cached_property
    def owned(self) -> QueueSet:
        """The queues from which an owner chooses for it."""
        return _queue_set(queue for queue in self.queues if queue.is_owned)

    def task(self, queue: int, name: str) -> RegisteredTask:
        """One of its tasks; as any is where it never announced it."""
        known = self.by_queue.get(queue)
        return known.tasks[name] if known is not None and name in known.tasks else _USUAL

    def _tasks(self) -> Iterable[RegisteredTask]:
        return (task for queue in self.queues for task in queue.tasks.values())


_USUAL = RegisteredTask(DEFAULT_ATTEMPTS, None, None)
_decode = msgspec.json.Decoder(RegisteredWorker).decode


@lru_cache(maxsize=10_000)
def read_registered(stored: str) -> RegisteredWorker:
    """A registration as it was stored."""
    return _decode(stored)


def _queue_set(queues: Iterable[RegisteredQueue]) -> QueueSet:
    return tuple(sorted((queue.id, tuple(sorted(queue.tasks))) for queue in queues))
