"""The tasks of a queue as a batch handler takes them: those that were named, or every one that turns up.

What a task has been given (attempts, backoff, which errors are tried again) comes from the app's declaration where it
has one, else from what was announced in the database. Its function is not sent to the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.storage.connection.database import Connection
from penstock.storage.work.spark_workers import read_tasks, tasks_at_the_head
from penstock.task.arguments import Arguments
from penstock.task.definition import DEFAULT_ATTEMPTS, TaskDefinition, define

__all__ = ["KnownTasks"]


def _stand_in() -> None:
    """Stands for a task's function on an executor, where the batch handler runs instead; never called."""


class KnownTasks(Mapping[str, TaskDefinition]):
    """By name. Any name is found where every task is taken."""

    def __init__(self, queue: str, declared: Mapping[str, TaskDefinition], named: Iterable[str] | None) -> None:
        self._queue = queue
        self._takes_any = named is None
        arguments = Arguments(_stand_in)
        self._declared = {
            name: replace(task, function=_stand_in, arguments=arguments, key=None) for name, task in declared.items()
        }
        self._known = dict(self._declared) if named is None else {}
        for name in named or ():
            self._add(name, DEFAULT_ATTEMPTS)

    def refresh(self, connection: Connection, queue_id: int) -> list[str]:
        """Read which tasks the database knows; those that are new here."""
        announced = read_tasks(connection, queue_id)
        for name, task in self._known.items():
            if name not in self._declared and task.max_attempts != announced.get(name, task.max_attempts):
                self._add(name, announced[name])
        if not self._takes_any:
            return []
        new = sorted((announced.keys() | tasks_at_the_head(connection, queue_id)) - self._known.keys())
        for name in new:
            self._add(name, announced.get(name, DEFAULT_ATTEMPTS))
        return new

    def __getitem__(self, name: str) -> TaskDefinition:
        if name not in self._known and self._takes_any:
            self._add(name, DEFAULT_ATTEMPTS)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return self._takes_any or name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def _add(self, name: str, max_attempts: int) -> None:
        known = self._declared.get(name)
        self._known[name] = known or define(self._queue, _stand_in, name=name, max_attempts=max_attempts)
