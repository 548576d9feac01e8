"""Loads over HTTP: how far they are, and to pause, resume or cancel one as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from penstock.errors import NotFound
from penstock.model import Load
from penstock.model.checks import shown
from penstock.server.call import Call
from penstock.server.job_acts import CancelRequest
from penstock.server.operation import Operations
from penstock.server.queues import LimitQuery

__all__ = ["loads", "read_load", "unknown_load"]

loads = Operations()


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads, the newest first."""

    loads: list[Load]
    unavailable: list[str]


class CancelLoadRequest(CancelRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `reason` is kept as the jobs' error. With `preview` nothing is changed."""

    preview: bool = False


class CancelledLoad(Struct, frozen=True, kw_only=True):
    """How many jobs of a load ended; with `preview` how many it would be."""

    name: str
    jobs: int
    preview: bool


@loads.add("GET", "/loads", may="read")
def list_loads(call: Call, query: LimitQuery) -> Loads:
    """The newest loads, and how far their jobs are."""
    return Loads(call.app.loads(query.limit), call.unavailable())


@loads.add("GET", "/loads/{name}", may="read")
def read_load(call: Call, name: str) -> Load:
    """One load, and how far its jobs are."""
    found = call.app.loads(names=[name])
    if not found:
        raise unknown_load(name)
    return found[0]


@loads.add("POST", "/loads/{name}/pause", may="admin")
def pause_load(call: Call, name: str) -> Load:
    """Start none of a load's waiting jobs until it is resumed; what runs goes on."""
    call.app.pause_load(name)
    return read_load(call, name)


@loads.add("POST", "/loads/{name}/resume", may="admin")
def resume_load(call: Call, name: str) -> Load:
    """Let a load's jobs come back, behind what is ready by now."""
    call.app.resume_load(name)
    return read_load(call, name)


@loads.add("POST", "/loads/{name}/cancel", may="admin")
def cancel_load(call: Call, name: str, body: CancelLoadRequest) -> CancelledLoad:
    """End every job of a load that has not started, and ask the others to stop. None starts any more."""
    jobs = call.app.cancel_load(name, preview=body.preview, reason=body.reason)
    return CancelledLoad(name=name, jobs=jobs, preview=body.preview)


def unknown_load(name: str) -> NotFound:
    """There is none of that name, or whoever asks may not know of it."""
    return NotFound(f"load {shown(name)} does not exist: GET loads tells the newest")
