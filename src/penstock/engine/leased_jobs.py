"""Reading the jobs of new leases: what was read ahead, or came with the claim, is not asked for again.

A job that cannot be read is set aside, and costs the others nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock.clock import system
from penstock.engine.conversation import Holder
from penstock.engine.source import Source
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError, is_about_data
from penstock.storage.work.leases import Lease, Stored, read_jobs
from penstock.storage.work.set_aside import leave_unread_out, set_unread_aside

__all__ = ["Asking", "read_leased"]

T = TypeVar("T")
log = logging.getLogger("penstock")


class Asking(Protocol):
    """Who asks for a holder of leases what may be repeated: its conversation."""

    @property
    def holder(self) -> Holder: ...
    def ask(self, act: Callable[[Connection], T]) -> T: ...


def read_leased(conversation: Asking, source: Source, leases: Sequence[Lease]) -> Stored:
    """The jobs of these leases, by id. Of a lease only what could be read is left."""
    rows = Stored()
    rows.update(source.read_ahead(leases))
    # Those of one task and those of several are read apart.
    plain = [lease for lease in leases if lease.task and lease.only_job is None]
    mixed = [lease for lease in leases if not lease.task and not _are_read(lease, rows)]
    if mixed and source.has_unread(mixed):
        # A key that has whole ranges to itself gets its jobs one by one, and not each by a question of its own.
        conversation.ask(lambda connection: source.read_on(connection, mixed))
        rows.update(source.read_ahead(mixed))
        mixed = [lease for lease in mixed if not _are_read(lease, rows)]
    if plain:
        rows.add(conversation.ask(lambda connection: read_jobs(connection, plain)))
    if mixed:
        rows.add(conversation.ask(lambda connection: read_jobs(connection, mixed, with_task=True)))
    if rows.unreadable:
        _set_aside(conversation, source, leases, rows)
    return rows


def _are_read(lease: Lease, rows: Stored) -> bool:
    base = lease.range * 1024
    return all(base + position in rows for position in lease.positions)


def _set_aside(conversation: Asking, source: Source, leases: Sequence[Lease], rows: Stored) -> None:
    partition_of = {lease.range: lease.partition_id for lease in leases}
    worker, name = conversation.holder
    try:
        conversation.ask(lambda connection: set_unread_aside(connection, worker, name, leases, rows))
    except DatabaseError as error:
        if not is_about_data(error):
            raise
        # They stay under their leases, and are set aside when they are rescued.
        log.exception("%d jobs can neither be read nor set aside", len(rows.unreadable))
    leave_unread_out(leases, rows)
    source.note_ends([(partition_of[job // 1024], job, "cancelled") for job in rows.unreadable], system.monotonic())
