"""Writing a call in the transaction of its caller, on the database that the caller's connection leads to.

Nothing is repeated here but what the database did not take because of a key map: the transaction is the caller's, to
commit or to give up.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.client.call import Call, PlannedWrite
from penstock.client.checks import Checks
from penstock.client.map_wait import FIRST_PAUSE_SECONDS, MapWait
from penstock.client.options import unique_in_transaction
from penstock.client.pending import PendingRows
from penstock.client.planning import Planner
from penstock.shards.callers import Caller, Callers
from penstock.shards.databases import Databases
from penstock.shards.former_homes import ask_former_homes
from penstock.storage.connection.callers_transaction import (
    callers_session,
    part_of_transaction,
    part_of_transaction_async,
)
from penstock.storage.connection.database import Connection
from penstock.storage.enqueue.callers_database import identify_database
from penstock.storage.enqueue.steps import drive_in, drive_in_async
from penstock.storage.enqueue.write import write_few, write_groups

__all__ = ["CallersWriter"]


class CallersWriter:
    """One per producer; used by any number of threads."""

    def __init__(self, databases: Databases, planner: Planner, checks: Checks, map_wait: MapWait) -> None:
        self._databases = databases
        self._planner = planner
        self._checks = checks
        self._map_wait = map_wait
        self._callers = Callers(databases)
        # A caller's connection does not know which schema is meant.
        self._schema = databases.lead.schema

    def write(self, call: Call, connection: Connection) -> None:
        """Write a call through a connection."""
        caller = self._callers.known(connection)
        if caller is None:
            with callers_session(connection):
                found = drive_in(connection, identify_database(), self._schema)
            caller = self._callers.check(connection, found)
        pause = FIRST_PAUSE_SECONDS
        while True:
            write = self._plan(call, caller)
            with callers_session(connection):
                if write.is_few:
                    is_written = drive_in(connection, write_few(write.groups[0], call.ids), self._schema)
                else:
                    with part_of_transaction(connection):
                        is_written = drive_in(connection, write_groups(write.groups, call.ids), self._schema)
            if is_written:
                return
            pause = self._map_wait.wait(call, write, pause)

    async def write_async(self, call: Call, connection: Any) -> None:
        """Write a call through an asynchronous connection."""
        caller = self._callers.known(connection)
        if caller is None:
            with callers_session(connection):
                found = await drive_in_async(connection, identify_database(), self._schema)
            caller = await asyncio.to_thread(self._callers.check, connection, found)
        pause = FIRST_PAUSE_SECONDS
        while True:
            write = await asyncio.to_thread(self._plan, call, caller)
            with callers_session(connection):
                if write.is_few:
                    is_written = await drive_in_async(connection, write_few(write.groups[0], call.ids), self._schema)
                else:
                    async with part_of_transaction_async(connection):
                        is_written = await drive_in_async(
                            connection, write_groups(write.groups, call.ids), self._schema
                        )
            if is_written:
                return
            pause = await asyncio.to_thread(self._map_wait.wait, call, write, pause)

    def _plan(self, call: Call, caller: Caller) -> PlannedWrite:
        """Plan a call as one write, and look for what would refuse it."""
        if not isinstance(call.pending, PendingRows) and any(job.options.unique is not None for job in call.pending):
            raise unique_in_transaction()
        waves = self._planner.plan(call, caller)
        ((write,),) = waves
        if write.has_children:
            self._checks.check_parents(waves)
        if write.has_max_length:
            database = self._databases.of(write.shard)
            database.run(lambda beside: self._checks.check_lengths(write, beside), writes=False)
        ask_former_homes(self._databases, write.shard, write.groups, write.entries, call.deadline)
        return write
