"""Search over everything: a job by its id, and what has a name, a key or a tag. It costs the same at any backlog.

A key is found where it is halted, or where one of the newest thousand jobs of a shard has it; a tag only there. Others
are among the jobs, which have no index for either: `jobs` looks for them, filter by filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from penstock.admin.answers import ask_everywhere
from penstock.admin.jobs import job
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable
from penstock.model.checks import KEY_BYTES, checked_count, key_to_bytes, shown, storable_text
from penstock.model.job_filters import JobScope
from penstock.model.search_hit import HIT_KINDS, SearchHit
from penstock.shards.databases import Databases
from penstock.storage.inspect.search import search_names

__all__ = ["search"]

MOST_HITS = 100


def search(databases: Databases, text: str, limit: int, scope: JobScope | None = None) -> list[SearchHit]:
    """What is found, exact hits first. Of a scope for a tenant, a job by its id alone."""
    checked_count("limit", limit, most=MOST_HITS)
    text = _checked_text(text)
    found = _find_job(databases, text, scope)
    if scope is None or scope.tenant is None:
        queues = None if scope is None else scope.queues
        key = key_to_bytes(text)
        for each in ask_everywhere(databases, lambda c: search_names(c, text, key, limit, queues)):
            found += each
    part = text.lower()
    return sorted(_each_once(found), key=lambda hit: _rank(hit, part))[:limit]


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidInput("text", f"text is needed, not {shown(text)}")
    stripped = text.strip()
    if not stripped or len(stripped.encode(errors="surrogatepass")) > KEY_BYTES:
        raise InvalidInput("text", f"{shown(text)} cannot be looked for; give 1 to {KEY_BYTES} bytes")
    if storable_text(stripped) != stripped:
        raise InvalidInput("text", f"{shown(text)} has characters that nothing here has; leave them out")
    return stripped


def _find_job(databases: Databases, text: str, scope: JobScope | None) -> list[SearchHit]:
    if not (text.isascii() and text.isdecimal()):
        return []
    with suppress(InvalidInput, NotFound, PartitionUnavailable):
        found = job(databases, text, scope=scope)
        return [SearchHit(kind="job", name=found.task, queue=found.queue, id=found.id)]
    return []


def _each_once(found: Iterable[SearchHit]) -> list[SearchHit]:
    """Of what several shards tell, or one tells twice, each once, with the newest of the jobs."""
    known: dict[tuple[str, str, str | None], SearchHit] = {}
    for hit in found:
        key = hit.kind, hit.name, hit.queue
        if key not in known or (known[key].id or 0) < (hit.id or 0):
            known[key] = hit
    return list(known.values())


def _rank(hit: SearchHit, part: str) -> tuple[bool, int, int, int, str, str]:
    """All of the name before its beginning, that before the rest; what is of few kinds before what is of many."""
    name = hit.name.lower()
    is_exact = hit.kind == "job" or name == part
    return not is_exact, max(name.find(part), 0), HIT_KINDS.index(hit.kind), len(name), name, hit.queue or ""
