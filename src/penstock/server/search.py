"""Search over HTTP: one field in which anything may be typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from penstock.model import SearchHit
from penstock.server.call import Call
from penstock.server.operation import Operations

__all__ = ["search"]

search = Operations()


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What is looked for, and how many hits at most."""

    q: Annotated[str, Meta(min_length=1, max_length=512)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


@dataclass(frozen=True, slots=True)
class Hits:
    """What was found, exact hits first."""

    hits: list[SearchHit]
    unavailable: list[str]


@search.add("GET", "/search", may="read", is_narrowed=True)
def search_everything(call: Call, query: SearchQuery) -> Hits:
    """Look for a text: a job's id, a part of the name of a queue, task, cron, load or worker, a key, a tag.

    Keys, idempotency keys and tags are given whole. A key is found where it is halted, or where one of the newest
    thousand jobs of a shard has it, a tag there only: `GET /jobs` looks further. A token for some queues finds what is
    theirs, a tenant's its jobs by their ids.
    """
    caller = call.caller
    found = call.app.search(query.q, query.limit, queues=caller.queues, tenant=caller.tenant)
    return Hits(found, call.unavailable())
