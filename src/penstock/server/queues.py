"""Queues over HTTP: to make, change and delete them, and to look at their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.admin.hot_keys import MOST_HOT_KEYS
from penstock.model import BlockedKey, History, HotKeys, Resize, Stats
from penstock.server.call import Call
from penstock.server.job_acts import Counted
from penstock.server.narrowing import queue_for, refuse_tenant
from penstock.server.operation import Answer, Operations
from penstock.server.values import given_fields

__all__ = ["MOST_LISTED", "LimitsRequest", "queues"]

MOST_LISTED = 1_000
Unset = UnsetType
queues = Operations()


class LimitsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a queue that are to be changed; null takes one away, and what is left out stays."""

    run: int | Unset | None = UNSET
    limit: int | Unset | None = UNSET
    total_limit: int | Unset | None = UNSET
    rate: str | Unset | None = UNSET
    total_rate: str | Unset | None = UNSET
    per_key_rate: str | Unset | None = UNSET
    weights: dict[str, float] | Unset | None = UNSET
    max_length: int | Unset | None = UNSET
    max_wait: float | Unset | None = UNSET


class QueueRequest(LimitsRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a queue. What is left out stays as it is, or is as usual in a new one; null takes a limit away."""

    partitions: int | Unset | None = UNSET
    order: Literal["key"] | Unset | None = UNSET
    per_key: int | Unset | None = UNSET
    fair_by: Literal["tenant"] | Unset | None = UNSET
    on_retry: Literal["hold", "pass"] | Unset | None = UNSET
    on_dead: Literal["continue", "halt"] | Unset | None = UNSET


class DeleteQuery(Struct, frozen=True, kw_only=True):
    """Whether the queue may have jobs, and whether it is only counted how many."""

    force: bool = False
    preview: bool = False


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """Of how many minutes; a day is kept."""

    minutes: Annotated[int, Meta(ge=1, le=1_440)] = 60


class HistoriesQuery(Struct, frozen=True, kw_only=True):
    """Of how many minutes, and of which queues; `queue` may be given several times."""

    minutes: Annotated[int, Meta(ge=1, le=60)] = 30
    queue: Annotated[list[str], Meta(max_length=MOST_LISTED)] = []


class NamesQuery(Struct, frozen=True, kw_only=True):
    """A part of a list that is in order of name."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = MOST_LISTED


class LimitQuery(Struct, frozen=True, kw_only=True):
    """How many at most."""

    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = MOST_LISTED


class BlockedKeysQuery(LimitQuery, frozen=True, kw_only=True):
    """Those that wait for a person (halted), for a retry (held), or both; and how many at most."""

    kind: Literal["halted", "held"] | None = None


class HotKeysQuery(Struct, frozen=True, kw_only=True):
    """How many keys at most."""

    limit: Annotated[int, Meta(ge=1, le=MOST_HOT_KEYS)] = 20


@dataclass(frozen=True, slots=True)
class Queues:
    """Queues with their figures, by name. Give `next` as `after` for those that come then."""

    queues: list[Stats]
    next: str | None


@dataclass(frozen=True, slots=True)
class Histories:
    """Queues with their minutes."""

    histories: list[History]


@dataclass(frozen=True, slots=True)
class BlockedKeys:
    """The keys that wait for a retry or a person, those that have waited longest first."""

    keys: list[BlockedKey]
    unavailable: list[str]


@queues.add("GET", "/queues", may="read", is_narrowed=True)
def list_queues(call: Call, query: NamesQuery) -> Queues:
    """Every queue, with its figures; of a token for some queues, these."""
    refuse_tenant(call.caller)
    mine = call.caller.queues
    names = sorted(name for name in call.app.queue_names() if mine is None or name in mine)
    later = [name for name in names if query.after is None or name > query.after]
    shown = later[: query.limit]
    found = sorted(call.app.queues(shown), key=lambda stats: stats.queue)
    return Queues(found, shown[-1] if len(later) > len(shown) else None)


@queues.add("PUT", "/queues/{queue}", may="admin", answers={200: Stats, 201: Stats})
def put_queue(call: Call, queue: str, body: QueueRequest) -> Answer:
    """Make a queue, or change one that there is.

    Limits hold at once, another number of `partitions` is a resize. What a queue keeps for its life, such as its order,
    is refused where it differs.
    """
    is_new = call.app.set_queue(queue, **given_fields(body))
    return Answer(call.app.stats(queue), 201 if is_new else 200)


@queues.add("DELETE", "/queues/{queue}", may="admin")
def delete_queue(call: Call, queue: str, query: DeleteQuery) -> Counted:
    """Delete a queue: how many of its jobs ended by that, or were asked to stop.

    Refused while it has jobs that have not ended, dead letters or a cron, unless it is forced.
    """
    ended = call.app.delete_queue(queue, force=query.force, preview=query.preview)
    return Counted(jobs=ended, preview=query.preview)


@queues.add("GET", "/queues/{queue}/stats", may="read")
def read_stats(call: Call, queue: str) -> Stats:
    """The figures of a queue and of each of its partitions, and its rules."""
    return call.app.stats(queue)


@queues.add("GET", "/queues/{queue}/resize", may="read")
def read_resize(call: Call, queue: str) -> Resize:
    """How far the last resize of a queue is, or move of a partition. It changes nothing."""
    return call.app.resize_progress(queue)


@queues.add("GET", "/queues/{queue}/history", may="read")
def read_history(call: Call, queue: str, query: HistoryQuery) -> History:
    """The figures of a queue minute by minute, as workers noted them."""
    return call.app.history(queue, query.minutes)


@queues.add("GET", "/history", may="read", is_narrowed=True)
def list_histories(call: Call, query: HistoriesQuery) -> Histories:
    """The figures of every queue minute by minute, or of each `queue` that is given."""
    refuse_tenant(call.caller)
    names = frozenset(query.queue) or None
    if call.caller.queues is not None:
        names = call.caller.queues if names is None else frozenset(queue_for(call.caller, name) for name in names)
    return Histories(call.app.histories(query.minutes, names))


@queues.add("GET", "/queues/{queue}/blocked-keys", may="read")
def list_blocked_keys(call: Call, queue: str, query: BlockedKeysQuery) -> BlockedKeys:
    """The keys of a queue that wait for the retry of one of their jobs, or for a person."""
    return BlockedKeys(call.app.blocked_keys(queue, kind=query.kind, limit=query.limit), call.unavailable())


@queues.add("GET", "/queues/{queue}/hot-keys", may="read")
def list_hot_keys(call: Call, queue: str, query: HotKeysQuery) -> HotKeys:
    """The keys that most of a queue's ready jobs are of; of a long queue estimated, from some thousand jobs."""
    return call.app.hot_keys(queue, query.limit)
