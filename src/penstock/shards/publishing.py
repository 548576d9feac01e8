"""Publishing a load: everywhere or nowhere, once for each name and batch, whoever dies in between.

Where all its stages lie on the shard that leads, that is one transaction. Where others have some:

    prepare   each of them checks its stages and keeps them: whatever can be refused is refused here
    decide    the shard that leads writes down which shards follow, and publishes what lies there, in one transaction
    publish   each shard publishes its share; nothing can refuse it any more, and upkeep goes on with what is left

What is prepared and was not decided is let go of by upkeep, which first sees to it that it cannot be decided any more.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence

from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.decided_loads import publish_decided
from penstock.shards.load_commit import SHORT_SECONDS, LoadCommit, NotDecided, Published, Stages
from penstock.shards.membership import read_shards
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.queries import query

__all__ = ["drop_stages", "find_published", "publish"]

_PAUSE_SECONDS = 0.05


def publish(
    databases: Databases,
    name: str,
    queue: str,
    batch: int,
    stages: Stages,
    *,
    is_stream: bool,
    homes: Sequence[int] | None = None,
    origin: str | None = None,
    bad_rows: int = 0,
    trace: Mapping[str, str] | None = None,
) -> Published:
    """Make stages visible, all of them or none, once.

    `homes` are the shards over which the queue's idempotency keys were spread when they were staged. `origin` tells one
    stream from another of the same name: their batches count from 0 both. `trace` is what `checked_trace` gives of
    the trace context of whoever loads. Raises `PartitionUnavailable` where a shard is away; where that is after the
    decision, it says so.
    """
    databases.read(lambda connection: find_queue(connection, queue))
    if any(number != databases.lead.shard for number in stages):
        # A shard checks its stages against its own catalogue, which has to be as new as the lead's.
        databases.level()
    clock = databases.lead.clock
    deadline = clock.monotonic() + databases.lead.request_timeout
    while True:
        commit = LoadCommit(
            databases,
            databases.lead,
            name,
            queue,
            batch,
            is_stream,
            origin,
            homes,
            stages,
            bad_rows,
            secrets.token_hex(16),
            trace,
        )
        try:
            decided = commit.decide()
            break
        except NotDecided as reason:
            commit.take_back()
            if clock.monotonic() > deadline:
                raise PartitionUnavailable(f"load {name!r} was not published: {reason}; run it again") from None
            _learn_lead(databases)
            clock.sleep(_PAUSE_SECONDS)
        except BaseException:
            commit.take_back()
            raise
    if not decided.is_new:
        commit.take_back()
    elif not commit.others:
        return decided
    publish_decided(databases, name)
    found = find_published(databases, name, queue, batch, is_stream=is_stream)
    assert found is not None  # noqa: S101
    return Published(decided.is_new, found.rows, found.duplicates, found.bad_rows, found.published_at)


class LoadNameTaken(InvalidInput):
    """The name belongs to another load: one of that queue."""

    def __init__(self, problem: str, queue: str) -> None:
        super().__init__("load", problem)
        self.queue = queue


def find_published(databases: Databases, name: str, queue: str, batch: int, *, is_stream: bool) -> Published | None:
    """What was decided before, if anything; `InvalidInput` where the name belongs to another kind of load."""
    answers = databases.each(
        lambda connection: connection.execute(query("find_batch"), {"name": name, "batch": batch}).fetchone()
    )
    if databases.lead.shard in answers.missing:
        raise answers.missing[databases.lead.shard]
    known = [row for row in answers if row is not None]
    for other, was_stream, *_ in known:
        if other != queue or was_stream != is_stream:
            kind = "a stream into" if was_stream else "a load into"
            raise LoadNameTaken(f"{name!r} names {kind} queue {other!r} already; choose another name", other)
    decided = [row[2:] for row in known if row[6] is not None]
    # Where the shard that decided is gone, those that followed it know their own share.
    chosen = [row for row in decided if row[0]] or decided
    if not chosen:
        return None
    rows, duplicates, bad_rows = (sum(row[column] for row in chosen) for column in (1, 2, 3))
    return Published(False, rows, duplicates, bad_rows, min(row[4] for row in chosen), chosen[0][5])


def drop_stages(databases: Databases, stages: Mapping[int, Sequence[str]]) -> None:
    """Forget stages that are not to be published; a shard that is away forgets them within a day."""
    for number, names in stages.items():
        with contextlib.suppress(PartitionUnavailable):
            databases.of(number).ask(
                lambda c: c.execute(query("drop_stages"), {"stages": list(names)}),  # noqa: B023
                timeout=SHORT_SECONDS,
            )


def _learn_lead(databases: Databases) -> None:
    databases.note_drained([entry.number for entry in databases.read(read_shards) if entry.state == "drained"])
