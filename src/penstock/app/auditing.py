"""Auditing: every act of an app is entered before it is done, and what came of it after.

The calls that change something are acts, all but enqueues (`calls`), and so is each declaration that adds something
(`declarations`). An act is entered when its call first reaches for the databases: what is refused before leaves no
trace. Where it cannot be entered, on the shard that leads or else on any that answers, it is not done. What came of it
is added on the same shard; an entry without that is of an act that is under way, or whose program died in it.

What is entered of a call is who makes it, its name, what it is about and its options: never arguments of jobs, results,
secrets, or texts of errors, which may hold any of these.
"""

from __future__ import annotations

import inspect
import logging
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from penstock.acting import Actor, current_actor
from penstock.client.task import Queue
from penstock.deadline import Deadline, current_deadline, keeping, writing_nothing
from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import NAME_CHARACTERS, shown, storable_text
from penstock.model.job_state import State
from penstock.shards.databases import Databases
from penstock.storage import Database
from penstock.storage.connection.addresses import plain_address
from penstock.storage.repair import audit as storage
from penstock.storage.repair.audit import Intent, Outcome

__all__ = ["Record", "audited", "begin_record", "record_of"]

log = logging.getLogger("penstock")

# So long what came of an act may take to be entered, once the time of its call is up; and at most.
LEAST_END_SECONDS, MOST_END_SECONDS = 0.5, 5.0
# What an act is about is the first of these that its call has; and what may be a URL, with its password.
TARGETS = ("job_id", "name", "queue", "load", "worker_id", "shard", "url")
MAY_BE_URLS = ("shard", "url")
# Acts whose result is how many jobs they were about.
COUNTING = ("cancel", "cancel_load", "delete_queue", "purge", "retry")
# Acts that tell of each of the jobs that were named.
NAMING = ("cancel_jobs", "retry_jobs")
MOST_ITEMS = 100


class Record:
    """One act, from before it is done to what came of it."""

    def __init__(self, act: str, target: str | None, detail: Mapping[str, Any]) -> None:
        self._act = act
        who = current_actor()
        actor = Actor(_text(who.name), who.source, None if who.address is None else _text(who.address))
        told = {name: _plain(value) for name, value in detail.items()}
        self._intent = Intent(uuid.uuid4(), actor, act, None if target is None else _text(target), told)
        self._written: tuple[Database, int] | None = None
        # What an act does on its way is told by its own entry.
        outer = _current.get()
        self._is_part = outer is not None and outer.is_begun

    @property
    def is_begun(self) -> bool:
        """Whether the act is entered, by itself or as a part of another."""
        return self._is_part or self._written is not None

    def begin(self, databases: Databases) -> None:
        """Enter the act, unless that is done; raises where it cannot be."""
        if not self.is_begun:
            # Not what the call is for: one that fails here has changed nothing.
            with writing_nothing():
                self._written = databases.note(lambda connection: storage.begin(connection, self._intent))

    def end(self, outcome: Outcome, result: object = None, error: BaseException | None = None) -> None:
        """Add what came of it; where that cannot be, the log says so: what is done is done."""
        if self._written is None:
            return
        database, entry = self._written
        count, more = _told(self._act, result)
        if error is not None:
            more["error"] = type(error).__name__
        call = current_deadline()
        left = MOST_END_SECONDS if call is None else min(call.left(), MOST_END_SECONDS)
        try:
            with keeping(Deadline(max(left, LEAST_END_SECONDS))):
                database.ask(lambda connection: storage.end(connection, entry, outcome, count, more))
        except Exception as problem:
            log.warning("entry %d of the audit (%s) is left without what came of it: %s", entry, self._act, problem)


_current: ContextVar[Record | None] = ContextVar("penstock_audit_record", default=None)


@contextmanager
def audited(record: Record) -> Iterator[Record]:
    """The block does what the record is of, or raises. It ends the record itself where there is a result to tell."""
    token = _current.set(record)
    try:
        yield record
    except BaseException as error:
        record.end(_outcome_of(error), error=error)
        raise
    finally:
        _current.reset(token)


def begin_record(databases: Databases) -> None:
    """Enter the act that this thread is about to do, where it does one."""
    record = _current.get()
    if record is not None:
        record.begin(databases)


def record_of(function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Record:
    """The record of a call of an app's method."""
    bound = _signature(function).bind(*args, **named).arguments
    given = {name: value for name, value in bound.items() if name != "self"}
    given |= given.pop("filters", {})
    rules = given.pop("limits", {}) | given.pop("options", {})
    target = next((name for name in TARGETS if given.get(name) is not None), None)
    # None is what was not asked for; of a rule it takes that away.
    given = {name: value for name, value in given.items() if value is not None and value is not False} | rules
    detail = {name: _option(name, value) for name, value in given.items() if name != target}
    return Record(function.__name__, None if target is None else str(_option(target, given[target])), detail)


_signature = cache(inspect.signature)


def _outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, (InvalidInput, NotFound)):
        return "not done"
    call = current_deadline()
    may_be_done = (call is not None and call.may_have_written) or getattr(error, "outcome", None) == "unknown"
    return "unknown" if may_be_done else "not done"


def _told(act: str, result: object) -> tuple[int | None, dict[str, Any]]:
    """How many jobs an act was about, and what else its result says of it."""
    if isinstance(result, State):
        return None, {"state": result.value}
    if act in COUNTING and isinstance(result, int):
        return result, {}
    if act in NAMING and isinstance(result, list):
        return sum(each.outcome == "done" for each in result), {}
    if act == "run_cron":
        return 1, {"job_id": str(result)}
    return None, {"shard": result} if act == "add_shard" and result is not None else {}


def _option(name: str, value: object) -> Any:
    """An option as it may stand in the audit: no arguments of jobs, no password."""
    if name == "args":
        return "given"
    if name in MAY_BE_URLS and isinstance(value, str) and not value.isdecimal():
        return _address(value)
    return _plain(value)


def _address(url: str) -> str:
    try:
        return _text(plain_address(url))
    except Exception:  # Whatever it is, it is refused elsewhere, by name.
        return "no URL"


def _plain(value: object, depth: int = 3) -> Any:
    """A value as JSON can hold it, whatever it is."""
    if isinstance(value, Queue):
        return _text(value.name)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return _text(value.decode(errors="backslashreplace"))
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping) and depth:
        return {_text(str(_plain(name))): _plain(each, depth - 1) for name, each in list(value.items())[:MOST_ITEMS]}
    if isinstance(value, (list, tuple)) and depth:
        return [_plain(each, depth - 1) for each in value[:MOST_ITEMS]]
    if isinstance(value, int):
        return value if value.bit_length() < 64 else shown(value)
    return value if value is None or (isinstance(value, float) and math.isfinite(value)) else shown(value)


def _text(text: str) -> str:
    return storable_text(text, NAME_CHARACTERS)
