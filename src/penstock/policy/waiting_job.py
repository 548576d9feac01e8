"""What the owner of a partition has to know of a job that waits there."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["WaitingJob"]


class WaitingJob(NamedTuple):
    """A job as `ready` has it.

    The least rank starts first: when it became ready, in seconds, and a minute more for each priority. Within a key
    and a priority it is (pos, id) that counts. `is_known`: there is a handler for it here; where that is given several
    jobs together, twice the number of the task is added.
    """

    id: int
    key: bytes | None
    priority: int
    pos: int
    rank: float
    tenant: str
    epoch: int
    is_known: int
