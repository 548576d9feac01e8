"""Connections of callers, in whose transactions jobs are written: which database each leads to."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from penstock.errors import InvalidInput
from penstock.shards.databases import Databases
from penstock.shards.membership import read_membership

__all__ = ["Caller", "Callers"]


class Caller(NamedTuple):
    """The shard of a connection that a call is written through: everything must live there."""

    shard: int
    address: str


class Callers:
    """One per producer; used by any number of threads. What was found out is kept as long as the connection."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._known: WeakKeyDictionary[Any, Caller] = WeakKeyDictionary()

    def known(self, connection: Any) -> Caller | None:
        """The shard of a connection. Where it is not known, the connection has to be asked, and `check` be told."""
        sole = self._databases.sole
        return self._known.get(connection) if sole is None else Caller(sole.shard, sole.address)

    def check(self, connection: Any, number: int, system: str) -> Caller:
        """The shard of a connection, by what that said; InvalidInput where it is none of these."""
        if number not in self._databases or system != self._databases.read(read_membership).system:
            raise InvalidInput(
                "connection",
                "it leads to a database that is no shard of this app; connect to one of "
                + ", ".join(f"{database.address} (shard {database.shard})" for database in self._databases),
            )
        caller = self._known[connection] = Caller(number, self._databases.of(number).address)
        return caller
