"""Carrying out a planned write once, in a transaction of its own.

Where the answer to what commits it is lost, the write is looked for by its receipt before anything else is done: so
that a job is never written twice, and never dropped in silence.
"""

from __future__ import annotations

from contextlib import suppress

from penstock.client.call import Call, PlannedWrite
from penstock.client.checks import Checks
from penstock.client.refusals import answer_lost
from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.former_homes import ask_former_homes
from penstock.storage.connection.bare_statements import execute_bare
from penstock.storage.connection.database import Database
from penstock.storage.connection.error_meaning import ConnectionCut, DatabaseError, first_line, is_denial, is_drained
from penstock.storage.connection.flow import Flow, NeverSent
from penstock.storage.connection.pool import refuse_cut
from penstock.storage.enqueue.receipts import Receipt, look_for, newest_id_seen
from penstock.storage.enqueue.steps import drive, drive_transaction
from penstock.storage.enqueue.write import is_single, set_ids, single_statement, write_few, write_groups
from penstock.storage.upkeep.sweep import unblock

__all__ = ["Committer"]


class Committer:
    """One per producer; used by any number of threads."""

    def __init__(self, databases: Databases, checks: Checks) -> None:
        self._databases = databases
        self._checks = checks

    def try_commit(self, call: Call, write: PlannedWrite) -> bool:
        """Try once; False where a map is not its queue's, or not open yet. Raises where nothing was written."""
        database = self._databases.of(write.shard)
        receipt = Receipt()
        if not write.is_few:
            ask_former_homes(self._databases, write.shard, write.groups, write.entries, call.deadline)
        try:
            with database.connection() as connection:
                if not write.is_checked and write.has_max_length:
                    self._checks.check_lengths(write, connection)
                refuse_cut(connection)
                _prepare_receipt(receipt, call, write, database, connection)
                is_written = _send(connection, call, write, receipt)
                receipt.is_sent = False
                if is_written and write.has_children:
                    # A parent may have ended meanwhile. Where this fails, upkeep lets the children go.
                    with suppress(DatabaseError):
                        unblock(connection, write.child_ids(call.ids))
            return is_written
        except Exception as error:
            # Whether it was sent decides, and whether the server itself said no: never what a connection looks like. Of
            # several statements some may have been sent before the time was up.
            if isinstance(error, NeverSent) and write.is_few:
                raise
            if receipt.is_sent and not is_denial(error):
                if _was_written(call, write, database, receipt):
                    return True
                raise ConnectionCut(f"the session ended before it had committed ({first_line(error)})") from error
            if is_drained(error):
                return False
            raise


def _prepare_receipt(receipt: Receipt, call: Call, write: PlannedWrite, database: Database, connection: Flow) -> None:
    """Note by what the write can be looked for: see `penstock.storage.enqueue.receipts`."""
    receipt.session = connection.session
    if database.is_pooled:
        receipt.keep(call.deadline.seconds)
        receipt.token = database.clock.random_token()
    elif write.is_few:
        receipt.after = newest_id_seen(connection) - 1024
        receipt.token = database.clock.random_token()


def _send(connection: Flow, call: Call, write: PlannedWrite, receipt: Receipt) -> bool:
    if not write.is_few:
        return drive_transaction(connection, write_groups(write.groups, call.ids, receipt), receipt)
    (group,) = write.groups
    receipt.is_sent = True
    # Behind a pooler no session keeps a statement.
    if receipt.kept_seconds is None and is_single(group):
        first_id = execute_bare(connection, *single_statement(group, receipt))
        if first_id is None:
            return False
        call.ids[group.indexes[0]] = int(first_id)
    elif not drive(connection, write_few(group, call.ids, receipt)):
        return False
    connection.newest_id = call.ids[group.indexes[-1]]
    return True


def _was_written(call: Call, write: PlannedWrite, database: Database, receipt: Receipt) -> bool:
    """After a lost answer: whether the write was committed. One statement's ids were in that answer: they are set."""
    try:
        first_id = look_for(database, receipt)
    except PartitionUnavailable as error:
        raise answer_lost(call, write, database, error) from error
    if first_id is not None and write.is_few:
        set_ids(write.groups[0].indexes, call.ids, first_id)
    return first_id is not None
