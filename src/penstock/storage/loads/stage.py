"""Writing stages: jobs in bulk, from Arrow tables, where nobody can claim them until they are published.

Each call is one short transaction on a connection of its own: it draws range numbers, copies the jobs, and notes the
ranges under the stage's name. The writers of a load share a few connections, so that a hundred Spark tasks do not
become a hundred connections: whoever finds them all taken waits. It uses Arrow's own driver, which copies columns
without making a Python object of each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.clock import Clock, system
from penstock.errors import PartitionUnavailable, PenstockError
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import split_schema
from penstock.storage.connection.urls import utf8_conninfo
from penstock.storage.enqueue.job_group import RANGE

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Stage", "StagedRange"]

CONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StagedRange:
    """The jobs of one range: how many, and what they have in common."""

    size: int
    partition_id: int
    priority: int
    task: str
    run_at: datetime | None
    has_idempotency_keys: bool
    epoch: int | None


class Stage:
    """What one task writes. `load` names the load whose writers share so many `connections`."""

    def __init__(
        self, url: str, name: str, load: str, connections: int, clock: Clock = system, shard: int | None = None
    ) -> None:
        self._url = url
        self._schema = split_schema(url).schema
        self._shard = shard
        self._name = name
        self._load = load
        self._connections = connections
        self._clock = clock

    def write(self, jobs: pa.Table, ranges: Sequence[StagedRange]) -> None:
        """Write jobs, which follow each other range by range; their ids and times are given here.

        Where the answer to its COMMIT is lost it raises, and need not find out whether the jobs were written: when
        Spark runs the task again, it writes under another random stage. What lies under this one is never published
        then, and upkeep forgets it after a day.
        """
        with closing(self._enter()) as connection, closing(connection.cursor()) as cursor:
            try:
                cursor.execute(query("draw_staged_ranges", self._schema), (len(ranges),))
                numbers = cursor.fetch_arrow_table().column("range").to_pylist()
                cursor.execute(query("stage_time", self._schema))
                cursor.adbc_ingest(
                    "job",
                    _number_jobs(jobs, ranges, numbers, cursor.fetchone()[0]),
                    "append",
                    db_schema_name=self._schema,
                )
                noted = [{"range": number, **asdict(each)} for number, each in zip(numbers, ranges, strict=True)]
                cursor.execute(query("stage_ranges", self._schema), (self._name, msgspec.json.encode(noted).decode()))
                connection.commit()
            except Exception as error:
                raise PenstockError(f"jobs could not be staged: {_describe(error)}") from None

    def _enter(self) -> Any:
        """One of the load's connections, in a transaction that keeps it; where all are taken, wait without one."""
        import adbc_driver_postgresql.dbapi as driver

        deadline = self._clock.monotonic() + CONNECT_SECONDS
        pause = 0.02
        while True:
            connection = None
            try:
                connection = driver.connect(utf8_conninfo(self._url))
                with closing(connection.cursor()) as cursor:
                    cursor.execute(query("enter_stage", self._schema), (self._load, self._connections))
                    is_entered = cursor.fetchone()[0]
            except driver.Error as error:
                # Nothing is written yet: a session that is lost here costs a moment.
                _close(connection)
                if connection is not None and not isinstance(error, driver.OperationalError):
                    raise PenstockError(f"jobs could not be staged: {_describe(error)}") from None
                if self._clock.monotonic() >= deadline:
                    which = "the database" if self._shard is None else f"shard {self._shard}"
                    raise PartitionUnavailable(
                        f"{which} does not answer: {_describe(error)}", shard=self._shard
                    ) from None
            else:
                if is_entered:
                    return connection
                connection.close()
                deadline = self._clock.monotonic() + CONNECT_SECONDS
            self._clock.sleep(pause)
            pause = min(pause * 2, 0.25)


def _close(connection: Any) -> None:
    if connection is not None:
        with suppress(Exception):
            connection.close()


def _number_jobs(jobs: pa.Table, ranges: Sequence[StagedRange], numbers: Sequence[int], at: datetime) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    sizes = np.array([each.size for each in ranges])
    ends = np.cumsum(sizes)
    positions = np.arange(jobs.num_rows) - np.repeat(ends - sizes, sizes)
    ids = np.repeat(np.array(numbers, dtype=np.int64) * RANGE, sizes) + positions
    ats = pa.repeat(pa.scalar(at, pa.timestamp("us", tz="UTC")), jobs.num_rows)
    return jobs.append_column("id", pa.array(ids, pa.int64())).append_column("enqueued_at", ats)


def _describe(error: BaseException) -> str:
    """The first line of what the driver says, without the statement it goes on to quote."""
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__
