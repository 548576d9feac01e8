"""Publishing a load: everywhere or nowhere, once for each name and batch, whoever dies in between.

Where all its stages lie on the shard that leads, that is one transaction. Where others have some:

    prepare   each of them checks its stages and keeps them: whatever can be refused is refused here
    decide    the shard that leads writes down which shards follow, and publishes what lies there, in one transaction
    publish   each shard publishes its share; nothing can refuse it any more, and upkeep goes on with what is left

What is prepared and was not decided is let go of by upkeep, which first sees to it that it cannot be decided any more.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, QueueFull
from penstock.shards.databases import Databases
from penstock.shards.membership import read_shards
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import ConfigurationLimitExceeded, InvalidParameterValue

__all__ = [
    "MapChanged",
    "Published",
    "Stages",
    "drop_stages",
    "find_published",
    "publish",
    "publish_all_decided",
    "publish_decided",
]

log = logging.getLogger("penstock")

# By shard, in the order their jobs have: each stage with its ranges.
Stages = Mapping[int, Sequence[tuple[str, int]]]

# What the functions of loads raise; what is passing is tried again.
_STAGES_ARE_GONE = "PS002"
_KEYS_MOVED = "PS003"
_PASSING = frozenset({"PS004", "PS005", "55P03"})
# From preparing to deciding it takes milliseconds: whoever needs so long may be dead.
PREPARED_SECONDS = 60.0
# What upkeep, and whoever clears up behind itself, waits for a shard.
SHORT_SECONDS = 5.0
_PAUSE_SECONDS = 0.05


class MapChanged(PenstockError):
    """Rows were staged on shards to which their keys do not belong any more; nothing was published."""


@dataclass(frozen=True, slots=True)
class Published:
    """What was published under a name; `is_new`: just now, by this call."""

    is_new: bool
    rows: int
    duplicates: int
    bad_rows: int
    published_at: datetime
    origin: str | None = None


class _NotDecided(Exception):
    """Nothing was decided, for a reason that passes."""


class _Share(NamedTuple):
    """What another shard is to publish."""

    load: int
    batch: int
    shard: int
    attempt: str
    name: str
    queue: str
    is_stream: bool
    origin: str | None
    is_paused: bool


@dataclass(frozen=True, slots=True)
class _Commit:
    """One try to publish, under a name of its own."""

    databases: Databases
    lead: Database
    load: str
    queue: str
    batch: int
    is_stream: bool
    origin: str | None
    homes: Sequence[int] | None
    stages: Stages
    bad_rows: int
    attempt: str

    def decide(self) -> Published:
        """Prepare what lies elsewhere, then decide."""
        prepared = {number: self._prepare(number) for number in self.others}
        parameters = {
            "bad_rows": self.bad_rows,
            "shards": list(prepared),
            "rows": list(prepared.values()),
            **self._parameters(self.lead.shard),
        }
        return Published(*self._ask(self.lead, "publish_load", parameters))

    def take_back(self) -> None:
        """Let go of what is prepared, unless it was decided after all. What cannot be done now is left to upkeep."""
        if not self.others:
            return
        with contextlib.suppress(PartitionUnavailable):
            if self.lead.ask(lambda c: _abort(c, self.attempt), timeout=SHORT_SECONDS):
                for number in self.others:
                    with contextlib.suppress(PartitionUnavailable):
                        self.databases.of(number).ask(lambda c: _release(c, self.attempt), timeout=SHORT_SECONDS)

    @property
    def others(self) -> list[int]:
        """The other shards that have stages of it."""
        return sorted(number for number, stages in self.stages.items() if stages and number != self.lead.shard)

    def _prepare(self, number: int) -> int:
        parameters = {"home": self.lead.shard, **self._parameters(number)}
        return int(self._ask(self.databases.of(number), "prepare_stages", parameters)[0])

    def _parameters(self, shard: int) -> dict[str, Any]:
        stages = self.stages.get(shard, ())
        return {
            "name": self.load,
            "queue": self.queue,
            "batch": self.batch,
            "is_stream": self.is_stream,
            "origin": self.origin,
            "homes": None if self.homes is None else list(self.homes),
            "attempt": self.attempt,
            "stages": [stage for stage, _ in stages],
            "counts": [count for _, count in stages],
        }

    def _ask(self, database: Database, name: str, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        def ask(connection: Connection) -> tuple[Any, ...]:
            try:
                row = connection.execute(query(name), parameters).fetchone()
            except DatabaseError as error:
                raise self._explain_refusal(connection, error) from None
            assert row is not None  # noqa: S101
            return row

        return database.run(ask)

    def _explain_refusal(self, connection: Connection, error: DatabaseError) -> Exception:
        said = str(error.diag.message_primary)
        if isinstance(error, ConfigurationLimitExceeded):
            most = find_queue(connection, self.queue).rules.max_length
            return QueueFull(self.queue, most) if most is not None else PenstockError(said)
        if isinstance(error, InvalidParameterValue):
            return InvalidInput("sink" if self.is_stream else "load", said.partition("load: ")[2])
        if error.sqlstate == _STAGES_ARE_GONE:
            return PenstockError(
                f"load {self.load!r} was not published: part of what was staged for it is gone, since it lay for more "
                "than a day or was dropped; run the load again under the same name"
            )
        if error.sqlstate == _KEYS_MOVED:
            return MapChanged(f"load {self.load!r} was not published: {said}; run it again under the same name")
        return _NotDecided(said) if error.sqlstate in _PASSING else error


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
) -> Published:
    """Make stages visible, all of them or none, once.

    `homes` are the shards over which the queue's idempotency keys were spread when they were staged. `origin` tells one
    stream from another of the same name: their batches count from 0 both. Raises `PartitionUnavailable` where a shard
    is away; where that is after the decision, it says so.
    """
    databases.read(lambda connection: find_queue(connection, queue))
    if any(number != databases.lead.shard for number in stages):
        # A shard checks its stages against its own catalogue, which has to be as new as the lead's.
        databases.level()
    clock = databases.lead.clock
    deadline = clock.monotonic() + databases.lead.request_timeout
    while True:
        commit = _Commit(
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
        )
        try:
            decided = commit.decide()
            break
        except _NotDecided as reason:
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
            raise InvalidInput("load", f"{name!r} names {kind} queue {other!r} already; choose another name")
    decided = [row[2:] for row in known if row[6] is not None]
    # Where the shard that decided is gone, those that followed it know their own share.
    chosen = [row for row in decided if row[0]] or decided
    if not chosen:
        return None
    rows, duplicates, bad_rows = (sum(row[column] for row in chosen) for column in (1, 2, 3))
    return Published(False, rows, duplicates, bad_rows, min(row[4] for row in chosen), chosen[0][5])


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
            for attempt, number in database.ask(_read_old_prepared, timeout=SHORT_SECONDS):
                done += _release_undecided(databases, database, attempt, number)
    return done


def drop_stages(databases: Databases, stages: Mapping[int, Sequence[str]]) -> None:
    """Forget stages that are not to be published; a shard that is away forgets them within a day."""
    for number, names in stages.items():
        with contextlib.suppress(PartitionUnavailable):
            databases.of(number).ask(
                lambda c: c.execute(query("drop_stages"), {"stages": list(names)}),  # noqa: B023
                timeout=SHORT_SECONDS,
            )


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


def _release_undecided(databases: Databases, database: Database, attempt: str, number: int) -> bool:
    """Release what an attempt has prepared on a database, unless the shard that decides says that it was decided. While
    that shard does not answer, it stays prepared.
    """
    with contextlib.suppress(PartitionUnavailable):
        if databases.of(number).ask(lambda c: _abort(c, attempt), timeout=SHORT_SECONDS):
            database.ask(lambda c: _release(c, attempt), timeout=SHORT_SECONDS)
            return True
    return False


def _learn_lead(databases: Databases) -> None:
    databases.note_drained([entry.number for entry in databases.read(read_shards) if entry.state == "drained"])


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
    return [(attempt, decider) for attempt, decider in rows]


def _abort(connection: Connection, attempt: str) -> bool:
    row = connection.execute(query("abort_attempt"), {"attempt": attempt}).fetchone()
    return bool(row and row[0])


def _release(connection: Connection, attempt: str) -> None:
    connection.execute(query("release_stages"), {"attempt": attempt})
