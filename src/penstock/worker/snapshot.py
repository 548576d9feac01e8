"""How a worker stands at a moment, as far as it knows itself: what metrics and probes tell."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.worker.job_figures import TaskFigures

__all__ = ["DatabaseSnapshot", "WorkerSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSnapshot:
    """One database of a worker. `unready` says why it cannot claim there, None where it can; `stuck_seconds` for how
    long its thread has not turned, 0 while it does; `figures` are empty where nobody asked for them.
    """

    number: int
    unready: str | None
    stuck_seconds: float
    backlog: int
    leases_lost: int
    figures: tuple[TaskFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """A whole worker."""

    slots: int
    slots_used: int
    left_behind: int
    is_loop_blocked: bool
    processes: int
    rescued: int
    databases: tuple[DatabaseSnapshot, ...]
