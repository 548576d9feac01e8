"""Connections of callers, in whose transactions jobs are written: which database each leads to."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from penstock.errors import InvalidInput
from penstock.shards.databases import Databases
from penstock.shards.membership import read_membership
from penstock.storage.enqueue.callers_database import CallersDatabase
from penstock.storage.schema.state import refuse_newer

__all__ = ["Caller", "Callers"]


class Caller(NamedTuple):
    """The shard of a connection that a call is written through: everything must live there."""

    shard: int
    address: str


class Callers:
    """One per producer; used by any number of threads. What was found out is kept as long as the connection."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._system: str | None = None
        self._known: WeakKeyDictionary[Any, Caller] = WeakKeyDictionary()

    def known(self, connection: Any) -> Caller | None:
        """The shard of a connection. Where it is not known, the connection has to be asked, and `check` be told."""
        return self._known.get(connection)

    def check(self, connection: Any, found: CallersDatabase) -> Caller:
        """The shard of a connection, by what that said; InvalidInput where it is none of these."""
        # The system of these databases never changes, once one of them has it.
        self._system = self._system or self._databases.read(read_membership).system
        if found.number not in self._databases or found.system != self._system:
            raise InvalidInput(
                "connection",
                "it leads to a database that is no shard of this app; connect to "
                + self._databases.named(0, "one of ")
                + ", ".join(
                    database.address + self._databases.named(database.shard, " (shard {})")
                    for database in self._databases
                )
                + ("; or give App the URL of that database" if self._databases.are_embedded else ""),
            )
        refuse_newer(found.oldest_program)
        caller = self._known[connection] = Caller(found.number, self._databases.of(found.number).address)
        return caller
