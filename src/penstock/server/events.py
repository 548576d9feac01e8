"""Events over HTTP, as a stream of server-sent events: what a page shows as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from penstock.errors import InvalidInput, NotFound, PenstockError
from penstock.model.checks import checked_run_at
from penstock.model.job_state import FINAL
from penstock.server.call import Call, EventStream
from penstock.server.feed import Stream, Wanted, dead_letter_event, event
from penstock.server.loads import read_load, unknown_load
from penstock.server.narrowing import job_for, queue_for, refuse_tenant
from penstock.server.operation import Operations

__all__ = ["events"]

MOST_NAMED = 100
LAST_EVENT = "Last-Event-ID"
events = Operations()


class EventsQuery(Struct, frozen=True, kw_only=True):
    """What to be told of: `queue` and `job` may be given several times."""

    queue: Annotated[list[str], Meta(max_length=MOST_NAMED)] = []
    dead_letters: bool = False
    job: Annotated[list[str], Meta(max_length=MOST_NAMED)] = []
    load: str | None = None


@events.add("GET", "/events", may="read", is_narrowed=True)
async def stream_events(call: Call, query: EventsQuery) -> EventStream:
    """Server-sent events, until the client goes or the server stops.

    `stats`: the figures of each `queue`, every second. `dead_letter`: one that has just become so, with `dead_letters`;
    of the queues that are given, or of all. `job`: a `job` that is given has ended. `load`: how far a load is, every
    second. Dead letters are told at least once: a client that comes again with `Last-Event-ID` is told those since. A
    comment comes every 15 s where nothing else does. A client that does not read is cut off.
    """
    refuse_tenant(call.caller)
    if not (query.queue or query.dead_letters or query.job or query.load):
        raise InvalidInput("queue", "nothing is asked for; give queue, dead_letters=true, job or load")
    wanted = await call.look(lambda: _wanted(call, query))
    since = _since(call)
    ids = list(dict.fromkeys([(await call.look(lambda: job_for(call, each))).id for each in query.job]))  # noqa: B023
    call.services.job_ends.check_room(len(ids))
    stream = await call.services.feed.open(wanted)
    watches = [asyncio.create_task(_tell_end(call, stream, id_)) for id_ in ids]

    def close() -> None:
        call.services.feed.close(stream)
        for watch in watches:
            watch.cancel()

    return EventStream(_events(call, stream, since), close)


def _wanted(call: Call, query: EventsQuery) -> Wanted:
    """What is wanted, of queues that there are, and that whoever asks may see."""
    caller = call.caller
    queues = frozenset(query.queue)
    if caller.queues is not None:
        queues = frozenset(queue_for(caller, name) for name in query.queue)
        if query.dead_letters and not queues:
            queues = caller.queues
    missing = queues.difference(call.app.queue_names()) if query.queue else ()
    if missing:
        raise NotFound(f"queue {min(missing)!r} does not exist: GET queues tells those that do")
    if query.load is not None:
        load = read_load(call, query.load)
        if caller.queues is not None and load.queue not in caller.queues:
            raise unknown_load(query.load)
    return Wanted(queues=queues, dead_letters=query.dead_letters, load=query.load, hides_args=caller.hides_args)


def _since(call: Call) -> datetime | None:
    given = call.headers.get(LAST_EVENT)
    if given is None:
        return None
    try:
        return checked_run_at(datetime.fromisoformat(given), LAST_EVENT)
    except ValueError:
        raise InvalidInput(LAST_EVENT, "it is not the id of an event of this stream; leave it out") from None


async def _events(call: Call, stream: Stream, since: datetime | None) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    if since is not None and stream.wanted.dead_letters:
        async for message in _told_since(call, stream.wanted, since):
            yield message
    async for message in stream.messages():
        yield message


async def _told_since(call: Call, wanted: Wanted, since: datetime) -> AsyncIterator[bytes]:
    found = await call.look(lambda: call.app.dead_letters({}, since))
    while True:
        for letter in found.found:
            if not wanted.queues or letter.queue in wanted.queues:
                yield dead_letter_event(letter, hides_args=wanted.hides_args)
        if found.is_all:
            return
        seen = found.seen
        found = await call.look(lambda: call.app.dead_letters(seen))  # noqa: B023


async def _tell_end(call: Call, stream: Stream, job_id: int) -> None:
    """Tell of a job when it has ended; one that is gone meanwhile is told of no more."""
    while not call.services.stopping.is_set():
        try:
            job = await call.look(lambda: job_for(call, job_id))
            if job.state in FINAL:
                stream.put(event("job", job))
                return
            await call.services.job_ends.wait(job_id, None)
        except NotFound:
            return
        except PenstockError:
            await asyncio.sleep(1)
