"""Jobs that are set aside: what cannot be read, or whose end cannot be written, costs itself and nothing else.

It is parked in `ready` with a reason, told by the log, the doctor and `explain`, and waits for a person, who lets it
back in (`retry`) when it is repaired, or cancels it. It is no dead letter: those need their row to run again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from penstock.log_records import log_about
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.work.leases import Lease, Stored
from penstock.storage.work.settle import End

__all__ = ["leave_unread_out", "set_aside", "set_ends_aside", "set_unread_aside"]

log = logging.getLogger("penstock")


def set_aside(connection: Connection, reasons: Mapping[int, str]) -> list[int]:
    """Set jobs aside that are ready; those that were."""
    parameters = {"jobs": array_text(reasons), "reasons": list(reasons.values())}
    aside = [row[0] for row in connection.execute(query("set_aside"), parameters).fetchall()]
    for job in aside:
        log_about(
            {"job_id": job},
            logging.ERROR,
            "job %d was set aside: %s. Repair and retry it, or cancel it",
            job,
            reasons[job],
        )
    return aside


def set_ends_aside(connection: Connection, worker: int, name: str, ends: Sequence[End], reasons: Sequence[str]) -> None:
    """Set jobs aside that a worker holds, instead of ending them: nobody can claim them in between."""
    back = [End(end.lease, end.token, end.position, end.range, "release") for end in ends]
    parameters = {"worker": worker, "name": name, "ends": msgspec.json.encode(back).decode()}
    with connection.transaction():
        not_held = set(connection.execute(query("settle_ended_if_leased"), parameters).fetchall())
        held = [(end, why) for end, why in zip(ends, reasons, strict=True) if (end.lease, end.position) not in not_held]
        set_aside(connection, {end.range * 1024 + end.position: why for end, why in held})


def set_unread_aside(connection: Connection, worker: int, name: str, leases: Sequence[Lease], stored: Stored) -> None:
    """Set those jobs of new leases aside that could not be read."""
    ends = [
        End(lease.id, lease.token, position, lease.range, "release")
        for lease in leases
        for position in lease.positions
        if lease.range * 1024 + position in stored.unreadable
    ]
    reasons = [stored.unreadable[end.range * 1024 + end.position] for end in ends]
    set_ends_aside(connection, worker, name, ends, reasons)


def leave_unread_out(leases: Sequence[Lease], stored: Stored) -> None:
    """Let leases go on without the jobs that could not be read."""
    for lease in leases:
        left = {position for position in lease.positions if lease.range * 1024 + position not in stored.unreadable}
        if len(left) < len(lease.positions):
            lease.keep_only(left)
