"""Cron entries over HTTP: to look at them, to make, change and remove one, to pause, resume and run one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from msgspec import Struct

from penstock.errors import NotFound
from penstock.model import Cron
from penstock.model.checks import shown
from penstock.server.call import Call
from penstock.server.operation import Answer, Operations
from penstock.server.queues import NamesQuery
from penstock.server.values import Base64, key_of

__all__ = ["crons"]

crons = Operations()


class CronRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an entry enqueues, and when: the five fields of cron, or a word such as @daily, in a zone."""

    expression: str
    queue: str
    task: str
    args: dict[str, Any] = {}
    key: str | int | Base64 | None = None
    timezone: str = "UTC"


class Run(Struct, frozen=True, kw_only=True):
    """The job that was enqueued."""

    id: str


@dataclass(frozen=True, slots=True)
class Crons:
    """Entries by name. Give `next` as `after` for those that come then."""

    crons: list[Cron]
    next: str | None
    unavailable: list[str]


@crons.add("GET", "/crons", may="read")
def list_crons(call: Call, query: NamesQuery) -> Crons:
    """Every cron entry."""
    found = sorted(call.app.crons(), key=lambda cron: cron.name)
    later = [cron for cron in found if query.after is None or cron.name > query.after]
    page = later[: query.limit]
    further = page[-1].name if len(later) > len(page) else None
    return Crons([_shown(call, cron) for cron in page], further, call.unavailable())


@crons.add("PUT", "/crons/{name}", may="admin", answers={200: Cron, 201: Cron})
def put_cron(call: Call, name: str, body: CronRequest) -> Answer:
    """Make a cron entry, or change one that there is; it stays paused where it was."""
    is_new = call.app.set_cron(
        name,
        body.expression,
        body.queue,
        body.task,
        args=body.args,
        key=key_of("key", body.key),
        timezone=body.timezone,
    )
    return Answer(_find(call, name), 201 if is_new else 200)


@crons.add("DELETE", "/crons/{name}", may="admin", status=204)
def delete_cron(call: Call, name: str) -> None:
    """Delete an entry; one that an app still declares comes back with its next start."""
    call.app.remove_cron(name)


@crons.add("POST", "/crons/{name}/pause", may="admin")
def pause_cron(call: Call, name: str) -> Cron:
    """Fire an entry no more, until it is resumed."""
    call.app.pause_cron(name)
    return _find(call, name)


@crons.add("POST", "/crons/{name}/resume", may="admin")
def resume_cron(call: Call, name: str) -> Cron:
    """Fire an entry again, from its next instant on."""
    call.app.resume_cron(name)
    return _find(call, name)


@crons.add("POST", "/crons/{name}/run", may="admin", status=201)
def run_cron(call: Call, name: str) -> Run:
    """Enqueue an entry's job now, out of turn."""
    return Run(id=str(call.app.run_cron(name)))


def _find(call: Call, name: str) -> Cron:
    found = next((cron for cron in call.app.crons() if cron.name == name), None)
    if found is None:
        raise NotFound(f"cron {shown(name)} was removed just now: GET crons tells those there are")
    return _shown(call, found)


def _shown(call: Call, cron: Cron) -> Cron:
    return replace(cron, args=cast("Any", None)) if call.caller.hides_args else cron
