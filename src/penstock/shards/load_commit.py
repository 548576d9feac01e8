"""One try to publish a load: what other shards have of it is prepared, and then the lead decides.

Whatever can be refused is refused here. What was prepared and not decided is let go of: at once by whoever tried, else
by upkeep (penstock.shards.decided_loads), which first sees to it that it cannot be decided any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, QueueFull
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import ConfigurationLimitExceeded, InvalidParameterValue

__all__ = [
    "SHORT_SECONDS",
    "LoadCommit",
    "MapChanged",
    "NotDecided",
    "Published",
    "Stages",
    "abort_commit",
    "release_stages",
]

# By shard, in the order their jobs have: each stage with its ranges.
Stages = Mapping[int, Sequence[tuple[str, int]]]

# What the functions of loads raise; what is passing is tried again.
_STAGES_ARE_GONE = "PS002"
_KEYS_MOVED = "PS003"
_PASSING = frozenset({"PS004", "PS005", "55P03"})
# What upkeep, and whoever clears up behind itself, waits for a shard.
SHORT_SECONDS = 5.0


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


class NotDecided(Exception):
    """Nothing was decided, for a reason that passes."""


@dataclass(frozen=True, slots=True)
class LoadCommit:
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
    commit_name: str
    trace: Mapping[str, str] | None = None

    def decide(self) -> Published:
        """Prepare what lies elsewhere, then decide."""
        prepared = {number: self._prepare(number) for number in self.others}
        parameters = {
            "bad_rows": self.bad_rows,
            "shards": list(prepared),
            "rows": list(prepared.values()),
            "trace": msgspec.json.encode(self.trace).decode() if self.trace else None,
            **self._parameters(self.lead.shard),
        }
        return Published(*self._ask(self.lead, "publish_load", parameters))

    def take_back(self) -> None:
        """Let go of what is prepared, unless it was decided after all. What cannot be done now is left to upkeep."""
        if not self.others:
            return
        with contextlib.suppress(PartitionUnavailable):
            if self.lead.ask(lambda c: abort_commit(c, self.commit_name), timeout=SHORT_SECONDS):
                for number in self.others:
                    with contextlib.suppress(PartitionUnavailable):
                        self.databases.of(number).ask(
                            lambda c: release_stages(c, self.commit_name), timeout=SHORT_SECONDS
                        )

    @property
    def others(self) -> list[int]:
        """The other shards that have stages of it."""
        return sorted(number for number, stages in self.stages.items() if stages and number != self.lead.shard)

    def _prepare(self, number: int) -> int:
        parameters = {"decider": self.lead.shard, **self._parameters(number)}
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
            "commit_name": self.commit_name,
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
        return NotDecided(said) if error.sqlstate in _PASSING else error


def abort_commit(connection: Connection, commit_name: str) -> bool:
    """See to it that a commit is not decided any more; False where it was."""
    row = connection.execute(query("abort_commit"), {"commit_name": commit_name}).fetchone()
    return bool(row and row[0])


def release_stages(connection: Connection, commit_name: str) -> None:
    """Let go of what a commit has prepared on a shard."""
    connection.execute(query("release_stages"), {"commit_name": commit_name})
