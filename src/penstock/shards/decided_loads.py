"""What follows a decision about a load, and what is left where there was none.

Each shard publishes its share of what was decided; nothing can refuse it any more. Whoever decided sees to that, and
upkeep goes on with what is left. Upkeep also lets go of what was prepared and never decided.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.load_commit import SHORT_SECONDS, abort_commit, release_stages
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.connection.queries import query

__all__ = ["publish_all_decided", "publish_decided"]

log = logging.getLogger("penstock")

# From preparing to deciding it takes milliseconds: whoever needs so long may be dead.
PREPARED_SECONDS = 60.0


class _Share(NamedTuple):
    """What another shard is to publish."""

    load: int
    batch: int
    shard: int
    commit_name: str
    name: str
    queue: str
    is_stream: bool
    origin: str | None
    is_paused: bool
    # As JSON.
    trace: str | None


def publish_decided(databases: Databases, name: str, *, waits: bool = True) -> None:
    """Publish what was decided of a load on every shard; `PartitionUnavailable` where one is away."""
    for decider in databases:
        try:
            missing = _publish_shares(decider, databases, name, waits=waits).missing
        except PartitionUnavailable:
            # Only the lead decides. Another shard may have decided something while it led: it is asked if it answers.
            if decider is databases.lead:
                raise
            continue
        for shard, error in missing.items():
            raise PartitionUnavailable(
                f"load {name!r} is decided, and what lies on shard {shard} becomes visible when that is back: {error}",
                shard=shard,
            )


def publish_all_decided(databases: Databases) -> int:
    """Publish every load that was decided, and release stages that nobody will decide about; how many of both.

    Safe in any number of workers at once; a shard that is away is passed over.
    """
    done = 0
    for database in databases:
        with contextlib.suppress(PartitionUnavailable):
            done += _publish_shares(database, databases).done
            for commit_name, number in database.ask(_read_old_prepared, timeout=SHORT_SECONDS):
                done += _release_undecided(databases, database, commit_name, number)
    return done


@dataclass(slots=True)
class _Progress:
    """How many shares were published, and the shards that were away."""

    done: int = 0
    missing: dict[int, PartitionUnavailable] = field(default_factory=dict)


def _publish_shares(
    decider: Database, databases: Databases, name: str | None = None, *, waits: bool = False
) -> _Progress:
    """Publish what was decided at a shard and follows on others, of one load or of all."""
    progress = _Progress()
    timeout = None if waits else SHORT_SECONDS
    for share in decider.ask(lambda c: _read_unpublished(c, name), timeout=timeout):
        if share.shard in progress.missing:
            continue
        try:
            rows, duplicates = databases.of(share.shard).run(
                lambda c: _publish_share(c, share),  # noqa: B023
                timeout=timeout,
                waits=waits,
            )
        except PartitionUnavailable as error:
            progress.missing[share.shard] = error
            continue
        except DatabaseError as error:
            if name is not None:
                raise
            log.error("load %r: shard %d refuses what was decided: %s", share.name, share.shard, error)
            continue
        decider.ask(lambda c: _note_published(c, share, rows, duplicates), timeout=timeout)  # noqa: B023
        progress.done += 1
    return progress


def _release_undecided(databases: Databases, database: Database, commit_name: str, number: int) -> bool:
    """Release what a commit has prepared on a database, unless the shard that decides says that it was decided. While
    that shard does not answer, it stays prepared.
    """
    with contextlib.suppress(PartitionUnavailable):
        if databases.of(number).ask(lambda c: abort_commit(c, commit_name), timeout=SHORT_SECONDS):
            database.ask(lambda c: release_stages(c, commit_name), timeout=SHORT_SECONDS)
            return True
    return False


def _read_unpublished(connection: Connection, name: str | None) -> list[_Share]:
    return [_Share(*row) for row in connection.execute(query("unpublished_shares"), {"name": name})]


def _publish_share(connection: Connection, share: _Share) -> tuple[int, int]:
    row = connection.execute(query("publish_share"), share._asdict()).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def _note_published(connection: Connection, share: _Share, rows: int, duplicates: int) -> None:
    connection.execute(query("note_published"), {**share._asdict(), "rows": rows, "duplicates": duplicates})


def _read_old_prepared(connection: Connection) -> list[tuple[str, int]]:
    rows = connection.execute(query("old_prepared_stages"), {"seconds": PREPARED_SECONDS}).fetchall()
    return [(commit_name, decider) for commit_name, decider in rows]
