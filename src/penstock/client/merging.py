"""Writing together the calls that met: who waits and who leads is decided in `penstock.client.waiting_line`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.client.call import Call, PlannedWrite
from penstock.client.checks import Checks
from penstock.client.committer import Committer
from penstock.client.refusals import answer_lost
from penstock.client.waiting_line import MOST_UNDER_WAY, Caller, Entry, MergedWrite, WaitingLine
from penstock.deadline import Deadline, earliest, keeping
from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionCut, is_denial
from penstock.storage.connection.flow import Flow, NeverSent
from penstock.storage.connection.pool import refuse_cut
from penstock.storage.enqueue.merged import first_token, look_for_ranges, merge_groups, write_merged
from penstock.storage.enqueue.receipts import newest_id_seen
from penstock.storage.enqueue.write import set_ids

__all__ = ["Merger"]


class Merger:
    """One per producer; used by any number of threads."""

    def __init__(self, databases: Databases, checks: Checks, committer: Committer) -> None:
        self._databases = databases
        self._checks = checks
        self._committer = committer
        self._lines: dict[int, WaitingLine] = {}
        self._lock = threading.Lock()

    def try_commit(self, call: Call, write: PlannedWrite) -> bool:
        """Try once, alone or together with others: as `Committer.try_commit`, for a write that one statement does."""
        line = self._lines.get(write.shard) or self._open_line(write.shard)
        caller = Caller()
        with caller.present:
            if line.go_alone(caller):
                try:
                    return self._committer.try_commit(call, write)
                finally:
                    line.end(caller)
            (group,) = write.groups
            entry = Entry(caller, call, group, write.entries[group.destination.queue_id])
            self._write_in_line(line, [entry], write.shard, call.deadline)
        if entry.fate == "alone":
            return self._committer.try_commit(call, write)
        if entry.fate == "in doubt":
            self.find_out(entry, write, call)
        return True

    def write_for_many(self, shard: int, writes: Sequence[tuple[Call, PlannedWrite]]) -> list[Entry]:
        """Write on a shard what one thread has for many callers, a job for each; what became of them, by groups."""
        line = self._lines.get(shard) or self._open_line(shard)
        caller = Caller()
        entries = [
            Entry(caller, call, group, write.entries[group.destination.queue_id])
            for call, write in writes
            for whole in write.groups
            # Where a queue is bounded each job is admitted by itself.
            for group in (whole.rows() if write.has_max_length else [whole])
        ]
        with caller.present:
            self._write_in_line(line, entries, shard, earliest(call.deadline for call, _ in writes))
        return entries

    def _write_in_line(self, line: WaitingLine, entries: Sequence[Entry], shard: int, deadline: Deadline) -> None:
        """Have a caller's entries written, by itself or another one: each has a fate then."""
        caller = entries[0].caller
        while (merged := line.lead_or_wait(caller, entries, deadline)) is not None:
            try:
                self._write(merged, self._databases.of(shard))
            finally:
                line.end(caller, merged)

    def find_out(self, entry: Entry, write: PlannedWrite, call: Call) -> None:
        """After a lost answer, for a call whose jobs are among the entry's: set their ids. Raises where they were not
        written, and where nobody could say so by the call's deadline.
        """
        merged = entry.write
        assert merged is not None  # noqa: S101
        database = self._databases.of(write.shard)
        try:
            with _looking(merged, call):
                if not merged.is_found_out:
                    look_for_ranges(database, merged.receipt, merged.ranges)
                    _share_out(merged)
                    merged.is_found_out = True
        except PartitionUnavailable as error:
            raise answer_lost(call, write, database, error) from error
        if entry.fate != "written":
            raise ConnectionCut("the session ended before it had committed")

    def _open_line(self, shard: int) -> WaitingLine:
        database = self._databases.of(shard)
        with self._lock:
            if shard not in self._lines:
                most = min(MOST_UNDER_WAY, database.pool_size)
                self._lines[shard] = WaitingLine(most, lambda: database.breaker.is_down)
            return self._lines[shard]

    def _write(self, merged: MergedWrite, database: Database) -> None:
        """Write what was taken, in one transaction. What has no fate afterwards gets it when the lead ends."""
        receipt = merged.receipt
        try:
            with keeping(merged.deadline), database.connection() as connection:
                self._admit(merged, connection, database.shard)
                refuse_cut(connection)
                groups = [entry.group for entry in merged.entries if entry.fate is None]
                if not groups:
                    return
                merged.ranges = merge_groups(groups)
                _prepare_receipt(merged, database, connection)
                receipt.is_sent = True
                try:
                    write_merged(connection, merged.ranges, receipt)
                    _share_out(merged)
                except BaseException as error:
                    # Whoever looks for it has to see its session end: nobody else is to be in it then.
                    if not is_denial(error):
                        connection.close()
                    raise
                receipt.is_sent = False
                if (newest := max((each.first_id or 0 for each in merged.ranges), default=0)) > 0:
                    connection.newest_id = newest
        except Exception as error:
            # The server's own no, which may be told in our words by now: nothing was written. Nor was it where the time
            # was up before.
            is_denied = is_denial(error) or (error.__cause__ is not None and is_denial(error.__cause__))
            if is_denied or isinstance(error, NeverSent):
                receipt.is_sent = False

    def _admit(self, merged: MergedWrite, connection: Connection, shard: int) -> None:
        """Leave out, in line order, those by which a partition would grow longer than its queue allows."""
        if all(entry.queue.rules.max_length is None for entry in merged.entries):
            return
        asked = [(entry.queue, entry.group.destination.partition_id, len(entry.group.args)) for entry in merged.entries]
        for entry, is_admitted in zip(merged.entries, self._checks.admit(shard, asked, connection), strict=True):
            if not is_admitted:
                entry.fate = "alone"


def _prepare_receipt(merged: MergedWrite, database: Database, connection: Flow) -> None:
    """Note by what the write can be looked for: see `penstock.storage.enqueue.merged`."""
    receipt = merged.receipt
    receipt.session = connection.session
    receipt.token = first_token(database)
    if database.is_pooled:
        receipt.keep(max(entry.call.deadline.seconds for entry in merged.entries))
    else:
        receipt.after = newest_id_seen(connection) - 1024


def _share_out(merged: MergedWrite) -> None:
    """Give each call that was written its ids; the others were not."""
    entries = {id(entry.group): entry for entry in merged.entries}
    for each in merged.ranges:
        if each.first_id is not None:
            first_id = each.first_id
            for group in each.groups:
                entry = entries[id(group)]
                set_ids(group.indexes, entry.call.ids, first_id)
                entry.fate = "written"
                first_id += len(group.args)


@contextmanager
def _looking(merged: MergedWrite, call: Call) -> Iterator[None]:
    """Be the one who finds out, or wait for who does, until the call's deadline."""
    if not merged.looking.acquire(timeout=max(call.deadline.left(), 0.0)):
        raise PartitionUnavailable("another call was still looking for what was written together")
    try:
        yield
    finally:
        merged.looking.release()
