"""What an app has declared, and what the database says about it.

Declarations gather in memory and are written by the next call that needs the database. From then on the database's
word counts: a difference is logged once, and refused where it is about order. What was read is kept for a few seconds.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any

from penstock.admin import CronDefinition, has_cron, knows_cron, resize, write_cron
from penstock.app.auditing import Record, audited
from penstock.app.calls import locked
from penstock.app.inputs import checked_args
from penstock.client.task import Queue, Task
from penstock.clock import system
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable, RequestTimeout
from penstock.forking import renew_in_children
from penstock.model import QueueDefinition, QueueRules, Resize
from penstock.model.checks import MOST_CONCURRENCY, MOST_PARTITIONS, checked_count, checked_name, shown
from penstock.model.queue import USUAL_PARTITIONS, refuse_fixed_options
from penstock.model.rules import LIVE_OPTIONS, options_of
from penstock.model.wrong_calls import unknown_option
from penstock.policy.cron import Schedule
from penstock.shards.databases import Databases
from penstock.shards.permits import allot
from penstock.storage import Connection
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.catalogue.queues import QueueEntry
from penstock.task.definition import TaskDefinition
from penstock.task.redeclared import is_declared_again
from penstock.worker import ServedQueue

__all__ = ["Declarations", "ServedNames", "checked_caps"]

log = logging.getLogger("penstock")

KEPT_SECONDS = 5.0
# What `app.work` is given: queues, or queues with the worker's cap on each.
ServedNames = Sequence[str | Queue] | Mapping[str, int | None] | Mapping[Queue, int | None] | None


class Declarations:
    """One per app."""

    def __init__(self, databases: Callable[[], Databases], learn_shards: Callable[[], None]) -> None:
        self._databases = databases
        self._learn_shards = learn_shards
        self._queues: dict[str, Queue] = {}
        self.tasks: dict[str, dict[str, TaskDefinition]] = {}
        self._unwritten: list[QueueDefinition | TaskDefinition | CronDefinition] = []
        self._crons: dict[str, CronDefinition] = {}
        self._put_off: list[CronDefinition] = []
        self._entries: dict[str, tuple[QueueEntry, float]] = {}
        self._lock = threading.RLock()
        renew_in_children(self, Declarations._renew_after_fork)

    def _renew_after_fork(self) -> None:
        """In a forked child: nobody is writing; what was half written is written again, which changes nothing."""
        self._lock = threading.RLock()

    def declare(self, definition: QueueDefinition, queue: Queue) -> Queue:
        """Take in a queue; the one declared before, where it was the same. At a prompt the last declaration counts."""
        with self._lock:
            known = self._queues.get(definition.name)
            if known is not None and known.definition == definition:
                return known
            if known is not None and not _is_interactive():
                raise _declared_twice("queue", definition.name, known.definition, definition)
            self._queues[definition.name] = queue
            self._unwritten.append(definition)
            # Of one that was deleted and is declared again the tasks are still there.
            self._unwritten += self.tasks.setdefault(definition.name, {}).values()
            return queue

    def withdraw(self, name: str) -> None:
        """Forget that a queue was declared, with its crons: it was deleted. Its tasks stay, for when it is declared
        again.
        """
        with self._lock:
            self._queues.pop(name, None)
            self._entries.pop(name, None)
            self._crons = {key: cron for key, cron in self._crons.items() if cron.queue != name}
            self._put_off = [cron for cron in self._put_off if cron.queue != name]

    def register(self, task: TaskDefinition) -> None:
        """Take in a task; the same function again replaces it."""
        with self._lock:
            tasks = self.tasks.setdefault(task.queue, {})
            known = tasks.get(task.name)
            if known is not None and not is_declared_again(known.function, task.function):
                raise InvalidInput("name", f"queue {task.queue!r} has a task {task.name!r} already; give another name=")
            tasks[task.name] = task
            self._unwritten.append(task)

    def declare_cron(self, name: str, expression: str, task: object, args: object, timezone: str) -> None:
        """Take in a cron entry."""
        if not isinstance(task, Task):
            raise InvalidInput(
                "task", f"a task is needed, not {type(task).__name__}; pass the function that @queue.task was put on"
            )
        Schedule(expression, timezone)
        job = task.job(**checked_args(args))
        cron = CronDefinition(
            checked_name("name", name), expression, timezone, task.queue, task.name, job.args_json, job.key
        )
        with self._lock:
            if self._crons.get(cron.name, cron) != cron and not _is_interactive():
                raise _declared_twice("cron", cron.name, self._crons[cron.name], cron)
            self._crons[cron.name] = cron
            self._unwritten.append(cron)

    @property
    def has_unwritten(self) -> bool:
        """Whether something was declared that the database does not know yet."""
        return bool(self._unwritten)

    def write_declarations(self) -> None:
        """Write what was declared since the last time."""
        if not self._unwritten:
            return
        with locked(self._lock, "writing down what is declared"):
            while self._unwritten:
                declared = self._unwritten[0]
                if isinstance(declared, QueueDefinition):
                    self._write_queue(declared)
                elif isinstance(declared, CronDefinition):
                    self._write_cron(declared)
                else:
                    self._announce(declared)
                del self._unwritten[0]

    def write_rest(self) -> None:
        """Write the cron entries whose shard was away when they were declared."""
        with locked(self._lock, "writing down what is declared"):
            put_off, self._put_off = self._put_off, []
            for declared in put_off:
                self._write_cron(declared)

    def entry(self, name: str) -> QueueEntry:
        """The queue as the database knows it, as of a few seconds ago."""
        kept = self._entries.get(name)
        if kept is not None and system.monotonic() - kept[1] < KEPT_SECONDS:
            return kept[0]
        return self.fresh_entry(name)

    def fresh_entry(self, name: str) -> QueueEntry:
        """The queue as the database knows it now."""
        with locked(self._lock, "writing down what is declared"):
            if any(isinstance(d, QueueDefinition) and d.name == name for d in self._unwritten):
                self.write_declarations()
        databases = self._databases()
        entry = databases.read(lambda connection: catalogue.find_queue(connection, name))
        if not all(number in databases for number in entry.partition_shards):
            self._learn_shards()
        self._entries[name] = (entry, system.monotonic())
        return entry

    def follow(self, done: Resize) -> Resize:
        """After a resize or a move: read how the queue is now, so that calls here go by it at once."""
        self.fresh_entry(done.queue)
        return done

    def is_owned(self, name: str) -> bool:
        """Whether a queue is declared with rules about keys or tenants."""
        queue = self._queues.get(name)
        return queue is not None and queue.definition.rules.is_owned

    def served(self, queues: ServedNames, shard: int) -> list[ServedQueue]:
        """The queues a worker takes jobs from, with the tasks it has handlers for, and their partitions on a shard."""
        names = self.served_names(queues)
        caps = checked_caps(queues)
        self.write_declarations()
        served = []
        for name in names:
            entry = self.fresh_entry(name)
            tasks = dict(self.tasks.get(name, {}))
            is_limited = entry.rules.limit is not None or entry.rules.total_limit is not None
            here = tuple(
                partition
                for partition, lives_on in zip(entry.partition_ids, entry.partition_shards, strict=True)
                if lives_on == shard
            )
            served.append(
                ServedQueue(
                    *(entry.id, name, here, entry.rules.max_wait, tasks, entry.is_owned, is_limited),
                    halts_on_dead=entry.rules.halts_on_dead,
                    cap=caps.get(name),
                )
            )
        return served

    def served_names(self, queues: ServedNames) -> list[str]:
        """The queues that a worker is asked to take jobs from, each once."""
        checked_caps(queues)
        if isinstance(queues, (str, Queue)):
            raise InvalidInput(
                "queues", "a list of queues is needed, or a dict; write queues=['emails'] or {'emails': 4}"
            )
        names = (
            list(self._queues)
            if queues is None
            else [queue.name if isinstance(queue, Queue) else checked_name("queues", queue) for queue in queues]
        )
        if not names and queues is not None:
            raise InvalidInput("queues", "it names no queue; write queues=['emails'], or leave it out for all")
        if not names:
            raise InvalidInput("queues", "this app has no queue to work on; declare one with app.queue(...)")
        for name in names:
            if name not in self._queues:
                raise NotFound(
                    f"queue {name!r} is not declared on this app, so it has no handlers for its jobs; declare it, or "
                    "leave it out"
                )
        return list(dict.fromkeys(names))

    def change_limits(self, databases: Databases, name: str, limits: Mapping[str, Any]) -> None:
        """Change a queue's limits in the database; each worker goes by them from its next claim on."""
        databases.change(lambda connection: catalogue.set_limits(connection, name, limits))
        self._entries.pop(name, None)
        if limits.get("total_limit") is not None or limits.get("total_rate") is not None:
            # The limit holds by now, and the ledger has it: that partitions get what they may have at once is a favour,
            # and upkeep's otherwise. Nothing that goes wrong here may look as if it had not been set.
            with suppress(PartitionUnavailable, RequestTimeout, NotFound):
                entry = self.fresh_entry(name)
                allot(databases, entry.id, entry.rules.limit)

    def set_queue(self, databases: Databases, name: str, partitions: int | None, options: Mapping[str, Any]) -> bool:
        """Make a queue, or change one to be so; whether it is new. What is not given stays."""
        checked_name("queue", name)
        there_are = ["partitions", "order", *options_of(QueueRules)]
        for option in options:
            if option not in there_are:
                raise unknown_option("app.set_queue", option, there_are)
        if not databases.read(lambda connection: catalogue.read_queues(connection, name)):
            given = {option: value for option, value in options.items() if value is not None}
            definition = QueueDefinition.of(name, USUAL_PARTITIONS if partitions is None else partitions, **given)
            self._write_queue(definition)
            return True
        entry = self.fresh_entry(name)
        if partitions is not None:
            checked_count("partitions", partitions, most=MOST_PARTITIONS)
        if fixed := entry.rules.fixed_differences(options):
            refuse_fixed_options(name, fixed)
        live = {option: value for option, value in options.items() if option in LIVE_OPTIONS}
        if entry.rules.changed(name, live) != entry.rules:
            self.change_limits(databases, name, live)
        if partitions not in (None, entry.partition_count):
            self.follow(resize(databases, name, partitions))
        return False

    def set_cron(self, databases: Databases, cron: CronDefinition) -> bool:
        """Write an entry as it is to be; whether it is new."""
        is_known = knows_cron(databases, cron.name)
        write_cron(databases, cron)
        return not is_known

    def forget(self) -> None:
        """Start anew: another database may come."""
        with self._lock:
            self._entries.clear()
            self._put_off = []
            definitions = [queue.definition for queue in self._queues.values()]
            tasks = [task for name in self._queues for task in self.tasks[name].values()]
            self._unwritten = [*definitions, *tasks, *self._crons.values()]

    def _announce(self, task: TaskDefinition) -> None:
        """Tell every shard of a task; one that is away hears it from the workers that serve it."""
        queue_id = self.entry(task.queue).id
        databases = self._databases()

        def announce(connection: Connection) -> bool:
            return catalogue.announce_task(connection, queue_id, task.name, task.max_attempts)

        if not all(databases.each(announce)):
            # Whoever declared the queue has told the shard that leads, and is about to tell this one.
            databases.level()
            databases.each(announce)

    def _write_cron(self, declared: CronDefinition) -> None:
        databases = self._databases()
        try:
            self._write_new_cron(databases, declared)
        except PartitionUnavailable as error:
            if not databases.has_others(error.shard):
                raise
            # Everything else works without that shard; a worker of this app writes it when all are back.
            log.warning("cron %r is not written yet: %s", declared.name, error)
            self._put_off.append(declared)

    def _write_new_cron(self, databases: Databases, declared: CronDefinition) -> None:
        if not has_cron(databases, declared):
            told = {"expression": declared.expression, "timezone": declared.timezone}
            told |= {"queue": declared.queue, "task": declared.task}
            with audited(Record("cron", declared.name, told)) as record:
                record.begin(databases)
                write_cron(databases, declared)
                record.end("done")

    def _write_queue(self, declared: QueueDefinition) -> None:
        databases = self._databases()
        # One that exists needs no change, and so not the shard that leads.
        try:
            entry = databases.read(lambda connection: catalogue.find_queue(connection, declared.name))
        except NotFound:
            entry = self._create_queue(databases, declared)
        self._entries[declared.name] = (entry, system.monotonic())
        if contradictions := declared.rules.contradictions(entry.rules):
            raise InvalidInput(
                next(iter(contradictions)),
                f"queue {declared.name!r} is declared here with {', '.join(contradictions.values())}; declare it as "
                "the database has it, or give the new kind of queue a name of its own",
            )
        if different := entry.differences(declared):
            log.warning(
                "queue %r is declared here with %s: the database's value is used", declared.name, ", ".join(different)
            )

    def _create_queue(self, databases: Databases, declared: QueueDefinition) -> QueueEntry:
        rules = {name: value for name, value in asdict(declared.rules).items() if value not in (None, False)}
        with audited(Record("queue", declared.name, {"partitions": declared.partitions, **rules})) as record:
            record.begin(databases)
            down = [database.shard for database in databases if database.breaker.is_down]
            entry = databases.change(lambda connection: catalogue.declare_queue(connection, declared, down))
            record.end("done")
            return entry


def _declared_twice(what: str, name: str, first: Any, second: Any) -> InvalidInput:
    """Two parts of a program declare one name differently: the first option in which they do is the field."""
    before, now = _options(first), _options(second)
    differing = [option for option in now if before[option] != now[option]]
    told = ", ".join(f"{option}={shown(before[option])} and {shown(now[option])}" for option in differing)
    return InvalidInput(
        differing[0], f"{what} {name!r} is declared twice on this app, with {told}; declare it once, or name one anew"
    )


def _options(declared: QueueDefinition | CronDefinition | QueueRules) -> dict[str, Any]:
    options = {each.name: getattr(declared, each.name) for each in fields(declared)}
    options |= {name: value.decode(errors="replace") for name, value in options.items() if isinstance(value, bytes)}
    return options | _options(options.pop("rules")) if "rules" in options else options


def _is_interactive() -> bool:
    """Whether a person declares line by line or cell by cell, and changes what was declared before."""
    return hasattr(sys, "ps1")


def checked_caps(queues: ServedNames) -> dict[str, int]:
    """By queue, how many of its jobs a worker may have at once."""
    if not isinstance(queues, Mapping):
        return {}
    caps = {}
    for queue, cap in queues.items():
        name = queue.name if isinstance(queue, Queue) else checked_name("queues", queue)
        if cap is not None:
            try:
                caps[name] = checked_count("queues", cap, most=MOST_CONCURRENCY)
            except InvalidInput as error:
                problem = f"of queue {name!r}: {error.problem}; write queues={{{name!r}: 4}}"
                raise InvalidInput("queues", problem) from None
    return caps
